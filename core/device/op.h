/* Operations are what a device can compute. They have one enum, one argument struct, and one table
 * of kernels per kind of device.
 *
 * launch() of device/device.h launches an op on a stream. It copies the arguments, so the caller
 * may reuse its struct at once. The memory of the tensors is read and written only when the stream
 * reaches the op. Values that change from step to step (1/B, the learning rate, the number of the
 * step) are in the step block in device memory, so every step's launches have the same arguments.
 *
 * Tensors are float32 in PLAIN layout, or activations in N16 (tensor.h), unless the op's row in
 * op_table.c says otherwise: only that row describes its operands, their shapes and its flops.
 * CONTRIBUTING.md says how an op is added. */
#ifndef DEVICE_OP_H
#define DEVICE_OP_H

#include "device/activation.h"
#include "device/sort_order.h"
#include "device/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The list of all ops: its name in enum op, in kernels (reference_NAME), and in messages. */
// clang-format off
#define DEVICE_OPS(OP) \
    OP(TO_N16,                 to_n16,                  "to n16") \
    OP(TO_PLAIN,               to_plain,                "to plain") \
    OP(CONV2D_FORWARD,         conv2d_forward,          "conv2d forward") \
    OP(CONV2D_BACKWARD_DATA,   conv2d_backward_data,    "conv2d backward data") \
    OP(CONV2D_BACKWARD_WEIGHT, conv2d_backward_weight,  "conv2d backward weight") \
    OP(LINEAR_FORWARD,         linear_forward,          "linear forward") \
    OP(LINEAR_BACKWARD_DATA,   linear_backward_data,    "linear backward data") \
    OP(LINEAR_BACKWARD_WEIGHT, linear_backward_weight,  "linear backward weight") \
    OP(ADD_FORWARD,            add_forward,             "add forward") \
    OP(SUBTRACT_FORWARD,       subtract_forward,        "subtract forward") \
    OP(MULTIPLY_FORWARD,       multiply_forward,        "multiply forward") \
    OP(WHERE,                  where,                   "where") \
    OP(ACTIVATION_FORWARD,     activation_forward,      "activation forward") \
    OP(ACTIVATION_BACKWARD,    activation_backward,     "activation backward") \
    OP(AVG_POOL_FORWARD,       avg_pool_forward,        "avg pool forward") \
    OP(AVG_POOL_BACKWARD,      avg_pool_backward,       "avg pool backward") \
    OP(MAX_POOL_FORWARD,       max_pool_forward,        "max pool forward") \
    OP(MAX_POOL_BACKWARD,      max_pool_backward,       "max pool backward") \
    OP(ADAPTIVE_AVG_POOL_FORWARD,    adaptive_avg_pool_forward,   "adaptive avg pool forward") \
    OP(ADAPTIVE_AVG_POOL_BACKWARD,   adaptive_avg_pool_backward,  "adaptive avg pool backward") \
    OP(PAD,                    pad,                     "pad") \
    OP(CAT,                    cat,                     "cat") \
    OP(DROPOUT,                dropout,                 "dropout") \
    OP(RANDOM,                 random_numbers,          "random numbers") \
    OP(SOFTMAX_FORWARD,        softmax_forward,         "softmax forward") \
    OP(SOFTMAX_BACKWARD,       softmax_backward,        "softmax backward") \
    OP(CROSS_ENTROPY_FORWARD,  cross_entropy_forward,   "cross entropy forward") \
    OP(CROSS_ENTROPY_BACKWARD, cross_entropy_backward,  "cross entropy backward") \
    OP(MSE_FORWARD,            mse_forward,             "mse forward") \
    OP(MSE_BACKWARD,           mse_backward,            "mse backward") \
    OP(LOSS_SUM,               loss_sum,                "loss sum") \
    OP(BATCH_NORM_MOMENTS,           batch_norm_moments,          "batch norm moments") \
    OP(BATCH_NORM_MERGE,             batch_norm_merge,            "batch norm merge") \
    OP(BATCH_NORM_OF_RUNNING,        batch_norm_of_running,       "batch norm of running") \
    OP(BATCH_NORM_TRACK,             batch_norm_track,            "batch norm track") \
    OP(BATCH_NORM_FACTORS,           batch_norm_factors,          "batch norm factors") \
    OP(BATCH_NORM_FORWARD,           batch_norm_forward,          "batch norm forward") \
    OP(BATCH_NORM_SUMS,              batch_norm_sums,             "batch norm sums") \
    OP(BATCH_NORM_TOTAL,             batch_norm_total,            "batch norm total") \
    OP(BATCH_NORM_BACKWARD_WEIGHT,   batch_norm_backward_weight,  "batch norm backward weight") \
    OP(BATCH_NORM_BACKWARD_FACTORS,  batch_norm_backward_factors, "batch norm backward factors") \
    OP(BATCH_NORM_BACKWARD_DATA,     batch_norm_backward_data,    "batch norm backward data") \
    OP(FILL,                   fill,                    "fill") \
    OP(SQUARE_SUMS,            square_sums,             "square sums") \
    OP(CLIP,                   clip,                    "clip") \
    OP(SGD,                    sgd,                     "sgd") \
    OP(ADADELTA,               adadelta,                "adadelta") \
    OP(ADAM,                   adam,                    "adam") \
    OP(HASH,                   hash,                    "hash") \
    OP(GATHER_ROWS,            gather_rows,             "gather rows") \
    OP(MATMUL,                 matmul,                  "matmul") \
    OP(SUM,                    sum,                     "sum") \
    OP(SPREAD,                 spread,                  "spread") \
    OP(PERMUTE,                permute,                 "permute") \
    OP(TO_INDEX,               to_index,                "to index") \
    OP(EMBEDDING_BACKWARD,     embedding_backward,      "embedding backward") \
    OP(TAKE_ALONG,             take_along,              "take along") \
    OP(ADD_ALONG,              add_along,               "add along") \
    OP(ARGSORT,                argsort,                 "argsort") \
    OP(LAYER_NORM_FORWARD,           layer_norm_forward,          "layer norm forward") \
    OP(LAYER_NORM_BACKWARD_DATA,     layer_norm_backward_data,    "layer norm backward data") \
    OP(LAYER_NORM_BACKWARD_WEIGHT,   layer_norm_backward_weight,  "layer norm backward weight") \
    OP(RECURRENT_FORWARD,            recurrent_forward,           "recurrent forward") \
    OP(RECURRENT_BACKWARD,           recurrent_backward,          "recurrent backward") \
    OP(ATTENTION_FORWARD,            attention_forward,           "attention forward") \
    OP(ATTENTION_BACKWARD,           attention_backward,          "attention backward")
