/* A parameter server with several trainers and batched updates: PyTorch's tutorial on batch RPC
 * processing.
 *
 *     rpc_parameter_server [--trainers 3] [--steps 20] [--async]
 *
 * Worker "ps" has the weights. Each trainer computes the gradients of its own samples, sends them,
 * and gets the new weights as the answer. The server waits until all trainers have sent theirs,
 * updates once with their mean, and answers all. It adds the gradients in the order of the
 * trainers, so every run has the same bits. A waiting function releases its device; its thread is
 * one of the pool's 16. With --async the server applies each gradient at once.
 *
 * At the end each trainer prints the loss on its own samples with its last weights. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "duet.h"
#include "ranks.h"

enum { SAMPLES = 40, INPUT = 12, MOST_TRAINERS = 12, WAIT_S = 30 };
static const double RATE = 0.2;

struct settings {
    int trainers, steps, async;
};

static const struct duet_param DESCRIPTION[] = {{"weight", 2, {1, INPUT}, NULL},
                                                {"bias", 1, {1}, NULL}};
enum { PARAMS = 2 };

/* ---- the server ---- */

struct server {
    struct settings settings;
    duet_device *device;
    duet_params *params;
    pthread_mutex_t lock;
    pthread_cond_t updated;
    float sent[MOST_TRAINERS][INPUT + 1]; /* gradients of the current update */
    int came;
    int64_t updates;
};

/* One step along the mean of the first `count` gradients. */
static int update(struct server *s, const float *const *gradients, int count) {
    float sum[INPUT + 1] = {0};
    for (int i = 0; i < count; i++)
        for (int k = 0; k <= INPUT; k++)
            sum[k] += gradients[i][k] / (float)count;
    TRY(duet_tensor_write(duet_params_grad(s->params, 0), sum));
    TRY(duet_tensor_write(duet_params_grad(s->params, 1), sum + INPUT));
    s->updates++;
    return duet_sgd(s->params, RATE, 1);
}

/* Waits until update number `after` is done; after WAIT_S a trainer is lost. It releases the device
 * meanwhile, because the last trainer needs it. */
static int wait_for_update(struct server *s, duet_rpc *rpc, int64_t after) {
    struct timespec until;
    int late = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    duet_rpc_give_device(rpc, s->device);
    pthread_mutex_lock(&s->lock);
    while (s->updates <= after && !late)
        late = pthread_cond_timedwait(&s->updated, &s->lock, &until);
    pthread_mutex_unlock(&s->lock);
    TRY(duet_rpc_take_device(rpc, s->device));
    return late ? DUET_TIMEOUT : DUET_OK;
}

/* update_and_fetch(trainer, gradients) -> weights */
static int update_and_fetch(duet_rpc_call *call, void *context) {
    struct server *s = context;
    int64_t trainer = duet_rpc_arg_int(call, 0);
    const struct duet_rpc_value *given = duet_rpc_arg(call, 1);
    TRY(duet_rpc_call_error(call));
    if (trainer < 0 || trainer >= s->settings.trainers || given->type != DUET_RPC_BYTES ||
        given->bytes != sizeof s->sent[0])
        return DUET_USAGE;
    pthread_mutex_lock(&s->lock);
    const int64_t before = s->updates;
    const float *in_order[MOST_TRAINERS];
    int code = DUET_OK, last = s->settings.async || ++s->came == s->settings.trainers;
    memcpy(s->sent[trainer], given->data, given->bytes);
    for (int i = 0; i < MOST_TRAINERS; i++)
        in_order[i] = s->sent[s->settings.async ? trainer : i];
    if (last) {
        s->came = 0;
        code = update(s, in_order, s->settings.async ? 1 : s->settings.trainers);
        pthread_cond_broadcast(&s->updated);
    }
    pthread_mutex_unlock(&s->lock);
    if (!code && !last) code = wait_for_update(s, duet_rpc_of_call(call), before);
    const struct duet_rpc_value weights[PARAMS] = {
        duet_rpc_tensor(duet_params_value(s->params, 0)),
        duet_rpc_tensor(duet_params_value(s->params, 1))};
    return code ? code : duet_rpc_return(call, duet_rpc_list(weights, PARAMS));
}

static int serve(const struct settings *settings, duet_device *device) {
    struct server s = {.settings = *settings, .device = device};
    const struct duet_rpc_function function = {"update_and_fetch", update_and_fetch, &s, NULL};
    const struct duet_rpc_options options = {
        .functions = &function, .function_count = 1, .device = device};
    duet_rpc *rpc = NULL;
    pthread_mutex_init(&s.lock, NULL);
    pthread_cond_init(&s.updated, NULL);
    TRY(duet_params_create(&s.params, device, DESCRIPTION, PARAMS)); /* zeros */
    int code = duet_rpc_init(&rpc, "ps", -1, 0, &options);
    if (!code) code = duet_rpc_shutdown(&rpc, 1, 0);
    if (!code) printf("%lld updates\n", (long long)s.updates);
    duet_params_free(s.params);
    pthread_cond_destroy(&s.updated);
    pthread_mutex_destroy(&s.lock);
    return code;
}

