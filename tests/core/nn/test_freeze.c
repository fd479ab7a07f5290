/* duet_params_freeze: frozen parameters have no gradient, and backward goes no farther back than
 * necessary. Optimizers, clipping, a duet_ddp and a duet_data_parallel do not change them, and
 * files contain them. With CUDA_EMULATION the tests also run on GPUs.
 *
 * The judge is the same model without freezing, whose backbone is restored after each step: trained
 * parameters must have its bits. */
#include <unistd.h>

#include "tests/duet/shared.h"

enum { BACK, BACK_BIAS, NORM, NORM_BIAS, HEAD, HEAD_BIAS, PARAMS };
enum { N = 4, K = 3, H = 5, M = 2, STEPS = 4, LARGEST = H * K };
static const struct duet_param shapes[PARAMS] = {
    {"back.fc.weight", 2, {H, K}, NULL}, {"back.fc.bias", 1, {H}, NULL},
    {"back.bn.weight", 1, {H}, NULL},    {"back.bn.bias", 1, {H}, NULL},
    {"head.weight", 2, {M, H}, NULL},    {"head.bias", 1, {M}, NULL}};
static const struct duet_buffer buffers[] = {{"back.bn.running_mean", DUET_F32, 1, {H}, 0.25},
                                             {"back.bn.running_var", DUET_F32, 1, {H}, 2}};

struct bed {
    int me; /* rank */
    duet_device *device;
    duet_params *params;
    duet_optimizer *optimizer;
    duet_tape *tape;
    duet_tensor *x, *labels;
    float start[PARAMS][LARGEST];
};

/* what: NULL: nothing is frozen. */
static int open_bed(struct bed *b, duet_device *device, const char *what) {
    struct duet_param params[PARAMS];
    struct duet_optimizer_options o;
    int32_t labels[N];
    float x[N * K];
    int code = duet_optimizer_defaults(&o, "adamw");
    o.weight_decay = 0.1;
    memcpy(params, shapes, sizeof shapes);
    for (int i = 0; i < PARAMS; i++) {
        for (int k = 0; k < LARGEST; k++)
            b->start[i][k] = 0.125f * (float)((k * 7 + i * 3) % 11 - 5);
        params[i].values = b->start[i];
    }
    for (int i = 0; i < N * K; i++)
        x[i] = (float)((i * 5 + b->me * 3) % 9 - 4) / 4;
    for (int i = 0; i < N; i++)
        labels[i] = (i + b->me) % M;
    b->device = device;
    if (code || (code = duet_params_create(&b->params, device, params, PARAMS))) return code;
    if ((code = duet_params_register_buffers(b->params, buffers, 2))) return code;
    if (what && (code = duet_params_freeze(b->params, what))) return code;
    if ((code = duet_optimizer_create(&b->optimizer, b->params, &o))) return code;
    if ((code = duet_tape_create(&b->tape, device))) return code;
    if ((code = duet_tensor_create(&b->x, device, DUET_F32, 2, (int[]){N, K}, x))) return code;
    return duet_tensor_create(&b->labels, device, DUET_I32, 1, (int[]){N}, labels);
}

static void close_bed(struct bed *b) {
    duet_tensor_free(b->x), duet_tensor_free(b->labels);
    duet_tape_free(b->tape);
    duet_optimizer_free(b->optimizer);
    duet_params_free(b->params);
}

/* The norm is in eval mode, as that of a frozen backbone. */
static duet_var *forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    duet_var *h = duet_linear(t, x, BACK, BACK_BIAS);
    h = duet_relu(t, duet_batch_norm(t, h, NORM, NORM_BIAS, 0, 1e-5, 0, 1));
    return duet_linear(t, h, HEAD, HEAD_BIAS);
}

static int backward(struct bed *b) {
    int code = duet_tape_begin(b->tape, b->params, N, DUET_TRAIN);
    duet_var *scores = forward(b->tape, duet_input(b->tape, b->x), NULL);
    if (code) return code;
    return duet_backward(b->tape, duet_cross_entropy(b->tape, scores, b->labels, DUET_MEAN, NULL),
                         NULL);
}

static int same(duet_tensor *a, duet_tensor *b) {
    float x[LARGEST] = {0}, y[LARGEST] = {0};
    return a && b && !duet_tensor_read(a, x) && !duet_tensor_read(b, y) && !memcmp(x, y, sizeof x);
}

static int is_start(struct bed *b, int i) {
    float x[LARGEST];
    return !duet_tensor_read(duet_params_value(b->params, i), x) &&
           !memcmp(x, b->start[i], duet_tensor_count(duet_params_value(b->params, i)) * sizeof *x);
}

