/* Operations: what a device can compute. One enum, one argument struct, one table per kind of
 * device.
 *
 * An op is launched on a stream with launch() (device.h); the arguments are copied at the call,
 * so the caller's struct may go at once, but the memory behind the tensors is read and written
 * only when the stream gets there. What changes from step to step (1/B, learning rate, step
 * number) is read from the step block in device memory, so that a recorded sequence of launches
 * can be replayed.
 *
 * Shapes: N samples, C channels, H x W pixels, O output channels, P x Q output pixels, K inputs,
 * M outputs. "[same]" = any shape. Tensors are float32 PLAIN unless said. Outputs are
 * overwritten, never added to, unless said. Outputs may not overlap inputs unless said.
 *
 *   op                        in[0]        in[1]        in[2]      out[0]         out[1]       p
 *   TO_N16                    x (N,..)     -            -          y N16          -            - (one segment; pad lanes 0)
 *   TO_PLAIN                  x N16        -            -          y (N,..)       -            - (one segment)
 *   CONV2D_FORWARD            x (N,C,H,W)  w (O,C,k,k)  b (O)      y (N,O,P,Q)    -            conv
 *   CONV2D_BACKWARD_DATA      dy           w            -          dx             -            conv
 *   CONV2D_BACKWARD_WEIGHT    x            dy           -          dw             db           conv    one segment a launch
 *   LINEAR_FORWARD            x (N,K)      w            b (M)      y (N,M)        -            linear
 *   LINEAR_BACKWARD_DATA      dy           w            -          dx             -            linear
 *   LINEAR_BACKWARD_WEIGHT    x            dy           -          dw             db           linear  one segment a launch
 *   RELU_FORWARD              x [same]     -            -          y (may be x)   -            -
 *   RELU_BACKWARD             y [same]     dy           -          dx (may be dy) -            -       dx = y > 0 ? dy : 0
 *   AVG_POOL_FORWARD          x (N,C,H,W)  -            -          y (N,C,P,Q)    -            pool
 *   AVG_POOL_BACKWARD         dy           -            -          dx             -            pool
 *   MAX_POOL_FORWARD          x            -            -          y              -            pool
 *   MAX_POOL_BACKWARD         x            dy           -          dx             -            pool    first of equal maxima wins
 *   DROPOUT_FORWARD           x [same]     -            -          y (may be x)   -            dropout one segment a launch
 *   DROPOUT_BACKWARD          dy           -            -          dx (may be dy) -            dropout the same mask, made again
 *   LOG_SOFTMAX_FORWARD       x (N,M)      -            -          y (N,M)        -            -       PLAIN only, row-wise
 *   LOG_SOFTMAX_BACKWARD      y            dy           -          dx             -            -       PLAIN only
 *   NLL_FORWARD               logp (N,M)   labels I32   -          loss F64 (N)   hits I32 (N) loss    PLAIN only
 *   NLL_BACKWARD              logp         labels       dloss|-    dlogp (N,M)    -            loss    PLAIN only
 *   CROSS_ENTROPY_FORWARD     x (N,M)      labels I32   -          loss F64 (N)   hits I32 (N) loss    PLAIN only
 *   CROSS_ENTROPY_BACKWARD    x            labels       dloss|-    dx (N,M)       -            loss    PLAIN only
 *   LOSS_SUM                  loss F64 (N) hits I32 (N) -          F64 (R,S)      I64 (R,S)    loss    one segment: row step->slot
 *   FILL                      -            -            -          y              -            fill
 *   ADD                       x [same]     -            -          y (y += x)     -            -
 *   SCALE                     -            -            -          y (y *= f)     -            fill
 *   SGD                       grad         -            -          value          momentum|-   sgd
 *   ADADELTA                  grad [same]  -            -          value          moments (count,2)      decay
 *   ADAM                      grad [same]  -            -          value          moments (count,2)      decay
 *   HASH                      x F32        -            -          U64 (R,cols)   -            hash    row step->slot
 *   GATHER_SAMPLES            U8 (R,C,H,W) labels U8(R) index I32(N) x (N,C,H,W)  labels I32(N) gather
 *   CONVOLUTION IN N16: x, y, dx, dy in N16; w, b, dw, db always PLAIN. LINEAR the same: x is (N,K) in N16 = [group][K][16].
 *
 * "hits" is 1 where the largest score is the label's (first of equals), else 0. moments: the two
 * running means of each element side by side, zero before the first update. ADADELTA: of g^2 and
 * of d^2, d being what the update took before the learning rate; ADAM: of g and of g^2.
 * GATHER_SAMPLES makes a batch of a data set that lies on the device: row n of x are the pixels
 * of picture index[n], each the float that gather_pixel says. An index outside of 0..R-1 reads
 * nothing: the row is NaN and its label -1, of which the losses make NaN in turn. */
#ifndef DEVICE_OP_H
#define DEVICE_OP_H

