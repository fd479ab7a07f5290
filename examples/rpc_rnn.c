/* A recurrent network with a parameter server: the second program in PyTorch's tutorial on
 * torch.distributed.rpc.
 *
 *     rpc_rnn [--epochs 10] [--dropout 0.5] [--lr 0.05] [--seed 1] [--mend] [--local]
 *
 * Worker "ps" has the embedding table and the decoder, worker "trainer" the LSTM between them. A
 * step makes two remote calls forward, runs one backward through all parts, and updates the weights
 * with an optimizer at each of the two owners. --local does the same with one tape in one process,
 * and every loss has the same bits.
 *
 * As in the tutorial, a "batch" of 5 is the length of the sequence, and 3 indices make the batch.
 * Duet's tensors have the batch first, so dimensions are swapped: (3,5) where the tutorial has
 * (5,3). The tutorial compares targets (5,10) with an output (5,3,10). So cross entropy chooses
 * among the 3 columns of the batch, which the network cannot learn: the loss stays at ln 3. --mend
 * uses targets (5,3) among the 10 tokens instead. Data that the tutorial leaves uninitialised is
 * drawn here, and two constructors that race for a generator there take turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "duet.h"
#include "ranks.h"
#include "rnn_parts.h"

struct settings {
    int epochs, local, mend;
    double dropout, lr;
    uint64_t seed;
};

/* ---- at "ps": two classes ---- */

struct server {
    duet_device *device;
    duet_rng *rng; /* of both parts, as in the tutorial */
};
struct module {
    duet_params *params;
    struct drop drop;
};

static void destroy(void *object) {
    struct module *m = object;
    duet_params_free(m->params);
    duet_rng_free(m->drop.rng);
    free(m);
}

/* EmbeddingTable(dropout, seed of its masks), Decoder(the same). */
static int construct(duet_rpc_call *call, struct server *s, const struct duet_param *params,
                     int count) {
    struct module *m = calloc(1, sizeof *m);
    if (!m) return DUET_MEMORY;
    m->drop = (struct drop){.p = duet_rpc_arg_number(call, 0), .device = s->device, .remote = 1};
    int code = duet_rng_create(&m->drop.rng, (uint64_t)duet_rpc_arg_int(call, 1));
    if (!code) code = duet_params_create(&m->params, s->device, params, count);
    if (code) {
        destroy(m);
        return code;
    }
    return duet_rpc_return_object(call, m, destroy);
}

static int new_embedding(duet_rpc_call *call, void *context) {
    struct server *s = context;
    struct weights w;
    draw_embedding(s->rng, &w);
    const struct duet_param param = embedding_param(&w);
    return construct(call, s, &param, 1);
}

static int new_decoder(duet_rpc_call *call, void *context) {
    struct server *s = context;
    struct weights w;
    struct duet_param params[2];
    draw_decoder(s->rng, &w);
    decoder_params(&w, params);
    return construct(call, s, params, 2);
}

static int embedding_forward(duet_rpc_call *call, void *context) {
    (void)context;
    struct module *m = duet_rpc_self(call);
    duet_tape *t;
    TRY(duet_autograd_call_pass(&t, call, m->params, BATCH));
    return duet_rpc_return(call, duet_rpc_var(embed(t, duet_rpc_arg_tensor(call, 0), 0, &m->drop)));
}

static int decoder_forward(duet_rpc_call *call, void *context) {
    (void)context;
    struct module *m = duet_rpc_self(call);
    duet_tape *t;
    TRY(duet_autograd_call_pass(&t, call, m->params, BATCH));
    return duet_rpc_return(call,
                           duet_rpc_var(decode(t, duet_autograd_arg(t, call, 0), 0, &m->drop)));
}

/* _parameter_rrefs */
static int parameter_rrefs(duet_rpc_call *call, void *context) {
    (void)context;
    struct module *m = duet_rpc_self(call);
    struct duet_rpc_value all[2];
    int count = duet_params_count(m->params), code = DUET_OK, made = 0;
    for (; made < count && !code; made++) {
        duet_rref *r = NULL;
        code = duet_rref_create_param(&r, duet_rpc_of_call(call), m->params, made);
        all[made] = duet_rpc_rref(r);
    }
    if (!code) code = duet_rpc_return(call, duet_rpc_list(all, count));
    while (made--)
        duet_rref_free(all[made].rref);
    return code;
}

