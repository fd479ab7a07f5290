/* A pipeline over two workers with micro-batches: PyTorch's tutorial on distributed pipeline
 * parallelism with RPC, on a small network.
 *
 *     rpc_pipeline [--split 4] [--steps 5] [--local]
 *
 * Worker "stage1" has the first layers and calls "stage2", which has the rest. The master splits
 * each batch into `split` micro-batches and sends all of them at once. A call that waits for stage2
 * releases its device, so stage1 computes the next micro-batch meanwhile: both workers are busy.
 * Backward runs through the same calls in reverse. Gradients of a parameter are added in the order
 * of the micro-batches. --local does the same on one tape, and every loss has the same bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "duet.h"
#include "ranks.h"

enum { BATCH = 64, INPUT = 32, WIDE = 48, CLASSES = 8, MOST_SPLIT = 16 };

struct settings {
    int split, steps, local;
};

/* ---- the two stages ---- */

struct stage {
    int number;
    duet_device *device;
    duet_params *params;
};

static duet_var *run_stage(duet_tape *t, int number, duet_var *x, int first) {
    duet_var *y = duet_linear(t, x, first, first + 1);
    return number == 1 ? duet_tanh(t, y) : y;
}

/* Stage 1: (WIDE, INPUT); stage 2: (CLASSES, WIDE). Each draws from its own seed. */
static int describe(int number, float *w, float *b, struct duet_param *params) {
    int in = number == 1 ? INPUT : WIDE, out = number == 1 ? WIDE : CLASSES;
    duet_rng *rng;
    TRY(duet_rng_create(&rng, (uint64_t)number));
    duet_rng_uniform(rng, w, (size_t)(in * out), -0.2, 0.2);
    duet_rng_uniform(rng, b, (size_t)out, -0.2, 0.2);
    duet_rng_free(rng);
    params[0] = (struct duet_param){number == 1 ? "1.weight" : "2.weight", 2, {out, in}, w};
    params[1] = (struct duet_param){number == 1 ? "1.bias" : "2.bias", 1, {out}, b};
    return DUET_OK;
}

/* forward(x). Stage 1 passes its output on to stage 2, and returns what that returns. */
static int forward(duet_rpc_call *call, void *context) {
    struct stage *s = context;
    struct duet_rpc_value y;
    duet_tape *t;
    duet_tensor *x = duet_rpc_arg_tensor(call, 0);
    if (!x) return duet_rpc_call_error(call);
    TRY(duet_autograd_call_pass(&t, call, s->params, duet_tensor_dim(x, 0)));
    duet_var *h = run_stage(t, s->number, duet_autograd_arg(t, call, 0), 0);
    if (s->number == 2) return duet_rpc_return(call, duet_rpc_var(h));
    TRY(duet_autograd_sync(t, "stage2", "forward", DUET_ARGS(duet_rpc_var(h)), 0, &y));
    return duet_rpc_return(call, y);
}

/* _parameter_rrefs */
static int parameter_rrefs(duet_rpc_call *call, void *context) {
    struct stage *s = context;
    struct duet_rpc_value all[2];
    duet_rref *r[2] = {NULL};
    int code = DUET_OK;
    for (int i = 0; i < 2 && !code; i++) {
        code = duet_rref_create_param(&r[i], duet_rpc_of_call(call), s->params, i);
        all[i] = duet_rpc_rref(r[i]);
    }
    if (!code) code = duet_rpc_return(call, duet_rpc_list(all, 2));
    duet_rref_free(r[0]), duet_rref_free(r[1]);
    return code;
}

static int be_stage(int number, duet_device *device) {
    struct stage s = {.number = number, .device = device};
    float w[WIDE * INPUT], b[WIDE];
    struct duet_param params[2];
    const struct duet_rpc_function functions[] = {{"forward", forward, &s, NULL},
                                                  {"parameter_rrefs", parameter_rrefs, &s, NULL}};
    const struct duet_rpc_options options = {
        .functions = functions, .function_count = 2, .device = device};
    duet_rpc *rpc = NULL;
    TRY(describe(number, w, b, params));
    TRY(duet_params_create(&s.params, device, params, 2));
    int code = duet_rpc_init(&rpc, number == 1 ? "stage1" : "stage2", -1, 0, &options);
    if (!code) code = duet_rpc_shutdown(&rpc, 1, 0);
    duet_params_free(s.params);
    return code;
}

