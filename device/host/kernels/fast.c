/* Which fast kernel serves an op on this processor. The processor is asked at run time, so one
 * binary runs everywhere. */
#include "device/host/kernels/fast.h"

#include <string.h>

#include "device/host/kernels/winograd.h"

static host_kernel *const *kernels_of(const char *isa) {
    if (isa && strcmp(isa, "generic") == 0) return n16_generic_kernels;
#if defined(__x86_64__)
    if ((!isa || strcmp(isa, "avx512") == 0) && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
        return n16_avx512_kernels;
    if ((!isa || strcmp(isa, "avx2") == 0) && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("fma"))
        return n16_avx2_kernels;
#endif
    return isa ? NULL : n16_generic_kernels;
}

host_kernel *host_fast_kernel(enum op op, const char *isa) {
    host_kernel *const *kernels = kernels_of(isa);
    return kernels ? kernels[op] : NULL;
}

size_t host_scratch_bytes(enum op op, const struct op_args *a) {
    const struct tensor *x = op == OP_CONV2D_BACKWARD_DATA ? &a->out[0] : &a->in[0],
                        *w = op == OP_CONV2D_BACKWARD_WEIGHT ? &a->out[0] : &a->in[1];
    int conv =
        op == OP_CONV2D_FORWARD || op == OP_CONV2D_BACKWARD_DATA || op == OP_CONV2D_BACKWARD_WEIGHT;
    if (!conv || x->layout != LAYOUT_N16 || !winograd_takes(op, a)) return 0;
    return winograd_bytes(w->dims[1], w->dims[0]) > winograd_bytes(w->dims[0], w->dims[1])
               ? winograd_bytes(w->dims[1], w->dims[0])
               : winograd_bytes(w->dims[0], w->dims[1]);
}
