/* Rows of numbers of 4 bytes, chosen by an index: an embedding. There is no fast version: a copy is
 * bound by memory. */
#include "device/host/kernels/reference.h"

#include <string.h>

/* All bits set are NaN as a float, and -1 as an integer. */
void reference_gather_rows(const struct op_args *a) {
    size_t bytes = tensor_sample_count(&a->in[0]) * dtype_bytes(a->in[0].dtype);
    for (size_t n = 0; n < (size_t)a->out[0].dims[0]; n++) {
        char *row = (char *)a->out[0].data + n * bytes;
        int32_t index = ((const int32_t *)a->in[1].data)[n];
        if (index >= 0 && index < a->in[0].dims[0])
            memcpy(row, (const char *)a->in[0].data + (size_t)index * bytes, bytes);
        else
            memset(row, 0xff, bytes);
    }
}
