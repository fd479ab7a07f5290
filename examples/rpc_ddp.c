/* DistributedDataParallel together with remote calls: PyTorch's tutorial on combining the two.
 *
 *     rpc_ddp [--trainers 2] [--steps 10] [--local]
 *
 * Worker "ps" has an embedding table, which in a real program is too large for each trainer. Each
 * trainer has its own samples and the dense layer behind the table, which a duet_ddp keeps equal on
 * all trainers. The master makes the table and passes a reference to it to the trainers. Each step
 * of a trainer has one backward. It averages the dense gradients over the trainers and sends the
 * table's gradients back to "ps" through the call that looked up the rows. The trainers' optimizers
 * update the table one after another, so that each run has the same bits. --local computes the same
 * bits in one process, without DDP or remote calls. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "duet.h"
#include "ranks.h"

enum { TOKENS = 100, WIDTH = 16, CLASSES = 8, BATCH = 10, BAG = 4, MOST_TRAINERS = 8 };
enum { TABLE, WEIGHT, BIAS, PARAMS };
static const double RATE = 0.05;

struct settings {
    int trainers, steps, local;
};

/* ---- the model, on whatever tape it is given ---- */

struct weights {
    float table[TOKENS * WIDTH], weight[CLASSES * WIDTH], bias[CLASSES];
};

static int draw_weights(struct weights *w, uint64_t seed) {
    duet_rng *rng;
    TRY(duet_rng_create(&rng, seed));
    duet_rng_normal(rng, w->table, TOKENS * WIDTH, 0, 1);
    duet_rng_uniform(rng, w->weight, CLASSES * WIDTH, -0.25, 0.25);
    duet_rng_uniform(rng, w->bias, CLASSES, -0.25, 0.25);
    duet_rng_free(rng);
    return DUET_OK;
}

static void describe(const struct weights *w, struct duet_param params[PARAMS]) {
    params[TABLE] = (struct duet_param){"table", 2, {TOKENS, WIDTH}, w->table};
    params[WEIGHT] = (struct duet_param){"fc.weight", 2, {CLASSES, WIDTH}, w->weight};
    params[BIAS] = (struct duet_param){"fc.bias", 1, {CLASSES}, w->bias};
}

/* nn.EmbeddingBag(mode="sum") of bags of equal size: (BATCH, BAG) -> (BATCH, WIDTH). */
static duet_var *look_up(duet_tape *t, const duet_tensor *index, int table) {
    return duet_sum(t, duet_embedding(t, index, table, -1), (int[]){1}, 1, 0);
}

struct batch {
    duet_tensor *index, *target;
};

static int next_batch(struct batch *b, duet_rng *rng, duet_device *device) {
    int32_t index[BATCH * BAG], target[BATCH];
    duet_tensor_free(b->index), duet_tensor_free(b->target);
    *b = (struct batch){NULL, NULL};
    duet_rng_integers(rng, DUET_I32, index, BATCH * BAG, 0, TOKENS);
    for (int i = 0; i < BATCH; i++)
        target[i] = index[i * BAG] % CLASSES; /* something to learn */
    TRY(duet_tensor_create(&b->index, device, DUET_I32, 2, (int[]){BATCH, BAG}, index));
    return duet_tensor_create(&b->target, device, DUET_I32, 1, (int[]){BATCH}, target);
}

static int read_loss(duet_tape *t, duet_var *loss, double *out) {
    TRY(duet_loss_read(t, loss, out, NULL));
    *out /= BATCH;
    return DUET_OK;
}

/* ---- at "ps" ---- */

static void destroy(void *params) {
    duet_params_free(params);
}

static int new_table(duet_rpc_call *call, void *device) {
    static struct weights w;
    struct duet_param all[PARAMS];
    duet_params *params;
    TRY(draw_weights(&w, (uint64_t)duet_rpc_arg_int(call, 0)));
    describe(&w, all);
    TRY(duet_params_create(&params, device, &all[TABLE], 1));
    return duet_rpc_return_object(call, params, destroy);
}

static int table_forward(duet_rpc_call *call, void *context) {
    (void)context;
    duet_tape *t;
    TRY(duet_autograd_call_pass(&t, call, duet_rpc_self(call), BATCH));
    return duet_rpc_return(call, duet_rpc_var(look_up(t, duet_rpc_arg_tensor(call, 0), 0)));
}

