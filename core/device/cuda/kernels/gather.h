/* The kernels that make a batch out of a data set that lies on the GPU, rows chosen by an index:
 * from bytes, which become floats, and from numbers, which are copied.
 *
 * Of bytes a thread takes four neighbouring pixels (a quad) of one picture, where they are aligned
 * with a 4-byte load and a 16-byte store: so a warp reads 128 and writes 512 bytes in a row. The
 * two divisions of a pixel are true divisions, for the same bits as on the host. There are some ten
 * instructions to each 5 bytes moved, and they run while the memory is at work. */
#ifndef DEVICE_CUDA_KERNELS_GATHER_H
#define DEVICE_CUDA_KERNELS_GATHER_H

#include "device/cuda/kernels/kernel.h"

/* The index of the rows: of one batch, or with a step block of all batches of an epoch. */
struct row_index {
    const int32_t *place;
    int32_t places;
    const struct step_block *step; /* NULL: row n is place n */
};

static inline struct row_index row_index_of(const struct op_args *a, const struct tensor *index) {
    struct row_index r = ZEROED;
    r.place = (const int32_t *)index->data, r.places = index->dims[0], r.step = a->step;
    return r;
}

/* The index of row n; -1 where there is no such place. */
DUET_HD int32_t row_index_at(const struct row_index *r, uint32_t n) {
    int64_t at = (r->step ? r->step->first : 0) + (int64_t)n;
    return at >= 0 && at < r->places ? r->place[at] : -1;
}

struct gather {
    const uint8_t *images, *labels;
    struct row_index index;
    float *x;
    int32_t *x_labels;
    int32_t rows;     /* pictures of the data set */
    uint32_t count;   /* pixels of a picture */
    uint32_t quads;   /* quads of a picture; the last one may have fewer than 4 pixels */
    size_t all_quads; /* quads of the batch; 4 all_quads is below 2^31 */
    int aligned;      /* every quad has 4 pixels, and is aligned on both sides */
    struct divider by_quads;
    float mean, std;
};

/* Returns 0 for a batch of more than 2^31 pixels, whose indices would not fit. */
static inline int gather_of(const struct op_args *a, struct gather *g) {
    size_t count = tensor_sample_count(&a->in[0]), quads = (count + 3) / 4;
    size_t n = (size_t)a->out[0].dims[0];
    const struct gather none = ZEROED;
    *g = none;
    if (count >= (size_t)1 << 31 || n * quads >= (size_t)1 << 29) return 0;
    g->images = (const uint8_t *)a->in[0].data, g->labels = (const uint8_t *)a->in[1].data;
    g->index = row_index_of(a, &a->in[2]);
    g->x = tensor_f32(&a->out[0]), g->x_labels = (int32_t *)a->out[1].data;
    g->rows = a->in[0].dims[0];
    g->count = (uint32_t)count, g->quads = (uint32_t)quads;
    g->all_quads = n * quads;
    g->aligned = count % 4 == 0 && (uintptr_t)g->images % 4 == 0 && is_aligned_16(g->x);
    g->by_quads = divider_of((uint32_t)quads);
    g->mean = a->p.gather.mean, g->std = a->p.gather.std;
    return 1;
}

/* As gather_pixel of op.h, which the GPU cannot call. */
DUET_HD float gathered_pixel(const struct gather *g, uint8_t byte) {
    float x = (float)byte / 255.0f;
    return g->std > 0 ? (x - g->mean) / g->std : x;
}

DUET_HD void load_4_bytes(uint8_t v[4], const uint8_t *p) {
#ifdef __CUDA_ARCH__
    const uchar4 four = *(const uchar4 *)p;
    v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
#else
    for (int i = 0; i < 4; i++)
        v[i] = p[i];
#endif
}

/* Writes the pixels at .. at + 3 of a picture, those that exist. A picture that the set does not
 * have is NaN. */
DUET_HD void gather_quad(const struct gather *g, int32_t picture, int known, uint32_t at,
                         float *to) {
    const uint8_t *from = g->images + (size_t)(known ? picture : 0) * g->count + at;
    float x[4];
    if (known && g->aligned) {
        uint8_t bytes[4];
        load_4_bytes(bytes, from);
        DUET_UNROLL
        for (int i = 0; i < 4; i++)
            x[i] = gathered_pixel(g, bytes[i]);
    } else {
        DUET_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            x[i] = known && at + i < g->count ? gathered_pixel(g, from[i]) : (float)not_a_number();
    }
    if (g->aligned) {
        store_4(to, x);
        return;
    }
    DUET_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        if (at + i < g->count) to[i] = x[i];
}

/* The thread of a picture's first quad writes its label too. */
DUET_HD void k_gather_samples(const struct gather *g, struct place at) {
    for (size_t q = place_first(at); q < g->all_quads; q += place_stride(at)) {
        uint32_t quad, n = divide(g->by_quads, (uint32_t)q, &quad);
        int32_t picture = row_index_at(&g->index, n);
        int known = picture >= 0 && picture < g->rows;
        gather_quad(g, picture, known, 4 * quad, g->x + (size_t)n * g->count + 4 * quad);
        if (quad == 0) g->x_labels[n] = known ? (int32_t)g->labels[picture] : -1;
    }
}

/* Rows of 4-byte numbers: a thread copies one number, so a warp reads and writes 128 bytes in a
 * row. */
struct gather_rows {
    const uint32_t *x;
    struct row_index index;
    uint32_t *y;
    int32_t rows; /* of x */
    size_t all;   /* numbers of y; below 2^31 */
    struct divider by_count;
};

/* Returns 0 for 2^31 numbers or more, whose indices would not fit. */
static inline int gather_rows_of(const struct op_args *a, struct gather_rows *g) {
    size_t count = tensor_sample_count(&a->in[0]), n = (size_t)a->out[0].dims[0];
    const struct gather_rows none = ZEROED;
    *g = none;
    if (count >= (size_t)1 << 31 || n * count >= (size_t)1 << 31) return 0;
    g->x = (const uint32_t *)a->in[0].data, g->index = row_index_of(a, &a->in[1]);
    g->y = (uint32_t *)a->out[0].data;
    g->rows = a->in[0].dims[0], g->all = n * count;
    g->by_count = divider_of((uint32_t)count);
    return 1;
}

/* A row that x does not have gets all bits set: NaN as a float, -1 as an integer. */
DUET_HD void k_gather_rows(const struct gather_rows *g, struct place at) {
    for (size_t e = place_first(at); e < g->all; e += place_stride(at)) {
        uint32_t column, n = divide(g->by_count, (uint32_t)e, &column);
        int32_t row = row_index_at(&g->index, n);
        int known = row >= 0 && row < g->rows;
        g->y[e] = known ? g->x[(size_t)row * g->by_count.d + column] : 0xffffffffu;
    }
}

#endif
