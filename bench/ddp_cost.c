/* What does DistributedDataParallel cost a program, above what `duet train --mode ddp` takes?
 *
 *     ddp_cost [JOBS [ROUNDS [BATCH [RANKS]]]]     default: 9 jobs, 40 rounds, 128 a rank, 2 ranks
 *
 * Each rank trains LeNet twice on the same batches: as the command does (replica_step)
 * and as a program does with duet.h alone: tensors for pixels and labels, forward, duet_backward
 * inside a duet_ddp, duet_sgd, duet_loss_read. A round is two steps of each, in an order that
 * changes from round to round, so that what slows the machine down for a while slows all four. Each
 * difference is taken within its round. The figure of a job is the median over its rounds, on rank
 * 0. Where the tensors of a job lie in memory makes one of the two faster by some percent for as
 * long as the job runs. So there are several jobs, and their median, least and most are printed.
 * How much the two steps of the command differ shows how large a difference can be by chance here.
 * CPU times are those of the rank's process, with the thread of its communication stream, which
 * waits for the other ranks; wall times stand beside them, and the least step of each.
 *
 * The answer is checked: both end with the same parameters to the bit. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/text/parse.h"
#include "bench/quantile.h"
#include "ddp/ddp.h"
#include "models/replica.h"
#include "group/group.h"

enum { WARM_UP = 5, MOST_JOBS = 1000, MOST_ROUNDS = 100000, MOST_BATCH = 4096 };
enum { COMMAND, COMMAND_AGAIN, PROGRAM, PROGRAM_AGAIN, WAYS }; /* the steps of a round */
enum { W1, B1, W2, B2, W3, B3, W4, B4 };
static const double RATE = 0.01;

/* What a job leaves, in memory that its ranks share with the launcher. */
enum { CPU_NOTHING, CPU_PROGRAM, WALL_NOTHING, WALL_PROGRAM, FIGURES };
struct figures {
    double percent[FIGURES];
    double least_ms[2 * WAYS]; /* CPU times, then wall times */
};

struct bench {
    int64_t jobs, rounds, batch_size, ranks;
    struct figures *figures; /* of this job */
    struct model model;
    float **values, *pixels; /* pixels: (batch, 1, 28, 28) */
    int32_t *labels;
    int64_t *cpu[WAYS], *wall[WAYS]; /* [rounds] ns */
    duet_group *group;
    int rank;

    struct device *device; /* the command's */
    struct replica replica;
    struct duet_ddp *ddp;
    int64_t steps;

    duet_device *own_device; /* the program's */
    duet_params *params;
    duet_tape *tape;
    duet_ddp *own_ddp;
};

/* ---- data ---- */

static int make_data(struct bench *b) {
    struct rng rng;
    size_t count = (size_t)b->batch_size * 28 * 28;
    b->pixels = malloc(count * sizeof *b->pixels);
    b->labels = malloc((size_t)b->batch_size * sizeof *b->labels);
    for (int way = 0; way < WAYS; way++) {
        b->cpu[way] = calloc((size_t)b->rounds, sizeof(int64_t));
        b->wall[way] = calloc((size_t)b->rounds, sizeof(int64_t));
        if (!b->cpu[way] || !b->wall[way]) return fail(ERR_MEMORY, "ddp_cost: no host memory");
    }
    if (!b->pixels || !b->labels) return fail(ERR_MEMORY, "ddp_cost: no host memory");
    rng_seed(&rng, 1 + (uint64_t)b->rank);
    rng_uniform(&rng, b->pixels, count, 0, 1);
    for (int64_t i = 0; i < b->batch_size; i++)
        b->labels[i] = (int32_t)(rng_u32(&rng) % 10);
    return OK;
}

/* ---- the command's step ---- */

static int open_command(struct bench *b) {
    struct model_options options = {.dropout = -1};
    struct replica_config config = {
        .max_samples = (int)b->batch_size, .log_rows = 1, .log_segments = 1, .optimizer = 1};
    struct device_config device = {
        .kind = DEVICE_HOST, .index = b->rank, .memory_bytes = (size_t)1 << 30, .timeout_s = 60};
    struct ddp_config ddp = ddp_config_default();
    CHECK(model_open(&b->model, "lenet", &options));
    CHECK(model_values_init(&b->model, 0, &b->values));
    CHECK(device_open(&b->device, &device));
    CHECK(replica_init(&b->replica, b->device, &b->model, &config, b->values));
    struct comm *comm = group_comm((struct group *)b->group);
    return ddp_init(&b->ddp, comm, b->replica.params, NULL, &ddp);
}

