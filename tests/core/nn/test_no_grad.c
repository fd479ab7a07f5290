/* Parameters without a gradient, PyTorch's grad None. Optimizers do not change them or their state,
 * on one device, in a duet_ddp with find_unused_parameters and in a duet_data_parallel. Checkpoints
 * keep each one's number of updates; zero_grad removes all gradients. With CUDA_EMULATION the tests
 * also run on GPUs.
 *
 * The judge is an optimizer for only the extra layer, which gets its gradient in the steps that use
 * the layer, and makes no step in the others. */
#include <unistd.h>

#include "tests/duet/shared.h"

enum { W, EXTRA, PARAMS };
enum { N = 4, K = 3, M = 2, WEIGHTS = M * K, STEPS = 6 };

/* Users of the extra layer in each step. 1: all; 2: rank or replica 1 alone; 0: nobody. */
static const int uses[STEPS] = {1, 0, 2, 0, 0, 1};

static const char *const names[] = {"sgd", "adadelta", "adam", "adamw"};
enum { OPTIMIZERS = sizeof names / sizeof *names };

static int options_of(int i, struct duet_optimizer_options *o) {
    int code = duet_optimizer_defaults(o, names[i]);
    o->weight_decay = 0.1;
    o->lr = 0.05;
    if (!strcmp(names[i], "sgd")) o->momentum = 0.9;
    return code;
}

/* The model under test, and the judge. */
struct bed {
    int me; /* rank or replica */
    duet_device *device;
    duet_params *params, *judged;
    duet_optimizer *optimizer, *judge;
    duet_tape *tape;
    duet_tensor *x, *dy;
    int step;
};

static int open_bed(struct bed *b, duet_device *device, int optimizer) {
    static const float start[PARAMS][WEIGHTS] = {{.5f, -1, .25f, 2, 1, -.5f},
                                                 {1, .75f, -2, .5f, -.25f, 1.5f}};
    const struct duet_param params[] = {{"w", 2, {M, K}, start[W]},
                                        {"extra", 2, {M, K}, start[EXTRA]}};
    struct duet_optimizer_options o;
    int code;
    b->device = device;
    if ((code = options_of(optimizer, &o))) return code;
    if ((code = duet_params_create(&b->params, device, params, PARAMS))) return code;
    if ((code = duet_params_create(&b->judged, device, params + EXTRA, 1))) return code;
    if ((code = duet_optimizer_create(&b->optimizer, b->params, &o))) return code;
    if ((code = duet_optimizer_create(&b->judge, b->judged, &o))) return code;
    if ((code = duet_tape_create(&b->tape, device))) return code;
    if ((code = duet_tensor_create(&b->x, device, DUET_F32, 2, (int[]){N, K}, NULL))) return code;
    return duet_tensor_create(&b->dy, device, DUET_F32, 2, (int[]){N, M}, NULL);
}

static void close_bed(struct bed *b) {
    duet_tensor_free(b->x), duet_tensor_free(b->dy);
    duet_tape_free(b->tape);
    duet_optimizer_free(b->optimizer), duet_optimizer_free(b->judge);
    duet_params_free(b->params), duet_params_free(b->judged);
}

/* Inputs differ from step to step and from rank to rank. */
static int bring(struct bed *b) {
    float x[N * K], dy[N * M];
    for (int i = 0; i < N * K; i++)
        x[i] = (float)((i * 7 + b->step * 5 + b->me * 3) % 11 - 5) / 4;
    for (int i = 0; i < N * M; i++)
        dy[i] = (float)((i * 5 + b->step * 3 + b->me) % 7 - 3) / 2;
    int code = duet_tensor_write(b->x, x);
    return code ? code : duet_tensor_write(b->dy, dy);
}

static duet_var *model(duet_tape *t, duet_var *x, int extra) {
    duet_var *y = duet_linear(t, x, W, DUET_NO_BIAS);
    return extra ? duet_add(t, y, duet_linear(t, x, EXTRA, DUET_NO_BIAS)) : y;
}

