/* The arguments of one layer, as its extra_repr prints them: positions first, then key=value. What
 * is read is crossed out, and what is left over at the end, or has a value that Duet's layer cannot
 * have, is an error. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/error.h"
#include "models/sequential.h"

enum { ARGS = 16, WORD = 40 };

struct args {
    const struct sequential *s;
    int line;
    int code; /* of the first failure */
    int count;
    char key[ARGS][WORD]; /* a position as "0", "1"; "": crossed out */
    char value[ARGS][WORD];
};

static void refuse(struct args *a, const char *what, const char *value, const char *why) {
    if (!a->code) a->code = sequential_fail(a->s, a->line, "%s=%s: %s", what, value, why);
}

/* ---- splitting ---- */

static int add_arg(struct args *a, const char *text, size_t length) {
    const char *equals = memchr(text, '=', length);
    int i = a->count;
    size_t key = equals ? (size_t)(equals - text) : 0, skip = equals ? key + 1 : 0;
    if (i == ARGS || key >= WORD || length - skip >= WORD || length == skip)
        return sequential_fail(a->s, a->line, "'%.*s': cannot be read as an argument",
                               (int)(length < 40 ? length : 40), text);
    if (equals)
        snprintf(a->key[i], WORD, "%.*s", (int)key, text);
    else
        snprintf(a->key[i], WORD, "%d", i);
    snprintf(a->value[i], WORD, "%.*s", (int)(length - skip), text + skip);
    a->count++;
    return OK;
}

/* At each ", " that is in no parentheses. */
static int split(struct args *a, const char *text, size_t length) {
    size_t begin = 0;
    int depth = 0;
    for (size_t i = 0; i < length; i++) {
        depth += (text[i] == '(') - (text[i] == ')');
        if (depth < 0) break;
        if (depth || text[i] != ',') continue;
        CHECK(add_arg(a, text + begin, i - begin));
        begin = i + 1 + strspn(text + i + 1, " ");
        if (begin >= length) break;
    }
    if (depth || (length && begin >= length))
        return sequential_fail(a->s, a->line, "its parentheses do not close");
    return length ? add_arg(a, text + begin, length - begin) : OK;
}

/* ---- taking ---- */

/* The value of an argument, which is crossed out; NULL: it is not there. */
static const char *take(struct args *a, const char *key) {
    for (int i = 0; i < a->count; i++)
        if (!strcmp(a->key[i], key)) {
            *a->key[i] = 0;
            return a->value[i];
        }
    return NULL;
}

static int whole(const char *text, const char **end, int *value) {
    char *stop;
    long n = isdigit((unsigned char)*text) ? strtol(text, &stop, 10) : -1;
    if (n < 0 || n > API_WINDOW * 64L) return 0;
    *value = (int)n;
    *end = stop;
    return 1;
}

/* "(3, 3)": `count` numbers. */
static int tuple(const char *at, int count, int *out) {
    for (int i = 0; i < count; i++) {
        const char *before = i ? ", " : "(";
        if (strncmp(at, before, strlen(before)) || !whole(at + strlen(before), &at, &out[i]))
            return 0;
    }
    return !strcmp(at, ")");
}

/* "3" or "(3, 3)". */
static int pair(const char *text, int out[2]) {
    const char *at = text;
    if (*at == '(') return tuple(at, 2, out);
    if (!whole(at, &at, &out[0]) || *at) return 0;
    out[1] = out[0];
    return 1;
}

static const char *needed(struct args *a, const char *key) {
    const char *text = take(a, key);
    if (!text && !a->code) a->code = sequential_fail(a->s, a->line, "%s is missing", key);
    return text;
}

static int take_int(struct args *a, const char *key) {
    const char *text = needed(a, key), *end;
    int value = 0;
    if (text && (!whole(text, &end, &value) || *end || value < 1))
        refuse(a, key, text, "must be a whole number of at least 1");
    return value;
}