static int command_step(struct bench *b) {
    const struct batch batch = {
        .segments = {1, (int)b->batch_size, {{b->rank, (int)b->batch_size}}},
        .pixels = b->pixels,
        .labels = b->labels};
    const struct step_block step = {.step = (uint64_t)b->steps,
                                    .weight = 1.0f / (float)(b->batch_size * b->ranks),
                                    .learning_rate = (float)RATE,
                                    .first_update = b->steps == 0,
                                    .update = b->steps,
                                    .rate = RATE};
    b->steps++;
    CHECK(replica_write_step(&b->replica, &step));
    CHECK(replica_load(&b->replica, &batch));
    return replica_step(&b->replica, &batch.segments);
}

/* ---- the program's step ---- */

static int open_program(struct bench *b) {
    struct duet_param params[B4 + 1];
    for (int i = W1; i <= B4; i++) {
        const struct param_spec *spec = &b->model.params[i];
        params[i] = (struct duet_param){spec->name, spec->rank, {0}, b->values[i]};
        memcpy(params[i].shape, spec->dims, (size_t)spec->rank * sizeof *spec->dims);
    }
    CHECK(duet_device_open(&b->own_device, "cpu", b->rank, (uint64_t)1 << 30));
    CHECK(duet_params_create(&b->params, b->own_device, params, B4 + 1));
    CHECK(duet_tape_create(&b->tape, b->own_device));
    return duet_ddp_create(&b->own_ddp, b->group, b->params, NULL);
}

static duet_var *forward(duet_tape *t, const duet_tensor *X) {
    duet_var *h = duet_relu(t, duet_conv2d(t, duet_input(t, X), W1, B1, NULL));
    h = duet_relu(t, duet_conv2d(t, duet_avg_pool2d(t, h, 2, NULL), W2, B2, NULL));
    h = duet_flatten(t, duet_avg_pool2d(t, h, 2, NULL));
    return duet_matmul_add(t, duet_relu(t, duet_matmul_add(t, h, W3, B3)), W4, B4);
}

static int program_step(struct bench *b) {
    const int n = (int)b->batch_size, shape[4] = {n, 1, 28, 28};
    duet_tensor *X, *y;
    double sum;
    CHECK(duet_tensor_create(&X, b->own_device, DUET_F32, 4, shape, b->pixels));
    CHECK(duet_tensor_create(&y, b->own_device, DUET_I32, 1, &n, b->labels));
    CHECK(duet_tape_begin(b->tape, b->params, n, DUET_TRAIN));
    duet_var *loss = duet_cross_entropy(b->tape, forward(b->tape, X), y, DUET_MEAN, NULL);
    CHECK(duet_backward(b->tape, loss, NULL));
    CHECK(duet_sgd(b->params, RATE, 1));
    CHECK(duet_loss_read(b->tape, loss, &sum, NULL));
    duet_tensor_free(X);
    duet_tensor_free(y);
    return OK;
}

/* ---- rounds ---- */

static int64_t process_cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int timed_step(struct bench *b, int way, int64_t round) {
    int64_t wall = now_ns(), cpu = process_cpu_ns();
    CHECK(way < PROGRAM ? command_step(b) : program_step(b));
    if (round < 0) return OK;
    b->cpu[way][round] = process_cpu_ns() - cpu;
    b->wall[way][round] = now_ns() - wall;
    return OK;
}

static int run_rounds(struct bench *b) {
    for (int64_t round = -WARM_UP; round < b->rounds; round++)
        for (int k = 0; k < WAYS; k++) {
            /* C P C P, and in every other round P C P C */
            int way = k / 2 + (k + (int)(round + WARM_UP)) % 2 * PROGRAM;
            CHECK(timed_step(b, way, round));
        }
    return OK;
}

static int judge(struct bench *b) {
    for (int i = W1; i <= B4; i++)
        if (memcmp(b->replica.params->set.param[i].value.data,
                   duet_params_value(b->params, i)->t.data,
                   b->replica.params->set.param[i].count * sizeof(float)))
            return fail(ERR_CHECK, "%s: other bits in the program than in the command",
                        b->model.params[i].name);
    return OK;
}

/* ---- what comes out ---- */

/* Two steps of a round against two others, or one against one; in percent. */
static double difference(const struct bench *b, int64_t *const *ns, int from, int to, int both) {
    double *x = calloc((size_t)b->rounds, sizeof *x), median;
    for (int64_t i = 0; x && i < b->rounds; i++) {
        double was = (double)(ns[from][i] + (both ? ns[from + 1][i] : 0)),
               is = (double)(ns[to][i] + (both ? ns[to + 1][i] : 0));
        x[i] = (is / was - 1) * 100;
    }
    median = x ? quantile(x, b->rounds, 0.5) : 0;
    free(x);
    return median;
}

static double least_ms(const struct bench *b, const int64_t *ns) {
    int64_t least = INT64_MAX;
    for (int64_t i = 0; i < b->rounds; i++)
        if (ns[i] < least) least = ns[i];
    return (double)least * 1e-6;
}