#include "device/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum op {
    OP_TO_N16,
    OP_TO_PLAIN,
    OP_CONV2D_FORWARD,
    OP_CONV2D_BACKWARD_DATA,
    OP_CONV2D_BACKWARD_WEIGHT,
    OP_LINEAR_FORWARD,
    OP_LINEAR_BACKWARD_DATA,
    OP_LINEAR_BACKWARD_WEIGHT,
    OP_RELU_FORWARD,
    OP_RELU_BACKWARD,
    OP_AVG_POOL_FORWARD,
    OP_AVG_POOL_BACKWARD,
    OP_MAX_POOL_FORWARD,
    OP_MAX_POOL_BACKWARD,
    OP_DROPOUT_FORWARD,
    OP_DROPOUT_BACKWARD,
    OP_LOG_SOFTMAX_FORWARD,
    OP_LOG_SOFTMAX_BACKWARD,
    OP_NLL_FORWARD,
    OP_NLL_BACKWARD,
    OP_CROSS_ENTROPY_FORWARD,
    OP_CROSS_ENTROPY_BACKWARD,
    OP_LOSS_SUM,
    OP_FILL,
    OP_ADD,
    OP_SCALE,
    OP_SGD,
    OP_ADADELTA,
    OP_ADAM,
    OP_HASH,
    OP_GATHER_SAMPLES,
    OP_COUNT
};
const char *op_name(enum op op); /* "conv2d forward": static storage */

/* Floating point operations of one launch (a multiply-add counts 2), from the shapes; 0 for
 * moves. */
struct op_args;
double op_flops(enum op op, const struct op_args *args);

/* What changes from step to step; lies in device memory, written once a step on the compute
 * stream. */
struct step_block {
    uint64_t seed; /* dropout */
    uint64_t step; /* global step from 0; dropout */
    /* what a sample's loss weighs: 1/B, B the samples of this global batch */
    float weight;
    float learning_rate;
    int32_t first_update; /* 1 before the first update: momentum starts as the gradient */
    int32_t slot;         /* row of the logs (loss, hits, hashes) that this step writes */
    float adam_rate;      /* learning rate / (1 - beta1^t), t the number of this update, from 1, */
    float adam_root;      /* and sqrt(1 - beta2^t): nn/optimizer.h fills them in */
};

struct conv_args {
    int stride, padding;
}; /* P = (H + 2*padding - k) / stride + 1 */
/* 0: w (M,K), PyTorch's Linear; 1: w (K,M), d2l's X @ W */
struct linear_args {
    int weight_is_in_out;
};
struct pool_args {
    int size, stride;
}; /* no padding; P = (H - size) / stride + 1 */
/* element = sample in segment * sample_count + plain index */
struct dropout_args {
    float p;
    int layer, v;
};
/* enum reduction; LOSS_SUM: column of the log */
struct loss_args {
    int reduction;
    int column;
};
struct fill_args {
    float value;
};
struct sgd_args {
    float momentum, weight_decay;
};
struct decay_args {
    float weight_decay;
}; /* ADADELTA, ADAM: g += weight_decay * value */
struct hash_args {
    int column;
};
struct gather_args {
    float mean, std;
}; /* std 0: pixels stay in 0..1 */

/* PyTorch's defaults, each rounded to float once from double, as PyTorch rounds its scalars. */
#define ADADELTA_RHO 0.9
#define ADADELTA_EPSILON 1e-6
#define ADAM_BETA1 0.9
#define ADAM_BETA2 0.999
#define ADAM_EPSILON 1e-8

/* The float of a byte, as torchvision has it: byte / 255, then (x - mean) / std. The loader's
 * table holds these very numbers, and the kernels of every kind of device give their bits. */
static inline float gather_pixel(const struct gather_args *p, unsigned char byte) {
    float x = (float)byte / 255.0f;
    return p->std > 0 ? (x - p->mean) / p->std : x;
}

/* How row losses become the loss. MEAN: times step->weight. SUM: weight 1. NONE: row i's
 * gradient is times dloss[i] (in[2], F32 (N)). The row loss itself (out[0] of FORWARD) is
 * unweighted and in double. */
enum reduction { REDUCE_MEAN, REDUCE_SUM, REDUCE_NONE };

struct op_args {
    struct tensor in[3];
    struct tensor out[2];
    const struct step_block *step; /* device memory; NULL where the op does not read it */
    union {
        struct conv_args conv;
        struct linear_args linear;
        struct pool_args pool;
        struct dropout_args dropout;
        struct loss_args loss;
        struct fill_args fill;
        struct sgd_args sgd;
        struct decay_args decay;
        struct hash_args hash;
        struct gather_args gather;
    } p;
};

/* A kernel of the host: runs to its end in the calling thread. Shapes were checked at launch. */
typedef void host_kernel(const struct op_args *args);

/* The host's two tables (device/host/kernels): the plain reference of every op, row-major, the
 * judge; and the fast table, whose entries take what LAYOUT_N16 touches and fast versions of the
 * rest (NULL: the reference serves). `isa` is "avx512", "avx2", "generic" or NULL for the best
 * this CPU has; the bits are the same for all of them. */
extern host_kernel *const host_reference_kernels[OP_COUNT];
host_kernel *host_fast_kernel(enum op op, const char *isa);

/* ERR_USAGE-free internal check: shapes and layouts of `args` are those of the table above;
 * ERR_FAILED names the op and the operand. Called by launch() for every kind of device. */
int op_check(enum op op, const struct op_args *args);

#ifdef __cplusplus
}
#endif
#endif