/* One step of both beds; in the first all parameters before `first` are frozen. */
static int step_both(struct bed *ours, struct bed *judge, int first) {
    int code, rank = ours->me;
    double norm, all;
    TRY(duet_optimizer_step(ours->optimizer));
    for (int i = 0; i < first; i++)
        HOLDS(!duet_params_grad(ours->params, i) && !duet_params_has_grad(ours->params, i) &&
              !duet_params_grad(ours->params, i) && is_start(ours, i));
    for (int i = first; i < PARAMS; i++)
        HOLDS(same(duet_params_grad(ours->params, i), duet_params_grad(judge->params, i)));
    TRY(duet_clip_grad_norm(ours->params, 1e9, &norm));
    for (int i = 0; i < first; i++)
        TRY(duet_tensor_scale(duet_params_grad(judge->params, i), 0));
    TRY(duet_clip_grad_norm(judge->params, 1e9, &all));
    HOLDS(norm == all && norm > 0);
    TRY(duet_optimizer_step(judge->optimizer));
    for (int i = 0; i < first; i++)
        TRY(duet_tensor_write(duet_params_value(judge->params, i), judge->start[i]));
    for (int i = first; i < PARAMS; i++)
        HOLDS(same(duet_params_value(ours->params, i), duet_params_value(judge->params, i)) &&
              !is_start(ours, i));
out:
    return code;
}

/* The name to freeze, and how many parameters that freezes: the first ones. */
static const struct {
    const char *name;
    int first;
} choices[] = {{"back", 4}, {"back.fc", 2}, {"back.fc.weight", 1}, {NULL, 0}};
enum { CHOICES = sizeof choices / sizeof *choices };

Test(api_freeze, the_others_train_as_if_it_were_put_back_each_step, .timeout = 60) {
    for (int kind = 0; kind < API_KINDS; kind++)
        for (int i = 0; i < CHOICES; i++) {
            struct bed ours = {.me = 0}, judge = {.me = 0};
            duet_device *device;
            MUST(duet_devices_open(&device, 1, api_kinds[kind], 2 * api_memory(api_kinds[kind])));
            MUST(open_bed(&ours, device, choices[i].name));
            MUST(open_bed(&judge, device, NULL));
            for (int step = 0; step < STEPS; step++) {
                MUST(backward(&ours));
                MUST(backward(&judge));
                MUST(step_both(&ours, &judge, choices[i].first));
            }
            close_bed(&ours), close_bed(&judge);
            duet_devices_close(&device, 1);
        }
}

Test(api_freeze, files_have_what_is_frozen, .timeout = 30) {
    char file[64];
    duet_device *device;
    struct bed b = {.me = 0}, other = {.me = 0};
    snprintf(file, sizeof file, "/tmp/duet_freeze_%d", (int)getpid());
    MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    MUST(open_bed(&b, device, "back"));
    MUST(open_bed(&other, device, "head"));
    duet_tensor *value = duet_params_value(b.params, HEAD);
    MUST(backward(&b));
    MUST(duet_optimizer_step(b.optimizer));
    struct duet_checkpoint c = {.params = b.params, .optimizer = b.optimizer, .tape = b.tape};
    MUST(duet_checkpoint_save(&c, file));
    MUST(backward(&b));
    MUST(duet_optimizer_step(b.optimizer));
    MUST(duet_checkpoint_load(&c, file));
    cr_assert(value == duet_params_value(b.params, HEAD));
    MUST(duet_params_load(other.params, file));
    for (int i = 0; i < PARAMS; i++)
        cr_assert(same(duet_params_value(b.params, i), duet_params_value(other.params, i)));
    c = (struct duet_checkpoint){.params = other.params, .optimizer = other.optimizer};
    MUST_FAIL(duet_checkpoint_load(&c, file), DUET_FAILED, "optimizer.exp_avg.back.fc.weight");
    unlink(file);
    close_bed(&b), close_bed(&other);
    duet_devices_close(&device, 1);
}

Test(api_freeze, misuse_is_told, .timeout = 30) {
    duet_device *device;
    duet_params *params;
    struct bed b = {.me = 0};
    MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    MUST(open_bed(&b, device, "back"));
    MUST_FAIL(duet_params_freeze(b.params, "head"), DUET_USAGE, "'head': too late");
    MUST(duet_params_create(&params, device, shapes, PARAMS));
    MUST(duet_params_register_buffers(params, buffers, 2));
    MUST_FAIL(duet_params_freeze(NULL, "head"), DUET_USAGE, "no parameters were given");
    MUST_FAIL(duet_params_freeze(params, "hea"), DUET_USAGE, "no parameter has this name");
    MUST_FAIL(duet_params_freeze(params, "back.fc.weight.x"), DUET_USAGE, "no parameter has");
    MUST(duet_params_freeze(params, "back"));
    MUST(duet_params_freeze(params, "head"));
    for (int i = 0; i < PARAMS; i++)
        cr_assert_null(duet_params_grad(params, i));
    duet_params *trained = b.params;
    b.params = params;
    MUST_FAIL(backward(&b), DUET_USAGE, "does not require grad");
    MUST_FAIL(duet_params_freeze(params, "back"), DUET_USAGE, "too late");
    b.params = trained;
    duet_params_free(params);
    close_bed(&b);
    duet_devices_close(&device, 1);
}