// clang-format on

#define DEVICE_OP_ENUM(NAME, name, text) OP_##NAME,
enum op { DEVICE_OPS(DEVICE_OP_ENUM) OP_COUNT };
#undef DEVICE_OP_ENUM
struct op_args;

const char *op_name(enum op op); /* "conv2d forward": static storage */
/* The name that these arguments specialise: "group conv forward", "relu forward". */
const char *op_name_of(enum op op, const struct op_args *args);

/* Floating point operations of one launch, counted from the shapes. A multiply-add counts 2, a move
 * of data 0. */
double op_flops(enum op op, const struct op_args *args);

/* How PyTorch's autocast runs the op: 1 in float16 or bfloat16, whatever its inputs; -1 in float32;
 * 0 in the type of its inputs. */
int op_autocast(enum op op);

/* The values that change from step to step. The block is in device memory and is written once per
 * step on the compute stream. */
struct step_block {
    uint64_t seed; /* of dropout's masks */
    uint64_t step; /* number of the batch, from 0, for dropout's masks */
    float weight;  /* weight of a sample's loss: 1/B for B samples in all passes' global batches */
    float learning_rate;
    int32_t first_update; /* 1 before the first update, when momentum starts as the gradient */
    int32_t row;          /* row of the logs (loss, hits, hashes) for this step */
    float adam_rate;      /* learning rate / (1 - beta1^t), t the number of this update, from 1 */
    float adam_root;      /* sqrt(1 - beta2^t), with the same t */
    float adam_keep; /* AdamW: 1 - learning rate * weight decay; nn/optimizer/ fills these in */
    /* For the host, which plans the work; no kernel reads them. A gradient may be accumulated over
     * several passes, each a forward and backward of its own batch (nn/tape/tape.h). */
    int32_t add_grads;   /* 1: gradients are added to those of earlier passes */
    int32_t more_passes; /* 1: passes follow before the gradients are complete */
    int64_t update;      /* the number of this update, from 0, and the learning rate in double: */
    double rate;         /* as passed to optimizer_schedule */
};

