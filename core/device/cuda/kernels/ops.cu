/* Chooses the kernel of an op: the table of the CUDA ops, and the loading of their kernels.
 *
 * It calls no library unless the run requests one (library.h). Duet's own kernels give a sample the
 * same bits whichever samples share its launch, which cuBLAS does not promise. So forward and
 * backward data take a whole batch in one launch (docs/design.md section 2, rule 2). */

#include "device/cuda/kernels/launch.h"
#include "device/cuda/library.h"
#include "device/op_table.h"

/* GPUs hold activations in plain layout: neighbouring threads read neighbouring pixels. */
static int refuse_n16(enum op op) {
    return fail(ERR_FAILED, "%s: a GPU has no N16 layout: use plain tensors on cuda", op_name(op));
}

#define ENQUEUE(FAMILY, name) \
    case FAMILY: return enqueue_##name(stream, op, args);

static int enqueue_op(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    switch (op_table[op].family) {
        EACH_FAMILY(ENQUEUE)
    case LAYOUT: break;
    }
    return refuse_n16(op);
}

/* Kernels count elements in 31 bits. Pointwise ones do not, since an optimizer has two moments for
 * each parameter. The tiles of a product may pass its end by less than 4096. */
static int is_too_large(enum op op, const struct op_args *a) {
    if (op_table[op].family == POINTWISE && op != OP_DROPOUT) return 0;
    const int in_tiles = op_table[op].family == PRODUCT || op == OP_MATMUL;
    const size_t end = ((size_t)1 << 31) - (in_tiles ? 4096 : 0);
    for (int i = 0; i < OP_INPUTS + OP_OUTPUTS; i++) {
        const struct tensor *t = i < OP_INPUTS ? &a->in[i] : &a->out[i - OP_INPUTS];
        if (t->data && tensor_count(t) >= end) return 1;
    }
    return 0;
}

int cuda_launch_op(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    if (op_takes_n16(args)) return refuse_n16(op);
    if (is_too_large(op, args)) return refuse_size(op);
    CHECK(cuda_library_takes(stream, op) ? cuda_library_enqueue(stream, op, args)
                                         : enqueue_op(stream, op, args));
    CUDA_STREAM_CHECK(stream, cudaGetLastError(), op_name(op));
    return OK;
}

static int load(struct cuda_device *device, const void *kernel) {
    struct cudaFuncAttributes attributes;
    CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel), "loading the kernels",
               device->head.name);
    return OK;
}

#define KERNELS_OF(FAMILY, name) name##_kernel,

int cuda_load_kernels(struct cuda_device *device) {
    const void *(*const families[])(int) = {EACH_FAMILY(KERNELS_OF) grouped_conv_kernel};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (int i = 0; families[f](i); i++)
            CHECK(load(device, families[f](i)));
    return OK;
}
