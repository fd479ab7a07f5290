/* Products of two data matrices, sums along a dimension and their gradient, permutations of
 * dimensions, and the gradient of an embedding's table. (The products of layers with parameters are
 * in reference_conv.c and reference_linear.c.) */
#include "device/host/kernels/reference.h"

#include <string.h>

/* y[i][j] = sum over k of a(i,k) b(k,j), for each pair of matrices. */
void reference_matmul(const struct op_args *p) {
    const struct tensor *x = &p->in[0], *y = &p->out[0];
    int turn_a = p->p.matmul.turn_a, turn_b = p->p.matmul.turn_b;
    size_t rows = (size_t)y->dims[1], columns = (size_t)y->dims[2],
           depth = (size_t)x->dims[turn_a ? 1 : 2];
    size_t a_i = turn_a ? 1 : depth, a_k = turn_a ? rows : 1;
    size_t b_k = turn_b ? 1 : columns, b_j = turn_b ? depth : 1;
    for (size_t n = 0; n < (size_t)y->dims[0]; n++) {
        const float *a = tensor_f32(x) + n * rows * depth,
                    *b = tensor_f32(&p->in[1]) + n * depth * columns;
        float *to = tensor_f32(y) + n * rows * columns;
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < columns; j++) {
                double sum = 0;
                for (size_t k = 0; k < depth; k++)
                    sum += (double)a[i * a_i + k * a_k] * (double)b[k * b_k + j * b_j];
                to[i * columns + j] = (float)sum;
            }
    }
}

/* There is no fast version: this adds nearly as fast as memory delivers. Neighbouring sums are
 * computed together, SUM_ABREAST at a time, so that x is read in the order of memory. */
enum { SUM_ABREAST = 64 };

void reference_sum(const struct op_args *p) {
    const struct tensor *x = &p->in[0];
    size_t length = (size_t)x->dims[1], inner = (size_t)x->dims[2];
    for (size_t o = 0; o < (size_t)x->dims[0]; o++)
        for (size_t first = 0; first < inner; first += SUM_ABREAST) {
            size_t count = inner - first < SUM_ABREAST ? inner - first : SUM_ABREAST;
            const float *from = tensor_f32(x) + o * length * inner + first;
            double sums[SUM_ABREAST] = {0};
            for (size_t l = 0; l < length; l++, from += inner)
                for (size_t i = 0; i < count; i++)
                    sums[i] += (double)from[i];
            for (size_t i = 0; i < count; i++)
                tensor_f32(&p->out[0])[o * inner + first + i] = (float)(sums[i] / p->p.sum.divide);
        }
}

void reference_spread(const struct op_args *p) {
    const struct tensor *dx = &p->out[0];
    size_t length = (size_t)dx->dims[1], inner = (size_t)dx->dims[2];
    float divide = (float)p->p.sum.divide, *to = tensor_f32(dx);
    for (size_t o = 0; o < (size_t)dx->dims[0]; o++)
        for (size_t l = 0; l < length; l++, to += inner)
            for (size_t i = 0; i < inner; i++)
                to[i] = tensor_f32(&p->in[0])[o * inner + i] / divide;
}

/* The last dimension of y is the inner loop; if it is also the last of x, rows are copied. The
 * others count up like the digits of a number, and `from` follows them. */
void reference_permute(const struct op_args *p) {
    struct tensor x = p->in[0], y = p->out[0];
    size_t count = tensor_count(&y);
    int at[MAX_RANK] = {0};
    tensor_strides(&x, x.stride);
    tensor_strides(&y, y.stride);
    const int last = tensor_merge(y.rank, y.dims, x.stride, y.stride) - 1;
    const ptrdiff_t width = y.dims[last], from_step = x.stride[last], to_step = y.stride[last];
    const float *from = tensor_f32(&x);
    float *to = tensor_f32(&y);
    for (size_t rows = count ? count / (size_t)width : 0; rows; rows--) {
        if (from_step == 1 && to_step == 1)
            memcpy(to, from, (size_t)width * sizeof *to);
        else
            for (ptrdiff_t d = 0; d < width; d++)
                to[d * to_step] = from[d * from_step];
        for (int i = last - 1; i >= 0; i--) {
            from += x.stride[i], to += y.stride[i];
            if (++at[i] < y.dims[i]) break;
            from -= (ptrdiff_t)at[i] * x.stride[i], to -= (ptrdiff_t)at[i] * y.stride[i];
            at[i] = 0;
        }
    }
}

void reference_to_index(const struct op_args *p) {
    const float *x = tensor_f32(&p->in[0]);
    int32_t *y = p->out[0].data;
    for (size_t i = 0, count = tensor_count(&p->in[0]); i < count; i++)
        y[i] = index_of_float(x[i]);
}

void reference_embedding_backward(const struct op_args *p) {
    const int32_t *index = p->in[1].data;
    size_t width = (size_t)p->in[0].dims[1];
    memset(p->out[0].data, 0, tensor_bytes(&p->out[0]));
    for (size_t n = 0; n < (size_t)p->in[0].dims[0]; n++) {
        if (index[n] < 0 || index[n] >= p->out[0].dims[0] ||
            index[n] == p->p.embedding.left_out - 1)
            continue;
        float *row = tensor_f32(&p->out[0]) + (size_t)index[n] * width;
        for (size_t d = 0; d < width; d++)
            row[d] += tensor_f32(&p->in[0])[n * width + d];
    }
}
