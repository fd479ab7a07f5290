/* A batch from a data set that lies on the device: as bytes, or as numbers of 4 bytes. A byte has
 * 256 values, so a table holds the formula's result for each. There are no fast versions: look-ups
 * and copies are bound by memory. */
#include "device/host/kernels/reference.h"

#include <math.h>
#include <string.h>

void reference_gather_samples(const struct op_args *a) {
    const uint8_t *images = a->in[0].data, *labels = a->in[1].data;
    const int32_t *index = a->in[2].data;
    float *x = tensor_f32(&a->out[0]), table[256];
    int32_t *x_labels = a->out[1].data;
    size_t count = tensor_sample_count(&a->in[0]);
    for (int byte = 0; byte < 256; byte++)
        table[byte] = gather_pixel(&a->p.gather, (unsigned char)byte);
    for (size_t n = 0; n < (size_t)a->in[2].dims[0]; n++) {
        int known = index[n] >= 0 && index[n] < a->in[0].dims[0];
        const uint8_t *picture = images + (known ? (size_t)index[n] : 0) * count;
        for (size_t i = 0; i < count; i++)
            x[n * count + i] = known ? table[picture[i]] : NAN;
        x_labels[n] = known ? labels[index[n]] : -1;
    }
}

/* All bits set are NaN as a float, and -1 as an integer. */
void reference_gather_rows(const struct op_args *a) {
    const int32_t *index = a->in[1].data;
    size_t bytes = tensor_sample_count(&a->in[0]) * dtype_bytes(a->in[0].dtype);
    for (size_t n = 0; n < (size_t)a->in[1].dims[0]; n++) {
        char *row = (char *)a->out[0].data + n * bytes;
        if (index[n] >= 0 && index[n] < a->in[0].dims[0])
            memcpy(row, (const char *)a->in[0].data + (size_t)index[n] * bytes, bytes);
        else
            memset(row, 0xff, bytes);
    }
}