static int serve(const struct settings *settings, duet_device *device) {
    struct server s = {.device = device};
    const struct duet_rpc_function functions[] = {
        {"EmbeddingTable", new_embedding, &s, NULL},
        {"EmbeddingTable.forward", embedding_forward, NULL, NULL},
        {"EmbeddingTable.parameter_rrefs", parameter_rrefs, NULL, NULL},
        {"Decoder", new_decoder, &s, NULL},
        {"Decoder.forward", decoder_forward, NULL, NULL},
        {"Decoder.parameter_rrefs", parameter_rrefs, NULL, NULL}};
    const struct duet_rpc_options options = {
        .functions = functions, .function_count = 6, .device = device};
    duet_rpc *rpc = NULL;
    TRY(duet_rng_create(&s.rng, settings->seed));
    int code = duet_rpc_init(&rpc, "ps", -1, 0, &options);
    if (!code) code = duet_rpc_shutdown(&rpc, 1, 0);
    duet_rng_free(s.rng);
    return code;
}

/* ---- at "trainer" ---- */

struct trainer {
    struct settings settings;
    duet_device *device;
    duet_rpc *rpc;        /* NULL: --local */
    duet_rng *rng;        /* draws weights and data */
    duet_params *params;  /* the LSTM's parameters; with --local all */
    duet_rref *module[2]; /* embedding table, decoder */
    duet_tape *tape;      /* --local */
    duet_optimizer *sgd;  /* --local */
    duet_distributed_optimizer *optimizer;
    struct state state;
    struct drop embed, between, decode; /* masks; the trainer uses only `between` with ps */
    duet_tensor *data, *chosen;
};

static int next_batch(struct trainer *tr) {
    int32_t drawn[STEPS * TOKENS], data[BATCH * STEPS];
    float chosen[STEPS * TOKENS * BATCH] = {0};
    int mend = tr->settings.mend;
    duet_rng_integers(tr->rng, DUET_I32, drawn, STEPS * BATCH, 0, TOKENS);
    for (int i = 0; i < STEPS * BATCH; i++)
        data[i % BATCH * STEPS + i / BATCH] = drawn[i];
    duet_rng_integers(tr->rng, DUET_I32, drawn, mend ? STEPS * BATCH : STEPS * TOKENS, 0,
                      mend ? TOKENS : BATCH);
    for (int i = 0; i < (mend ? STEPS * BATCH : STEPS * TOKENS); i++)
        chosen[mend ? (i % BATCH * STEPS + i / BATCH) * TOKENS + drawn[i] : i * BATCH + drawn[i]] =
            1;
    TRY(duet_tensor_create(&tr->data, tr->device, DUET_I32, 2, (int[]){BATCH, STEPS}, data));
    return duet_tensor_create(&tr->chosen, tr->device, DUET_F32, 3,
                              mend ? (int[]){BATCH, STEPS, TOKENS} : (int[]){STEPS, TOKENS, BATCH},
                              chosen);
}

/* Detached: the next step begins with the values only. */
static int keep_state(struct trainer *tr, duet_tape *t) {
    struct state *s = &tr->state;
    for (int l = 0; l < LAYERS; l++) {
        duet_tensor *h, *c;
        TRY(duet_var_value(&h, t, s->new_h[l]));
        TRY(duet_var_value(&c, t, s->new_c[l]));
        duet_tensor_free(s->h[l]), duet_tensor_free(s->c[l]);
        s->h[l] = h, s->c[l] = c;
    }
    return DUET_OK;
}

static int read_number(duet_tape *t, duet_var *x, float *out) {
    duet_tensor *value;
    TRY(duet_var_value(&value, t, x));
    int code = duet_tensor_read(value, out);
    duet_tensor_free(value);
    return code;
}

static int step_in(struct trainer *tr, duet_autograd_context *c, float *loss) {
    duet_tape *t;
    struct duet_rpc_value x, y;
    TRY(duet_autograd_pass(&t, c, tr->params, BATCH));
    TRY(duet_autograd_rref_sync(t, tr->module[0], "forward", DUET_ARGS(duet_rpc_tensor(tr->data)),
                                0, &x));
    duet_var *h = lstm(t, x.var, 0, &tr->state, &tr->between);
    TRY(duet_autograd_rref_sync(t, tr->module[1], "forward", DUET_ARGS(duet_rpc_var(h)), 0, &y));
    duet_var *root = cross_entropy(t, y.var, tr->chosen, tr->settings.mend);
    TRY(duet_autograd_backward(c, &root, 1, 0));
    TRY(duet_distributed_optimizer_step(tr->optimizer, c));
    TRY(read_number(t, root, loss));
    return keep_state(tr, t);
}

