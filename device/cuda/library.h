/* CUDA's own libraries, for who asks for them (config.math, --cuda-math library): cuBLAS for
 * linear layers, cuDNN for convolutions. The reading order: cuda/library.c (finding and loading
 * one; allreduce/ loads NCCL with it), cuda/library_math.c (which op goes where, and what is the
 * same for both), cuda/library_blas.c, cuda/library_conv.c.
 *
 * None of them is linked: they are loaded when a device is opened that wants them, through a
 * table of functions whose types come from the library's own header. So a program starts without
 * them; a build without a header links the file *_absent.c instead.
 *
 * The same bits (docs/design.md 2). Own kernels give a sample the same bits in any company. A
 * library chooses by the whole shape, by where its operands lie, and by how much workspace it
 * has. So here
 *     - a call is one segment, forward and backward (device_whole_batch), which is alike in single, dp and ddp;
 *     - every operand lies at a multiple of 256 bytes, as an allocation does: a segment that does not is copied;
 *     - workspace is one constant, algorithms are constants, atomic additions are not allowed.
 * Then equal calls on GPUs of one kind give equal bits, by what the libraries document; seen on
 * no GPU yet. */
#ifndef DEVICE_CUDA_LIBRARY_H
#define DEVICE_CUDA_LIBRARY_H

#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- loading ---- */

/* Where a library is looked for, first to last: the file that the environment names, and then
 * nowhere else; the file that the build found; the name, by the system's loader. */
struct library_place {
    const char *title;    /* "cuBLAS" */
    const char *variable; /* of the environment: "DUET_CUBLAS" */
    const char *file;     /* found by scripts/find_cuda.sh; "": none */
    const char *name;     /* "libcublas.so.13": of the major version that the header is of */
    const char *instead;  /* the way out, for errors: "use --cuda-math own" */
};

/* A function and where its pointer goes in the caller's table. */
struct library_function {
    const char *name;
    size_t offset;
};
#define LIBRARY_TEXT(x) #x
#define LIBRARY_NUMBER(macro) \
    LIBRARY_TEXT(macro) /* the version in a macro of the library's header, as text */
#define LIBRARY_MEMBER(function) __typeof__(function) *function;
#define LIBRARY_ROW(function) {#function, offsetof(LIBRARY_TABLE, function)},

enum { LIBRARY_FOUND, LIBRARY_NOT_FOUND, LIBRARY_UNUSABLE };

/* Fills in `table` from the library. Not found: ERR_USAGE, saying where it was looked for;
 * without one of the functions: ERR_USAGE, naming it. *found says which it was. A library stays
 * loaded until the process ends, as CUDA's own do not like to go; to load it twice costs
 * nothing. `place` stays the caller's. */
int library_load(const struct library_place *place, const struct library_function *functions,
                 int count, void *table, int *found);

/* ---- products by libraries ---- */

enum { CUDA_LIBRARY_ALIGN = 256 };

struct cuda_blas;
struct cuda_conv;

/* Of one compute stream. */
struct cuda_math {
    struct cuda_blas *blas;
    struct cuda_conv *conv; /* NULL: no cuDNN here; own kernels take the convolutions */
    /* device memory for operands that do not lie at a multiple of CUDA_LIBRARY_ALIGN */
    char *aside;
    size_t aside_bytes;
};

/* Is `op` one for the libraries of this stream? */
int cuda_library_takes(const struct cuda_stream *stream, enum op op);
int cuda_library_enqueue(struct cuda_stream *stream, enum op op, const struct op_args *args);

/* The libraries alone: c = a b, dw without db, y without the bias. Operands are aligned, no
 * segment is empty. cuda_conv_enqueue sets *taken to 0 and enqueues nothing where cuDNN has no
 * deterministic algorithm for the shape, or one that wants more than the stream's workspace;
 * both follow from the shape alone. open: ERR_USAGE where the library is not there; for cuDNN
 * that is no error, and *out stays NULL. */
int cuda_blas_open(struct cuda_blas **out, struct cuda_stream *stream);
void cuda_blas_close(struct cuda_blas *blas); /* NULL is fine, also for a half-open one */
int cuda_blas_enqueue(struct cuda_stream *stream, enum op op, const struct op_args *args);
int cuda_conv_open(struct cuda_conv **out, struct cuda_stream *stream);
void cuda_conv_close(struct cuda_conv *conv);
int cuda_conv_enqueue(struct cuda_stream *stream, enum op op, const struct op_args *args,
                      int *taken);

/* "cuBLAS 13.1.0" or why there is none, into text; needs no GPU. */
void cuda_blas_describe(char *text, size_t bytes);
void cuda_conv_describe(char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
