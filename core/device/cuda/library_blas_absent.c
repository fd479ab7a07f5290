/* This file is linked if cublas_v2.h was not found; it refuses requests for libraries. */
#include "device/cuda/library.h"

#include <stdio.h>

int cuda_blas_open(struct cuda_blas **out, struct cuda_stream *stream) {
    (void)stream;
    *out = NULL;
    return fail(ERR_USAGE, "cuBLAS: this program was built without its header, cublas_v2.h: build "
                           "it where that is installed, or use --cuda-math own");
}

void cuda_blas_close(struct cuda_blas *blas) {
    (void)blas;
}

int cuda_blas_enqueue(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    (void)stream, (void)args;
    return fail(ERR_FAILED, "%s: not opened", op_name(op));
}

void cuda_blas_describe(char *text, size_t bytes) {
    snprintf(text, bytes, "cuBLAS: not built in");
}
