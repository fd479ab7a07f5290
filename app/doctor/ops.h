/* Every operation against the host's reference. Inside doctor/.
 *
 *     ops.c         the check: operation by operation
 *     ops_run.c     runs one launch on the device and by the reference, both from the same inputs
 *     ops_judge.c   how much may differ, and why: the table of tolerances
 *     cases.h       the cases: shapes and data */
#ifndef DOCTOR_OPS_H
#define DOCTOR_OPS_H

#include "doctor/cases.h"
#include "doctor/check.h"

/* How the outputs of an operation are judged. */
enum judge {
    JUDGE_BITS,      /* byte by byte: logs, in which all cells but one keep their value */
    JUDGE_EQUAL,     /* value by value: the device does the same operations in the same order */
    JUDGE_PRODUCT,   /* by a bound: the device sums products in its own order */
    JUDGE_STEPS,     /* by a bound: sums and functions in many steps, each using the last one's */
    JUDGE_ATTENTION, /* by a bound: products of floats in their own order, exp in float */
    JUDGE_SUM,       /* by a bound: the device sums doubles in its own order */
    JUDGE_SOFTMAX, /* by a bound: sums, exp and log in double, rounded to float or left in double */
};
struct tolerance {
    enum judge judge;
    const char *reason; /* for the table */
};
/* tf32: 1 where products round their factors to it. */
const struct tolerance *op_tolerance(enum op op, int tf32);

/* The findings about one operation, over all its launches. */
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
    /* From the reference with all inputs replaced by their absolute values: the sum of |a b| for
     * each value. NULL if the output is not a product. */
    const struct tensor *size;
    size_t terms; /* products in the longest sum; 0: every sum is exact, so values must be equal */
    int tf32;     /* 1: factors were rounded to tf32 */
};

/* Compares output number `output` of `op` and adds what it finds to the tally. */
void judge_output(struct tally *tally, enum op op, int output, const struct comparison *c);

/* The operands of struct op_args. */
enum { INPUTS = OP_INPUTS, OUTPUTS = OP_OUTPUTS, OPERANDS = INPUTS + OUTPUTS };

/* What is compared with an output (struct comparison), from the reference: `want`, which has its
 * shape, and for products `size`. They live until case_forget. */
int reference_outputs(struct op_cases *cases, enum op op, const struct op_args *args,
                      struct tensor want[OUTPUTS], struct tensor size[OUTPUTS]);

/* What the doctor's cases run on. */
struct op_testbed {
    struct doctor *d;
    struct device *device;
    struct tally tally;
    struct op_cases cases;
};

/* Runs `op` on the device and by the reference, and judges the outputs: op_cases calls it. */
int run_trial(struct op_cases *cases, enum op op, const struct op_args *args, size_t terms);

/* 1: this device rounds the factors of products to tf32. */
int trial_tf32(const struct op_testbed *bed);

#endif
