/* The network of examples/rpc_rnn.c: its three parts, its loss, and its weights as PyTorch draws
 * them. The functions record on the tape that the caller passes. */
#ifndef EXAMPLES_RNN_PARTS_H
#define EXAMPLES_RNN_PARTS_H

#include <math.h>
#include <string.h>

#include "duet.h"

enum { STEPS = 5, BATCH = 3, TOKENS = 10, INPUT = 2, HIDDEN = 3, LAYERS = 4, BATCHES = 5 };
enum { LSTM_PARAMS = 4 * LAYERS, ALL_PARAMS = LSTM_PARAMS + 3, MOST_MASKS = 8 };

/* ---- dropout; its masks are drawn here, so local and remote runs use the same ---- */

struct drop {
    double p;
    duet_rng *rng;
    duet_device *device;
    int remote; /* 1: the context keeps the masks; 0: they are freed after the step */
    duet_tensor *mask[MOST_MASKS];
    int count;
};

static duet_var *dropout(duet_tape *t, duet_var *x, struct drop *d, int width) {
    float keep[BATCH * STEPS * HIDDEN];
    duet_tensor *mask;
    if (d->p == 0) return x;
    duet_rng_uniform(d->rng, keep, (size_t)(BATCH * STEPS * width), 0, 1);
    for (int i = 0; i < BATCH * STEPS * width; i++)
        keep[i] = keep[i] < 1 - d->p ? (float)(1 / (1 - d->p)) : 0;
    if (duet_tensor_create(&mask, d->device, DUET_F32, 3, (int[]){BATCH, STEPS, width}, keep))
        return NULL;
    if (d->remote)
        duet_autograd_keep(t, mask);
    else
        d->mask[d->count++] = mask;
    return duet_multiply(t, x, duet_input(t, mask));
}

static void free_masks(struct drop *d) {
    while (d->count)
        duet_tensor_free(d->mask[--d->count]);
}

/* ---- the three parts; `first` is the number of their first parameter ---- */

static duet_var *embed(duet_tape *t, const duet_tensor *data, int first, struct drop *d) {
    return dropout(t, duet_embedding(t, data, first, -1), d, INPUT);
}

static duet_var *decode(duet_tape *t, duet_var *x, int first, struct drop *d) {
    return duet_linear(t, dropout(t, x, d, HIDDEN), first, first + 1);
}

/* h and c of each layer, (BATCH, HIDDEN), for the previous step and for this one. */
struct state {
    duet_tensor *h[LAYERS], *c[LAYERS];
    duet_var *new_h[LAYERS], *new_c[LAYERS];
};

static duet_var *lstm(duet_tape *t, duet_var *x, int first, struct state *s, struct drop *d) {
    for (int l = 0; l < LAYERS; l++) {
        s->new_h[l] = duet_input(t, s->h[l]);
        s->new_c[l] = duet_input(t, s->c[l]);
        int at = first + 4 * l;
        const struct duet_recurrent layer = {DUET_LSTM, at, at + 1, at + 2, at + 3, 0};
        x = duet_recurrent(t, l ? dropout(t, x, d, HIDDEN) : x, &layer, &s->new_h[l], &s->new_c[l]);
    }
    return x;
}

/* CrossEntropyLoss()(output, target). output is (BATCH, STEPS, TOKENS); chosen is 1 at each target,
 * and 0 elsewhere. The tutorial's classes are the BATCH: output becomes (STEPS, TOKENS, BATCH).
 * With `mend`: the TOKENS. The loss has other samples than the tape, so it is a formula. */
static duet_var *cross_entropy(duet_tape *t, duet_var *output, const duet_tensor *chosen,
                               int mend) {
    duet_var *scores = mend ? output : duet_permute(t, output, (int[]){1, 2, 0});
    duet_var *right = duet_multiply(t, duet_log_softmax(t, scores), duet_leaf(t, chosen));
    return duet_multiply_number(t, duet_sum(t, right, NULL, 0, 0),
                                -1.0 / (STEPS * (mend ? BATCH : TOKENS)));
}

/* ---- weights, as PyTorch draws them ---- */

struct weights {
    float embedding[TOKENS * INPUT], decoder[TOKENS * HIDDEN], bias[TOKENS];
    float lstm[LSTM_PARAMS][4 * HIDDEN * HIDDEN];
};

static void draw_embedding(duet_rng *rng, struct weights *w) {
    duet_rng_normal(rng, w->embedding, TOKENS * INPUT, 0, 1); /* nn.Embedding's values, discarded */
    duet_rng_uniform(rng, w->embedding, TOKENS * INPUT, -0.1, 0.1);
}

static void draw_decoder(duet_rng *rng, struct weights *w) {
    duet_rng_uniform(rng, w->decoder, TOKENS * HIDDEN, -1, 1); /* nn.Linear's values, discarded */
    duet_rng_uniform(rng, w->bias, TOKENS, -1, 1);
    duet_rng_uniform(rng, w->decoder, TOKENS * HIDDEN, -0.1, 0.1);
    memset(w->bias, 0, sizeof w->bias);
}

static int describe_lstm(duet_rng *rng, struct weights *w, struct duet_param *params) {
    static const char *const names[LSTM_PARAMS] = {
        "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0",
        "weight_ih_l1", "weight_hh_l1", "bias_ih_l1", "bias_hh_l1",
        "weight_ih_l2", "weight_hh_l2", "bias_ih_l2", "bias_hh_l2",
        "weight_ih_l3", "weight_hh_l3", "bias_ih_l3", "bias_hh_l3"};
    const double bound = 1 / sqrt(HIDDEN);
    for (int i = 0; i < LSTM_PARAMS; i++) {
        int bias = i % 4 >= 2, width = i == 0 ? INPUT : HIDDEN;
        params[i] = (struct duet_param){names[i], bias ? 1 : 2, {4 * HIDDEN, width}, w->lstm[i]};
        duet_rng_uniform(rng, w->lstm[i], (size_t)(4 * HIDDEN * (bias ? 1 : width)), -bound, bound);
    }
    return LSTM_PARAMS;
}

static struct duet_param embedding_param(struct weights *w) {
    return (struct duet_param){"encoder.weight", 2, {TOKENS, INPUT}, w->embedding};
}

static void decoder_params(struct weights *w, struct duet_param *params) {
    params[0] = (struct duet_param){"decoder.weight", 2, {TOKENS, HIDDEN}, w->decoder};
    params[1] = (struct duet_param){"decoder.bias", 1, {TOKENS}, w->bias};
}

#endif