static void note(const struct bench *b) {
    struct figures *f = b->figures;
    f->percent[CPU_NOTHING] = difference(b, b->cpu, COMMAND, COMMAND_AGAIN, 0);
    f->percent[CPU_PROGRAM] = difference(b, b->cpu, COMMAND, PROGRAM, 1);
    f->percent[WALL_NOTHING] = difference(b, b->wall, COMMAND, COMMAND_AGAIN, 0);
    f->percent[WALL_PROGRAM] = difference(b, b->wall, COMMAND, PROGRAM, 1);
    for (int way = 0; way < WAYS; way++) {
        f->least_ms[way] = least_ms(b, b->cpu[way]);
        f->least_ms[WAYS + way] = least_ms(b, b->wall[way]);
    }
}

/* The least step of a way, over both of its steps and all jobs. */
static double least_of(const struct figures *f, int64_t jobs, int way) {
    double least = f->least_ms[way];
    for (int64_t j = 0; j < jobs; j++)
        for (int w = way; w < way + 2; w++)
            if (f[j].least_ms[w] < least) least = f[j].least_ms[w];
    return least;
}

static void report(const struct figures *f, const struct bench *b) {
    static const char *const names[FIGURES] = {
        "CPU time,  the command once more", "CPU time,  the program",
        "wall time, the command once more", "wall time, the program"};
    double x[MOST_JOBS];
    printf(
        "# lenet, batch %" PRId64 " x %" PRId64 " ranks, %" PRId64 " jobs of %" PRId64
        " rounds\n# a step more or less than the command's: median of the jobs (least .. most)\n",
        b->batch_size, b->ranks, b->jobs, b->rounds);
    for (int i = 0; i < FIGURES; i++) {
        for (int64_t j = 0; j < b->jobs; j++)
            x[j] = f[j].percent[i];
        double median = quantile(x, b->jobs, 0.5);
        printf("%-34s %+8.2f %% (%+.2f .. %+.2f)\n", names[i], median, x[0], x[b->jobs - 1]);
    }
    printf("the least step, ms: CPU command %.3f, program %.3f; wall command %.3f, program %.3f\n",
           least_of(f, b->jobs, COMMAND), least_of(f, b->jobs, PROGRAM),
           least_of(f, b->jobs, WAYS + COMMAND), least_of(f, b->jobs, WAYS + PROGRAM));
}

static int run(struct bench *b) {
    CHECK(duet_group_init(&b->group, 0));
    b->rank = duet_group_rank(b->group);
    CHECK(make_data(b));
    CHECK(open_command(b));
    CHECK(open_program(b));
    CHECK(run_rounds(b));
    if (!b->rank) note(b);
    return judge(b);
}

static int work(int rank, void *context) {
    struct bench b = *(struct bench *)context;
    (void)rank;
    int code = run(&b);
    duet_ddp_free(b.own_ddp);
    duet_tape_free(b.tape);
    duet_params_free(b.params);
    duet_devices_close(&b.own_device, 1);
    duet_ddp_free(b.ddp);
    replica_free(&b.replica);
    device_close(b.device);
    duet_group_destroy(&b.group);
    model_values_free(b.values);
    model_free(&b.model);
    for (int way = 0; way < WAYS; way++) {
        free(b.cpu[way]);
        free(b.wall[way]);
    }
    free(b.pixels);
    free(b.labels);
    return code;
}

static int run_jobs(struct bench *b, struct figures *figures) {
    for (int64_t j = 0; j < b->jobs; j++) {
        b->figures = &figures[j];
        CHECK(duet_spawn((int)b->ranks, work, b));
    }
    report(figures, b);
    return OK;
}

static int start(int argc, char **argv) {
    struct bench b = {.jobs = 9, .rounds = 40, .batch_size = 128, .ranks = 2};
    if (argc > 5) return fail(ERR_USAGE, "usage: ddp_cost [JOBS [ROUNDS [BATCH [RANKS]]]]");
    if (argc > 1) CHECK(parse_int("JOBS", argv[1], 1, MOST_JOBS, &b.jobs));
    if (argc > 2) CHECK(parse_int("ROUNDS", argv[2], 1, MOST_ROUNDS, &b.rounds));
    if (argc > 3) CHECK(parse_int("BATCH", argv[3], 1, MOST_BATCH, &b.batch_size));
    if (argc > 4) CHECK(parse_int("RANKS", argv[4], 1, MAX_DEVICES, &b.ranks));
    size_t bytes = (size_t)b.jobs * sizeof(struct figures);
    struct figures *figures =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (figures == MAP_FAILED) return fail(ERR_MEMORY, "ddp_cost: no host memory");
    int code = run_jobs(&b, figures);
    munmap(figures, bytes);
    return code;
}

int main(int argc, char **argv) {
    int code = start(argc, argv);
    if (code) fprintf(stderr, "ddp_cost: %s\n", error_message());
    return duet_exit_status(code);
}