/* ---- the master ---- */

struct batch {
    float x[BATCH * INPUT];
    int32_t y[BATCH];
};

static void draw(duet_rng *rng, struct batch *b) {
    duet_rng_normal(rng, b->x, BATCH * INPUT, 0, 1);
    for (int i = 0; i < BATCH; i++) { /* label: the largest of the first CLASSES */
        b->y[i] = 0;
        for (int k = 1; k < CLASSES; k++)
            if (b->x[i * INPUT + k] > b->x[i * INPUT + b->y[i]]) b->y[i] = k;
    }
}

/* -log p of the right classes, summed, over the batch: each micro-batch has a share in the mean. */
static duet_var *loss_of(duet_tape *t, duet_device *device, duet_var *scores, const int32_t *y,
                         int n, duet_tensor **keep) {
    float chosen[BATCH * CLASSES] = {0};
    for (int i = 0; i < n; i++)
        chosen[i * CLASSES + y[i]] = -1.0f / BATCH;
    if (duet_tensor_create(keep, device, DUET_F32, 2, (int[]){n, CLASSES}, chosen)) return NULL;
    duet_var *p = duet_multiply(t, duet_log_softmax(t, scores), duet_leaf(t, *keep));
    return duet_sum(t, p, NULL, 0, 0);
}

static int add_number(duet_tape *t, duet_var *x, double *sum) {
    duet_tensor *value;
    float number = 0;
    TRY(duet_var_value(&value, t, x));
    int code = duet_tensor_read(value, &number);
    duet_tensor_free(value);
    *sum += (double)number;
    return code;
}

static int step(duet_autograd_context *c, duet_device *device, const struct batch *b, int split,
                duet_distributed_optimizer *optimizer, double *loss) {
    duet_future *f[MOST_SPLIT] = {NULL};
    duet_var *roots[MOST_SPLIT];
    duet_tape *t;
    int n = BATCH / split, code = DUET_OK;
    TRY(duet_autograd_pass(&t, c, NULL, n));
    for (int i = 0; i < split && !code; i++) { /* all run at once */
        duet_tensor *x;
        code = duet_tensor_create(&x, device, DUET_F32, 2, (int[]){n, INPUT}, b->x + i * n * INPUT);
        if (code) break;
        code = duet_autograd_async(&f[i], t, "stage1", "forward", DUET_ARGS(duet_rpc_tensor(x)), 0);
        duet_tensor_free(x);
    }
    for (int i = 0; i < split; i++) {
        struct duet_rpc_value y = {0};
        duet_tensor *chosen = NULL;
        if (!code) code = duet_future_wait(f[i], &y);
        duet_future_free(f[i]);
        if (!code) roots[i] = loss_of(t, device, y.var, b->y + i * n, n, &chosen);
        if (chosen) duet_autograd_keep(t, chosen);
    }
    if (!code) code = duet_autograd_backward(c, roots, split, 0);
    if (!code) code = duet_distributed_optimizer_step(optimizer, c);
    for (int i = 0; i < split && !code; i++)
        code = add_number(t, roots[i], loss);
    return code;
}

static int train(duet_rpc *rpc, duet_device *device, const struct settings *s) {
    struct duet_optimizer_options options;
    struct duet_rpc_value lists[2] = {{0}};
    duet_rref *all[4];
    struct batch b;
    duet_rng *rng = NULL;
    duet_distributed_optimizer *optimizer = NULL;
    int code = duet_optimizer_defaults(&options, "sgd");
    options.lr = 0.5;
    for (int i = 0; i < 2 && !code; i++) {
        code = duet_rpc_sync(rpc, i ? "stage2" : "stage1", "parameter_rrefs", DUET_NO_ARGS, 0,
                             &lists[i]);
        for (int k = 0; k < 2 && !code; k++)
            all[2 * i + k] = lists[i].items[k].rref;
    }
    if (!code) code = duet_distributed_optimizer_create(&optimizer, rpc, all, 4, &options);
    if (!code) code = duet_rng_create(&rng, 3);
    for (int i = 0; i < s->steps && !code; i++) {
        duet_autograd_context *c = NULL;
        double loss = 0;
        draw(rng, &b);
        code = duet_autograd_context_create(&c, rpc);
        if (!code) code = step(c, device, &b, s->split, optimizer, &loss);
        duet_autograd_context_free(c);
        if (!code) printf("step %d: loss %.9g\n", i, loss);
    }
    duet_rng_free(rng);
    duet_distributed_optimizer_free(optimizer);
    duet_rpc_value_free(&lists[0]), duet_rpc_value_free(&lists[1]);
    return code;
}

