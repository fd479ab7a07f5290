/* SyncBatchNorm over real ranks computes what PyTorch computes from the whole batch in float64,
 * however the batch is divided. It has the same bits as one device that holds the same segments.
 * The file also tests eval, and a rank that dies in the middle. */
#include "syncbn/syncbn.h"

#include <signal.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/golden/golden.h"
#include "tests/harness/gpus.h"
#include "tests/harness/ranks.h"

/* Results are of the order of 1 to 10, kept in float with sums in double: 3e-7 was measured. */
static const double TOLERANCE = 1e-6;

enum { SAMPLES = 8, CHANNELS = 6, PIXELS = 20, SAMPLE = CHANNELS * PIXELS, MOST_SEGMENTS = 4 };

/* The ranks' results for the test, in shared memory. */
struct page {
    float y[SAMPLES * SAMPLE], dx[SAMPLES * SAMPLE];
    float dw[MOST_SEGMENTS][CHANNELS], db[MOST_SEGMENTS][CHANNELS]; /* [rank] */
    float running[MOST_SEGMENTS][2 * CHANNELS];                     /* [rank] */
    int64_t batches[MOST_SEGMENTS];                                 /* [rank] */
};

struct job {
    struct page *page;
    enum device_kind kind;
    int segments, n[MOST_SEGMENTS]; /* of segment v, whose samples follow those of v - 1 */
    int training;
    int victim; /* this rank kills itself after its forward; -1: none */
};

static const struct param_spec specs[2] = {{"weight", 1, {CHANNELS}, 0},
                                           {"bias", 1, {CHANNELS}, 0}};
static const struct buffer_spec buffer_specs[3] = {{"running_mean", DTYPE_F32, 1, {CHANNELS}, 0},
                                                   {"running_var", DTYPE_F32, 1, {CHANNELS}, 1},
                                                   {"num_batches_tracked", DTYPE_I64, 0, {0}, 0}};

/* The formula of make_sync_batch_norm.py. */
static float value(int i, int64_t a, double factor, double offset) {
    return (float)(factor * ((double)((i * a + 13) % 1000) / 500 - 1) + offset);
}

struct bed {
    struct comm *comm; /* NULL: alone */
    struct device *device;
    duet_tape *tape;
    struct syncbn *syncbn;
    struct param_set params;
    struct buffer_set buffers;
    struct segments segments;
    int first[MOST_SEGMENTS]; /* the place of segment v's first sample in the batch */
    float *x, *dy;            /* device memory, (SAMPLES, CHANNELS, 5, 4) */
};

static int rank_of(const struct bed *b) {
    return b->comm ? comm_rank(b->comm) : 0;
}

static int open_bed(struct bed *b, const struct job *job) {
    float start[CHANNELS];
    int rank = rank_of(b), world = b->comm ? comm_world_size(b->comm) : 1, at = 0;
    struct device_config config = {.kind = job->kind,
                                   .index = rank,
                                   .rank = rank,
                                   .devices = world,
                                   .memory_bytes = job->kind == DEVICE_CUDA ? 128 << 20 : 8 << 20,
                                   .check_operands = 1,
                                   .timeout_s = 60};
    CHECK(device_open(&b->device, &config));
    CHECK(tape_init(&b->tape, b->device));
    CHECK(param_set_init(&b->params, b->device, specs, 2));
    CHECK(buffer_set_init(&b->buffers, b->device, buffer_specs, 3));
    for (int p = 0; p < 2; p++) {
        for (int c = 0; c < CHANNELS; c++)
            start[c] = p ? value(c, 17, 1, 0) : value(c, 331, 1, 1.5);
        CHECK(param_write_value(&b->params, p, start));
    }
    for (int v = 0; v < job->segments; at += job->n[v++])
        b->first[v] = at;
    for (int v = rank; v < job->segments; v += world) {
        b->segments.seg[b->segments.count++] = (struct segment){.v = v, .n = job->n[v]};
        b->segments.n += job->n[v];
    }
    if (b->comm) {
        const struct syncbn_config sync = {.comm = b->comm,
                                           .device = b->device,
                                           .segments = job->segments,
                                           .segment = -1,
                                           .channels = CHANNELS};
        struct tape_exchange exchange;
        CHECK(syncbn_init(&b->syncbn, &sync, &exchange));
        tape_set_exchange(b->tape, &exchange);
    }
    size_t bytes = SAMPLES * SAMPLE * sizeof(float);
    CHECK(device_alloc(b->device, (void **)&b->x, bytes, MEM_WORKSPACE));
    return device_alloc(b->device, (void **)&b->dy, bytes, MEM_WORKSPACE);
}