/* Arrays hold (rows, columns). P = (H + 2 padding - dilation (K - 1) - 1) / stride + 1; Q is alike.
 * `general` 0 selects faster kernels, which need one group and square windows without dilation; 1
 * selects kernels for any convolution. The two give different bits. */
struct conv_args {
    int stride[2], padding[2], dilation[2], groups, general;
};
static inline struct conv_args conv_square(int stride, int padding) {
    struct conv_args p = {{stride, stride}, {padding, padding}, {1, 1}, 1, 0};
    return p;
}
struct linear_args {
    int weight_is_in_out; /* 0: w is (M,K), as in Linear; 1: w is (K,M), as in d2l's X @ W */
};
/* Arrays hold (rows, columns). Pools have no padding: P = (H - size) / stride + 1; Q is alike. */
struct pool_args {
    int size[2], stride[2];
    int relu;      /* 1: x is the input of a relu before the pool */
    int margin[2]; /* above and left of x, already part of it; no kernel reads it */
};
/* The offset of x from the first pixel of y, down and right; negative: up and left. */
struct pad_args {
    int top, left;
    float value;
};
/* The mask's element is the sample's number in the segment * sample_count + the index in a PLAIN
 * sample; with `planes` it is that number * C + channel. */
struct dropout_args {
    float p; /* the probability that an element is dropped */
    int layer;
    int v;      /* the virtual device of the segment */
    int planes; /* DROPOUT: 1: whole planes of (N,C,H,W) are dropped */
    int normal; /* RANDOM: 1: numbers of the normal distribution; 0: from 0 to 1 */
};
struct softmax_args {
    int log; /* 1: y is log-softmax */
};
/* The terms of the mean: MSE's (x - t)^2; smooth_l1_loss's, half of MSE's if |x - t| < 1 and |x -
 * t| - 1/2 otherwise; binary_cross_entropy_with_logits's log(1 + e^x) - x t. */
enum distance { DISTANCE_SQUARED, DISTANCE_SMOOTH_L1, DISTANCE_LOGISTIC };
struct loss_args {
    int reduction;             /* enum reduction */
    int distance;              /* MSE: enum distance */
    int column;                /* LOSS_SUM: column of the log */
    int positions;             /* rows per sample, which share its weight; 0: one */
    int log_probabilities;     /* CROSS_ENTROPY: 1: x has log-probabilities, as in nll_loss */
    double smoothing;          /* CROSS_ENTROPY: share of the target for all classes, 0 to 1 */
    int ignores, ignore_index; /* ignores 1: rows with the label ignore_index do not count */
};
struct fill_args {
    float value;
};
struct clip_args {
    double max_norm; /* at least 0 */
};
/* The optimizers first make g += weight_decay * value. Doubles are rounded to float where PyTorch
 * rounds them, after 1 - x has been computed in double. */
struct sgd_args {
    float momentum, weight_decay;
    double dampening; /* the weight of a gradient in the momentum is 1 - dampening */
    int nesterov;     /* 1: a step goes along g + momentum * buffer, not along the buffer */
};
struct adadelta_args {
    float weight_decay;
    double rho, epsilon;
};
struct adam_args {
    float weight_decay;
    int decoupled; /* 1: AdamW: value *= step->adam_keep runs first, and g stays unchanged */
    double beta1, beta2, epsilon;
};
struct norm_args {
    double epsilon;
    /* The weight of a batch in running; below 0: running is the mean of all batches. */
    double momentum;
    int relu; /* BATCH_NORM_FORWARD: 1: relu follows */
};
struct hash_args {
    int column; /* of the log */
};
struct matmul_args {
    int turn_a, turn_b; /* 1: a, or b, is stored transposed */
};
/* left_out is 1 + the row whose gradient is 0, or 0 if every row gets its gradient. */
struct embedding_args {
    int left_out;
};
struct sum_args {
    int divide; /* at least 1 */
};

struct layer_norm_args {
    double epsilon;
    int groups, inner; /* at least 1 */
};

