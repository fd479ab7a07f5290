/* cuBLAS for linear layers, if a run requests it (config.math, --cuda-math library). Read library.c
 * first, which finds and loads a library (allreduce/ uses it for NCCL), then library_math.c (which
 * ops use it, aligned operands, the bias), then library_blas.c.
 *
 * No library is linked, so a program starts without them. Opening a device that uses a library
 * loads it, through a table of functions whose types come from the library's own header. A build
 * without that header links the file *_absent.c instead.
 *
 * The same bits (docs/design.md section 2). With Duet's own kernels a sample has the same bits
 * whichever samples share its launch. A library chooses its algorithm by the whole shape, the
 * addresses of the operands, and the size of its workspace. Therefore
 *     - a call is one segment, forward and backward (device_whole_batch), which is the same in
 *       single, dp and ddp;
 *     - every operand is at a multiple of 256 bytes, like an allocation; any other operand is
 *       copied;
 *     - the workspace has a constant size, algorithms are constants, and atomic additions are not
 *       allowed.
 * Then equal calls on GPUs of one kind give equal bits, as the libraries document. */
#ifndef DEVICE_CUDA_LIBRARY_H
#define DEVICE_CUDA_LIBRARY_H

#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- loading ---- */

/* Where Duet looks for a library. If the environment names a file, it tries only that; otherwise
 * first the file that the build found, then the name, which the system's loader finds. */
struct library_source {
    const char *title;    /* "cuBLAS" */
    const char *variable; /* an environment variable: "DUET_CUBLAS" */
    const char *file;     /* as scripts/find_cuda.sh found it, or "" */
    const char *name;     /* "libcublas.so.13": with the major version of the header */
    const char *instead;  /* what to do without it, for errors: "use --cuda-math own" */
};

/* A function of a library, and the offset of its pointer in the caller's table. */
struct library_function {
    const char *name;
    size_t offset;
};
#define LIBRARY_TEXT(x) #x
#define LIBRARY_NUMBER(macro) \
    LIBRARY_TEXT(macro) /* the version in a macro of the library's header, as a string */
#define LIBRARY_MEMBER(function) __typeof__(function) *function;
#define LIBRARY_ROW(function) {#function, offsetof(LIBRARY_TABLE, function)},

/* Fills in `table` from the library. ERR_USAGE if it is not found (the message lists the places) or
 * lacks one of the functions (the message names it). A library stays loaded until the process ends,
 * since CUDA's libraries do not unload well; loading it twice costs nothing. The caller keeps
 * `source`. */
int library_load(const struct library_source *source, const struct library_function *functions,
                 int count, void *table);

/* ---- products by libraries ---- */

enum { CUDA_LIBRARY_ALIGN = 256 };

struct cuda_blas;

/* The library of one compute stream. */
struct cuda_math {
    struct cuda_blas *blas;
    /* device memory for operands that are not at a multiple of CUDA_LIBRARY_ALIGN */
    char *aside;
    size_t aside_bytes;
};

/* 1 if the library of this stream computes `op`; then the second function enqueues all of it. */
int cuda_library_takes(const struct cuda_stream *stream, enum op op);
int cuda_library_enqueue(struct cuda_stream *stream, enum op op, const struct op_args *args);

/* Only cuBLAS, for a product without its bias, with aligned operands and no empty segment. open
 * fails with ERR_USAGE if cuBLAS is not found. */
int cuda_blas_open(struct cuda_blas **out, struct cuda_stream *stream);
void cuda_blas_close(struct cuda_blas *blas); /* NULL is fine, and so is one that is half open */
int cuda_blas_enqueue(struct cuda_stream *stream, enum op op, const struct op_args *args);

/* Writes "cuBLAS 13.1.0", or why it is not available, to text; needs no GPU. */
void cuda_blas_describe(char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
