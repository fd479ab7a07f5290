/* The cases of the operations: shapes, data and settings in which every kernel of an op is tried.
 * These compare with the host's reference and share the list:
 *
 *     ops_run.c                      the doctor: launched on this machine's devices
 *     tests/core/device/test_kernels.c    the host's fast kernels, on every instruction set
 *     tests/cuda/test_ops.c          the GPUs' kernels, on the emulated runtime
 *
 * ops_judge.c says how large a difference may be. A case's operands are PLAIN tensors in host
 * memory.
 *
 *     cases.c            element by element, row by row, logs, batches; which file has which op
 *     cases_products.c   convolutions, linear layers
 *     cases_norms.c      batch, layer and group normalisation
 *     cases_recurrent.c  LSTM, GRU and RNN
 *     cases_algebra.c    products of matrices, sums, the order of dimensions
 *     cases_attention.c  attention
 *     cases_pictures.c   pools, margins, parts of samples */
#ifndef DOCTOR_CASES_H
#define DOCTOR_CASES_H

#include "base/random.h"
#include "device/op.h"

enum { MOST_HOST_TENSORS = 256 };

/* Who goes through the cases. `run` is called for each of them. An output that the operation only
 * writes holds NaN; one that it updates (ADD, SCALE, SGD) holds its start values. terms: of
 * products, how many the longest sum has; 0: every sum is exact. */
struct op_cases {
    int (*run)(struct op_cases *cases, enum op op, const struct op_args *args, size_t terms);
    void *user;
    uint64_t seed;                 /* of dropout's masks */
    enum layout layout;            /* in which the device keeps activations */
    int quick;                     /* 1: only every third product */
    int large;                     /* 1: products of the size that training uses, too */
    struct rng rng;                /* of the data; the caller seeds it */
    void *heap[MOST_HOST_TENSORS]; /* host memory of the present case */
    int heap_count;
};

/* All cases of an operation. An error of `run` ends them. */
int op_cases(struct op_cases *cases, enum op op);

/* ---- for the files of cases ---- */

int product_cases(struct op_cases *cases, enum op op);
int norm_cases(struct op_cases *cases, enum op op);
int layer_norm_cases(struct op_cases *cases, enum op op);
int recurrent_cases(struct op_cases *cases, enum op op);
int algebra_cases(struct op_cases *cases, enum op op);
int places_cases(struct op_cases *cases, enum op op);
int attention_cases(struct op_cases *cases, enum op op);
int picture_cases(struct op_cases *cases, enum op op);

/* Host tensors, which live until case_run has ended well, or until case_forget. Without memory,
 * data is NULL: case_run then fails. */
struct tensor case_tensor(struct op_cases *cases, enum dtype dtype, int rank, int d0, int d1,
                          int d2, int d3); /* filled with NaN */
struct tensor case_random(struct op_cases *cases, int rank, int d0, int d1, int d2,
                          int d3); /* uniform in [-1, 1) */
struct tensor case_whole(struct op_cases *cases, int rank, int d0, int d1, int d2,
                         int d3);                                        /* integers from -4 to 4 */
struct tensor case_like(struct op_cases *cases, const struct tensor *t); /* uninitialised */
struct tensor case_copy(struct op_cases *cases, const struct tensor *t);
void case_forget(struct op_cases *cases);

/* Hands the case to `run`, and forgets its tensors. */
int case_run(struct op_cases *cases, enum op op, const struct op_args *args, size_t terms);

/* Puts each special value (0, -0, infinities, NaN, ...) twice among the values of t, 13 elements
 * apart. */
void put_special_values(struct tensor *t);

#endif
