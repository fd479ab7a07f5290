/* Fake libraries that replace cuBLAS and NCCL in tests: shared objects with the functions that Duet
 * calls. A program of an emulation build loads them like the real ones (DUET_CUBLAS=...,
 * DUET_NCCL=...). They are written from the documentation and compiled against the real headers;
 * they contain nothing from the real libraries.
 *
 * A call does its work as a kernel of the emulated runtime, on its stream, when the stream reaches
 * it. The arithmetic is simple loops. To catch mistakes that a GPU shows rarely and late, on
 * purpose:
 *     - their bits depend on the whole shape, the operands' alignment and the permitted settings,
 *       as in the real libraries;
 *     - they overwrite the workspace of a call;
 *     - a call that the documentation forbids prints a line on stderr and fails. */
#ifndef TESTS_STAND_INS_FAKE_CUDA_LIBRARIES_FAKE_H
#define TESTS_STAND_INS_FAKE_CUDA_LIBRARIES_FAKE_H

#include <cuda_runtime_api.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stand_ins/cuda_emulation/launch.h"

/* Counts for tests: FAKE_LOG is a symbol of each library. Counted by the calling thread,
 * `kept` and `lost` by streams' threads. */
struct fake_log {
    int calls[4];  /* cublas: gemms; nccl: allreduces, gathers, reduce-scatters, broadcasts */
    int batch[64]; /* a ring: the number of samples of each of the last calls */
    int mistakes;  /* calls that were refused as forbidden */
    int unaligned; /* operands not at a multiple of 256 bytes */
    int lost;      /* how often something that a library keeps in its own workspace was gone */
    int handles;   /* handles and descriptors that are open */
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

/* Enqueues call(param) on the stream, once. */
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

/* How many chains a sum is cut into: some function of the shape and of where the operands lie. */
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

/* A sum in float, whose terms go to `chains` chains in turn. */
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

/* Rounds to 10 bits of mantissa, as tensor cores do with float32 in tf32. */
static inline float fake_tf32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0xfff + ((bits >> 13) & 1)) & ~0x1fffu;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
