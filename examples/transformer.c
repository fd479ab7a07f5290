/* A small transformer learns a text by heart, letter by letter, under DistributedDataParallel. A
 * step has two batches: two ranks have one each, and one takes two passes, with the same bits.
 *
 *     duet run --nproc-per-node 2 ./transformer 60 model.safetensors      steps, what to save */
#include <stdio.h>
#include <stdlib.h>

#include "duet.h"

#define TRY(call) \
    if ((code = (call))) goto out

enum { L = 12, D = 32, HEADS = 2, CODES = 128, BATCH = 32 /* of a pass */, PASSES = 2 };
#define SCALE 0.25 /* 1 / sqrt(D / HEADS) */
static const char text[] = "The ring passes each part of the sum on to the next rank, and the tree "
                           "adds up pairs of ranks, from the leaves to the root. ";
enum { WORDS, PLACES }; /* parameters of no layer */
enum { QUERY, KEY, VALUE, NORM1, MIX, NORM2, WIDE, NARROW, NORM3, OUT };

static void describe(duet_module *m, void *context) {
    const struct duet_init normal = {DUET_NORMAL, 0, 1}; /* nn.Embedding's */
    (void)context;
    duet_module_parameter(m, "words.weight", 2, (int[]){CODES, D}, normal);
    duet_module_parameter(m, "places.weight", 2, (int[]){L, D}, normal);
    duet_module_linear(m, "query", D, D, 0);
    duet_module_linear(m, "key", D, D, 0);
    duet_module_linear(m, "value", D, D, 0);
    duet_module_layer_norm(m, "norm1", 1, (int[]){D}, 1e-5, 1, 1);
    duet_module_linear(m, "mix", D, D, 1);
    duet_module_layer_norm(m, "norm2", 1, (int[]){D}, 1e-5, 1, 1);
    duet_module_linear(m, "wide", D, 4 * D, 1);
    duet_module_linear(m, "narrow", 4 * D, D, 1);
    duet_module_layer_norm(m, "norm3", 1, (int[]){D}, 1e-5, 1, 1);
    duet_module_linear(m, "out", L * D, CODES, 1);
}

static duet_var *heads(duet_tape *t, int i, duet_var *x) {
    x = duet_reshape(t, duet_layer(t, i, x), 4, (int[]){-1, L, HEADS, D / HEADS});
    return duet_transpose(t, x, 1, 2); /* (n,HEADS,L,D / HEADS) */
}

/* int32 (n,L), (n,L) and (n): letters, their places, and the next letters. Returns the loss. */
static duet_var *forward(duet_tape *t, duet_tensor *words, duet_tensor *places, duet_tensor *next) {
    duet_var *x =
        duet_add(t, duet_embedding(t, words, WORDS, -1), duet_embedding(t, places, PLACES, -1));
    duet_var *h = duet_layer(t, NORM1, x), *key = duet_transpose(t, heads(t, KEY, h), 2, 3);
    duet_var *scores = duet_multiply_number(t, duet_matmul(t, heads(t, QUERY, h), key), SCALE);
    h = duet_transpose(t, duet_matmul(t, duet_softmax(t, scores), heads(t, VALUE, h)), 1, 2);
    x = duet_add(t, x, duet_layer(t, MIX, duet_reshape(t, h, 3, (int[]){-1, L, D})));
    h = duet_gelu(t, duet_layer(t, WIDE, duet_layer(t, NORM2, x)), DUET_GELU);
    x = duet_add(t, x, duet_layer(t, NARROW, h));
    x = duet_layer(t, OUT, duet_flatten(t, duet_layer(t, NORM3, x)));
    return duet_cross_entropy(t, x, next, DUET_MEAN, NULL);
}

static const struct duet_model model = {"transformer", .describe = describe};

/* Samples from, from + 1, ...: L letters of the text each, and the letter behind them. */
static int put_batch(int from, duet_tensor *words, duet_tensor *next) {
    int32_t x[BATCH * L], y[BATCH];
    for (int i = 0; i < BATCH * (L + 1); i++) {
        int n = i / (L + 1), at = i % (L + 1);
        *(at < L ? &x[n * L + at] : &y[n]) = text[((from + n) * 5 + at) % (int)(sizeof text - 1)];
    }
    return duet_tensor_write(words, x) || duet_tensor_write(next, y) ? DUET_FAILED : DUET_OK;
}

static int work(int rank, void *context) {
    char *const *argv = context;
    struct duet_optimizer_options adam;
    duet_group *group = NULL;
    duet_device *device = NULL;
    duet_params *params = NULL;
    duet_tape *tape = NULL;
    duet_ddp *ddp = NULL;
    duet_optimizer *optimizer = NULL;
    duet_tensor *words = NULL, *places = NULL, *next = NULL;
    int32_t place[BATCH * L];
    int64_t right = 0;
    int code, passes; /* of each rank */
    TRY(duet_group_init(&group, 0));
    rank = duet_group_rank(group), passes = PASSES / duet_group_size(group);
    TRY(duet_device_open(&device, "auto", duet_group_local_rank(group), 64 << 20));
    TRY(duet_params_create_model(&params, device, &model, CODES, 0));
    TRY(duet_ddp_create(&ddp, group, params, NULL));
    TRY(duet_tape_create(&tape, device));
    TRY(duet_tape_accumulate(tape, passes));
    TRY(duet_optimizer_defaults(&adam, "adam")); /* torch.optim.Adam(params) */
    TRY(duet_optimizer_create(&optimizer, params, &adam));
    TRY(duet_tensor_create(&words, device, DUET_I32, 2, (int[]){BATCH, L}, NULL));
    for (int i = 0; i < BATCH * L; i++)
        place[i] = i % L;
    TRY(duet_tensor_create(&places, device, DUET_I32, 2, (int[]){BATCH, L}, place));
    TRY(duet_tensor_create(&next, device, DUET_I32, 1, (int[]){BATCH}, NULL));
    for (int step = 1; step <= atoi(argv[1]); step++) {
        for (int pass = 0; pass < passes; pass++) {
            TRY(put_batch((step * PASSES + rank + pass) * BATCH, words, next));
            TRY(duet_tape_begin(tape, params, BATCH, DUET_TRAIN));
            duet_var *loss = forward(tape, words, places, next);
            TRY(duet_backward(tape, loss, NULL));
            TRY(duet_loss_read(tape, loss, NULL, &right));
        }
        for (int i = 0; passes > 1 && i < duet_params_count(params); i++) /* loss / passes */
            TRY(duet_tensor_scale(duet_params_grad(params, i), 1.0f / (float)passes));
        TRY(duet_optimizer_step(optimizer));
        if (rank == 0 && step % 20 == 0) printf("step %d: %d of %d\n", step, (int)right, BATCH);
    }
    if (argv[2] && rank == 0) TRY(duet_params_save(params, argv[2]));
out:
    duet_tensor_free(words), duet_tensor_free(places), duet_tensor_free(next);
    duet_optimizer_free(optimizer), duet_ddp_free(ddp), duet_tape_free(tape);
    duet_params_free(params), duet_devices_close(&device, 1), duet_group_destroy(&group);
    return code;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    if (argc < 2 || atoi(argv[1]) < 1) return fprintf(stderr, "transformer STEPS [FILE]\n"), 2;
    int code = duet_spawn(1, work, argv);
    if (code) fprintf(stderr, "transformer: %s\n", duet_error());
    return duet_exit_status(code);
}
