/* What the tests of OP_GATHER_SAMPLES share: a data set of bytes, an index into it, and the result
 * that both must give. */
#ifndef TESTS_DEVICE_GATHER_H
#define TESTS_DEVICE_GATHER_H

#include "tests/core/device/shared.h"

struct gather_set {
    int rows, dims[3], n; /* number of pictures; their shape (C, H, W); samples of the batch */
    uint8_t *images, *labels;
    int32_t *index;
};

static inline size_t gather_count(const struct gather_set *s) {
    return (size_t)s->dims[0] * (size_t)s->dims[1] * (size_t)s->dims[2];
}

/* 256 pixels or more hold every value of a byte. The index is in no order and repeats. */
static inline struct gather_set gather_make(int rows, int c, int h, int w, int n) {
    struct gather_set s = {rows, {c, h, w}, n, NULL, NULL, NULL};
    size_t bytes = (size_t)rows * gather_count(&s);
    s.images = malloc(bytes + 1), s.labels = malloc((size_t)rows + 1),
    s.index = malloc((size_t)(n + 1) * sizeof *s.index);
    for (size_t i = 0; i < bytes; i++)
        s.images[i] = (uint8_t)(i * 7 + i / 256);
    for (int i = 0; i < rows; i++)
        s.labels[i] = (uint8_t)(255 - i * 3);
    for (int i = 0; i < n; i++)
        s.index[i] = (int32_t)((i * 37 + 11) % rows);
    return s;
}

static inline void gather_free(struct gather_set *s) {
    free(s->images), free(s->labels), free(s->index);
}

/* The op's arguments, over memory of the caller. */
static inline struct op_args gather_op(const struct gather_set *s, struct gather_args p,
                                       void *images, void *labels, void *index, void *x,
                                       void *x_labels) {
    const int set[4] = {s->rows, s->dims[0], s->dims[1], s->dims[2]};
    const int batch[4] = {s->n, s->dims[0], s->dims[1], s->dims[2]};
    struct op_args a;
    memset(&a, 0, sizeof a);
    a.in[0] = tensor_plain(images, DTYPE_U8, 4, set);
    a.in[1] = tensor_plain(labels, DTYPE_U8, 1, set);
    a.in[2] = tensor_plain(index, DTYPE_I32, 1, batch);
    a.out[0] = tensor_plain(x, DTYPE_F32, 4, batch);
    a.out[1] = tensor_plain(x_labels, DTYPE_I32, 1, batch);
    a.p.gather = p;
    return a;
}

/* Checks x and x_labels against the formula of op.h, written here a second time: they must have its
 * bits, and NaN and -1 where the index lies outside. */
static inline void gather_expect(const struct gather_set *s, struct gather_args p, const float *x,
                                 const int32_t *x_labels, const char *who) {
    size_t count = gather_count(s);
    for (int n = 0; n < s->n; n++) {
        int known = s->index[n] >= 0 && s->index[n] < s->rows;
        cr_assert_eq(x_labels[n], known ? s->labels[s->index[n]] : -1, "%s: label %d is %d", who, n,
                     x_labels[n]);
        for (size_t i = 0; i < count; i++) {
            float got = x[(size_t)n * count + i], want;
            if (!known) {
                cr_assert(isnan(got), "%s: row %d has no picture", who, n);
                continue;
            }
            want = (float)s->images[(size_t)s->index[n] * count + i] / 255.0f;
            if (p.std > 0) want = (want - p.mean) / p.std;
            cr_assert(memcmp(&got, &want, sizeof got) == 0, "%s: row %d, pixel %zu: %.9g, not %.9g",
                      who, n, i, got, want);
        }
    }
}

/* Runs the op on a device and checks the result. `shift` moves the operands off their alignment. */
static inline void gather_on(struct device *d, const struct gather_set *s, struct gather_args p,
                             size_t shift) {
    struct stream *stream = device_compute(d);
    size_t pixels = gather_count(s), set = (size_t)s->rows * pixels, batch = (size_t)s->n * pixels;
    char *images, *labels, *index, *x, *x_labels;
    MUST(device_alloc(d, (void **)&images, set + shift, MEM_INPUT));
    MUST(device_alloc(d, (void **)&labels, (size_t)s->rows + shift, MEM_INPUT));
    MUST(device_alloc(d, (void **)&index, (size_t)s->n * 4, MEM_INPUT));
    MUST(device_alloc(d, (void **)&x, batch * 4 + shift * 4, MEM_INPUT));
    MUST(device_alloc(d, (void **)&x_labels, (size_t)s->n * 4, MEM_INPUT));
    float *got = calloc(batch + 1, sizeof *got);
    int32_t *got_labels = calloc((size_t)s->n + 1, sizeof *got_labels);
    MUST(copy_to_device(stream, images + shift, s->images, set));
    MUST(copy_to_device(stream, labels + shift, s->labels, (size_t)s->rows));
    MUST(copy_to_device(stream, index, s->index, (size_t)s->n * 4));
    struct op_args a =
        gather_op(s, p, images + shift, labels + shift, index, x + 4 * shift, x_labels);
    MUST(launch(stream, OP_GATHER_SAMPLES, &a));
    MUST(copy_to_host(stream, got, x + 4 * shift, batch * 4));
    MUST(copy_to_host(stream, got_labels, x_labels, (size_t)s->n * 4));
    MUST(stream_sync(stream));
    gather_expect(s, p, got, got_labels, device_name(d));
    free(got), free(got_labels);
    device_free(d, images), device_free(d, labels), device_free(d, index), device_free(d, x),
        device_free(d, x_labels);
}

/* PyTorch's numbers for Fashion-MNIST, some for which every step rounds, and none. */
static const struct gather_args gather_scales[] = {
    {0.2860f, 0.3530f}, {0.1f, 1e-3f}, {-3.7f, 1e4f}, {0.5f, 0}, {0, 1}};
enum { GATHER_SCALES = 5 };

/* The shapes: all 256 values; a count that four divides, and not; one pixel; one picture; an empty
 * batch; more elements than a grid has threads. */
static inline void gather_all_shapes(struct device *d) {
    static const int shapes[][5] = {{5, 1, 16, 16, 9}, {3, 3, 5, 7, 11}, {300, 1, 1, 1, 70},
                                    {1, 1, 28, 28, 4}, {4, 2, 3, 2, 0},  {90, 1, 28, 28, 200},
                                    {7, 1, 1, 5, 3}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int p = 0; p < GATHER_SCALES; p++) {
            struct gather_set s =
                gather_make(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], shapes[i][4]);
            for (size_t shift = 0; shift < 4; shift += 3)
                gather_on(d, &s, gather_scales[p], shift);
            gather_free(&s);
        }
}

static inline void gather_outside(struct device *d) {
    struct gather_set s = gather_make(6, 1, 9, 4, 12);
    static const int32_t outside[] = {-1, 6, INT32_MIN, INT32_MAX, 7, -7};
    for (int i = 0; i < 6; i++)
        s.index[2 * i] = outside[i];
    gather_on(d, &s, gather_scales[0], 0);
    gather_on(d, &s, gather_scales[3], 1);
    gather_free(&s);
}

#endif
