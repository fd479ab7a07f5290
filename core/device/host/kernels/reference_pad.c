/* Adds a margin to an image, or crops it if the sides are negative. The part of y over x is copied
 * row by row, and the rest gets the value. The file also joins parts of samples. These ops move
 * memory in large pieces, in N16 vectors of a group, so faster kernels would gain nothing. */
#include "device/host/kernels/reference.h"

#include <string.h>

static void fill(float *y, size_t count, float value) {
    for (size_t i = 0; i < count; i++)
        y[i] = value;
}

static int least(int a, int b) {
    return a < b ? a : b;
}

void reference_pad(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *y = &a->out[0];
    const struct pad_args p = a->p.pad;
    int n16 = x->layout == LAYOUT_N16, left = p.left > 0 ? p.left : 0, from = left - p.left;
    size_t pixel = n16 ? (size_t)x->lanes : 1,
           planes = (size_t)(n16 ? x->groups : x->dims[0]) * (size_t)x->dims[1];
    int both = least(x->dims[3] - from, y->dims[3] - left); /* pixels of a row that x and y share */
    float *row = tensor_f32(y);
    for (size_t i = 0; i < planes; i++) {
        const float *plane = tensor_f32(x) + i * (size_t)x->dims[2] * (size_t)x->dims[3] * pixel;
        for (int h = 0; h < y->dims[2]; h++, row += (size_t)y->dims[3] * pixel) {
            int source = h - p.top;
            if (source < 0 || source >= x->dims[2]) {
                fill(row, (size_t)y->dims[3] * pixel, p.value);
                continue;
            }
            size_t first = ((size_t)source * (size_t)x->dims[3] + (size_t)from) * pixel;
            fill(row, (size_t)left * pixel, p.value);
            memcpy(row + (size_t)left * pixel, plane + first, (size_t)both * pixel * sizeof(float));
            fill(row + (size_t)(left + both) * pixel, (size_t)(y->dims[3] - left - both) * pixel,
                 p.value);
        }
    }
}

void reference_cat(const struct op_args *args) {
    const struct tensor *a = &args->in[0], *b = &args->in[1];
    int n16 = a->layout == LAYOUT_N16;
    size_t of_k = (size_t)a->dims[3] * (n16 ? (size_t)a->lanes : 1),
           of_a = (size_t)a->dims[2] * of_k, of_b = (size_t)b->dims[2] * of_k,
           parts = (size_t)(n16 ? a->groups : a->dims[0]) * (size_t)a->dims[1];
    float *y = tensor_f32(&args->out[0]);
    for (size_t i = 0; i < parts; i++, y += of_a + of_b) {
        memcpy(y, tensor_f32(a) + i * of_a, of_a * sizeof(float));
        memcpy(y + of_a, tensor_f32(b) + i * of_b, of_b * sizeof(float));
    }
}
