/* A row of the table of functions (op_rows.h, layer_rows.h) and one pass of it on a device:
 * forward, backward, and the results. */
#ifndef TESTS_NN_OP_BED_H
#define TESTS_NN_OP_BED_H

#include "base/fold.h"
#include "tests/golden/golden.h"
#include "tests/core/nn/step.h"

enum { V = 4, MOST = 1 << 14, MOST_W = 4, MOST_B = 2, MOST_Y = 3 };

struct shape {
    int rank, dims[4], factor; /* factor: scales the numbers of a leaf in golden_value */
};

enum {
    TOKENS = 1,   /* x holds indices, and has no gradient */
    C_TOKENS = 2, /* the constant holds indices */
    OWN = 4,      /* x has the numbers NAME_x of the file, in place of a formula's */
    WIDE = 8,     /* parameters are as wide as x, not half as wide */
    NO_FACT = 16, /* the file has no facts about it */
    CORNERS = 32  /* its slope jumps, so differences do not show its gradient */
};

struct call;
struct row {
    const char *name, *as; /* as: the name in the file; NULL: the same */
    duet_var *(*call)(struct call *c);
    struct shape x;         /* dims[0]: of the facts */
    struct shape w[MOST_W]; /* parameters */
    struct shape b[MOST_B]; /* more leaves; with any, the row runs on one device only */
    struct shape c;         /* a constant */
    int samples;            /* of the pass; 0: x.dims[0]. If given: only on one device */
    int scale;              /* of x, for the facts; 0: 1 */
    int is;
};

/* The names that a row's expression may use. */
struct call {
    duet_tape *t;
    duet_var *x, *b[MOST_B], *constant, *more[MOST_Y - 1]; /* more: roots after the first */
    const duet_tensor *index;                              /* the numbers of x, as int32 */
};

/* The source of numbers: the file, or numbers that differ from 0 and from each other. */
enum numbers { OF_FACTS, OF_DIFFERENCES };

struct bed {
    const struct row *row;
    struct device *device;
    struct segments segments;
    const int *first; /* sample i of the batch is sample first[v] + i of all */
    enum numbers numbers;
    int n16, params_count;
    struct param_spec specs[MOST_W];
    struct param_set params;
    duet_tape *tape;
    struct tensor x, b[MOST_B], root[MOST_Y];
    duet_tensor constant, index;
    void *step;
    duet_var *leaf[1 + MOST_B], *y[MOST_Y];
    float dy[MOST_Y][MOST];
};

/* y_count: numbers of a sample. */
struct result {
    int ranks[MOST_Y], dims[MOST_Y][MAX_RANK], y_count;
    float y[MOST_Y][MOST], dx[MOST], db[MOST_B][MOST], dw[MOST_W][MOST];
};

static inline int count_of(const struct shape *s, int from) {
    int count = 1;
    for (int i = from; i < s->rank; i++)
        count *= s->dims[i];
    return count;
}

static const double H = 1.0 / 128; /* a step of the differences */

/* From -1.5 to 1.5, no two of 97 in a row alike, and none within two steps of 0. */
static inline float apart(int i, int of) {
    float x = (float)((i * 37 + of * 11 + 5) % 97) / 97 * 3 - 1.5f;
    return fabsf(x) > 3 * (float)H ? x : x < 0 ? -1.6f : 1.6f;
}

static inline float number(const struct bed *b, int i, int factor) {
    return b->numbers == OF_FACTS ? golden_value(i, factor) : apart(i, factor % 7);
}

static inline float token(int i) {
    return (float)(i * 7 % 5);
}

static inline void *upload(struct bed *b, const void *from) {
    void *to;
    MUST(device_alloc(b->device, &to, MOST * sizeof(float), MEM_WORKSPACE));
    MUST(copy_to_device(device_compute(b->device), to, from, MOST * sizeof(float)));
    MUST(stream_sync(device_compute(b->device)));
    return to;
}

static inline struct tensor shaped(struct bed *b, const struct shape *s, const float *numbers) {
    return tensor_plain(upload(b, numbers), DTYPE_F32, s->rank, s->dims);
}

static inline void open_params(struct bed *b) {
    static const int wide[MOST_W] = {6131, 4001, 5003, 8009};
    static float numbers[MOST];
    const struct row *r = b->row;
    for (; b->params_count < MOST_W && r->w[b->params_count].rank; b->params_count++) {
        const struct shape *s = &r->w[b->params_count];
        b->specs[b->params_count] = (struct param_spec){"w", s->rank, {0}, 0};
        memcpy(b->specs[b->params_count].dims, s->dims, sizeof s->dims);
    }
    if (b->params_count) MUST(param_set_init(&b->params, b->device, b->specs, b->params_count));
    for (int k = 0; k < b->params_count; k++) {
        for (int i = 0; i < MOST; i++)
            numbers[i] = r->is & WIDE && b->numbers == OF_FACTS ? golden_value(i, wide[k])
                                                                : number(b, i, 6007 + 202 * k) / 2;
        MUST(param_write_value(&b->params, k, numbers));
    }
}

