/* Libraries of the tests' own, in place of cuBLAS, cuDNN and NCCL: shared objects with the
 * functions of theirs that Duet calls, loaded as theirs are (DUET_CUBLAS=..., DUET_CUDNN=...,
 * DUET_NCCL=...) by a program of an EMULATION build. Written from the real ones' documentation
 * and compiled against their headers; nothing of them is inside.
 *
 * What a call does it does as a kernel of the emulated runtime: on the stream it was told, when
 * the stream gets there. The arithmetic is plain loops. What they add, to catch what a GPU would
 * punish rarely and late:
 *     - their bits depend on the whole shape, on the operands' alignment and on what is allowed, as the real ones' may;
 *     - they scribble over the workspace that a call was given;
 *     - a call that the documentation forbids is a line on stderr, and an error. */
#ifndef TESTS_FAKE_CUDA_LIBRARIES_FAKE_H
#define TESTS_FAKE_CUDA_LIBRARIES_FAKE_H

#include <cuda_runtime_api.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stand_ins/cuda_emulation/launch.h"

/* What a test may look at: FAKE_LOG is a symbol of each library. Counted by the calling thread,
 * `kept` and `lost` by streams' threads. */
struct fake_log {
    int calls[3];  /* cublas: gemms; cudnn: forward, data, filter; nccl: allreduces */
    int batch[64]; /* of the last calls: what sample count the first of them had, by turns */
    int mistakes;  /* calls that were refused as forbidden */
    int unaligned; /* operands not at a multiple of 256 bytes */
    int lost;      /* times that what a library kept in its own workspace was gone */
    int handles;   /* open ones, and descriptors */
    int refuse;    /* set by a test: cudnn: of which filter size there is no algorithm */
    int greedy;    /* set by a test: cudnn: of which filter size the workspace is a gigabyte */
    int late;      /* set by a test: cudnn: which filter size only the call itself refuses, */
    int refused;   /* and how often it has */
};
#define FAKE_LOG "fake_log"
extern struct fake_log fake_log;

static inline int fake_forbidden(const char *library, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "fake %s: ", library);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    fake_log.mistakes++;
    return 1;
}

/* Puts call(param) on the stream, once. */
static inline cudaError_t fake_launch(const struct emulated_kernel *kernel, const void *param,
                                      cudaStream_t stream) {
    void *params[1] = {(void *)param};
    return cudaLaunchKernel(kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, params, 0, stream);
}
#define FAKE_KERNEL(title, type, function)                                            \
    static const char *title##_name(void) {                                           \
        return #title;                                                                \
    }                                                                                 \
    static unsigned title##_loaded = ~0u;                                             \
    static const struct emulated_kernel title = {EMULATED_KERNEL_MAGIC, sizeof(type), \
                                                 _Alignof(type),        function,     \
                                                 title##_name,          &title##_loaded}

/* In how many chains a sum is cut: any function of the shape and of where the operands lie. */
static inline int fake_chains(const int *shape, int count, const void *const *operands) {
    uint32_t hash = 2166136261u;
    for (int i = 0; i < count; i++)
        hash = (hash ^ (uint32_t)shape[i]) * 16777619u;
    for (int i = 0; i < 3; i++) {
        uint32_t low = (uint32_t)((uintptr_t)operands[i] % 256);
        if (low) fake_log.unaligned++;
        hash = (hash ^ low) * 16777619u;
    }
    return 1 + (int)(hash >> 24) % 5;
}

/* A sum in float, the terms dealt to `chains` chains by turns. */
struct fake_sum {
    float chain[5];
    int chains, turn;
};

static inline void fake_add(struct fake_sum *s, float a, float b) {
    s->chain[s->turn] += a * b;
    s->turn = s->turn + 1 < s->chains ? s->turn + 1 : 0;
}

static inline float fake_total(const struct fake_sum *s) {
    float total = s->chain[0];
    for (int i = 1; i < s->chains; i++)
        total += s->chain[i];
    return total;
}

/* To 10 bits of mantissa, as tensor cores take float32 in tf32. */
static inline float fake_tf32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0xfff + ((bits >> 13) & 1)) & ~0x1fffu;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
