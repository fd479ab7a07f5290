/* The same job done in three ways: four workers, each with its own samples, train one model.
 *
 *     three_ways send | rpc | ddp
 *
 * send   rank 0 receives the other ranks' gradients and sends the mean back; each rank updates its
 *        own copy of the weights
 * rpc    worker 0 calls the others' function "gradient" with its weights, and updates these; the
 *        others have no weights and no loop
 * ddp    every rank runs the code of a single process; backward leaves averaged gradients
 *
 * All three add in the same order, so they print the same bits. docs/lessons/remote_calls.md
 * compares them. */
#include <stdio.h>
#include <string.h>

#include "duet.h"
#include "ranks.h"

enum { WORKERS = 4, SAMPLES = 32, INPUT = 6, FLOATS = INPUT + 1, STEPS = 20 };
static const double RATE = 0.1;

/* ---- shared by all three: a model, samples, one pass, one update ---- */

struct worker {
    int rank;
    duet_device *device;
    duet_params *params;
    duet_tape *tape;
    duet_tensor *x, *y;
    double loss;
};

static int make(struct worker *w) {
    const struct duet_param all[] = {{"weight", 2, {1, INPUT}, NULL}, {"bias", 1, {1}, NULL}};
    float x[SAMPLES * INPUT], y[SAMPLES];
    duet_rng *rng;
    TRY(duet_rng_create(&rng, (uint64_t)w->rank));
    duet_rng_normal(rng, x, SAMPLES * INPUT, 0, 1);
    duet_rng_normal(rng, y, SAMPLES, 1, 0.1);
    duet_rng_free(rng);
    for (int i = 0; i < SAMPLES; i++)
        for (int k = 0; k < INPUT; k++)
            y[i] += x[i * INPUT + k] * (float)(k - 2);
    TRY(duet_tensor_create(&w->x, w->device, DUET_F32, 2, (int[]){SAMPLES, INPUT}, x));
    TRY(duet_tensor_create(&w->y, w->device, DUET_F32, 2, (int[]){SAMPLES, 1}, y));
    TRY(duet_tape_create(&w->tape, w->device));
    return duet_params_create(&w->params, w->device, all, 2);
}

static void end(struct worker *w) {
    duet_params_free(w->params);
    duet_tape_free(w->tape);
    duet_tensor_free(w->x), duet_tensor_free(w->y);
}

/* Forward and backward. */
static int pass(struct worker *w) {
    TRY(duet_tape_begin(w->tape, w->params, SAMPLES, DUET_TRAIN));
    duet_var *y = duet_linear(w->tape, duet_input(w->tape, w->x), 0, 1);
    duet_var *loss = duet_mse_loss(w->tape, y, w->y, DUET_MEAN);
    TRY(duet_backward(w->tape, loss, NULL));
    TRY(duet_loss_read(w->tape, loss, &w->loss, NULL));
    w->loss /= SAMPLES;
    return DUET_OK;
}

static int read_grads(struct worker *w, float *g) {
    TRY(duet_tensor_read(duet_params_grad(w->params, 0), g));
    return duet_tensor_read(duet_params_grad(w->params, 1), g + INPUT);
}

static int update(struct worker *w, const float *g) {
    TRY(duet_tensor_write(duet_params_grad(w->params, 0), g));
    TRY(duet_tensor_write(duet_params_grad(w->params, 1), g + INPUT));
    return duet_sgd(w->params, RATE, 1);
}

/* all[0] becomes the mean; in the order in which Duet's collectives add. */
static void mean(float all[WORKERS][FLOATS]) {
    for (int k = 0; k < FLOATS; k++) {
        for (int r = 0; r < WORKERS; r++)
            all[r][k] /= WORKERS;
        all[0][k] = (all[0][k] + all[2][k]) + (all[1][k] + all[3][k]);
    }
}

static void say(const struct worker *w, int step) {
    if (w->rank == 0 && step % 5 == 4) printf("step %d: loss %.9g\n", step, w->loss);
}

/* ---- by send and recv ---- */

static int gather_mean(duet_group *group, duet_tensor *t, float *g) {
    float all[WORKERS][FLOATS];
    memcpy(all[0], g, sizeof all[0]);
    for (int r = 1; r < WORKERS; r++) {
        TRY(duet_recv(group, t, r, 0, NULL, NULL));
        TRY(duet_tensor_read(t, all[r]));
    }
    mean(all);
    memcpy(g, all[0], sizeof all[0]);
    TRY(duet_tensor_write(t, g));
    for (int r = 1; r < WORKERS; r++)
        TRY(duet_send(group, t, r, 0, NULL));
    return DUET_OK;
}

