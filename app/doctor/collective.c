/* Checks allreduce over ranks as DDP runs it: processes map each other's memory, and calls run on
 * the communication stream. Every algorithm over 2 and over 4 ranks is compared with a sum in its
 * own order (allreduce/order.c), which every rank computes in one thread from all ranks' data. The
 * results must be equal bit for bit. The check's process launches the ranks and opens no device: it
 * must fork ranks before anything has called CUDA.
 *
 * The calls of a trial work on ranges of one buffer with gaps between them. All calls are enqueued
 * before the check waits; a second round runs them again on the results. The gaps must keep their
 * values. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "allreduce/allreduce.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "comm/launch.h"
#include "doctor/check.h"

enum { ROUNDS = 2, MOST_RANKS = 4 };

/* Starts and lengths that are not multiples of 16 bytes, of a slice, or of a chunk per rank. */
static const struct call {
    size_t offset, count;
} calls[] = {{3, 1}, {8, 5}, {17, 1021}, {1100, 65537}, {66641, 300007}};
enum { CALLS = sizeof calls / sizeof *calls, LENGTH = 66641 + 300007 + 9 };

/* What one rank found out about one algorithm. */
struct rank_finding {
    int done; /* 1: the fields below are written */
    enum finding_state state;
    char text[200]; /* what was measured, or what went wrong */
};

/* In memory that the check shares with its ranks. Each rank writes only its own entries. */
struct rank_task {
    struct doctor_config config;
    enum device_kind kind;
    int devices, gpus;
    int first; /* the algorithm to start with: earlier ranks have tested those before it */
    struct rank_finding found[ALLREDUCE_ALGORITHM_COUNT][MAX_DEVICES];
};

struct testbed {
    struct doctor *d;
    struct rank_task *task;
    int n, rank; /* world size and number of this rank */
    int calls;   /* how many of `calls` a round makes */
    int exact;   /* 1: the current algorithm must be equal to the bit */
    int rounds;  /* rounds of the current algorithm */
    struct device *device;
    float *data;             /* [LENGTH] device memory */
    float *want[MOST_RANKS]; /* [LENGTH] host memory: every rank's buffer, as it should be */
    float *got;              /* [LENGTH] pinned host memory: this rank's result */
};

static int open_testbed(struct testbed *bed) {
    CHECK(doctor_open(bed->d, bed->rank, (uint64_t)LENGTH * sizeof(float) + (32 << 20), 0,
                      &bed->device));
    CHECK(device_alloc(bed->device, (void **)&bed->data, LENGTH * sizeof(float), MEM_GRADS));
    CHECK(device_host_alloc(bed->device, (void **)&bed->got, LENGTH * sizeof(float)));
    for (int r = 0; r < bed->n; r++)
        if (!(bed->want[r] = malloc(LENGTH * sizeof(float))))
            return fail(ERR_MEMORY,
                        "doctor: out of host memory for the data of %d ranks: free some memory",
                        bed->n);
    return OK;
}

static int fill(struct testbed *bed, enum allreduce_algorithm algorithm) {
    struct stream *stream = device_comm(bed->device);
    struct rng rng;
    for (int r = 0; r < bed->n; r++) {
        rng_seed(&rng, bed->d->config.seed + 100 * (uint64_t)algorithm + (uint64_t)r);
        rng_uniform(&rng, bed->want[r], LENGTH, -1, 1);
    }
    memcpy(bed->got, bed->want[bed->rank], LENGTH * sizeof(float));
    CHECK(copy_to_device(stream, bed->data, bed->got, LENGTH * sizeof(float)));
    return stream_sync(stream);
}

static int run(struct testbed *bed, struct allreduce *ar, double *ms) {
    struct stream *stream = device_comm(bed->device);
    int64_t start = now_ns();
    for (int round = 0; round < bed->rounds; round++)
        for (int i = 0; i < bed->calls; i++)
            CHECK(allreduce_enqueue(ar, stream, bed->data + calls[i].offset, calls[i].count,
                                    1.0f / (float)bed->n, i, round));
    CHECK(stream_sync(stream));
    *ms = (double)(now_ns() - start) * 1e-6;
    memset(bed->got, 0xff, LENGTH * sizeof(float));
    CHECK(copy_to_host(stream, bed->got, bed->data, LENGTH * sizeof(float)));
    return stream_sync(stream);
}

