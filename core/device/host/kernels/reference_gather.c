/* A batch from a data set that lies on the device: as bytes, or as numbers of 4 bytes. A byte has
 * 256 values, so a table holds the formula's result for each. There are no fast versions: look-ups
 * and copies are bound by memory. */
#include "device/host/kernels/reference.h"

#include <math.h>
#include <string.h>

/* The index of row n: -1 where the index has no such place. */
static int32_t index_of(const struct op_args *a, const struct tensor *index, size_t n) {
    int64_t at = (a->step ? a->step->first : 0) + (int64_t)n;
    return at >= 0 && at < index->dims[0] ? ((const int32_t *)index->data)[at] : -1;
}

void reference_gather_samples(const struct op_args *a) {
    const uint8_t *images = a->in[0].data, *labels = a->in[1].data;
    float *x = tensor_f32(&a->out[0]), table[256];
    int32_t *x_labels = a->out[1].data;
    size_t count = tensor_sample_count(&a->in[0]);
    for (int byte = 0; byte < 256; byte++)
        table[byte] = gather_pixel(&a->p.gather, (unsigned char)byte);
    for (size_t n = 0; n < (size_t)a->out[0].dims[0]; n++) {
        int32_t index = index_of(a, &a->in[2], n);
        int known = index >= 0 && index < a->in[0].dims[0];
        const uint8_t *picture = images + (known ? (size_t)index : 0) * count;
        for (size_t i = 0; i < count; i++)
            x[n * count + i] = known ? table[picture[i]] : NAN;
        x_labels[n] = known ? labels[index] : -1;
    }
}

/* All bits set are NaN as a float, and -1 as an integer. */
void reference_gather_rows(const struct op_args *a) {
    size_t bytes = tensor_sample_count(&a->in[0]) * dtype_bytes(a->in[0].dtype);
    for (size_t n = 0; n < (size_t)a->out[0].dims[0]; n++) {
        char *row = (char *)a->out[0].data + n * bytes;
        int32_t index = index_of(a, &a->in[1], n);
        if (index >= 0 && index < a->in[0].dims[0])
            memcpy(row, (const char *)a->in[0].data + (size_t)index * bytes, bytes);
        else
            memset(row, 0xff, bytes);
    }
}