static int one_tape(struct bed *b) {
    int how = uses[b->step], extra = how == 1 || (how == 2 && b->me == 1);
    int code = duet_tape_begin(b->tape, b->params, N, DUET_TRAIN);
    if (code) return code;
    return duet_backward(b->tape, model(b->tape, duet_input(b->tape, b->x), extra), b->dy);
}

static int same(duet_tensor *a, duet_tensor *b) {
    float x[WEIGHTS], y[WEIGHTS];
    return !duet_tensor_read(a, x) && !duet_tensor_read(b, y) && !memcmp(x, y, sizeof x);
}

/* After a backward both optimizers step; used: somebody used the extra layer. */
static int step_both(struct bed *b, int used) {
    float grad[WEIGHTS], zeros[WEIGHTS] = {0};
    int code, rank = b->me;
    TRY(duet_tensor_read(duet_params_grad(b->params, EXTRA), grad));
    HOLDS(!used == !memcmp(grad, zeros, sizeof zeros));
    TRY(duet_clip_grad_norm(b->params, 1e9, NULL)); /* creates no gradient that was missing */
    TRY(duet_optimizer_step(b->optimizer));
    if (used) {
        TRY(duet_tensor_write(duet_params_grad(b->judged, 0), grad));
        TRY(duet_optimizer_step(b->judge));
    }
    HOLDS(same(duet_params_value(b->params, EXTRA), duet_params_value(b->judged, 0)));
out:
    return code;
}

/* ---- one device, and a checkpoint in the middle ---- */

static int save_and_load(struct bed *b, int optimizer) {
    char file[64];
    struct duet_optimizer_options o;
    int code;
    snprintf(file, sizeof file, "/tmp/duet_no_grad_%d", (int)getpid());
    struct duet_checkpoint c = {.params = b->params, .optimizer = b->optimizer, .tape = b->tape};
    if ((code = duet_checkpoint_save(&c, file))) return code;
    duet_optimizer_free(b->optimizer);
    b->optimizer = NULL;
    if ((code = options_of(optimizer, &o))) return code;
    if ((code = duet_optimizer_create(&b->optimizer, b->params, &o))) return code;
    c.optimizer = b->optimizer;
    code = duet_checkpoint_load(&c, file);
    unlink(file);
    return code;
}

Test(api_no_grad, an_optimizer_leaves_unused_parameters_alone, .timeout = 60) {
    for (int kind = 0; kind < API_KINDS; kind++)
        for (int i = 0; i < OPTIMIZERS; i++) {
            struct bed b = {.me = 1};
            duet_device *device;
            MUST(duet_devices_open(&device, 1, api_kinds[kind], api_memory(api_kinds[kind])));
            MUST(open_bed(&b, device, i));
            for (; b.step < STEPS; b.step++) {
                MUST(bring(&b));
                MUST(one_tape(&b));
                MUST(step_both(&b, uses[b.step]));
                if (b.step == 3) MUST(save_and_load(&b, i));
            }
            close_bed(&b);
            duet_devices_close(&device, 1);
        }
}