/* The order of the gates is PyTorch's: input, forget, cell, output in an LSTM; reset, update, new
 * in a GRU. With reverse 1 the layer runs from the last step to the first. */
enum recurrent { RECURRENT_LSTM, RECURRENT_GRU, RECURRENT_TANH, RECURRENT_RELU, RECURRENT_COUNT };
struct recurrent_args {
    enum recurrent kind;
    int reverse;
};
/* dropout.p is 0 without dropout; its element is the weight's index in the (B,L,S) weights of a
 * segment. Matrix b has mask b / mask_shared % G, so heads or samples may share masks. */
struct attention_args {
    double scale;
    int causal; /* 1: query i uses only the keys up to i */
    int mask_shared;
    struct dropout_args dropout;
};

/* The factor of the gradient of row i's loss is step->weight divided by the rows per sample for
 * MEAN, 1 for SUM, and dloss[i] (in[2], F32 (N)) for NONE. The row losses themselves (out[0] of
 * FORWARD) have no weight. */
enum reduction { REDUCE_MEAN, REDUCE_SUM, REDUCE_NONE };

enum { OP_INPUTS = 7, OP_OUTPUTS = 3 }; /* the most operands of an op */

struct op_args {
    struct tensor in[OP_INPUTS];
    struct tensor out[OP_OUTPUTS];
    const struct step_block *step; /* device memory; NULL if the op does not read it */
    /* For the host's fast kernels: device memory of host_scratch_bytes bytes, which launch() sets.
     * If it is NULL, a kernel without scratch runs and gives other bits. */
    void *scratch;
    union {
        struct conv_args conv;
        struct linear_args linear;
        struct pool_args pool;
        struct pad_args pad;
        struct dropout_args dropout;
        struct softmax_args softmax;
        struct loss_args loss;
        struct fill_args fill;
        struct clip_args clip;
        struct sgd_args sgd;
        struct adadelta_args adadelta;
        struct adam_args adam;
        struct norm_args norm;
        struct hash_args hash;
        struct matmul_args matmul;
        struct sum_args sum;
        struct embedding_args embedding;
        struct sort_args sort;
        struct layer_norm_args layer_norm;
        struct activation_args activation;
        struct recurrent_args recurrent;
        struct attention_args attention;
    } p;
};

/* x, w and y of the three passes of a convolution or of a linear layer; in backward their
 * gradients. */
struct product_operands {
    const struct tensor *x, *w, *y;
};
static inline struct product_operands product_operands(enum op op, const struct op_args *a) {
    const int pass = (op - OP_CONV2D_FORWARD) % 3; /* forward, backward data, backward weight */
    struct product_operands o = {pass == 1 ? &a->out[0] : &a->in[0],
                                 pass == 2 ? &a->out[0] : &a->in[1], &a->out[0]};
    if (pass) o.y = &a->in[pass - 1];
    return o;
}

/* A kernel of the host. It runs to its end in the calling thread; launch() has checked the
 * shapes. */
typedef void host_kernel(const struct op_args *args);

/* The host's two tables of kernels (device/host/kernels).
 *
 * The reference of every op is simple C in the order of the formula; all other kernels are compared
 * with it. Its elementwise kernels take either layout, the others only PLAIN. The fast table serves
 * both layouts; an op without a fast kernel has NULL there and uses the reference. `isa` is
 * "avx512", "avx2", "generic", or NULL for the best of this CPU. If the CPU lacks the named one,
 * the result is NULL for every op. All of them give the same bits. */
extern host_kernel *const host_reference_kernels[OP_COUNT];
host_kernel *host_fast_kernel(enum op op, const char *isa);
const char *host_best_isa(void); /* the name of NULL */

/* Bytes of scratch memory that a fast kernel of the host needs, aligned to 64. */
size_t host_scratch_bytes(enum op op, const struct op_args *args);

/* Checks the types, shapes, layouts and overlaps of `args` against op_table.c. ERR_FAILED names the
 * op and the operand. launch() calls it on every kind of device. */
int op_check(enum op op, const struct op_args *args);

/* 1: an operand is in N16. */
int op_takes_n16(const struct op_args *args);

#ifdef __cplusplus
}
#endif
#endif