/* One element of all ranks: the terms, each scaled and rounded, added in this order. */
static void add_up(struct testbed *bed, const struct sum_order *order, size_t at) {
    float term[MOST_RANKS];
    for (int r = 0; r < bed->n; r++)
        term[r] = bed->want[r][at] * (1.0f / (float)bed->n);
    for (int k = 0; k + 1 < bed->n; k++)
        term[order->add[k].to] += term[order->add[k].from];
    for (int r = 0; r < bed->n; r++)
        bed->want[r][at] = term[0];
}

/* A library's order is not known: it is compared with the fold order. */
static int run_reference(struct testbed *bed, enum allreduce_algorithm algorithm) {
    const int in_fold_order = !bed->exact || allreduce_keeps_order(algorithm);
    for (int i = 0; i < bed->rounds * bed->calls; i++) {
        const struct call *call = &calls[i % bed->calls];
        struct sum_piece piece = {0, call->count, fold_order(bed->n)};
        for (size_t at = 0; at < call->count; at += piece.count) {
            if (!in_fold_order) CHECK(plan_order(algorithm, bed->n, call->count, at, &piece));
            for (size_t k = at; k < at + piece.count; k++)
                add_up(bed, &piece.order, call->offset + k);
        }
    }
    return OK;
}

/* Records what this rank found out. */
__attribute__((format(printf, 4, 5))) static void rank_note(struct testbed *bed,
                                                            enum allreduce_algorithm algorithm,
                                                            enum finding_state state,
                                                            const char *format, ...) {
    struct rank_finding *finding = &bed->task->found[algorithm][bed->rank];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->text, sizeof finding->text, format, arguments);
    va_end(arguments);
    finding->state = state;
    finding->done = 1;
}

/* n terms of at most 1 / n each: a sum in any order is off by at most n + 1 roundings of 1. */
static double allowed(const struct testbed *bed) {
    return bed->exact ? 0 : (bed->n + 1) * 0x1p-24;
}

static void judge(struct testbed *bed, enum allreduce_algorithm algorithm, const char *executor,
                  double ms) {
    const float *want = bed->want[bed->rank];
    size_t wrong = 0, first = 0;
    double most = 0;
    for (size_t i = 0; i < LENGTH; i++) {
        if (!memcmp(&bed->got[i], &want[i], sizeof *want)) continue;
        double off = fabs((double)bed->got[i] - (double)want[i]);
        if (off > most) most = off;
        if (!(off <= allowed(bed)) && wrong++ == 0) first = i;
    }
    if (wrong)
        rank_note(bed, algorithm, FINDING_OFF,
                  "rank %d: %zu of %d elements differ, first element %zu: %.9g, not %.9g",
                  bed->rank, wrong, LENGTH, first, (double)bed->got[first], (double)want[first]);
    else if (bed->exact)
        rank_note(bed, algorithm, FINDING_OK, "%s: %d calls, 1 to %zu elements: equal; %.2f ms",
                  executor, bed->rounds * bed->calls, calls[bed->calls - 1].count, ms);
    else
        rank_note(bed, algorithm, FINDING_OK,
                  "%s: %d calls: error %.1e, bound %.1e (%d terms in any order); %.2f ms", executor,
                  bed->calls, most, allowed(bed), bed->n, ms);
}

static int trial(struct testbed *bed, enum allreduce_algorithm algorithm) {
    struct allreduce_config config = allreduce_config_default();
    struct allreduce *ar = NULL;
    double ms = 0;
    config.algorithm = algorithm;
    bed->exact = allreduce_has_plan(algorithm);
    /* The order in which a library (NCCL) sums is unknown, so the result is judged by a bound, in
     * one round. */
    bed->rounds = bed->exact ? ROUNDS : 1;
    CHECK(fill(bed, algorithm));
    int code = allreduce_init(&ar, bed->d->comm, bed->device, &config);
    if (code == ERR_USAGE) { /* this algorithm cannot run here; all ranks get this code */
        rank_note(bed, algorithm, FINDING_NOT_HERE, "%s", error_message());
        return OK;
    }
    if (!code) code = allreduce_register(ar, bed->data, LENGTH);
    if (!code) code = run(bed, ar, &ms);
    if (!code) code = run_reference(bed, algorithm);
    if (!code) judge(bed, algorithm, allreduce_executor_name(ar), ms);
    allreduce_free(ar);
    return code;
}

