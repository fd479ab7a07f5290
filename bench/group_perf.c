/* Measures how fast the calls of process groups are on this machine.
 *
 *     group_perf [-n RANKS] [-b BYTES] [-e BYTES] [-c CALL] [-t SECONDS]
 *
 * For each call and each size from -b to -e, each four times the last, it prints the microseconds
 * of a call: the median over the calls of -t seconds, on the slowest rank. BYTES is the size of the
 * larger tensor of a rank. Barriers run first, until the ranks have settled on their cores, and
 * results are checked before calls are timed. bench/torch_group.py times the same calls in
 * PyTorch's gloo and prints the same columns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/comm.h"
#include "comm/launch.h"
#include "group/group.h"

static const struct {
    const char *name;
    enum collective what;
    int parts, stacks; /* 1: the input (parts) or output (stacks) has a block for each rank */
} calls[] = {
    {"all_reduce", COLLECTIVE_ALL_REDUCE, 0, 0},
    {"broadcast", COLLECTIVE_BROADCAST, 0, 0},
    {"reduce", COLLECTIVE_REDUCE, 0, 0},
    {"all_gather", COLLECTIVE_ALL_GATHER, 0, 1},
    {"reduce_scatter", COLLECTIVE_REDUCE_SCATTER, 1, 0},
    {"all_to_all", COLLECTIVE_ALL_TO_ALL, 1, 1},
    {"gather", COLLECTIVE_GATHER, 0, 1},
    {"scatter", COLLECTIVE_SCATTER, 1, 0},
    {"send_recv", COLLECTIVE_SEND, 0, 0}, /* rank 0 to rank 1 and back: half of the time */
    {"barrier", COLLECTIVE_BARRIER, 0, 0},
};
enum { CALLS = sizeof calls / sizeof *calls, LEAST_TIMES = 5, MOST_TIMES = 2000 };

struct options {
    int n;
    size_t from, to;
    double seconds;
    const char *call;
};

