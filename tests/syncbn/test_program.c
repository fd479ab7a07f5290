/* Batch normalisation in a program under duet_ddp. With SyncBatchNorm, ranks with uneven shares of
 * a batch compute what one process computes from all of it. Rank 0's buffers go to all ranks when
 * PyTorch sends them, and into files. With CUDA_EMULATION the tests also run on GPUs. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/duet/shared.h"

/* Numbers of up to about 3, kept in float with sums in double; 3e-7 was measured. */
static const double TOLERANCE = 1e-6;
/* The least difference of plain BatchNorm on these shares. */
static const double VISIBLE = 1e-2;

enum { W, B, FC, PARAMS, SAMPLES = 8, C = 3, H = 4, K = C * H * H, CLASSES = 2, RANKS = 3 };
enum { MEAN, VAR, BATCHES, BUFFERS };

static const struct duet_buffer buffers[BUFFERS] = {
    {"bn.running_mean", DUET_F32, 1, {C}, 0},
    {"bn.running_var", DUET_F32, 1, {C}, 1},
    {"bn.num_batches_tracked", DUET_I64, 0, {0}, 0}};

struct job {
    const char *kind;
    int n[RANKS]; /* samples of each rank */
    double momentum, timeout_s;
};

struct rank {
    const struct job *job;
    int rank, world;
    duet_group *group;
    duet_device *device;
    duet_params *params, *whole; /* whole: of a process that has all samples */
    duet_tape *tape;
    duet_ddp *ddp;
};

static int make_params(struct rank *r, duet_params **out) {
    static const float w[C] = {1, .5f, 2}, b[C] = {0, .25f, -.5f};
    float fc[CLASSES * K];
    for (int i = 0; i < CLASSES * K; i++)
        fc[i] = .1f * cosf((float)i);
    const struct duet_param params[PARAMS] = {
        {"bn.weight", 1, {C}, w}, {"bn.bias", 1, {C}, b}, {"fc.weight", 2, {CLASSES, K}, fc}};
    int code = duet_params_create(out, r->device, params, PARAMS);
    return code ? code : duet_params_register_buffers(*out, buffers, BUFFERS);
}

static int open_rank(struct rank *r, const struct job *job) {
    int code;
    *r = (struct rank){.job = job};
    if ((code = duet_group_init(&r->group, job->timeout_s > 0 ? job->timeout_s : 60))) return code;
    r->rank = duet_group_rank(r->group), r->world = duet_group_size(r->group);
    if ((code = duet_device_open(&r->device, job->kind, 0, api_memory(job->kind)))) return code;
    if ((code = make_params(r, &r->params))) return code;
    if ((code = make_params(r, &r->whole))) return code;
    return duet_tape_create(&r->tape, r->device);
}

static void close_rank(struct rank *r) {
    duet_ddp_free(r->ddp);
    duet_tape_free(r->tape);
    duet_params_free(r->params);
    duet_params_free(r->whole);
    duet_devices_close(&r->device, 1);
    duet_group_destroy(&r->group);
}

/* The results of a pass over the samples first .. first + n - 1 of a batch. */
struct result {
    float y[SAMPLES * CLASSES], dx[SAMPLES * K], running[2][C];
    int64_t batches;
};

static int read_and_free(duet_tensor *tensor, void *host) {
    int code = duet_tensor_read(tensor, host);
    duet_tensor_free(tensor);
    return code;
}

static int read_buffers(duet_params *params, struct result *result) {
    int code = duet_tensor_read(duet_params_buffer(params, MEAN), result->running[0]);
    if (!code) code = duet_tensor_read(duet_params_buffer(params, VAR), result->running[1]);
    return code ? code : duet_tensor_read(duet_params_buffer(params, BATCHES), &result->batches);
}