static int step_local(struct trainer *tr, float *loss) {
    duet_tape *t = tr->tape;
    TRY(duet_tape_begin(t, tr->params, BATCH, DUET_TRAIN));
    duet_var *x = embed(t, tr->data, LSTM_PARAMS, &tr->embed);
    x = decode(t, lstm(t, x, 0, &tr->state, &tr->between), LSTM_PARAMS + 1, &tr->decode);
    duet_var *root = cross_entropy(t, x, tr->chosen, tr->settings.mend);
    TRY(duet_backward(t, root, NULL));
    TRY(duet_optimizer_step(tr->sgd));
    TRY(read_number(t, root, loss));
    return keep_state(tr, t);
}

static int step(struct trainer *tr, float *loss) {
    duet_autograd_context *c = NULL;
    TRY(next_batch(tr));
    int code = tr->rpc ? duet_autograd_context_create(&c, tr->rpc) : step_local(tr, loss);
    if (c) code = step_in(tr, c, loss);
    duet_autograd_context_free(c);
    duet_tensor_free(tr->data), duet_tensor_free(tr->chosen);
    free_masks(&tr->embed), free_masks(&tr->between), free_masks(&tr->decode);
    return code;
}

static int train(struct trainer *tr) {
    float loss = 0;
    double began = duet_time();
    for (int epoch = 0; epoch < tr->settings.epochs; epoch++) {
        for (int i = 0; i < BATCHES; i++)
            TRY(step(tr, &loss));
        printf("Training epoch %d, loss %.9g\n", epoch, (double)loss);
    }
    if (tr->settings.epochs > 100)
        printf("%.0f steps/s\n", tr->settings.epochs * BATCHES / (duet_time() - began));
    return DUET_OK;
}

static int make_remote(struct trainer *tr) {
    struct duet_rpc_value lists[2] = {{0}};
    duet_rref *all[ALL_PARAMS] = {NULL};
    int count = 0, code = DUET_OK;
    struct duet_optimizer_options options;
    for (int i = 0; i < 2 && !code; i++) {
        code = duet_remote(&tr->module[i], tr->rpc, "ps", i ? "Decoder" : "EmbeddingTable",
                           DUET_ARGS(duet_rpc_number(tr->settings.dropout),
                                     duet_rpc_int((int64_t)tr->settings.seed + 10 + i)),
                           0);
        if (!code) code = duet_rref_wait(tr->module[i], 0); /* one after the other: see above */
        if (!code)
            code = duet_rref_sync(tr->module[i], "parameter_rrefs", DUET_NO_ARGS, 0, &lists[i]);
        for (int k = 0; k < lists[i].count; k++)
            all[count++] = lists[i].items[k].rref;
    }
    int theirs = count;
    for (int i = 0; i < LSTM_PARAMS && !code; i++)
        code = duet_rref_create_param(&all[count++], tr->rpc, tr->params, i);
    if (!code) code = duet_optimizer_defaults(&options, "sgd");
    options.lr = tr->settings.lr;
    if (!code)
        code = duet_distributed_optimizer_create(&tr->optimizer, tr->rpc, all, count, &options);
    for (int i = theirs; i < count; i++)
        duet_rref_free(all[i]);
    duet_rpc_value_free(&lists[0]), duet_rpc_value_free(&lists[1]);
    return code;
}

/* --local: the generators of both workers are at hand. */
static int make_local(struct trainer *tr, struct weights *w, struct duet_param *params) {
    struct duet_optimizer_options options;
    duet_rng *ps;
    TRY(duet_rng_create(&ps, tr->settings.seed));
    draw_embedding(ps, w);
    draw_decoder(ps, w);
    duet_rng_free(ps);
    params[LSTM_PARAMS] = embedding_param(w);
    decoder_params(w, &params[LSTM_PARAMS + 1]);
    TRY(duet_params_create(&tr->params, tr->device, params, ALL_PARAMS));
    TRY(duet_tape_create(&tr->tape, tr->device));
    TRY(duet_optimizer_defaults(&options, "sgd"));
    options.lr = tr->settings.lr;
    return duet_optimizer_create(&tr->sgd, tr->params, &options);
}