static int be_master(duet_device *device, const struct settings *s) {
    const struct duet_rpc_options options = {.device = device};
    duet_rpc *rpc = NULL;
    TRY(duet_rpc_init(&rpc, "master", -1, 0, &options));
    int code = train(rpc, device, s);
    int end = duet_rpc_shutdown(&rpc, !code, 0);
    return code ? code : end;
}

/* ---- --local: the gradients of the micro-batches are those of several passes ---- */

static int local_pass(duet_tape *t, duet_params *params, duet_device *device, duet_tensor *x,
                      const int32_t *y, double *loss) {
    duet_tensor *chosen = NULL;
    int n = duet_tensor_dim(x, 0);
    TRY(duet_tape_begin(t, params, n, DUET_TRAIN));
    duet_var *scores = run_stage(t, 2, run_stage(t, 1, duet_input(t, x), 0), 2);
    duet_var *root = loss_of(t, device, scores, y, n, &chosen);
    int code = duet_backward(t, root, NULL);
    if (!code) code = add_number(t, root, loss);
    duet_tensor_free(chosen);
    return code;
}

static int local_step(duet_tape *t, duet_params *params, duet_device *device, const struct batch *b,
                      int split, double *loss) {
    int n = BATCH / split;
    TRY(duet_tape_accumulate(t, split));
    for (int i = 0; i < split; i++) {
        duet_tensor *x;
        TRY(duet_tensor_create(&x, device, DUET_F32, 2, (int[]){n, INPUT}, b->x + i * n * INPUT));
        int code = local_pass(t, params, device, x, b->y + i * n, loss);
        duet_tensor_free(x);
        TRY(code);
    }
    return duet_sgd(params, 0.5, 1);
}

static int train_locally(duet_device *device, const struct settings *s) {
    float w[2][WIDE * INPUT], bias[2][WIDE];
    struct duet_param params[4];
    struct batch b;
    duet_params *all = NULL;
    duet_tape *t = NULL;
    duet_rng *rng = NULL;
    TRY(describe(1, w[0], bias[0], params));
    TRY(describe(2, w[1], bias[1], params + 2));
    int code = duet_params_create(&all, device, params, 4);
    if (!code) code = duet_tape_create(&t, device);
    if (!code) code = duet_rng_create(&rng, 3);
    for (int i = 0; i < s->steps && !code; i++) {
        double loss = 0;
        draw(rng, &b);
        code = local_step(t, all, device, &b, s->split, &loss);
        if (!code) printf("step %d: loss %.9g\n", i, loss);
    }
    duet_rng_free(rng);
    duet_tape_free(t);
    duet_params_free(all);
    return code;
}

static int work(int rank, void *context) {
    const struct settings *s = context;
    duet_device *device;
    TRY(duet_device_open(&device, "cpu", rank, 1 << 26));
    int code = s->local ? train_locally(device, s)
               : rank   ? be_stage(rank, device)
                        : be_master(device, s);
    duet_devices_close(&device, 1);
    return code;
}

int main(int argc, char **argv) {
    struct settings s = {.split = 4, .steps = 5};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--local"))
            s.local = 1;
        else if (!strcmp(argv[i], "--split"))
            s.split = atoi(value), i++;
        else if (!strcmp(argv[i], "--steps"))
            s.steps = atoi(value), i++;
        else
            s.split = 0;
    }
    if (s.split < 1 || s.split > MOST_SPLIT || BATCH % s.split || s.steps < 1) {
        fprintf(stderr, "usage: %s [--split 1, 2, 4, 8 or 16] [--steps 5] [--local]\n", argv[0]);
        return 2;
    }
    if (!s.local) need_ranks(argv[0], 3);
    int code = s.local ? work(0, &s) : duet_spawn(3, work, &s);
    if (code) fprintf(stderr, "%s\n", duet_error());
    return duet_exit_status(code);
}