static int by_time(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int make_call(struct group *g, struct group_call call) {
    if (call.what != COLLECTIVE_SEND) return group_run(g, &call, NULL);
    int rank = group_rank(g);
    if (rank > 1) return OK;
    call.peer = 1 - rank;
    for (int turn = 0; turn < 2; turn++) {
        call.receive = rank != turn;
        CHECK(group_run(g, &call, NULL));
    }
    return OK;
}

enum { PERIOD = 16 };

/* Element i of a rank's input; bench/torch_group.py has the same. */
static float value(int rank, size_t i) {
    return (float)(1 + (3 * (size_t)rank + i) % PERIOD);
}

static float sum(int n, size_t i) {
    float all = 0;
    for (int r = 0; r < n; r++)
        all += value(r, i);
    return all;
}

/* Element i of what `rank` gets; `count` elements in a block. 0: nothing. */
static float expected(int k, int n, int rank, size_t count, size_t i) {
    size_t block = count ? i / count : 0, mine = (size_t)rank * count;
    switch (calls[k].what) {
    case COLLECTIVE_ALL_REDUCE: return sum(n, i);
    case COLLECTIVE_BROADCAST: return rank ? value(0, i) : 0;
    case COLLECTIVE_REDUCE: return rank ? 0 : sum(n, i);
    case COLLECTIVE_ALL_GATHER: return value((int)block, i % count);
    case COLLECTIVE_REDUCE_SCATTER: return sum(n, mine + i);
    case COLLECTIVE_ALL_TO_ALL: return value((int)block, mine + i % count);
    case COLLECTIVE_GATHER: return rank ? 0 : value((int)block, i % count);
    case COLLECTIVE_SCATTER: return value(0, mine + i);
    case COLLECTIVE_SEND: return rank < 2 ? value(1 - rank, i) : 0;
    default: return 0;
    }
}

static int check(struct group *g, int k, const struct group_call *call, size_t count) {
    const float *out = call->output;
    int n = group_size(g), rank = group_rank(g);
    float want[PERIOD];
    if (calls[k].what == COLLECTIVE_BARRIER) return OK;
    for (int block = 0; block < (calls[k].stacks ? n : 1); block++, out += count)
        for (size_t i = 0; i < count; i++) {
            if (i < PERIOD) want[i] = expected(k, n, rank, count, (size_t)block * count + i);
            if (out[i] != want[i % PERIOD])
                return fail(ERR_CHECK, "%s of %zu: rank %d: element %zu of block %d is %g, not %g",
                            calls[k].name, count, rank, i, block, (double)out[i],
                            (double)want[i % PERIOD]);
        }
    return OK;
}

/* The largest of all ranks' numbers. */
static int largest(struct group *g, double *x) {
    struct group_call call = {.what = COLLECTIVE_ALL_REDUCE,
                              .count = 1,
                              .how = {DTYPE_F64, ELEMENT_MAX},
                              .input = x,
                              .output = x};
    return group_run(g, &call, NULL);
}

static int time_once(struct group *g, struct group_call call, double *us) {
    int64_t start = now_ns();
    int code = make_call(g, call);
    *us = (double)(now_ns() - start) * 1e-3;
    return code;
}

/* The median of a call's time in microseconds, of the slowest rank. */
static int time_call(struct group *g, int k, size_t bytes, float *in, float *out, double seconds,
                     double *us) {
    static double times[MOST_TIMES];
    int n = group_size(g), wide = calls[k].parts || calls[k].stacks, most = MOST_TIMES;
    size_t count = bytes / sizeof(float) / (wide ? (size_t)n : 1);
    struct group_call call = {.what = calls[k].what, .count = count, .input = in, .output = out};
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        in[i] = value(group_rank(g), i);
        out[i] = 0;
    }
    CHECK(make_call(g, call));
    CHECK(check(g, k, &call, count));
    CHECK(time_once(g, call, us)); /* decides how many calls there is time for */
    CHECK(largest(g, us));
    if (*us * most > seconds * 1e6) most = (int)(seconds * 1e6 / *us);
    if (most < LEAST_TIMES) most = LEAST_TIMES;
    for (int i = 0; i < most; i++)
        CHECK(time_once(g, call, &times[i]));
    qsort(times, (size_t)most, sizeof *times, by_time);
    *us = times[most / 2] / (calls[k].what == COLLECTIVE_SEND ? 2 : 1);
    return largest(g, us);
}

static int rank_main(void *context) {
    const struct options *o = context;
    struct group *g;
    float *in = malloc(o->to + 4), *out = malloc(o->to + 4);
    int code = in && out ? group_open(&g, 60) : fail(ERR_MEMORY, "out of host memory");
    double warm;
    if (!code) code = time_call(g, CALLS - 1, 4, in, out, o->seconds, &warm);
    for (int k = 0; k < CALLS && !code; k++)
        for (size_t bytes = o->from; bytes <= o->to && !code; bytes *= 4) {
            double us = 0;
            if (o->call && strcmp(o->call, calls[k].name)) break;
            code = time_call(g, k, bytes, in, out, o->seconds, &us);
            if (!code && group_rank(g) == 0)
                printf("%-15s %3d %12zu %12.2f\n", calls[k].name, o->n, bytes, us);
            if (calls[k].what == COLLECTIVE_BARRIER) break;
        }
    if (code) fprintf(stderr, "group_perf: %s\n", error_message());
    if (in && out) group_close(g);
    free(in);
    free(out);
    return error_exit_status(code);
}

int main(int argc, char **argv) {
    struct options o = {.n = 2, .from = 4, .to = 16 << 20, .seconds = 0.2};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "-n")) o.n = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "-b")) o.from = (size_t)atol(argv[i + 1]);
        if (!strcmp(argv[i], "-e")) o.to = (size_t)atol(argv[i + 1]);
        if (!strcmp(argv[i], "-t")) o.seconds = atof(argv[i + 1]);
        if (!strcmp(argv[i], "-c")) o.call = argv[i + 1];
    }
    struct launch launch = {.world_size = o.n, .entry = rank_main, .context = &o};
    struct launch_result result;
    printf("%-15s %3s %12s %12s\n", "call", "n", "bytes", "us");
    if (launch_ranks(&launch, &result)) fprintf(stderr, "group_perf: %s\n", error_message());
    return result.exit_status;
}
