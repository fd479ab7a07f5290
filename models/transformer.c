/* Transformers as estimates need them: parameters, operations and sizes of GPT-2 and BERT, so that
 * a step has their kernels and its gradients their sizes. For dry runs alone, as torchvision.c.
 *
 *     x (N,T) tokens -> (N,T,D) word + position, then `layers` blocks, each of which adds to it
 *         attention   q, k, v (N,T,D) -> (N,H,T,D/H), softmax of q kT (N,H,T,T), times v
 *         mlp         D -> 4 D, gelu, 4 D -> D
 *     with a layer norm before each (GPT-2), or behind each (BERT)
 *     -> the scores of all tokens of the vocabulary (N, T V), of BERT at the 20 places that are
 *        masked. One row a sample: the loss moves as many bytes as one over T rows of V.
 *
 * T is the shape of a sample. BERT's pooler and its sentence pairs are left out, 0.5 % of its
 * parameters. A causal mask is taken for one more pass over the scores. */
#include <math.h>
#include <stdio.h>

#include "models/models.h"
#include "nn/tape/tape.h"

struct outline {
    int layers, width, heads, vocabulary, positions;
    int masked; /* BERT: places that are predicted; 0: GPT-2, which predicts each */
};

static const struct outline gpt2_small = {12, 768, 12, 50257, 1024, 0},
                            gpt2_medium = {24, 1024, 16, 50257, 1024, 0},
                            gpt2_large = {36, 1280, 20, 50257, 1024, 0},
                            gpt2_xl = {48, 1600, 25, 50257, 1024, 0},
                            gpt_characters = {6, 512, 8, 28, 128, 0},
                            bert_base = {12, 768, 12, 30522, 512, 20};

/* Parameters: these, then PER_BLOCK of each block, then those of BERT's head. */
enum { WORDS, PLACES, NORM, FIRST_BLOCK = NORM + 2 };
enum { NORM1, QKV = 2, OUT = 4, NORM2 = 6, UP = 8, DOWN = 10, PER_BLOCK = 12 };
enum { DENSE, HEAD_NORM = 2, HEAD_BIAS = 4 };
static const double DROPOUT = 0.1, EPS = 1e-5;

/* ---- parameters ---- */

static void parameter(duet_module *m, const char *name, int rank, const int *shape) {
    duet_module_parameter(m, name, rank, shape, (struct duet_init){DUET_NORMAL, 0, 0.02});
}

/* A weight (out,in), or with out 0 that of a norm, and its bias. */
static void pair(duet_module *m, const char *block, const char *layer, int in, int out) {
    char name[64];
    int shape[2] = {out ? out : in, in};
    snprintf(name, sizeof name, "%s%s.weight", block, layer);
    parameter(m, name, out ? 2 : 1, shape);
    snprintf(name, sizeof name, "%s%s.bias", block, layer);
    parameter(m, name, 1, shape);
}

static void describe(duet_module *m, void *context) {
    const struct outline *l = context;
    const int *sample = duet_module_sample(m);
    int tokens = sample[0], d = l->width;
    if (sample[1] * sample[2] != 1)
        duet_module_refuse(m, "a sample is its tokens: give --dataset random --shape 128x1x1");
    if (tokens > l->positions || tokens < l->masked)
        duet_module_refuse(m, "it has fewer positions than that, or predicts more of them");
    model_of(m)->classes = (l->masked ? l->masked : tokens) * l->vocabulary;
    parameter(m, "words.weight", 2, (int[]){l->vocabulary, d});
    parameter(m, "places.weight", 2, (int[]){l->positions, d});
    pair(m, "", "norm", d, 0);
    for (int i = 0; i < l->layers; i++) {
        char block[24];
        snprintf(block, sizeof block, "block.%d.", i);
        pair(m, block, "norm1", d, 0);
        pair(m, block, "qkv", d, 3 * d);
        pair(m, block, "out", d, d);
        pair(m, block, "norm2", d, 0);
        pair(m, block, "up", d, 4 * d);
        pair(m, block, "down", 4 * d, d);
    }
    if (!l->masked) return;
    pair(m, "head.", "dense", d, d);
    pair(m, "head.", "norm", d, 0);
    parameter(m, "head.bias", 1, &l->vocabulary);
}

/* ---- forward ---- */

struct pass {
    duet_tape *t;
    const struct outline *l;
    int tokens;
};