static void close_bed(struct bed *b) {
    syncbn_free(b->syncbn);
    device_free(b->device, b->x);
    device_free(b->device, b->dy);
    duet_tape_free(b->tape);
    param_set_free(&b->params);
    buffer_set_free(&b->buffers);
    device_close(b->device);
}

/* The rank's samples of x and dy, segment after segment. */
static int load(struct bed *b) {
    static float x[SAMPLES * SAMPLE], dy[SAMPLES * SAMPLE];
    size_t row = 0;
    for (int s = 0; s < b->segments.count; s++) {
        int from = b->first[b->segments.seg[s].v] * SAMPLE;
        for (int i = 0; i < b->segments.seg[s].n * SAMPLE; i++, row++) {
            x[row] = value(from + i, 7919, 2, .25);
            dy[row] = value(from + i, 3571, 1, 0);
        }
    }
    struct stream *stream = device_compute(b->device);
    CHECK(copy_to_device(stream, b->x, x, row * sizeof *x));
    CHECK(copy_to_device(stream, b->dy, dy, row * sizeof *dy));
    return stream_sync(stream);
}

/* Copies the rank's rows of a PLAIN result to their places in the whole batch. */
static int store(const struct bed *b, const struct tensor *rows, float *whole) {
    const float *from = rows->data;
    for (int s = 0; s < b->segments.count; s++) {
        size_t count = (size_t)b->segments.seg[s].n * SAMPLE;
        float *to = whole + b->first[b->segments.seg[s].v] * SAMPLE;
        if (count) CHECK(copy_to_host(device_compute(b->device), to, from, count * sizeof *to));
        from += count;
    }
    return stream_sync(device_compute(b->device));
}

static int run(struct bed *b, const struct job *job) {
    int dims[4] = {b->segments.n, CHANNELS, 5, 4}, rank = rank_of(b);
    struct tensor x = tensor_plain(b->x, DTYPE_F32, 4, dims), dy = x;
    struct page *page = job->page;
    struct norm_config config = norm_config_default(b->buffers.buffer);
    char state[64];
    dy.data = b->dy;
    config.synchronised = 1;
    CHECK(load(b));
    struct tape_step step = {
        .segments = &b->segments, .params = &b->params, .training = job->training};
    CHECK(tape_begin(b->tape, &step));
    duet_var *leaf = tape_leaf(b->tape, &x, 1);
    struct param *p = b->params.param;
    duet_var *y = to_plain(b->tape, batch_norm(b->tape, leaf, p, p + 1, &config));
    CHECK(tape_error(b->tape));
    if (job->victim == rank && b->comm) raise(SIGKILL);
    if (job->training) {
        CHECK(tape_backward(b->tape, y, &dy));
        CHECK(store(b, &leaf->grad, page->dx));
        CHECK(param_read_grad(&b->params, 0, page->dw[rank]));
        CHECK(param_read_grad(&b->params, 1, page->db[rank]));
    }
    CHECK(store(b, &y->value, page->y));
    cr_assert_leq(b->buffers.bytes, sizeof state);
    CHECK(buffer_set_read(&b->buffers, state));
    memcpy(page->running[rank], state, sizeof page->running[rank]);
    memcpy(&page->batches[rank], state + b->buffers.buffer[2].offset, sizeof(int64_t));
    return OK;
}

static int rank_main(void *context) {
    struct job *job = context;
    struct comm_options options = {.timeout_s = 30};
    struct bed b = {0};
    int code = comm_open(&b.comm, &options);
    if (!code) code = open_bed(&b, job);
    if (!code) code = run(&b, job);
    if (code) comm_abort(b.comm, code, error_message());
    struct comm *comm = b.comm;
    close_bed(&b);
    comm_close(comm);
    return error_exit_status(code);
}

static void run_alone(struct job *job) {
    struct bed b = {0};
    int code = open_bed(&b, job);
    if (!code) code = run(&b, job);
    cr_assert_eq(code, OK, "%s", error_message());
    close_bed(&b);
}

static void near(const float *got, const char *name, int count) {
    golden_near("tests/golden/sync_batch_norm.txt", name, got, (size_t)count, TOLERANCE);
}