static int pass(struct rank *r, duet_params *params, int first, int n, int number,
                enum duet_pass kind, struct result *result) {
    float x[SAMPLES * K];
    int32_t label[SAMPLES];
    duet_tensor *pixels = NULL, *labels = NULL, *out = NULL;
    duet_var *leaf = NULL, *y = NULL;
    for (int i = 0; i < n * K; i++) /* magnitudes differ, so shares differ in their mean */
        x[i] = sinf((float)((first * K + i) * (number + 3))) * (float)(1 + (first + i / K) % 4) +
               (float)(first + i / K) / 4;
    for (int i = 0; i < n; i++)
        label[i] = (first + i + number) % CLASSES;
    int code = duet_tensor_create(&pixels, r->device, DUET_F32, 4, (int[]){n, C, H, H}, x);
    if (!code) code = duet_tensor_create(&labels, r->device, DUET_I32, 1, &n, label);
    if (!code) code = duet_tape_begin(r->tape, params, n, kind);
    if (!code) {
        duet_tape *t = r->tape;
        leaf = duet_leaf(t, pixels);
        y = duet_relu(t, duet_batch_norm(t, leaf, W, B, MEAN, 1e-5, r->job->momentum, 0));
        y = duet_linear(t, duet_flatten(t, y), FC, DUET_NO_BIAS);
        if (kind == DUET_TRAIN)
            code = duet_backward(t, duet_cross_entropy(t, y, labels, DUET_SUM, NULL), NULL);
    }
    if (!code && result && kind == DUET_TRAIN) {
        code = duet_var_grad(&out, r->tape, leaf);
        if (!code) code = read_and_free(out, result->dx);
    }
    if (!code && result) {
        code = duet_var_value(&out, r->tape, y);
        if (!code) code = read_and_free(out, result->y);
    }
    duet_tensor_free(pixels);
    duet_tensor_free(labels);
    return code || !result ? code : read_buffers(params, result);
}

static double apart(const float *a, const float *b, int count, double factor) {
    double most = 0;
    for (int i = 0; i < count; i++)
        most = fmax(most, fabs(factor * (double)a[i] - factor * (double)b[i]));
    return most;
}

/* The largest difference between the mean gradients, of which DDP's is 1/world of the sum. */
static double gradients_apart(struct rank *r) {
    float ours[CLASSES * K], whole[CLASSES * K];
    double most = 0;
    for (int i = 0; i < PARAMS; i++) {
        duet_tensor *grad = duet_params_grad(r->params, i);
        if (duet_tensor_read(grad, ours) || duet_tensor_read(duet_params_grad(r->whole, i), whole))
            return INFINITY;
        for (size_t k = 0; k < duet_tensor_count(grad); k++)
            ours[k] *= (float)r->world;
        most = fmax(most, apart(ours, whole, (int)duet_tensor_count(grad), 1.0 / SAMPLES));
    }
    return most;
}

static int compare(struct rank *r, int first, int n, int number, enum duet_pass kind,
                   double *most) {
    struct result ours = {0}, whole = {0};
    int code = pass(r, r->params, first, n, number, kind, &ours);
    if (!code) code = pass(r, r->whole, 0, SAMPLES, number, kind, &whole);
    if (code) return code;
    *most = apart(ours.y, whole.y + first * CLASSES, n * CLASSES, 1);
    *most = fmax(*most, apart(ours.running[0], whole.running[0], 2 * C, 1));
    if (kind == DUET_TRAIN) {
        *most = fmax(*most, apart(ours.dx, whole.dx + first * K, n * K, 1));
        *most = fmax(*most, gradients_apart(r));
    }
    if (ours.batches != whole.batches) *most = INFINITY;
    return DUET_OK;
}

static duet_var *same(duet_tape *tape, duet_var *x, void *context) {
    (void)tape, (void)context;
    return x;
}

static int synchronises(int number, void *context) {
    struct rank r;
    double most;
    duet_data_parallel *dp;
    int code = open_rank(&r, context), first = 0, rank = r.rank;
    (void)number;
    if (code) goto out;
    for (int i = 0; i < rank; i++)
        first += r.job->n[i];
    TRY(duet_ddp_create(&r.ddp, r.group, r.params, NULL));
    TRY(compare(&r, first, r.job->n[rank], 0, DUET_TRAIN, &most));
    HOLDS(r.world == 1 ? most <= TOLERANCE : most > VISIBLE);
    for (int i = 0; i < BUFFERS; i++) /* the running statistics have diverged */
        TRY(duet_tensor_copy(duet_params_buffer(r.params, i), duet_params_buffer(r.whole, i)));
    TRY(duet_convert_sync_batchnorm(r.params, r.group));
    HOLDS(duet_convert_sync_batchnorm(r.params, r.group) == DUET_USAGE);
    HOLDS(strstr(duet_error(), "converted already"));
    for (int step = 1; step < 4; step++) {
        TRY(compare(&r, first, r.job->n[rank], step, DUET_TRAIN, &most));
        HOLDS(most <= TOLERANCE);
        TRY(duet_sgd(r.params, 0.1 * r.world, SAMPLES));
        TRY(duet_sgd(r.whole, 0.1, SAMPLES));
    }
    TRY(compare(&r, first, r.job->n[rank], 9, DUET_EVALUATE, &most));
    HOLDS(most <= TOLERANCE);
    duet_ddp_free(r.ddp), r.ddp = NULL;
    HOLDS(duet_data_parallel_create(&dp, &r.device, 1, r.params, same, NULL, NULL) == DUET_USAGE);
    HOLDS(strstr(duet_error(), "SyncBatchNorm is only supported within"));
out:
    close_rank(&r);
    return code;
}