/* A size that is the same in both directions. */
static int take_square(struct args *a, const char *key, int least, int otherwise) {
    const char *text = otherwise < 0 ? needed(a, key) : take(a, key);
    int sides[2] = {otherwise, otherwise};
    if (!text) return otherwise;
    if (!pair(text, sides) || sides[0] < least)
        refuse(a, key, text, "must be a size, as 3 or (3, 3)");
    else if (sides[0] != sides[1])
        refuse(a, key, text, "height and width must be equal: Duet's windows are squares");
    return sides[0];
}

static int take_bool(struct args *a, const char *key, int otherwise) {
    const char *text = take(a, key);
    if (!text) return otherwise;
    if (strcmp(text, "True") && strcmp(text, "False"))
        refuse(a, key, text, "must be True or False");
    return !strcmp(text, "True");
}

static double take_number(struct args *a, const char *key, double otherwise) {
    const char *text = take(a, key);
    char *end;
    if (!text) return otherwise;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0 && value < 1e6))
        refuse(a, key, text, "must be a number");
    return value;
}

/* Duet's layer has only one value here, which may be written in two ways. */
static void expect(struct args *a, const char *key, const char *one, const char *other) {
    const char *text = take(a, key);
    if (text && strcmp(text, one) && strcmp(text, other)) {
        char why[80];
        snprintf(why, sizeof why, "Duet's layer has %s=%s alone", key, one);
        refuse(a, key, text, why);
    }
}

/* ---- kinds ---- */

/* A size, or the words for none and for as much as leaves the picture its size. PyTorch refuses
 * "same" with a stride. An even kernel would need more on one side than on the other. */
static int take_padding(struct args *a, const struct sequential_item *item) {
    for (int i = 0; i < a->count; i++) {
        if (strcmp(a->key[i], "padding")) continue;
        int same = !strcmp(a->value[i], "same");
        if (!same && strcmp(a->value[i], "valid")) break;
        *a->key[i] = 0;
        if (same && (item->kernel % 2 == 0 || item->stride != 1))
            refuse(a, "padding", "same", "needs an odd kernel_size and a stride of 1 here");
        return same ? (item->kernel - 1) / 2 : 0;
    }
    return take_square(a, "padding", 0, 0);
}

static void read_conv(struct args *a, struct sequential_item *item) {
    item->in = take_int(a, "0");
    item->out = take_int(a, "1");
    item->kernel = take_square(a, "kernel_size", 1, -1);
    item->stride = take_square(a, "stride", 1, 1);
    item->padding = take_padding(a, item);
    item->bias = take_bool(a, "bias", 1);
    expect(a, "dilation", "(1, 1)", "1");
    expect(a, "groups", "1", "1");
    expect(a, "padding_mode", "zeros", "zeros");
}

static void read_norm(struct args *a, struct sequential_item *item) {
    item->out = item->in = take_int(a, "0");
    item->eps = take_number(a, "eps", 1e-5);
    for (int i = 0; i < a->count; i++) /* None: the mean of all batches */
        if (!strcmp(a->key[i], "momentum") && !strcmp(a->value[i], "None"))
            strcpy(a->key[i], ""), item->momentum = -1;
    if (item->momentum == 0) item->momentum = take_number(a, "momentum", 0.1);
    expect(a, "affine", "True", "True");
    expect(a, "bias", "True", "True");
    expect(a, "track_running_stats", "True", "True");
}

static void read_pool(struct args *a, struct sequential_item *item) {
    item->kernel = take_square(a, "kernel_size", 1, -1);
    item->stride = take_square(a, "stride", 1, item->kernel);
    item->padding = take_square(a, "padding", 0, 0);
    if (item->padding > item->kernel / 2)
        refuse(a, "padding", "more", "pad should be at most half of the kernel_size");
    expect(a, "dilation", "1", "(1, 1)");
    item->ceil_mode = take_bool(a, "ceil_mode", 0);
    if (item->ceil_mode && item->kind == SEQ_AVG_POOL2D)
        refuse(a, "ceil_mode", "True", "Duet's averages have ceil_mode=False alone");
    if (item->kind == SEQ_AVG_POOL2D) {
        expect(a, "count_include_pad", "True", "True");
        expect(a, "divisor_override", "None", "None");
    }
}