static int table_parameter(duet_rpc_call *call, void *context) {
    (void)context;
    duet_rref *r;
    TRY(duet_rref_create_param(&r, duet_rpc_of_call(call), duet_rpc_self(call), 0));
    int code = duet_rpc_return(call, duet_rpc_rref(r));
    duet_rref_free(r);
    return code;
}

/* ---- at a trainer ---- */

struct trainer {
    int number, trainers, steps;
    duet_rpc *rpc;
    duet_device *device;
    duet_group *group; /* the trainers' group */
    duet_params *params;
    duet_ddp *ddp;
    duet_distributed_optimizer *optimizer;
    duet_rref *table; /* belongs to the call */
    duet_rng *rng;
    struct batch batch;
    struct duet_rpc_value *losses;
};

/* torch.nn.parallel.DistributedDataParallel(fc): all begin with the weights of trainer 0. */
static int make_dense(struct trainer *tr, const char *job) {
    struct weights w;
    struct duet_param all[PARAMS];
    TRY(draw_weights(&w, (uint64_t)tr->number));
    describe(&w, all);
    TRY(duet_params_create(&tr->params, tr->device, &all[WEIGHT], 2));
    TRY(duet_group_join(&tr->group, job, tr->number, tr->trainers, 0));
    return duet_ddp_create(&tr->ddp, tr->group, tr->params, NULL);
}

static int make_optimizer(struct trainer *tr) {
    struct duet_optimizer_options options;
    struct duet_rpc_value table;
    duet_rref *all[PARAMS] = {NULL};
    TRY(duet_optimizer_defaults(&options, "sgd"));
    options.lr = RATE;
    TRY(duet_rref_sync(tr->table, "parameter", DUET_NO_ARGS, 0, &table));
    all[TABLE] = table.rref;
    int code = duet_rref_create_param(&all[WEIGHT], tr->rpc, tr->params, 0);
    if (!code) code = duet_rref_create_param(&all[BIAS], tr->rpc, tr->params, 1);
    if (!code)
        code = duet_distributed_optimizer_create(&tr->optimizer, tr->rpc, all, PARAMS, &options);
    duet_rref_free(all[WEIGHT]), duet_rref_free(all[BIAS]);
    duet_rpc_value_free(&table);
    return code;
}

/* The table's updates are in the order of the trainers, each after all forwards. */
static int update(struct trainer *tr, duet_autograd_context *c) {
    for (int k = 0; k < tr->trainers; k++) {
        if (k == tr->number) TRY(duet_distributed_optimizer_step(tr->optimizer, c));
        TRY(duet_barrier(tr->group, NULL));
    }
    return DUET_OK;
}

static int step_in(struct trainer *tr, duet_autograd_context *c, double *loss) {
    duet_tape *t;
    struct duet_rpc_value x;
    TRY(duet_autograd_pass(&t, c, tr->params, BATCH));
    TRY(duet_autograd_rref_sync(t, tr->table, "forward",
                                DUET_ARGS(duet_rpc_tensor(tr->batch.index)), 0, &x));
    duet_var *scores = duet_linear(t, x.var, 0, 1);
    duet_var *root = duet_cross_entropy(t, scores, tr->batch.target, DUET_MEAN, NULL);
    TRY(duet_autograd_backward(c, &root, 1, 0));
    TRY(read_loss(t, root, loss));
    return update(tr, c);
}

static int train_with(struct trainer *tr, const char *job) {
    TRY(make_dense(tr, job));
    TRY(make_optimizer(tr));
    TRY(duet_rng_create(&tr->rng, 100 + (uint64_t)tr->number));
    for (int i = 0; i < tr->steps; i++) {
        duet_autograd_context *c = NULL;
        double loss = 0;
        TRY(next_batch(&tr->batch, tr->rng, tr->device));
        TRY(duet_autograd_context_create(&c, tr->rpc));
        int code = step_in(tr, c, &loss);
        duet_autograd_context_free(c);
        TRY(code);
        tr->losses[i] = duet_rpc_number(loss);
    }
    return DUET_OK;
}