Test(api_sync_bn, uneven_shares_are_normalised_as_the_whole_batch, .timeout = 120) {
    struct job jobs[] = {{.n = {5, 3}, .momentum = 0.1},
                         {.n = {6, 0, 2}, .momentum = -1}, /* the mean of all batches */
                         {.n = {1, 5, 2}, .momentum = 0.3},
                         {.n = {8}, .momentum = 0.1}};
    const int ranks[] = {2, 3, 3, 1};
    for (int kind = 0; kind < API_KINDS; kind++)
        for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
            jobs[i].kind = api_kinds[kind];
            MUST(duet_spawn(ranks[i], synchronises, &jobs[i]));
        }
}

/* ---- buffers ---- */

/* *same 1: this rank's buffers are those of rank 0. */
static int like_rank_0(struct rank *r, int *same) {
    *same = 1;
    for (int i = 0; i < BUFFERS; i++) {
        duet_tensor *copy, *own = duet_params_buffer(r->params, i);
        char here[C * sizeof(float)], there[C * sizeof(float)];
        size_t bytes = i == BATCHES ? sizeof(int64_t) : sizeof here;
        int code = duet_tensor_to(&copy, own, r->device);
        if (!code) code = duet_broadcast(r->group, copy, 0, NULL);
        if (!code) code = duet_tensor_read(copy, there);
        if (!code) code = duet_tensor_read(own, here);
        duet_tensor_free(copy);
        if (code) return code;
        *same &= !memcmp(here, there, bytes);
    }
    return DUET_OK;
}

static int broadcasts(int number, void *context) {
    struct rank r;
    const struct duet_ddp_options keep = {.no_broadcast_buffers = 1};
    int code = open_rank(&r, context), same = 0, rank = r.rank;
    const float mean[C] = {(float)rank, 0, 0};
    (void)number;
    if (code) goto out;
    TRY(duet_tensor_write(duet_params_buffer(r.params, MEAN), mean));
    TRY(like_rank_0(&r, &same));
    HOLDS(same == !rank);
    TRY(duet_ddp_create(&r.ddp, r.group, r.params, NULL));
    TRY(like_rank_0(&r, &same));
    HOLDS(same); /* at the start */
    for (int step = 0; step < 2; step++) {
        TRY(pass(&r, r.params, rank, 2, step, DUET_TRAIN, NULL));
        TRY(like_rank_0(&r, &same));
        HOLDS(same == !rank); /* each rank tracks its own samples */
        TRY(duet_tape_begin(r.tape, r.params, 0, step ? DUET_TRAIN : DUET_EVALUATE));
        TRY(like_rank_0(&r, &same));
        HOLDS(same); /* before the next forward, in evaluation too */
    }
    TRY(duet_tape_accumulate(r.tape, 2));
    for (int p = 0; p < 4; p++) {
        TRY(pass(&r, r.params, rank, 2, p, DUET_TRAIN, NULL));
        TRY(duet_tape_begin(r.tape, NULL, 0, DUET_EVALUATE)); /* without them: takes no part */
        TRY(like_rank_0(&r, &same));
        HOLDS(same == !rank);
    }
    duet_ddp_free(r.ddp), r.ddp = NULL;
    TRY(duet_ddp_create(&r.ddp, r.group, r.params, &keep));
    TRY(duet_tape_accumulate(r.tape, 1));
    TRY(pass(&r, r.params, rank, 2, 0, DUET_TRAIN, NULL));
    TRY(duet_tape_begin(r.tape, r.params, 0, DUET_EVALUATE));
    TRY(like_rank_0(&r, &same));
    HOLDS(same == !rank); /* neither at the start nor before a forward */
out:
    close_rank(&r);
    return code;
}

/* Rank 1 alone registers buffers. */
static int differ(int number, void *context) {
    struct rank r;
    duet_params *other = NULL;
    int code = open_rank(&r, context), rank = r.rank;
    (void)number;
    if (code) goto out;
    TRY(duet_params_create(&other, r.device, &(struct duet_param){"bn.weight", 1, {C}, NULL}, 1));
    if (rank) TRY(duet_params_register_buffers(other, buffers, 2));
    TRY(duet_ddp_create(&r.ddp, r.group, other, NULL));
out:
    duet_ddp_free(r.ddp), r.ddp = NULL;
    duet_params_free(other);
    close_rank(&r);
    return code;
}