/* ZeroPad2d((1, 1, 0, 2)), ConstantPad2d(padding=(1, 1, 1, 1), value=0.5) */
static void read_pad(struct args *a, struct sequential_item *item) {
    int constant = item->kind == SEQ_CONSTANT_PAD2D, *p = item->sides, end = 0;
    const char *key = constant ? "padding" : "0", *text = needed(a, key);
    if (text &&
        (sscanf(text, "(%d, %d, %d, %d)%n", &p[0], &p[1], &p[2], &p[3], &end) != 4 || text[end]))
        refuse(a, key, text, "must be left, right, top, bottom, as (1, 1, 0, 2)");
    for (int i = 0; text && i < 4; i++)
        if (p[i] > API_WINDOW || p[i] < -API_WINDOW) refuse(a, key, text, "is too large");
    if (!constant) return;
    char *stop = NULL;
    text = needed(a, "value");
    if (text) item->value = strtod(text, &stop);
    if (text && (stop == text || *stop || !isfinite((float)item->value)))
        refuse(a, "value", text, "must be a finite number");
}

/* One side of an adaptive pool's output; None leaves it as it is, which 0 stands for. */
static int side(const char **at, int *value) {
    if (strncmp(*at, "None", 4)) return whole(*at, at, value) && *value >= 1;
    *at += 4;
    *value = 0;
    return 1;
}

static void read_adaptive(struct args *a, struct sequential_item *item) {
    const char *text = needed(a, "output_size"), *at = text;
    if (!text) return;
    int two = *at == '(', good;
    at += two;
    good = side(&at, &item->height);
    item->width = item->height;
    if (two && good) good = !strncmp(at, ", ", 2);
    if (two && good) at += 2, good = side(&at, &item->width) && *at++ == ')';
    if (!good || *at) refuse(a, "output_size", text, "must be a size, as 1, (2, 3) or (None, 3)");
}

/* Features become pictures. */
static void read_unflatten(struct args *a, struct sequential_item *item) {
    expect(a, "dim", "1", "-1");
    const char *text = needed(a, "unflattened_size");
    int sides[3] = {1, 1, 1};
    if (text && (!tuple(text, 3, sides) || sides[0] < 1 || sides[1] < 1 || sides[2] < 1 ||
                 (double)sides[0] * sides[1] * sides[2] > INT32_MAX))
        refuse(a, "unflattened_size", text, "must be channels, height and width, as (8, 4, 4)");
    item->out = sides[0], item->height = sides[1], item->width = sides[2];
    item->in = a->code ? 0 : sides[0] * sides[1] * sides[2];
}

static const char *const kinds[SEQ_KINDS] = {
    [SEQ_CONV2D] = "Conv2d",
    [SEQ_LINEAR] = "Linear",
    [SEQ_BATCH_NORM1D] = "BatchNorm1d",
    [SEQ_BATCH_NORM2D] = "BatchNorm2d",
    [SEQ_RELU] = "ReLU",
    [SEQ_TANH] = "Tanh",
    [SEQ_SIGMOID] = "Sigmoid",
    [SEQ_SILU] = "SiLU",
    [SEQ_IDENTITY] = "Identity",
    [SEQ_MAX_POOL2D] = "MaxPool2d",
    [SEQ_AVG_POOL2D] = "AvgPool2d",
    [SEQ_ZERO_PAD2D] = "ZeroPad2d",
    [SEQ_CONSTANT_PAD2D] = "ConstantPad2d",
    [SEQ_ADAPTIVE_AVG_POOL2D] = "AdaptiveAvgPool2d",
    [SEQ_ADAPTIVE_MAX_POOL2D] = "AdaptiveMaxPool2d",
    [SEQ_DROPOUT] = "Dropout",
    [SEQ_DROPOUT2D] = "Dropout2d",
    [SEQ_FLATTEN] = "Flatten",
    [SEQ_UNFLATTEN] = "Unflatten",
    [SEQ_SOFTMAX] = "Softmax",
    [SEQ_LOG_SOFTMAX] = "LogSoftmax",
};