/* train(reference to the table, number, trainers, steps, name of their job) -> the losses */
static int train(duet_rpc_call *call, void *device) {
    struct trainer tr = {.number = (int)duet_rpc_arg_int(call, 1),
                         .trainers = (int)duet_rpc_arg_int(call, 2),
                         .steps = (int)duet_rpc_arg_int(call, 3),
                         .rpc = duet_rpc_of_call(call),
                         .device = device,
                         .table = duet_rpc_arg_rref(call, 0)};
    const char *job = duet_rpc_arg_text(call, 4);
    TRY(duet_rpc_call_error(call));
    tr.losses = calloc((size_t)tr.steps, sizeof *tr.losses);
    int code = tr.losses ? train_with(&tr, job) : DUET_MEMORY;
    if (!code) code = duet_rpc_return(call, duet_rpc_list(tr.losses, tr.steps));
    duet_tensor_free(tr.batch.index), duet_tensor_free(tr.batch.target);
    duet_rng_free(tr.rng);
    duet_distributed_optimizer_free(tr.optimizer);
    duet_ddp_free(tr.ddp);
    duet_group_destroy(&tr.group);
    duet_params_free(tr.params);
    free(tr.losses);
    return code;
}

/* ---- the master ---- */

static int lead(duet_rpc *rpc, const struct settings *s) {
    struct duet_rpc_value losses[MOST_TRAINERS] = {{0}};
    duet_future *f[MOST_TRAINERS] = {NULL};
    duet_rref *table;
    char job[64], name[32];
    snprintf(job, sizeof job, "rpc-ddp-%ld", (long)getpid());
    TRY(duet_remote(&table, rpc, "ps", "Table", DUET_ARGS(duet_rpc_int(0)), 0));
    int code = DUET_OK;
    for (int k = 0; k < s->trainers && !code; k++) {
        snprintf(name, sizeof name, "trainer%d", k);
        code = duet_rpc_async(&f[k], rpc, name, "train",
                              DUET_ARGS(duet_rpc_rref(table), duet_rpc_int(k),
                                        duet_rpc_int(s->trainers), duet_rpc_int(s->steps),
                                        duet_rpc_text(job)),
                              -1);
    }
    for (int k = 0; k < s->trainers; k++) {
        if (!code) code = duet_future_wait(f[k], &losses[k]);
        duet_future_free(f[k]);
    }
    for (int i = 0; i < s->steps && !code; i++) {
        printf("step %d: loss", i);
        for (int k = 0; k < s->trainers; k++)
            printf(" %.9g", losses[k].items[i].number);
        printf("\n");
    }
    for (int k = 0; k < s->trainers; k++)
        duet_rpc_value_free(&losses[k]);
    duet_rref_free(table);
    return code;
}

static int be_worker(int rank, const struct settings *s, duet_device *device) {
    const struct duet_rpc_function of_ps[] = {{"Table", new_table, device, NULL},
                                              {"Table.forward", table_forward, NULL, NULL},
                                              {"Table.parameter", table_parameter, NULL, NULL}},
                                   of_trainer[] = {{"train", train, device, NULL}};
    const struct duet_rpc_options options = {.functions = rank == 1 ? of_ps : of_trainer,
                                             .function_count = rank == 1 ? 3
                                                               : rank    ? 1
                                                                         : 0,
                                             .device = device};
    char name[32];
    duet_rpc *rpc = NULL;
    snprintf(name, sizeof name, "trainer%d", rank - 2);
    TRY(duet_rpc_init(&rpc, rank == 0 ? "master" : rank == 1 ? "ps" : name, -1, 0, &options));
    int code = rank ? DUET_OK : lead(rpc, s);
    int end = duet_rpc_shutdown(&rpc, !code, 0);
    return code ? code : end;
}

/* ---- --local: one process, and the updates by hand ---- */

struct local {
    duet_device *device;
    duet_params *params;
    duet_tape *tape;
    duet_rng *rng[MOST_TRAINERS];
    struct batch batch;
    struct weights w, grad[MOST_TRAINERS];
};

static int local_pass(struct local *l, int k, double *loss) {
    duet_tape *t = l->tape;
    float *grads[PARAMS] = {l->grad[k].table, l->grad[k].weight, l->grad[k].bias};
    TRY(next_batch(&l->batch, l->rng[k], l->device));
    TRY(duet_tape_begin(t, l->params, BATCH, DUET_TRAIN));
    duet_var *scores = duet_linear(t, look_up(t, l->batch.index, TABLE), WEIGHT, BIAS);
    duet_var *root = duet_cross_entropy(t, scores, l->batch.target, DUET_MEAN, NULL);
    TRY(duet_backward(t, root, NULL));
    for (int i = 0; i < PARAMS; i++)
        TRY(duet_tensor_read(duet_params_grad(l->params, i), grads[i]));
    return read_loss(t, root, loss);
}

