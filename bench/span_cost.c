/* What do spans cost? A span is what the profile, the timeline and compare's times are made of: one
 * for each kernel, copy and wait (trace/span.h).
 *
 *     span_cost [ROUNDS [BATCH [MODEL]]]                  default: 200 rounds, batch 256, lenet
 *
 * An emulated device trains a model on one batch. A round is three steps, one with spans and two
 * without, in an order that changes from round to round; so what slows the machine down for a while
 * slows all three. Each difference is taken within its round, and printed is the median over the
 * rounds, with the middle half of them. The second step without spans shows what a difference of
 * nothing looks like here. Times are CPU times of the thread, which other programs disturb the
 * least; wall times stand beside them. With spans the log is read after each step, as a run does.
 *
 * A command that does nothing is timed as well. Without spans all that they cost it is one branch.
 *
 * The answer is checked: a second device, which takes as many steps without any spans, ends with
 * the same parameters to the bit. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "base/text/parse.h"
#include "bench/quantile.h"
#include "models/replica.h"
#include "trace/step_times.h"

enum { WARM_UP = 5, MOST_ROUNDS = 100000, MOST_BATCH = 4096, COMMANDS = 200000 };
enum { OFF, OFF_AGAIN, ON, WAYS }; /* the steps of a round */
enum { TIMED, JUDGE, DEVICES };

struct bench {
    int64_t rounds, batch_size;
    const char *model_word;
    struct model model;
    float **values;
    float *pixels;   /* (batch, C, H, W) */
    int32_t *labels; /* (batch) */
    struct device *device[DEVICES];
    struct replica replica[DEVICES];
    struct step_times times;        /* what a run makes of spans */
    double *cpu[WAYS], *wall[WAYS]; /* [rounds] ns */
    size_t spans;                   /* of the last step */
};

static int make_data(struct bench *b) {
    struct rng rng;
    size_t sample = (size_t)b->model.channels * (size_t)b->model.height * (size_t)b->model.width;
    size_t count = (size_t)b->batch_size * sample;
    b->pixels = malloc(count * sizeof *b->pixels);
    b->labels = malloc((size_t)b->batch_size * sizeof *b->labels);
    for (int d = 0; d < WAYS; d++) {
        b->cpu[d] = malloc((size_t)b->rounds * sizeof(double));
        b->wall[d] = malloc((size_t)b->rounds * sizeof(double));
        if (!b->cpu[d] || !b->wall[d]) return fail(ERR_MEMORY, "span_cost: no host memory");
    }
    if (!b->pixels || !b->labels) return fail(ERR_MEMORY, "span_cost: no host memory");
    rng_seed(&rng, 1);
    rng_uniform(&rng, b->pixels, count, 0, 1);
    for (int64_t i = 0; i < b->batch_size; i++)
        b->labels[i] = (int32_t)(rng_u32(&rng) % 10);
    return OK;
}

static int open_all(struct bench *b) {
    struct model_options options = {.dropout = -1};
    struct replica_config config = {
        .max_samples = (int)b->batch_size, .log_rows = 1, .log_segments = 1, .optimizer = 1};
    CHECK(model_open(&b->model, b->model_word, &options));
    CHECK(model_values_init(&b->model, 0, &b->values));
    CHECK(make_data(b));
    for (int d = 0; d < DEVICES; d++) {
        struct device_config c = {.kind = DEVICE_HOST,
                                  .index = d,
                                  .memory_bytes = (size_t)2 << 30,
                                  .timeout_s = 60,
                                  .spans = d == TIMED};
        CHECK(device_open(&b->device[d], &c));
        CHECK(replica_init(&b->replica[d], b->device[d], &b->model, &config, b->values));
    }
    return OK;
}

static void close_all(struct bench *b) {
    for (int d = 0; d < DEVICES; d++) {
        replica_free(&b->replica[d]);
        device_close(b->device[d]);
    }
    for (int way = 0; way < WAYS; way++) {
        free(b->cpu[way]);
        free(b->wall[way]);
    }
    step_times_free(&b->times);
    model_values_free(b->values);
    model_free(&b->model);
    free(b->pixels);
    free(b->labels);
}

/* ---- a step ---- */

static int train(struct bench *b, struct replica *r, int64_t number) {
    struct segments whole = {1, (int)b->batch_size, {{0, (int)b->batch_size}}};
    struct batch batch = {.segments = whole, .pixels = b->pixels, .labels = b->labels};
    struct step_block step = {.step = (uint64_t)number,
                              .weight = 1.0f / (float)b->batch_size,
                              .learning_rate = 0.01f,
                              .first_update = number == 0,
                              .update = number,
                              .rate = 0.01};
    duet_var *output, *loss;
    CHECK(replica_write_step(r, &step));
    CHECK(replica_load(r, &batch));
    CHECK(replica_forward(r, &whole, 1, &output));
    CHECK(replica_loss(r, output, 1, &loss));
    CHECK(replica_backward(r, loss));
    return replica_update(r);
}

/* What a run does with spans, every so often. */
static void read_spans(struct bench *b) {
    struct span_log *log = stream_spans(device_compute(b->device[TIMED]));
    for (size_t i = 0; i < log->count; i++)
        step_times_add(&b->times, &log->spans[i], 0);
    b->spans = log->count;
    log->count = 0;
}