/* ---- ranks ---- */

static int ranks(int rank, void *context) {
    duet_group *group = NULL;
    duet_device *device = NULL;
    duet_ddp *ddp[2] = {NULL, NULL};
    struct bed ours = {.me = rank}, judge = {.me = rank};
    int code;
    TRY(duet_group_init(&group, 60));
    TRY(duet_device_open(&device, context, 0, 2 * api_memory(context)));
    for (int unused = 0; unused < 2; unused++) {
        const struct duet_ddp_options options = {.find_unused_parameters = unused,
                                                 .bucket_cap_mb = 1e-4};
        TRY(open_bed(&ours, device, "back"));
        TRY(open_bed(&judge, device, NULL));
        TRY(duet_ddp_create(&ddp[0], group, ours.params, &options));
        TRY(duet_ddp_create(&ddp[1], group, judge.params, &options));
        for (int step = 0; step < STEPS; step++) {
            TRY(backward(&ours));
            TRY(backward(&judge));
            TRY(step_both(&ours, &judge, HEAD));
        }
        duet_ddp_free(ddp[0]), duet_ddp_free(ddp[1]);
        ddp[0] = ddp[1] = NULL;
        close_bed(&ours), close_bed(&judge);
        ours = judge = (struct bed){.me = rank};
    }
out:
    duet_ddp_free(ddp[0]), duet_ddp_free(ddp[1]);
    close_bed(&ours), close_bed(&judge);
    duet_devices_close(&device, 1);
    duet_group_destroy(&group);
    return code;
}

Test(api_freeze, ranks_sum_only_what_is_trained, .timeout = 60) {
    for (int kind = 0; kind < API_KINDS; kind++)
        MUST(duet_spawn(2, ranks, (void *)api_kinds[kind]));
}

/* Each rank freezes other parameters: as many of the same sizes, others, all. */
static int differ(int rank, void *context) {
    static const char *const frozen[3][2] = {
        {"back.bn.weight", "back.bn.bias"}, {"back", "head"}, {"head", "head"}};
    static const char *const says[3] = {"freeze the same ones on all ranks", "inconsistent",
                                        "is not needed when a module"};
    const int way = *(const int *)context;
    duet_group *group = NULL;
    duet_device *device = NULL;
    duet_ddp *ddp = NULL;
    struct bed b = {.me = rank};
    int code;
    TRY(duet_group_init(&group, 60));
    TRY(duet_device_open(&device, "cpu", 0, API_MEMORY));
    TRY(duet_params_create(&b.params, device, shapes, PARAMS));
    if (way == 2) TRY(duet_params_freeze(b.params, "back"));
    TRY(duet_params_freeze(b.params, frozen[way][rank]));
    code = duet_ddp_create(&ddp, group, b.params, NULL);
    HOLDS(code == DUET_PEER || (code && strstr(duet_error(), says[way])));
    code = DUET_OK;
out:
    duet_ddp_free(ddp);
    duet_params_free(b.params);
    duet_devices_close(&device, 1);
    duet_group_destroy(&group);
    return code;
}

Test(api_freeze, ranks_that_freeze_differently_are_told, .timeout = 60) {
    for (int way = 0; way < 3; way++)
        cr_expect_neq(duet_spawn(2, differ, &way), DUET_CHECK, "way %d", way);
}

/* ---- replicas ---- */

Test(api_freeze, replicas_reduce_only_what_is_trained, .timeout = 60) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        struct bed beds[2] = {{.me = 0}, {.me = 0}};
        duet_device *devices[2];
        duet_data_parallel *dp[2];
        MUST(duet_devices_open(devices, 2, api_kinds[kind], 2 * api_memory(api_kinds[kind])));
        for (int i = 0; i < 2; i++) {
            MUST(open_bed(&beds[i], devices[0], i ? NULL : "back"));
            MUST(
                duet_data_parallel_create(&dp[i], devices, 2, beds[i].params, forward, NULL, NULL));
        }
        for (int step = 0; step < STEPS; step++) {
            for (int i = 0; i < 2; i++) {
                static const float dy[N * M] = {1, -.5f, .25f, 2, -1, .5f, 1.5f, -.25f};
                duet_tensor *y, *grad;
                MUST(duet_data_parallel_forward(dp[i], &beds[i].x, 1, &y, 1, DUET_TRAIN));
                MUST(duet_tensor_create(&grad, devices[0], DUET_F32, 2, (int[]){N, M}, dy));
                MUST(duet_data_parallel_backward(dp[i], &grad, 1));
                duet_tensor_free(grad), duet_tensor_free(y);
            }
            MUST(step_both(&beds[0], &beds[1], HEAD));
        }
        for (int i = 0; i < 2; i++) {
            duet_data_parallel_free(dp[i]);
            close_bed(&beds[i]);
        }
        duet_devices_close(devices, 2);
    }
}
