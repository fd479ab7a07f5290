/* Every operation against the host's reference. Inside doctor/.
 *
 *     ops.c         the check: operation by operation
 *     ops_run.c     runs one launch on the device and by the reference, both from the same inputs
 *     ops_judge.c   how much may differ, and why: the table of tolerances
 *     ops_cases.c   shapes and data of products (convolutions, linear layers)
 *     ops_norm.c    shapes and data of batch normalisation
 *     ops_more.c    shapes and data of all other operations */
#ifndef DOCTOR_OPS_H
#define DOCTOR_OPS_H

#include "base/random.h"
#include "doctor/check.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the outputs of an operation are judged. */
enum judge {
    JUDGE_BITS,    /* byte by byte: logs, of which all cells but one keep their value */
    JUDGE_EQUAL,   /* value by value: the device does the same operations in the same order */
    JUDGE_PRODUCT, /* by a bound: the device sums products in an order of its own */
    JUDGE_SUM,     /* by a bound: the device sums doubles in an order of its own */
    JUDGE_SOFTMAX, /* by a bound: sums, exp and log in double, rounded to float or left in double */
};
struct tolerance {
    enum judge judge;
    const char *reason; /* for the table */
};
/* tf32: 1 where products round their factors to it. */
const struct tolerance *op_tolerance(enum op op, int tf32);

/* What was found about one operation in all its launches. */
struct tally {
    int launches;
    size_t values, wrong; /* compared; not within the bound */
    double off;           /* the largest |got - want| */
    double share;         /* the largest |got - want| as a share of its bound */
    char first[160];      /* the first wrong value, as text for the table */
};

/* One output of a launch. All tensors are PLAIN, in host memory and of the same shape. */
struct comparison {
    const struct tensor *got;  /* from the device */
    const struct tensor *want; /* from the reference */
    /* From the reference with all inputs replaced by their absolute values: the sum of |a b| behind
     * each value. NULL where the output is no product. */
    const struct tensor *size;
    size_t terms; /* products in the longest sum; 0: every sum is exact, so values must be equal */
    int tf32;     /* 1: factors were rounded to tf32 */
};

/* Compares output number `output` of `op` and adds what it finds to the tally. */
void judge_output(struct tally *tally, enum op op, int output, const struct comparison *c);

enum { INPUTS = 3, OUTPUTS = 2, OPERANDS = INPUTS + OUTPUTS }; /* of struct op_args */
enum { MOST_HOST_TENSORS = 256 };

/* What the cases of an operation run on. */
struct op_testbed {
    struct doctor *d;
    struct device *device;
    struct rng rng;
    struct tally tally;
    void *heap[MOST_HOST_TENSORS]; /* host memory of the present case */
    int heap_count;
};

/* Host tensors, which live until trial_forget. Where there is no memory, data is NULL: run_trial
 * then fails. */
struct tensor trial_tensor(struct op_testbed *bed, enum dtype dtype, int rank, int d0, int d1,
                           int d2, int d3); /* filled with NaN */
struct tensor trial_random(struct op_testbed *bed, int rank, int d0, int d1, int d2,
                           int d3); /* uniform in [-1, 1) */
struct tensor trial_whole(struct op_testbed *bed, int rank, int d0, int d1, int d2,
                          int d3); /* whole numbers from -4 to 4 */
void trial_forget(struct op_testbed *bed);

/* Runs `op` on the device and by the reference, and judges the outputs. args: PLAIN tensors and a
 * step block in host memory. An output that the operation only writes holds NaN before; one that it
 * updates (ADD, SCALE, SGD) starts with the given values. terms: see struct comparison. */
int run_trial(struct op_testbed *bed, enum op op, const struct op_args *args, size_t terms);

/* 1: this device rounds the factors of products to tf32. */
int trial_tf32(const struct op_testbed *bed);

/* All cases of an operation. */
int product_cases(struct op_testbed *bed, enum op op);
int norm_cases(struct op_testbed *bed, enum op op);
int layer_norm_cases(struct op_testbed *bed, enum op op);
int algebra_cases(struct op_testbed *bed, enum op op);
int picture_cases(struct op_testbed *bed, enum op op);

/* Puts each special value (0, -0, infinities, NaN, ...) twice among the values of t, 13 elements
 * apart. */
void put_special_values(struct tensor *t);
int other_cases(struct op_testbed *bed, enum op op);

#ifdef __cplusplus
}
#endif
#endif