static int timed_step(struct bench *b, int64_t number, int way, int64_t round) {
    stream_spans(device_compute(b->device[TIMED]))->on = way == ON;
    int64_t wall = now_ns(), cpu = thread_cpu_ns();
    CHECK(train(b, &b->replica[TIMED], number));
    if (way == ON) read_spans(b);
    if (round < 0) return OK;
    b->cpu[way][round] = (double)(thread_cpu_ns() - cpu);
    b->wall[way][round] = (double)(now_ns() - wall);
    return OK;
}

static int run_rounds(struct bench *b) {
    int64_t number = 0;
    for (int64_t round = -WARM_UP; round < b->rounds; round++)
        for (int k = 0; k < WAYS; k++)
            CHECK(timed_step(b, number++, (int)((round + WARM_UP + k) % WAYS), round));
    return OK;
}

static int judge(struct bench *b) {
    for (int64_t number = 0; number < (b->rounds + WARM_UP) * WAYS; number++)
        CHECK(train(b, &b->replica[JUDGE], number));
    for (int p = 0; p < b->model.param_count; p++)
        if (memcmp(b->replica[TIMED].params->set.param[p].value.data,
                   b->replica[JUDGE].params->set.param[p].value.data,
                   param_spec_count(&b->model.params[p]) * sizeof(float)))
            return fail(ERR_CHECK, "parameter %s: other bits with spans than without",
                        b->model.params[p].name);
    return OK;
}

/* ---- what comes out ---- */

/* Differences in percent of the step without spans, round by round. */
static void print_pairs(const struct bench *b, const char *what, int d) {
    double *cpu = malloc((size_t)b->rounds * sizeof *cpu),
           *wall = malloc((size_t)b->rounds * sizeof *wall);
    for (int64_t i = 0; cpu && wall && i < b->rounds; i++) {
        cpu[i] = (b->cpu[d][i] / b->cpu[OFF][i] - 1) * 100;
        wall[i] = (b->wall[d][i] / b->wall[OFF][i] - 1) * 100;
    }
    if (cpu && wall)
        printf("%-22s %+9.3f %% (%+.2f .. %+.2f) %+16.3f %% (%+.2f .. %+.2f)\n", what,
               quantile(cpu, b->rounds, 0.5), quantile(cpu, b->rounds, 0.25),
               quantile(cpu, b->rounds, 0.75), quantile(wall, b->rounds, 0.5),
               quantile(wall, b->rounds, 0.25), quantile(wall, b->rounds, 0.75));
    free(cpu);
    free(wall);
}

static int nothing(void *unused) {
    (void)unused;
    return OK;
}

/* Nanoseconds of a command that does nothing. */
static int time_command(struct bench *b, int spans, double *ns) {
    struct stream *s = device_compute(b->device[TIMED]);
    stream_spans(s)->on = spans;
    int64_t start = thread_cpu_ns();
    for (int i = 0; i < COMMANDS; i++) {
        CHECK(stream_call_host(s, "nothing", 0, nothing, NULL, 0));
        if (i % 64 == 0) stream_spans(s)->count = 0;
    }
    *ns = (double)(thread_cpu_ns() - start) / COMMANDS;
    return OK;
}

static int report(struct bench *b) {
    double off, on, step;
    CHECK(time_command(b, 0, &off));
    CHECK(time_command(b, 1, &on));
    printf("# %s, batch %" PRId64 ", %" PRId64 " rounds of three steps; median (middle half)\n"
           "# a step more or less than without spans     CPU time                     wall time\n",
           b->model_word, b->batch_size, b->rounds);
    print_pairs(b, "without, once more", OFF_AGAIN);
    print_pairs(b, "with spans", ON);
    step = quantile(b->cpu[OFF], b->rounds, 0.5);
    printf("a step without spans   %9.3f ms\n", step * 1e-6);
    printf("spans of a step        %9zu\n", b->spans);
    printf("a command of nothing   %9.1f ns, with spans %.1f ns: of a step %.3f %%\n", off, on,
           (on - off) * (double)b->spans / step * 100);
    return OK;
}

static int run(int argc, char **argv) {
    struct bench b = {.rounds = 200, .batch_size = 256, .model_word = "lenet"};
    int code = OK;
    if (argc > 4) return fail(ERR_USAGE, "usage: span_cost [ROUNDS [BATCH [MODEL]]]");
    if (argc > 1) CHECK(parse_int("ROUNDS", argv[1], 1, MOST_ROUNDS, &b.rounds));
    if (argc > 2) CHECK(parse_int("BATCH", argv[2], 1, MOST_BATCH, &b.batch_size));
    if (argc > 3) b.model_word = argv[3];
    CHECK_GOTO(open_all(&b), code, done);
    CHECK_GOTO(run_rounds(&b), code, done);
    CHECK_GOTO(report(&b), code, done);
    code = judge(&b);
done:
    close_all(&b);
    return code;
}

int main(int argc, char **argv) {
    int code = run(argc, argv);
    if (code) fprintf(stderr, "span_cost: %s\n", error_message());
    return code;
}