static int by_send(struct worker *w) {
    duet_group *group;
    duet_tensor *t;
    float g[FLOATS];
    TRY(duet_group_init(&group, 0));
    TRY(duet_tensor_create(&t, w->device, DUET_F32, 1, (int[]){FLOATS}, NULL));
    for (int step = 0; step < STEPS; step++) {
        TRY(pass(w));
        TRY(read_grads(w, g));
        if (w->rank == 0) {
            TRY(gather_mean(group, t, g));
        } else {
            TRY(duet_tensor_write(t, g));
            TRY(duet_send(group, t, 0, 0, NULL));
            TRY(duet_recv(group, t, 0, 0, NULL, NULL));
            TRY(duet_tensor_read(t, g));
        }
        TRY(update(w, g));
        say(w, step);
    }
    duet_tensor_free(t);
    duet_group_destroy(&group);
    return DUET_OK;
}

/* ---- by remote calls ---- */

/* gradient(weight, bias) -> the gradients of this worker's samples */
static int gradient(duet_rpc_call *call, void *context) {
    struct worker *w = context;
    float g[FLOATS];
    for (int i = 0; i < 2; i++)
        TRY(duet_tensor_copy(duet_params_value(w->params, i), duet_rpc_arg_tensor(call, i)));
    TRY(pass(w));
    TRY(read_grads(w, g));
    return duet_rpc_return(call, duet_rpc_bytes(g, sizeof g));
}

static int ask_all(struct worker *w, duet_rpc *rpc, float all[WORKERS][FLOATS]) {
    duet_future *f[WORKERS];
    for (int r = 1; r < WORKERS; r++)
        TRY(duet_rpc_async(&f[r], rpc, duet_rpc_name(rpc, r), "gradient",
                           DUET_ARGS(duet_rpc_tensor(duet_params_value(w->params, 0)),
                                     duet_rpc_tensor(duet_params_value(w->params, 1))),
                           0));
    TRY(pass(w)); /* runs while the copies are in flight */
    TRY(read_grads(w, all[0]));
    for (int r = 1; r < WORKERS; r++) {
        struct duet_rpc_value got;
        TRY(duet_future_wait(f[r], &got));
        memcpy(all[r], got.data, sizeof all[r]);
        duet_rpc_value_free(&got);
        duet_future_free(f[r]);
    }
    return DUET_OK;
}

static int by_rpc(struct worker *w) {
    const struct duet_rpc_function function = {"gradient", gradient, w, NULL};
    const struct duet_rpc_options options = {
        .functions = &function, .function_count = 1, .device = w->device};
    float all[WORKERS][FLOATS];
    char name[16];
    duet_rpc *rpc;
    snprintf(name, sizeof name, "worker%d", w->rank);
    TRY(duet_rpc_init(&rpc, name, -1, 0, &options));
    for (int step = 0; step < STEPS && w->rank == 0; step++) {
        TRY(ask_all(w, rpc, all));
        mean(all);
        TRY(update(w, all[0]));
        say(w, step);
    }
    return duet_rpc_shutdown(&rpc, 1, 0);
}

/* ---- by DistributedDataParallel ---- */

static int by_ddp(struct worker *w) {
    duet_group *group;
    duet_ddp *ddp;
    TRY(duet_group_init(&group, 0));
    TRY(duet_ddp_create(&ddp, group, w->params, NULL));
    for (int step = 0; step < STEPS; step++) {
        TRY(pass(w));
        TRY(duet_sgd(w->params, RATE, 1));
        say(w, step);
    }
    duet_ddp_free(ddp);
    duet_group_destroy(&group);
    return DUET_OK;
}

/* ---- */

static int work(int rank, void *context) {
    const char *way = context;
    struct worker w = {.rank = rank};
    TRY(duet_device_open(&w.device, "cpu", rank, 1 << 24));
    TRY(make(&w));
    int code = *way == 's' ? by_send(&w) : *way == 'r' ? by_rpc(&w) : by_ddp(&w);
    end(&w);
    duet_devices_close(&w.device, 1);
    return code;
}

int main(int argc, char **argv) {
    char *way = argc == 2 ? argv[1] : "";
    if (strcmp(way, "send") && strcmp(way, "rpc") && strcmp(way, "ddp")) {
        fprintf(stderr, "usage: %s send | rpc | ddp\n", argv[0]);
        return 2;
    }
    need_ranks(argv[0], WORKERS);
    int code = duet_spawn(WORKERS, work, way);
    if (code) fprintf(stderr, "%s\n", duet_error());
    return duet_exit_status(code);
}