/* The inputs of a row, on the device. x and its tokens are those of the samples of `segments`. */
static inline void bed_open(struct bed *b) {
    static float x[MOST], other[MOST];
    static int32_t index[MOST];
    const struct row *r = b->row;
    struct golden_tensor own = {.count = 0};
    struct step_block block[MOST * sizeof(float) / sizeof(struct step_block) + 1] = {
        {.seed = 7, .step = 3}};
    int n = 0, each = count_of(&r->x, 1), rows = r->samples ? r->x.dims[0] : b->segments.n;
    if (r->is & OWN) {
        char key[64];
        snprintf(key, sizeof key, "%s_x", r->name);
        own = golden_tensor("tests/golden/ops.txt", key);
    }
    for (int s = 0; s < b->segments.count; s++)
        for (int k = 0; k < (r->samples ? rows : b->segments.seg[s].n) * each; k++, n++) {
            int i = b->first[b->segments.seg[s].v] * each + k;
            x[n] = r->is & TOKENS ? token(i)
                   : r->is & OWN  ? (float)own.x[(size_t)i % own.count]
                                  : number(b, i, 7919);
            if (r->scale && b->numbers == OF_FACTS) x[n] *= (float)r->scale;
            index[n] = r->is & TOKENS ? (int32_t)token(i) : 0;
        }
    b->x = shaped(b, &r->x, x), b->x.dims[0] = rows;
    b->index = (duet_tensor){.device = b->device, .t = b->x};
    b->index.t.dtype = DTYPE_I32, b->index.t.data = upload(b, index);
    for (int l = 0; l < MOST_B && r->b[l].rank; l++) {
        for (int i = 0; i < MOST; i++)
            other[i] = number(b, i, r->b[l].factor);
        b->b[l] = shaped(b, &r->b[l], other);
    }
    for (int i = 0; i < MOST; i++)
        other[i] = r->is & C_TOKENS ? token(i) : number(b, i, 2003);
    if (r->c.rank) b->constant = (duet_tensor){.device = b->device, .t = shaped(b, &r->c, other)};
    b->step = upload(b, block);
    open_params(b);
    MUST(tape_init(&b->tape, b->device));
}

static inline void bed_close(struct bed *b) {
    void *const memory[] = {b->x.data,       b->index.t.data, b->constant.t.data,
                            b->step,         b->b[0].data,    b->b[1].data,
                            b->root[0].data, b->root[1].data, b->root[2].data};
    duet_tape_free(b->tape);
    param_set_free(&b->params);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        device_free(b->device, memory[i]);
}

static inline void bed_forward(struct bed *b) {
    struct tape_step step = {.segments = &b->segments,
                             .params = b->params_count ? &b->params : NULL,
                             .step = b->step,
                             .training = 1};
    struct call c = {.t = b->tape, .index = &b->index};
    MUST(tape_begin(b->tape, &step));
    b->leaf[0] = tape_leaf(b->tape, &b->x, !(b->row->is & TOKENS));
    c.x = b->n16 && !b->row->samples ? to_device_layout(b->tape, b->leaf[0]) : b->leaf[0];
    for (int l = 0; l < MOST_B && b->row->b[l].rank; l++)
        c.b[l] = b->leaf[1 + l] = tape_leaf(b->tape, &b->b[l], 1);
    if (b->row->c.rank) c.constant = duet_constant(b->tape, &b->constant);
    b->y[0] = to_plain(b->tape, b->row->call(&c));
    for (int k = 1; k < MOST_Y; k++)
        b->y[k] = c.more[k - 1] ? to_plain(b->tape, c.more[k - 1]) : NULL;
    cr_assert_not_null(b->y[0], "%s: %s", b->row->name, (tape_error(b->tape), error_message()));
}

/* Backward from all roots, twice: the second starts anew. Roots' gradients are left as they are. */
static inline void bed_backward(struct bed *b) {
    static float after[MOST];
    int roots = 0;
    for (; roots < MOST_Y && b->y[roots]; roots++) {
        int each = (int)tensor_sample_count(&b->y[roots]->value), at = 0;
        float *dy = b->dy[roots];
        cr_assert_leq(tensor_count(&b->y[roots]->value), MOST);
        for (int i = 0; i < MOST; i++)
            dy[i] = number(b, i, roots ? 1741 : 3571);
        for (int s = 0; !b->row->samples && s < b->segments.count; s++)
            for (int k = 0; k < b->segments.seg[s].n * each; k++, at++)
                dy[at] = number(b, b->first[b->segments.seg[s].v] * each + k, roots ? 1741 : 3571);
        b->root[roots] = b->y[roots]->value;
        b->root[roots].data = upload(b, dy);
    }
    duet_var *root = roots > 1 ? tape_join(b->tape, b->y, b->root, roots) : b->y[0];
    for (int again = 0; again < 2; again++)
        MUST(tape_backward(b->tape, root, roots > 1 ? NULL : &b->root[0]));
    MUST(copy_to_host(device_compute(b->device), after, b->root[0].data, sizeof after));
    MUST(stream_sync(device_compute(b->device)));
    cr_assert_arr_eq(after, b->dy[0], sizeof after, "%s: the root's gradient was written to",
                     b->row->name);
}

static inline void take(struct bed *b, float *to, const struct tensor *t) {
    if (t->data) MUST(copy_to_host(device_compute(b->device), to, t->data, tensor_bytes(t)));
}

static inline void bed_read(struct bed *b, struct result *r) {
    r->y_count = (int)tensor_sample_count(&b->y[0]->value);
    for (int k = 0; k < MOST_Y && b->y[k]; k++) {
        r->ranks[k] = b->y[k]->value.rank;
        memcpy(r->dims[k], b->y[k]->value.dims, sizeof r->dims[k]);
        take(b, r->y[k], &b->y[k]->value);
    }
    take(b, r->dx, &b->leaf[0]->grad);
    for (int l = 0; l < MOST_B && b->row->b[l].rank; l++)
        take(b, r->db[l], &b->leaf[1 + l]->grad);
    for (int k = 0; k < b->params_count; k++)
        MUST(param_read_grad(&b->params, k, r->dw[k]));
    MUST(stream_sync(device_compute(b->device)));
}

#endif