/* Every split of the batch against the whole of it. */
static void check_splits(enum device_kind kind) {
    static const struct {
        int ranks, n[MOST_SEGMENTS];
    } splits[] = {{2, {4, 4}}, {2, {5, 3}}, {3, {5, 2, 1}}, {2, {8, 0}}};
    for (int i = 0; i < 4; i++) {
        struct page *page = share(sizeof(struct page)), *alone = share(sizeof(struct page));
        struct job job = {.page = page, .kind = kind, .training = 1, .victim = -1};
        job.segments = splits[i].ranks;
        memcpy(job.n, splits[i].n, sizeof job.n);
        run_well(splits[i].ranks, rank_main, &job);
        near(page->y, "whole_y", SAMPLES * SAMPLE);
        near(page->dx, "whole_dx", SAMPLES * SAMPLE);
        for (int r = 1; r < splits[i].ranks; r++)
            for (int c = 0; c < CHANNELS; c++) {
                page->dw[0][c] += page->dw[r][c];
                page->db[0][c] += page->db[r][c];
            }
        near(page->dw[0], "whole_dw", CHANNELS);
        near(page->db[0], "whole_db", CHANNELS);
        for (int r = 0; r < splits[i].ranks; r++) {
            near(page->running[r], "whole_mean", CHANNELS);
            near(page->running[r] + CHANNELS, "whole_var", CHANNELS);
            cr_assert_eq(page->batches[r], 1);
        }
        if (kind == DEVICE_CUDA) continue; /* a process that has called CUDA cannot fork ranks */
        job.page = alone;
        run_alone(&job);
        cr_assert_arr_eq(alone->y, page->y, sizeof page->y, "split %d: y of one device", i);
        cr_assert_arr_eq(alone->dx, page->dx, sizeof page->dx, "split %d: dx of one device", i);
        cr_assert_arr_eq(alone->running[0], page->running[0], sizeof page->running[0]);
        munmap(page, sizeof *page);
        munmap(alone, sizeof *alone);
    }
}

Test(syncbn, splits_equal_the_whole_batch, .timeout = 120) {
    check_splits(DEVICE_HOST);
}

Test(syncbn, splits_equal_the_whole_batch_on_late_devices, .timeout = 120) {
    check_splits(DEVICE_HOST_LATE);
}

Test(syncbn, splits_equal_the_whole_batch_on_gpus, .timeout = 240) {
    need_gpus(3);
    check_splits(DEVICE_CUDA);
}

Test(syncbn, splits_equal_the_whole_batch_on_a_shared_gpu, .timeout = 240) {
    need_gpus(1);
    check_splits(DEVICE_CUDA);
}

/* Four virtual devices on 1, 2 and 4 ranks. */
Test(syncbn, bits_do_not_depend_on_the_number_of_ranks, .timeout = 60) {
    struct page *one = share(sizeof(struct page));
    struct job job = {.page = one,
                      .kind = DEVICE_HOST,
                      .segments = 4,
                      .n = {3, 1, 0, 4},
                      .training = 1,
                      .victim = -1};
    run_alone(&job);
    for (int ranks = 2; ranks <= 4; ranks *= 2) {
        struct page *many = job.page = share(sizeof(struct page));
        run_well(ranks, rank_main, &job);
        cr_assert_arr_eq(one->y, many->y, sizeof one->y, "y on %d ranks", ranks);
        cr_assert_arr_eq(one->dx, many->dx, sizeof one->dx, "dx on %d ranks", ranks);
        for (int r = 0; r < ranks; r++)
            cr_assert_arr_eq(one->running[0], many->running[r], sizeof one->running[0]);
        munmap(many, sizeof *many);
    }
    munmap(one, sizeof *one);
}

/* Eval is plain BatchNorm: running statistics, and no rank waits for another. */
Test(syncbn, eval_needs_no_other_rank, .timeout = 60) {
    struct job job = {.page = share(sizeof(struct page)),
                      .kind = DEVICE_HOST,
                      .segments = 2,
                      .n = {5, 3},
                      .training = 0,
                      .victim = -1};
    run_well(2, rank_main, &job);
    for (int i = 0; i < SAMPLES * SAMPLE; i++) {
        int c = i / PIXELS % CHANNELS;
        double want =
            value(i, 7919, 2, .25) / sqrt(1 + 1e-5) * value(c, 331, 1, 1.5) + value(c, 17, 1, 0);
        cr_assert_float_eq(job.page->y[i], want, TOLERANCE * (1 + fabs(want)));
    }
    cr_assert_eq(job.page->batches[0], 0);
    munmap(job.page, sizeof *job.page);
}

/* A rank that dies between forward and backward ends the job long before its deadline. */
Test(syncbn, a_dead_rank_ends_the_job, .timeout = 25) {
    struct job job = {.page = share(sizeof(struct page)),
                      .kind = DEVICE_HOST,
                      .segments = 3,
                      .n = {3, 3, 2},
                      .training = 1,
                      .victim = 1};
    struct launch_result result;
    cr_assert_neq(launch_all(3, rank_main, &job, &result), OK);
    cr_assert_eq(result.rank, 1);
    cr_assert(strstr(error_message(), "rank 1"), "%s", error_message());
    munmap(job.page, sizeof *job.page);
}