static void read_args(struct args *a, struct sequential_item *item) {
    switch (item->kind) {
    case SEQ_CONV2D: read_conv(a, item); break;
    case SEQ_LINEAR:
        item->in = take_int(a, "in_features");
        item->out = take_int(a, "out_features");
        item->bias = take_bool(a, "bias", 1);
        break;
    case SEQ_BATCH_NORM1D:
    case SEQ_BATCH_NORM2D: read_norm(a, item); break;
    case SEQ_MAX_POOL2D:
    case SEQ_AVG_POOL2D: read_pool(a, item); break;
    case SEQ_ZERO_PAD2D:
    case SEQ_CONSTANT_PAD2D: read_pad(a, item); break;
    case SEQ_ADAPTIVE_AVG_POOL2D:
    case SEQ_ADAPTIVE_MAX_POOL2D: read_adaptive(a, item); break;
    case SEQ_DROPOUT:
    case SEQ_DROPOUT2D:
        item->p = take_number(a, "p", 0.5);
        if (item->p > 1) refuse(a, "p", "more than 1", "must be 0 to 1");
        take_bool(a, "inplace", 0);
        break;
    case SEQ_RELU:
    case SEQ_SILU: take_bool(a, "inplace", 0); break;
    case SEQ_FLATTEN:
        expect(a, "start_dim", "1", "1");
        expect(a, "end_dim", "-1", "3");
        break;
    case SEQ_UNFLATTEN: read_unflatten(a, item); break;
    case SEQ_SOFTMAX:
    case SEQ_LOG_SOFTMAX: expect(a, "dim", "1", "-1"); break;
    default: break;
    }
}

static int unknown_kind(const struct sequential *s, int line, const char *text) {
    if (!strncmp(text, "Embedding(", 10))
        return sequential_fail(s, line,
                               "an Embedding takes integers, and the samples of a data set "
                               "are floats: in a program of your own there is "
                               "duet_embedding");
    if (!strncmp(text, "SyncBatchNorm(", 14))
        return sequential_fail(s, line,
                               "give BatchNorm1d or BatchNorm2d, and --sync-bn, which "
                               "converts every one of them");
    char known[SEQ_KINDS * 20] = "";
    for (int i = 0, used = 0; i < SEQ_KINDS; i++)
        used += snprintf(known + used, sizeof known - (size_t)used, i ? ", %s" : "%s", kinds[i]);
    return sequential_fail(s, line, "there are Sequential, %s", known);
}

int sequential_read_layer(const struct sequential *s, const char *text, size_t length,
                          struct sequential_item *item) {
    struct args a = {.s = s, .line = item->line};
    const char *open = memchr(text, '(', length);
    size_t word = open ? (size_t)(open - text) : 0;
    int kind = 0;
    while (kind < SEQ_KINDS && (strlen(kinds[kind]) != word || memcmp(kinds[kind], text, word)))
        kind++;
    if (kind == SEQ_KINDS) return unknown_kind(s, item->line, text);
    if (text[length - 1] != ')')
        return sequential_fail(s, item->line, "its parentheses do not close in this line");
    item->kind = (enum sequential_kind)kind;
    if (kind != SEQ_IDENTITY) CHECK(split(&a, open + 1, length - word - 2));
    read_args(&a, item);
    for (int i = 0; !a.code && i < a.count; i++)
        if (*a.key[i]) refuse(&a, a.key[i], a.value[i], "Duet's layer has no such argument");
    return a.code;
}