/* ---- a trainer ---- */

struct trainer {
    int number;
    duet_rpc *rpc;
    duet_device *device;
    duet_params *params;
    duet_tape *tape;
    duet_tensor *x, *y;
    double loss;
};

/* Samples of one line for all trainers, each with its own noise. */
static int make_samples(struct trainer *tr) {
    float x[SAMPLES * INPUT], y[SAMPLES];
    duet_rng *rng;
    TRY(duet_rng_create(&rng, 100 + (uint64_t)tr->number));
    duet_rng_normal(rng, x, SAMPLES * INPUT, 0, 1);
    duet_rng_normal(rng, y, SAMPLES, 0.7, 0.1);
    duet_rng_free(rng);
    for (int i = 0; i < SAMPLES; i++)
        for (int k = 0; k < INPUT; k++)
            y[i] += x[i * INPUT + k] * (float)(k % 3 - 1);
    TRY(duet_tensor_create(&tr->x, tr->device, DUET_F32, 2, (int[]){SAMPLES, INPUT}, x));
    return duet_tensor_create(&tr->y, tr->device, DUET_F32, 2, (int[]){SAMPLES, 1}, y);
}

static int gradients(struct trainer *tr, float *out) {
    duet_tape *t = tr->tape;
    TRY(duet_tape_begin(t, tr->params, SAMPLES, DUET_TRAIN));
    duet_var *y = duet_linear(t, duet_input(t, tr->x), 0, 1);
    duet_var *loss = duet_mse_loss(t, y, tr->y, DUET_MEAN);
    TRY(duet_backward(t, loss, NULL));
    TRY(duet_loss_read(t, loss, &tr->loss, NULL));
    tr->loss /= SAMPLES;
    TRY(duet_tensor_read(duet_params_grad(tr->params, 0), out));
    return duet_tensor_read(duet_params_grad(tr->params, 1), out + INPUT);
}

static int train(struct trainer *tr, int steps) {
    float sent[INPUT + 1];
    for (int i = 0; i < steps; i++) {
        struct duet_rpc_value weights;
        TRY(gradients(tr, sent));
        TRY(duet_rpc_sync(tr->rpc, "ps", "update_and_fetch",
                          DUET_ARGS(duet_rpc_int(tr->number), duet_rpc_bytes(sent, sizeof sent)), 0,
                          &weights));
        for (int k = 0; k < PARAMS; k++)
            TRY(duet_tensor_copy(duet_params_value(tr->params, k), weights.items[k].tensor));
        duet_rpc_value_free(&weights);
    }
    return gradients(tr, sent);
}

static int be_trainer(int rank, const struct settings *s, duet_device *device) {
    struct trainer tr = {.number = rank - 1, .device = device};
    const struct duet_rpc_options options = {.device = device};
    char name[32];
    snprintf(name, sizeof name, "trainer%d", tr.number);
    int code = make_samples(&tr);
    if (!code) code = duet_params_create(&tr.params, device, DESCRIPTION, PARAMS);
    if (!code) code = duet_tape_create(&tr.tape, device);
    if (!code) code = duet_rpc_init(&tr.rpc, name, -1, 0, &options);
    if (!code) code = train(&tr, s->steps);
    int end = duet_rpc_shutdown(&tr.rpc, !code, 0);
    if (!code) printf("trainer %d: loss %.9g\n", tr.number, tr.loss);
    duet_tensor_free(tr.x), duet_tensor_free(tr.y);
    duet_tape_free(tr.tape);
    duet_params_free(tr.params);
    return code ? code : end;
}

static int work(int rank, void *context) {
    const struct settings *s = context;
    duet_device *device;
    TRY(duet_device_open(&device, "cpu", rank, 1 << 26));
    int code = rank ? be_trainer(rank, s, device) : serve(s, device);
    duet_devices_close(&device, 1);
    return code;
}

int main(int argc, char **argv) {
    struct settings s = {.trainers = 3, .steps = 20};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--async"))
            s.async = 1;
        else if (!strcmp(argv[i], "--trainers"))
            s.trainers = atoi(value), i++;
        else if (!strcmp(argv[i], "--steps"))
            s.steps = atoi(value), i++;
        else
            s.trainers = 0;
    }
    if (s.trainers < 1 || s.trainers > MOST_TRAINERS || s.steps < 1) {
        fprintf(stderr, "usage: %s [--trainers 1..%d] [--steps 20] [--async]\n", argv[0],
                MOST_TRAINERS);
        return 2;
    }
    need_ranks(argv[0], s.trainers + 1);
    int code = duet_spawn(s.trainers + 1, work, &s);
    if (code) fprintf(stderr, "%s\n", duet_error());
    return duet_exit_status(code);
}