/* PyTorch's trap: rank 0 evaluates, and the others do not call. */
static int evaluates_alone(int number, void *context) {
    struct rank r;
    int code = open_rank(&r, context), rank = r.rank;
    (void)number;
    if (code) goto out;
    TRY(duet_ddp_create(&r.ddp, r.group, r.params, NULL));
    TRY(pass(&r, r.params, rank, 2, 0, DUET_TRAIN, NULL));
    if (rank)
        sleep(5); /* is ended with the job */
    else
        TRY(pass(&r, r.params, 0, 2, 0, DUET_EVALUATE, NULL));
out:
    close_rank(&r);
    return code;
}

Test(api_sync_bn, buffers_are_rank_0s_when_pytorch_sends_them, .timeout = 120) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        struct job job = {.kind = api_kinds[kind], .momentum = 0.5};
        MUST(duet_spawn(2, broadcasts, &job));
    }
    struct job job = {.kind = "cpu"};
    cr_assert_neq(duet_spawn(2, differ, &job), DUET_OK);
    MUST_SAY("inconsistent");
}

Test(api_sync_bn, evaluation_on_rank_0_alone_is_ended_by_the_deadline, .timeout = 60) {
    struct job job = {.kind = "cpu", .momentum = 0.5, .timeout_s = 0.3};
    cr_assert_eq(duet_spawn(2, evaluates_alone, &job), DUET_TIMEOUT, "%s", duet_error());
    MUST_SAY("broadcast");
}

Test(api_sync_bn, files_have_buffers, .timeout = 30) {
    struct job job = {.kind = "cpu", .momentum = -1};
    struct rank r = {.job = &job};
    struct result saved = {0}, loaded = {0};
    char file[] = "/tmp/duet-buffers-XXXXXX";
    int fd = mkstemp(file);
    cr_assert_geq(fd, 0);
    close(fd);
    MUST(duet_device_open(&r.device, "cpu", 0, API_MEMORY));
    MUST(make_params(&r, &r.params));
    MUST(make_params(&r, &r.whole));
    MUST(duet_tape_create(&r.tape, r.device));
    for (int step = 0; step < 3; step++)
        MUST(pass(&r, r.params, 0, SAMPLES, step, DUET_TRAIN, NULL));
    MUST(duet_params_save(r.params, file));
    MUST(duet_params_load(r.whole, file));
    MUST(read_buffers(r.params, &saved));
    MUST(read_buffers(r.whole, &loaded));
    cr_assert_eq(saved.batches, 3);
    cr_assert_eq(memcmp(&saved, &loaded, sizeof saved), 0);
    close_rank(&r);
    unlink(file);
}

Test(api_sync_bn, misuse_is_one_line, .timeout = 30) {
    struct job job = {.kind = "cpu", .momentum = 0.1};
    struct rank r = {.job = &job};
    duet_params *bare;
    const struct duet_param one = {"bn.running_var", 1, {C}, NULL};
    struct duet_buffer wrong = buffers[VAR];
    MUST(duet_device_open(&r.device, "cpu", 0, API_MEMORY));
    MUST(make_params(&r, &r.params));
    MUST(duet_params_create(&bare, r.device, &one, 1));
    const struct duet_buffer large[2] = {{"a", DUET_F32, 1, {1 << 30}, 0},
                                         {"b", DUET_I64, 2, {1 << 20, 1 << 9}, 0}};
    MUST_FAIL(duet_params_register_buffers(bare, large, 2), DUET_USAGE, "8589934592 bytes in all");
    MUST_FAIL(duet_params_register_buffers(bare, large, 1), DUET_MEMORY, "");
    MUST_FAIL(duet_params_register_buffers(r.params, buffers, 1), DUET_USAGE, "3 already");
    MUST_FAIL(duet_params_register_buffers(bare, buffers, 2), DUET_USAGE, "'bn.running_var'");
    wrong.type = DUET_F64;
    MUST_FAIL(duet_params_register_buffers(bare, &wrong, 1), DUET_USAGE, "DUET_I64");
    wrong = (struct duet_buffer){"x", DUET_F32, 1, {0}, 0};
    MUST_FAIL(duet_params_register_buffers(bare, &wrong, 1), DUET_USAGE, "dimension 0");
    wrong = (struct duet_buffer){"x", DUET_I64, 0, {0}, (double)NAN};
    MUST_FAIL(duet_params_register_buffers(bare, &wrong, 1), DUET_USAGE, "initial value nan");
    duet_params_free(bare);
    close_rank(&r);
}