/* The mean of n gradients, added in Duet's order: term k takes in term k + ceil(n/2), and so on. */
static float mean(float *terms, int n) {
    const float share = 1 / (float)n;
    for (int k = 0; k < n; k++)
        terms[k] *= share;
    for (int half = (n + 1) / 2; n > 1; n = half, half = (n + 1) / 2)
        for (int k = 0; k + half < n; k++)
            terms[k] += terms[k + half];
    return terms[0];
}

/* The mean of the dense gradients; those of the table one after the other. An update rounds once,
 * as duet_sgd does. */
static int local_update(struct local *l, int n) {
    float *values[PARAMS] = {l->w.table, l->w.weight, l->w.bias}, rate = (float)RATE;
    for (int i = 0; i < TOKENS * WIDTH; i++)
        for (int k = 0; k < n; k++)
            l->w.table[i] = fmaf(l->grad[k].table[i], -rate, l->w.table[i]);
    for (int i = 0; i < CLASSES * WIDTH + CLASSES; i++) {
        float terms[MOST_TRAINERS];
        int bias = i - CLASSES * WIDTH;
        float *to = bias < 0 ? &l->w.weight[i] : &l->w.bias[bias];
        for (int k = 0; k < n; k++)
            terms[k] = bias < 0 ? l->grad[k].weight[i] : l->grad[k].bias[bias];
        *to = fmaf(mean(terms, n), -rate, *to);
    }
    for (int i = 0; i < PARAMS; i++)
        TRY(duet_tensor_write(duet_params_value(l->params, i), values[i]));
    return DUET_OK;
}

static int train_locally(const struct settings *s, struct local *l) {
    struct duet_param all[PARAMS];
    TRY(draw_weights(&l->w, 0));
    describe(&l->w, all);
    TRY(duet_params_create(&l->params, l->device, all, PARAMS));
    TRY(duet_tape_create(&l->tape, l->device));
    for (int k = 0; k < s->trainers; k++)
        TRY(duet_rng_create(&l->rng[k], 100 + (uint64_t)k));
    for (int i = 0; i < s->steps; i++) {
        double loss;
        printf("step %d: loss", i);
        for (int k = 0; k < s->trainers; k++) {
            TRY(local_pass(l, k, &loss));
            printf(" %.9g", loss);
        }
        printf("\n");
        TRY(local_update(l, s->trainers));
    }
    return DUET_OK;
}

static int be_local(const struct settings *s, duet_device *device) {
    struct local *l = calloc(1, sizeof *l);
    if (!l) return DUET_MEMORY;
    l->device = device;
    int code = train_locally(s, l);
    for (int k = 0; k < s->trainers; k++)
        duet_rng_free(l->rng[k]);
    duet_tensor_free(l->batch.index), duet_tensor_free(l->batch.target);
    duet_tape_free(l->tape);
    duet_params_free(l->params);
    free(l);
    return code;
}

static int work(int rank, void *context) {
    const struct settings *s = context;
    duet_device *device;
    TRY(duet_device_open(&device, "cpu", rank, 1 << 26));
    int code = s->local ? be_local(s, device) : be_worker(rank, s, device);
    duet_devices_close(&device, 1);
    return code;
}

int main(int argc, char **argv) {
    struct settings s = {.trainers = 2, .steps = 10};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--local"))
            s.local = 1;
        else if (!strcmp(argv[i], "--trainers"))
            s.trainers = atoi(value), i++;
        else if (!strcmp(argv[i], "--steps"))
            s.steps = atoi(value), i++;
        else
            s.trainers = 0;
    }
    if (s.trainers < 1 || s.trainers > MOST_TRAINERS || s.steps < 1) {
        fprintf(stderr, "usage: %s [--trainers 1..%d] [--steps 10] [--local]\n", argv[0],
                MOST_TRAINERS);
        return 2;
    }
    if (!s.local) need_ranks(argv[0], s.trainers + 2);
    int code = s.local ? work(0, &s) : duet_spawn(s.trainers + 2, work, &s);
    if (code) fprintf(stderr, "%s\n", duet_error());
    return duet_exit_status(code);
}
