/* Sizes and views of tensors. All functions only compute with the shape and access no memory. */
#include "device/tensor.h"

#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
    int is_float;
} types[] = {
    [DTYPE_F32] = {"float32", 4, 1}, [DTYPE_F64] = {"float64", 8, 1},
    [DTYPE_F16] = {"float16", 2, 1}, [DTYPE_BF16] = {"bfloat16", 2, 1},
    [DTYPE_I32] = {"int32", 4, 0},   [DTYPE_I64] = {"int64", 8, 0},
    [DTYPE_U64] = {"uint64", 8, 0},  [DTYPE_U8] = {"uint8", 1, 0},
};

size_t dtype_bytes(enum dtype dtype) {
    return types[dtype].bytes;
}

int dtype_is_float(enum dtype dtype) {
    return types[dtype].is_float;
}

const char *dtype_name(enum dtype dtype) {
    return types[dtype].name;
}

size_t dims_count(const int *dims, int rank) {
    size_t count = 1;
    for (int d = 0; d < rank; d++)
        count *= (size_t)dims[d];
    return count;
}

size_t tensor_sample_count(const struct tensor *t) {
    return dims_count(t->dims + 1, t->rank - 1);
}

size_t tensor_count(const struct tensor *t) {
    return dims_count(t->dims, t->rank);
}

int tensor_same_shape(const struct tensor *a, const struct tensor *b) {
    return a->rank == b->rank && !memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims);
}

size_t tensor_stored_count(const struct tensor *t) {
    if (t->layout == LAYOUT_N16)
        return (size_t)t->groups * (size_t)t->lanes * tensor_sample_count(t);
    if (!t->strided || !tensor_count(t)) return tensor_count(t);
    size_t last = 0;
    for (int d = 0; d < t->rank; d++)
        last += (size_t)(t->dims[d] - 1) * (size_t)t->stride[d];
    return last + 1;
}

size_t tensor_bytes(const struct tensor *t) {
    return tensor_stored_count(t) * dtype_bytes(t->dtype);
}

struct tensor tensor_plain(void *data, enum dtype dtype, int rank, const int *dims) {
    struct tensor t;
    memset(&t, 0, sizeof t);
    t.data = data;
    t.dtype = dtype;
    t.layout = LAYOUT_PLAIN;
    t.rank = rank;
    for (int d = 0; d < rank && d < MAX_RANK; d++)
        t.dims[d] = dims[d];
    return t;
}

void tensor_strides(const struct tensor *t, int stride[MAX_RANK]) {
    int below = 1;
    for (int d = t->rank - 1; d >= 0; below *= t->dims[d--])
        stride[d] = t->strided ? t->stride[d] : below;
}

struct tensor tensor_permuted(const struct tensor *t, const int *order) {
    struct tensor view = *t;
    int stride[MAX_RANK];
    tensor_strides(t, stride);
    view.strided = 1;
    for (int d = 0; d < t->rank; d++)
        view.dims[d] = t->dims[order[d]], view.stride[d] = stride[order[d]];
    return view;
}

int tensor_merge(int rank, int dims[MAX_RANK], int a[MAX_RANK], int b[MAX_RANK]) {
    int left = 0;
    for (int d = 0; d < rank; d++) {
        int last = left - 1;
        if (dims[d] == 1 && (left || d < rank - 1)) continue;
        if (left && (int64_t)a[d] * dims[d] == a[last] &&
            (!b || (int64_t)b[d] * dims[d] == b[last])) {
            dims[last] *= dims[d], a[last] = a[d];
            if (b) b[last] = b[d];
            continue;
        }
        dims[left] = dims[d], a[left] = a[d];
        if (b) b[left] = b[d];
        left++;
    }
    return left;
}

struct sample_order tensor_sample_order(const struct tensor *t) {
    struct sample_order o = {.rank = 1, .dims = {1}, .at = {1}, .number = {1}};
    int stride[MAX_RANK], number = 1, count = 0;
    tensor_strides(t, stride);
    for (int d = t->rank - 1; d > 0; number *= t->dims[d--]) {
        int to = 0;
        while (to < count && o.at[to] > stride[d]) /* equal strides keep their order */
            to++;
        for (int i = count++; i > to; i--)
            o.dims[i] = o.dims[i - 1], o.at[i] = o.at[i - 1], o.number[i] = o.number[i - 1];
        o.dims[to] = t->dims[d], o.at[to] = stride[d], o.number[to] = number;
    }
    if (count) o.rank = tensor_merge(count, o.dims, o.at, o.number);
    return o;
}

static int groups_of(int samples, int lanes) {
    return lanes ? (samples + lanes - 1) / lanes : 0;
}

/* The rows per sample; 1 if there are no samples or no rows. */
static int rows_of_each(const struct segments *segments, int rows) {
    return segments->n && rows ? rows / segments->n : 1;
}

struct tensor tensor_in_n16(const struct tensor *t, const struct segments *segments) {
    const struct segments one = {1, t->dims[0], {{0, t->dims[0]}}}, *s = segments ? segments : &one;
    struct tensor n16 = *t;
    int most = 0, each = rows_of_each(s, t->dims[0]);
    for (int i = 0; i < s->count; i++)
        if (each * s->seg[i].n > most) most = each * s->seg[i].n;
    n16.layout = LAYOUT_N16;
    n16.lanes = most > 8 ? MOST_LANES : most > 4 ? 8 : most > 2 ? 4 : most > 1 ? 2 : 1;
    for (int i = 0; i < s->count; i++)
        n16.groups += groups_of(each * s->seg[i].n, n16.lanes);
    return n16;
}

struct tensor tensor_segment(const struct tensor *t, const struct segments *segments, int i) {
    struct tensor view = *t;
    size_t rows = 0, groups = 0; /* totals of all segments before segment i */
    int each = rows_of_each(segments, t->dims[0]);
    for (int j = 0; j < i; j++) {
        rows += (size_t)each * (size_t)segments->seg[j].n;
        groups += (size_t)groups_of(each * segments->seg[j].n, t->lanes);
    }
    size_t skipped = t->layout == LAYOUT_N16 ? groups * (size_t)t->lanes : rows;
    size_t sample = t->strided ? (size_t)t->stride[0] : tensor_sample_count(t);
    if (t->data) view.data = (char *)t->data + skipped * sample * dtype_bytes(t->dtype);
    view.dims[0] = each * segments->seg[i].n;
    view.groups = groups_of(view.dims[0], t->lanes);
    return view;
}
