/* A margin around a picture, or with negative sides a picture cut smaller: what of y lies over x is
 * copied row by row, the rest gets the value. In N16 a pixel is a vector of 16 samples, so there is
 * nothing to gain from a faster kernel beside this one. */
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
    size_t pixel = n16 ? GROUP : 1,
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