/* hidden = (torch.randn(LAYERS, BATCH, HIDDEN), torch.randn(LAYERS, BATCH, HIDDEN)) */
static int draw_hidden(struct trainer *tr) {
    float drawn[LAYERS][BATCH * HIDDEN];
    for (int i = 0; i < 2; i++) {
        duet_rng_normal(tr->rng, drawn[0], LAYERS * BATCH * HIDDEN, 0, 1);
        for (int l = 0; l < LAYERS; l++)
            TRY(duet_tensor_create(i ? &tr->state.c[l] : &tr->state.h[l], tr->device, DUET_F32, 2,
                                   (int[]){BATCH, HIDDEN}, drawn[l]));
    }
    return DUET_OK;
}

static int make(struct trainer *tr) {
    struct weights w;
    struct duet_param params[ALL_PARAMS];
    struct drop *drops[] = {&tr->embed, &tr->decode, &tr->between};
    TRY(duet_rng_create(&tr->rng, tr->settings.seed));
    for (int i = 0; i < 3; i++) {
        *drops[i] = (struct drop){.p = tr->settings.dropout, .device = tr->device};
        TRY(duet_rng_create(&drops[i]->rng, tr->settings.seed + 10 + (uint64_t)i));
    }
    TRY(draw_hidden(tr));
    int count = describe_lstm(tr->rng, &w, params);
    if (tr->settings.local) return make_local(tr, &w, params);
    TRY(duet_params_create(&tr->params, tr->device, params, count));
    const struct duet_rpc_options options = {.device = tr->device};
    TRY(duet_rpc_init(&tr->rpc, "trainer", -1, 0, &options));
    return make_remote(tr);
}

static int run_trainer(const struct settings *settings, duet_device *device) {
    struct trainer tr = {.settings = *settings, .device = device};
    int code = make(&tr);
    if (!code) code = train(&tr);
    duet_distributed_optimizer_free(tr.optimizer);
    duet_rref_free(tr.module[0]), duet_rref_free(tr.module[1]);
    int end = duet_rpc_shutdown(&tr.rpc, !code, 0);
    for (int l = 0; l < LAYERS; l++)
        duet_tensor_free(tr.state.h[l]), duet_tensor_free(tr.state.c[l]);
    duet_rng_free(tr.embed.rng), duet_rng_free(tr.between.rng), duet_rng_free(tr.decode.rng);
    duet_rng_free(tr.rng);
    duet_optimizer_free(tr.sgd);
    duet_tape_free(tr.tape);
    duet_params_free(tr.params);
    return code ? code : end;
}

static int work(int rank, void *context) {
    const struct settings *s = context;
    duet_device *device;
    TRY(duet_device_open(&device, "cpu", 0, 1 << 26));
    int code = rank ? serve(s, device) : run_trainer(s, device);
    duet_devices_close(&device, 1);
    return code;
}

int main(int argc, char **argv) {
    struct settings s = {.epochs = 10, .dropout = 0.5, .lr = 0.05, .seed = 1};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--local") || !strcmp(argv[i], "--mend")) {
            *(argv[i][2] == 'l' ? &s.local : &s.mend) = 1;
            continue;
        }
        if (!strcmp(argv[i], "--epochs"))
            s.epochs = atoi(value);
        else if (!strcmp(argv[i], "--dropout"))
            s.dropout = atof(value);
        else if (!strcmp(argv[i], "--lr"))
            s.lr = atof(value);
        else if (!strcmp(argv[i], "--seed"))
            s.seed = strtoull(value, NULL, 10);
        else
            s.epochs = 0;
        i++;
    }
    if (s.epochs < 1 || !(s.dropout >= 0 && s.dropout < 1)) {
        fprintf(
            stderr,
            "usage: %s [--epochs 10] [--dropout 0.5] [--lr 0.05] [--seed 1] [--mend] [--local]\n",
            argv[0]);
        return 2;
    }
    if (!s.local) need_ranks(argv[0], 2);
    int code = s.local ? work(0, &s) : duet_spawn(2, work, &s);
    if (code) fprintf(stderr, "%s\n", duet_error());
    return duet_exit_status(code);
}
