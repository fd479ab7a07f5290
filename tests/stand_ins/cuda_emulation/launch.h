/* The compiler includes this file before every .cu file of an emulation build (make EMULATION=1,
 * -include). It defines the names of CUDA C++ that kernels use in plain C++, and DUET_KERNEL, with
 * which a launch names a kernel.
 *
 * A kernel here is an ordinary function. It runs once for each block and each thread, one after
 * another, with blockIdx and threadIdx set before each run. A kernel that is written in phases
 * (BLOCK_PHASE) does the work of all threads of a block in one run and declares this with
 * DUET_BLOCK_KERNEL: then the block has one run. `__shared__` has no effect here, so a block's
 * shared memory is a local variable of that run. __syncthreads, warps and `<<<>>>` do not exist.
 *
 * The address of a function does not reveal the size of its parameter, nor can plain C call it
 * without its type. So DUET_KERNEL is a template that makes a record for each kernel whose one
 * parameter is a struct. cudaLaunchKernel refuses anything else. */
#ifndef TESTS_STAND_INS_CUDA_EMULATION_LAUNCH_H
#define TESTS_STAND_INS_CUDA_EMULATION_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EMULATED_KERNEL_MAGIC 0x6c656e72656b7564ull

struct emulated_kernel {
    uint64_t magic;
    size_t bytes, alignment;         /* of the parameter */
    void (*call)(const void *param); /* runs one thread of one block: emulated_here says which */
    const char *(*name)(void);
    unsigned *loaded; /* bit g: loaded on GPU g; see runtime_launch.c */
};

/* The calling thread's place in the grid that it runs. */
struct emulated_index {
    unsigned x, y, z;
};
struct emulated_place {
    struct emulated_index block, thread, grid, threads;
    int block_kernel; /* set by DUET_BLOCK_KERNEL: this run was for all threads of the block */
};
extern __thread struct emulated_place emulated_here;

#ifdef __cplusplus
}

#include <cuda_runtime_api.h>

#define blockIdx emulated_here.block
#define threadIdx emulated_here.thread
#define gridDim emulated_here.grid
#define blockDim emulated_here.threads
#ifndef __launch_bounds__
#define __launch_bounds__(...)
#endif
#ifndef __grid_constant__
#define __grid_constant__
#endif

template <auto KERNEL>
struct emulated_record; /* a kernel that does not have exactly one parameter has no record */

template <class PARAM, void (*KERNEL)(PARAM)> struct emulated_record<KERNEL> {
    static void call(const void *param) {
        KERNEL(*static_cast<const PARAM *>(param));
    }
    static const char *name(void) {
        return __PRETTY_FUNCTION__;
    }
    static inline unsigned loaded = 0;
    static constexpr struct emulated_kernel record = {
        EMULATED_KERNEL_MAGIC, sizeof(PARAM), alignof(PARAM), call, name, &loaded};
};
#define DUET_KERNEL(...) ((const void *)&emulated_record<__VA_ARGS__>::record)
#define DUET_BLOCK_KERNEL(at)           \
    do {                                \
        emulated_here.block_kernel = 1; \
        if ((at).thread != 0) return;   \
    } while (0)
#endif
#endif