static int all_trials(struct doctor *d, struct rank_task *task) {
    struct testbed bed = {
        .d = d, .task = task, .n = comm_world_size(d->comm), .rank = comm_rank(d->comm)};
    bed.calls = d->config.quick ? CALLS - 1 : CALLS;
    d->devices = bed.n;
    int code = open_testbed(&bed);
    for (int a = task->first; a < ALLREDUCE_ALGORITHM_COUNT && !code; a++)
        if (a != ALLREDUCE_AUTO) code = trial(&bed, (enum allreduce_algorithm)a);
    for (int r = 0; r < bed.n; r++)
        free(bed.want[r]);
    if (bed.device) device_host_free(bed.device, bed.got);
    device_close(bed.device);
    return code;
}

static int run_rank(void *context) {
    struct rank_task *task = context;
    struct progress progress = {.gpus = task->gpus};
    struct doctor d = {.config = task->config,
                       .progress = &progress,
                       .kind = task->kind,
                       .devices = task->devices};
    struct comm_options options = {.timeout_s = task->config.timeout / 2};
    int code = comm_open(&d.comm, &options);
    if (code) return error_exit_status(code);
    code = all_trials(&d, task);
    comm_abort(d.comm, code, error_message());
    comm_close(d.comm);
    return error_exit_status(code);
}

/* ---- the check's side ---- */

/* The finding of the first rank whose trial failed; if none failed, that of any rank. NULL: some
 * rank has not finished the trial. */
static const struct rank_finding *worst(const struct rank_task *task, int n, int trial) {
    const struct rank_finding *found = &task->found[trial][0];
    for (int r = 0; r < n; r++) {
        if (!task->found[trial][r].done) return NULL;
        if (found->state == FINDING_OK) found = &task->found[trial][r];
    }
    return found;
}

/* A rank that fails ends its job; a new job then begins after the algorithm that failed. Each job
 * is a step of the check, numbered by world and by the algorithm that it begins with. */
static int one_world(struct doctor *d, int world, int n, int first) {
    static const char bound[] = "equal to the one-thread reference";
    struct rank_task *task =
        mmap(NULL, sizeof *task, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (task == MAP_FAILED)
        return fail(ERR_MEMORY, "doctor: no memory to share with ranks: free some memory");
    task->config = d->config;
    task->kind = d->kind;
    task->devices = d->devices;
    task->gpus = d->progress->gpus;
    struct launch launch = {.world_size = n, .entry = run_rank, .context = task};
    for (int a = first; a < ALLREDUCE_ALGORITHM_COUNT;) {
        doctor_step(d, world * ALLREDUCE_ALGORITHM_COUNT + a, "%s: allreduce, %d ranks",
                    doctor_kind_name(d), n);
        task->first = a;
        struct launch_result result;
        int code = launch_ranks(&launch, &result), stopped = 0;
        for (; a < ALLREDUCE_ALGORITHM_COUNT && !stopped; a++) {
            const struct rank_finding *found = worst(task, n, a);
            char name[CHECK_NAME_BYTES];
            snprintf(name, sizeof name, "%s: allreduce %s, %d ranks", doctor_kind_name(d),
                     allreduce_algorithm_name((enum allreduce_algorithm)a), n);
            stopped = !found;
            if (found)
                note(d, found->state, name, found->state == FINDING_NOT_HERE ? "" : bound, "%s",
                     found->text);
            else
                note(d, FINDING_OFF, name, bound, "%s",
                     code ? error_message() : "the ranks ended and reported nothing");
        }
    }
    munmap(task, sizeof *task);
    return OK;
}

int check_allreduce(struct doctor *d, int first) {
    enum { WORLDS = 2 };
    static const int worlds[WORLDS] = {2, MOST_RANKS};
    int world = first / ALLREDUCE_ALGORITHM_COUNT, a = first % ALLREDUCE_ALGORITHM_COUNT;
    for (; world < WORLDS; world++, a = 0)
        CHECK(one_world(d, world, worlds[world], a > ALLREDUCE_AUTO ? a : ALLREDUCE_AUTO + 1));
    return OK;
}