Test(api_no_grad, what_the_program_writes_is_a_gradient, .timeout = 60) {
    const float ones[WEIGHTS] = {1, 1, 1, 1, 1, 1};
    struct bed b = {.me = 1, .step = 1};
    duet_device *device;
    duet_tensor *extra, *row, *whole;
    MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    MUST(open_bed(&b, device, 2));
    MUST(duet_tensor_create(&whole, device, DUET_F32, 2, (int[]){M, K}, ones));
    extra = duet_params_grad(b.params, EXTRA);
    MUST(duet_tensor_rows(&row, extra, 1, 1));
    for (int way = 0; way < 6; way++) {
        MUST(bring(&b));
        MUST(one_tape(&b));
        if (way == 1) MUST(duet_tensor_write(extra, ones));
        if (way == 2) MUST(duet_tensor_copy(extra, whole));
        if (way == 3) MUST(duet_tensor_add(extra, whole));
        if (way == 4) MUST(duet_tensor_write(row, ones));
        if (way == 5) MUST(duet_zero_grad(b.params)); /* removes the gradient of w, too */
        duet_tensor *before[PARAMS];
        for (int i = 0; i < PARAMS; i++)
            MUST(duet_tensor_to(&before[i], duet_params_value(b.params, i), device));
        MUST(duet_optimizer_step(b.optimizer));
        cr_expect_eq(same(before[EXTRA], duet_params_value(b.params, EXTRA)), way % 5 == 0,
                     "way %d", way);
        cr_expect_eq(same(before[W], duet_params_value(b.params, W)), way == 5, "way %d", way);
        duet_tensor_free(before[W]), duet_tensor_free(before[EXTRA]);
    }
    duet_tensor_free(row), duet_tensor_free(whole);
    close_bed(&b);
    duet_devices_close(&device, 1);
}

/* ---- ranks ---- */

static int ranks(int rank, void *context) {
    const struct duet_ddp_options options = {.find_unused_parameters = 1};
    duet_group *group = NULL;
    duet_device *device = NULL;
    duet_ddp *ddp = NULL;
    struct bed b = {.me = rank};
    int code;
    TRY(duet_group_init(&group, 60));
    TRY(duet_device_open(&device, context, 0, api_memory(context)));
    for (int i = 0; i < OPTIMIZERS; i++) {
        TRY(open_bed(&b, device, i));
        TRY(duet_ddp_create(&ddp, group, b.params, &options));
        for (b.step = 0; b.step < STEPS; b.step++) {
            TRY(bring(&b));
            TRY(one_tape(&b));
            TRY(step_both(&b, uses[b.step]));
        }
        duet_ddp_free(ddp), ddp = NULL;
        close_bed(&b);
        b = (struct bed){.me = rank};
    }
out:
    duet_ddp_free(ddp);
    close_bed(&b);
    duet_devices_close(&device, 1);
    duet_group_destroy(&group);
    return code;
}

Test(api_no_grad, ranks_leave_alone_what_none_has_used, .timeout = 60) {
    for (int kind = 0; kind < API_KINDS; kind++)
        MUST(duet_spawn(2, ranks, (void *)api_kinds[kind]));
}

/* ---- replicas ---- */

static void forward(duet_tape *t, const struct duet_replica *replica, duet_var **outputs,
                    void *context) {
    int how = uses[((const struct bed *)context)->step];
    outputs[0] = model(t, replica->x[0], how == 1 || (how == 2 && replica->index == 1));
}

/* One backward of the duet_data_parallel. */
static void replicas_pass(duet_data_parallel *dp, struct bed *b) {
    duet_tensor *y;
    MUST(bring(b));
    MUST(duet_data_parallel_forward(dp, &b->x, 1, &y, 1, DUET_TRAIN));
    MUST(duet_data_parallel_backward(dp, &b->dy, 1));
    duet_tensor_free(y);
}

Test(api_no_grad, replicas_leave_alone_what_none_has_used, .timeout = 60) {
    const struct duet_data_parallel_options several = {.forward_multi = forward};
    for (int kind = 0; kind < API_KINDS; kind++) {
        struct bed b = {.me = 0};
        duet_device *devices[2];
        duet_data_parallel *dp;
        MUST(duet_devices_open(devices, 2, api_kinds[kind], api_memory(api_kinds[kind])));
        MUST(open_bed(&b, devices[0], 2));
        MUST(duet_data_parallel_create(&dp, devices, 2, b.params, NULL, &b, &several));
        for (; b.step < STEPS; b.step++) {
            replicas_pass(dp, &b);
            MUST(step_both(&b, uses[b.step]));
        }
        duet_data_parallel_free(dp);
        close_bed(&b);
        duet_devices_close(devices, 2);
    }
}
