/* Shared by the tests of the emulated CUDA runtime (tests/stand_ins/cuda_emulation): kernels in C,
 * and a kernel that holds a stream. */
#ifndef TESTS_STAND_INS_CUDA_EMULATED_H
#define TESTS_STAND_INS_CUDA_EMULATED_H

#include "tests/harness/harness.h"

#ifndef CUDA_EMULATION
#define ONLY_EMULATED(suite)                                           \
    Test(suite, needs_the_emulated_runtime) {                          \
        cr_skip_test("make EMULATION=1 builds with it: docs/cuda.md"); \
    }
#else
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "tests/stand_ins/cuda_emulation/emulation.h"

#define DONE(call) \
    cr_assert_eq((call), cudaSuccess, "%s: %s", #call, cudaGetErrorName(cudaPeekAtLastError()))
#define GIVES(call, code)                                                              \
    do {                                                                               \
        cudaError_t got_ = (call);                                                     \
        cr_assert_eq(got_, (code), "%s: %s, not %s", #call, cudaGetErrorName(got_),    \
                     cudaGetErrorName(code));                                          \
        if ((code) != cudaSuccess)                                                     \
            cr_assert_eq(cudaGetLastError(), (code), "the last error is another one"); \
    } while (0)

/* Makes a kernel of a test: after `void function(const type *param)`, KERNEL(function, type) makes
 * function_kernel, whose address is launched. (Kernels of .cu files get such a record from
 * DUET_KERNEL.) */
#define KERNEL(function, type)                                  \
    static unsigned function##_loaded;                          \
    static void function##_call(const void *param) {            \
        function((const type *)param);                          \
    }                                                           \
    static const char *function##_name(void) {                  \
        return #function;                                       \
    }                                                           \
    static const struct emulated_kernel function##_kernel = {   \
        EMULATED_KERNEL_MAGIC, sizeof(type),    _Alignof(type), \
        function##_call,       function##_name, &function##_loaded}

static inline cudaError_t start(const struct emulated_kernel *kernel, unsigned blocks,
                                unsigned threads, const void *param, cudaStream_t stream) {
    void *params[1] = {(void *)(uintptr_t)param};
    return cudaLaunchKernel(kernel, (dim3){blocks, 1, 1}, (dim3){threads, 1, 1}, params, 0, stream);
}

static inline void pause_us(long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

/* Holds a stream until the test opens it, at most 20 s. */
struct held {
    atomic_int *open;
};
static inline void hold(const struct held *p) {
    for (int i = 0; i < 100000 && !*p->open; i++)
        pause_us(200);
}
KERNEL(hold, struct held);

static inline void hold_stream(cudaStream_t stream, atomic_int *open) {
    struct cudaFuncAttributes attributes;
    struct held p = {open};
    DONE(cudaFuncGetAttributes(&attributes, &hold_kernel));
    DONE(start(&hold_kernel, 1, 1, &p, stream));
}

/* Every thread adds `add` to its own int. */
struct adding {
    int *at, add;
};
static inline void add(const struct adding *p) {
    p->at[emulated_here.block.x * emulated_here.threads.x + emulated_here.thread.x] += p->add;
}
KERNEL(add, struct adding);

static inline cudaStream_t new_stream(void) {
    cudaStream_t stream;
    DONE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static inline cudaEvent_t test_event(unsigned flags) {
    cudaEvent_t event;
    DONE(cudaEventCreateWithFlags(&event, flags));
    return event;
}

/* Allocates `count` ints of device memory; each byte of them is `byte`. */
static inline int *device_ints(int count, int byte) {
    void *memory;
    DONE(cudaMalloc(&memory, (size_t)count * sizeof(int)));
    DONE(cudaMemset(memory, byte, (size_t)count * sizeof(int)));
    return memory;
}

static inline int read_int(const int *device) {
    int value = -1;
    DONE(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}
#endif
#endif
