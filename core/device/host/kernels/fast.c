/* Chooses the fast kernel of an op for this processor at run time, so a binary runs everywhere.
 * HAVE_avx2 is 1 if the Makefile's KERNELS have avx2. The references replace missing kernels. */
#include "device/host/kernels/fast.h"

static host_kernel *const *kernels_of(const char *isa) {
    if (HAVE_generic && isa && strcmp(isa, "generic") == 0) return n16_generic_kernels;
#if defined(__x86_64__)
    if (HAVE_avx512 && (!isa || strcmp(isa, "avx512") == 0) && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
        return n16_avx512_kernels;
    if (HAVE_avx2 && (!isa || strcmp(isa, "avx2") == 0) && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("fma"))
        return n16_avx2_kernels;
#endif
    return HAVE_generic && !isa ? n16_generic_kernels : NULL;
}

host_kernel *host_fast_kernel(enum op op, const char *isa) {
    host_kernel *const *kernels = kernels_of(isa);
    return kernels ? kernels[op] : NULL;
}

const char *host_best_isa(void) {
    const char *plain = HAVE_generic ? "generic" : "reference";
    return kernels_of("avx512") ? "avx512" : kernels_of("avx2") ? "avx2" : plain;
}

/* W_hh in panels of up to 32 columns more than it has, and a row for each sample of what a step
 * adds up: n16_recurrent.inc.h. */
static size_t recurrent_scratch(const struct tensor *w, size_t samples) {
    size_t rows = (size_t)w->dims[0], width = (size_t)w->dims[1];
    return ((rows + 32) * (width + 32) + samples * rows) * sizeof(float);
}

size_t host_scratch_bytes(enum op op, const struct op_args *a) {
    if (op == OP_RECURRENT_FORWARD || op == OP_RECURRENT_BACKWARD)
        return recurrent_scratch(&a->in[op == OP_RECURRENT_FORWARD ? 1 : 2],
                                 (size_t)a->in[0].dims[0]);
    if (op == OP_ATTENTION_FORWARD || op == OP_ATTENTION_BACKWARD)
        return (op == OP_ATTENTION_BACKWARD ? 2 : 1) * sizeof(float) * ATTENTION_BAND *
               (size_t)a->in[1].dims[2];
    if ((op != OP_CONV2D_FORWARD && op != OP_CONV2D_BACKWARD_DATA &&
         op != OP_CONV2D_BACKWARD_WEIGHT) ||
        a->in[0].layout != LAYOUT_N16 || a->p.conv.general)
        return 0;
    struct conv_shape s = conv_shape_of(op, a);
    switch (conv_way(op, a)) {
    case WAY_WINOGRAD_2: return conv_scratch_floats(&s, 16) * sizeof(float);
    case WAY_WINOGRAD_4: return conv_scratch_floats(&s, 36) * sizeof(float);
    case WAY_TRANSPOSED: return conv_scratch_floats(&s, (size_t)s.w[2] * s.w[2]) * sizeof(float);
    default: return 0;
    }
}