static duet_var *norm(const struct pass *p, duet_var *x, int w) {
    return duet_layer_norm(p->t, x, 1, &p->l->width, w, w + 1, EPS);
}

static duet_var *linear(const struct pass *p, duet_var *x, int w) {
    return duet_linear(p->t, x, w, w + 1);
}

/* Part i of 3 of x (N,T,3D), as (N,H,T,D/H). */
static duet_var *heads(const struct pass *p, duet_var *x, int i) {
    int d = p->l->width, shape[4] = {-1, p->tokens, p->l->heads, d / p->l->heads};
    x = duet_reshape(p->t, duet_narrow(p->t, x, 2, i * d, d), 4, shape);
    return duet_transpose(p->t, x, 1, 2);
}

static duet_var *attention(const struct pass *p, duet_var *x, int at) {
    int shape[3] = {-1, p->tokens, p->l->width};
    x = linear(p, x, at + QKV);
    duet_var *q = heads(p, x, 0), *k = heads(p, x, 1), *v = heads(p, x, 2);
    duet_var *s = duet_matmul(p->t, q, duet_transpose(p->t, k, 2, 3)); /* (N,H,T,T) */
    s = duet_multiply_number(p->t, s, sqrt((double)p->l->heads / p->l->width));
    s = duet_softmax(p->t, duet_add_number(p->t, s, 0)); /* as many bytes as a mask moves */
    x = duet_matmul(p->t, duet_dropout(p->t, s, DROPOUT), v);
    return linear(p, duet_reshape(p->t, duet_transpose(p->t, x, 1, 2), 3, shape), at + OUT);
}

static duet_var *mlp(const struct pass *p, duet_var *x, int at) {
    return linear(p, duet_gelu(p->t, linear(p, x, at + UP), DUET_GELU), at + DOWN);
}

static duet_var *block(const struct pass *p, duet_var *x, int at) {
    int norm_first = !p->l->masked;
    duet_var *before = x;
    const int first = tape_var_count(p->t);
    for (int i = 0; i < 2; i++) {
        int w = at + (i ? NORM2 : NORM1);
        duet_var *h = norm_first ? norm(p, x, w) : x;
        h = duet_dropout(p->t, (i ? mlp : attention)(p, h, at), DROPOUT);
        x = duet_add(p->t, x, h);
        if (!norm_first) x = norm(p, x, w);
    }
    tape_forget(p->t, before);
    tape_forget_since(p->t, first, x);
    return x;
}

static duet_var *scores(const struct pass *p, duet_var *x, int at) {
    if (!p->l->masked) return duet_linear(p->t, norm(p, x, NORM), WORDS, DUET_NO_BIAS);
    x = duet_narrow(p->t, x, 1, 0, p->l->masked);
    x = norm(p, duet_gelu(p->t, linear(p, x, at + DENSE), DUET_GELU), at + HEAD_NORM);
    return duet_linear(p->t, x, WORDS, at + HEAD_BIAS);
}

static duet_var *forward(duet_tape *t, duet_var *x, void *context) {
    const struct outline *l = context;
    struct pass p = {t, l, x ? x->value.dims[1] : 0};
    int at = FIRST_BLOCK;
    x = duet_reshape(t, x, 2, (int[]){-1, p.tokens});
    x = duet_add(t, duet_embedding_of(t, x, WORDS, -1), duet_embedding_of(t, x, PLACES, -1));
    if (l->masked) x = norm(&p, x, NORM);
    x = duet_dropout(t, x, DROPOUT);
    for (int i = 0; i < l->layers; i++, at += PER_BLOCK)
        x = block(&p, x, at);
    return duet_flatten(t, scores(&p, x, at));
}

#define MODEL(NAME, spec)                                                              \
    {                                                                                  \
        .name = NAME, .sample = {128, 1, 1}, .describe = describe, .forward = forward, \
        .context = (void *)&spec                                                       \
    }
// clang-format off
const struct duet_model transformer_models[TRANSFORMER_MODELS] = {
    MODEL("gpt2-small", gpt2_small),
    MODEL("gpt2-medium", gpt2_medium),
    MODEL("gpt2-large", gpt2_large),
    MODEL("gpt2-xl", gpt2_xl),
    MODEL("gpt-18.9m", gpt_characters),
    MODEL("bert-base", bert_base),
};
// clang-format on
