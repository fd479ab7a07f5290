/* Checks every operation against the host's reference. Used only inside doctor/.
 *
 *     ops.c         the check: operation by operation
 *     ops_run.c     runs one launch on the device and by the reference, both from the same inputs
 *     ops_judge.c   the table of tolerances and their reasons
 *     cases.h       the cases: shapes and data */
#ifndef DOCTOR_OPS_H
#define DOCTOR_OPS_H

#include "doctor/cases.h"
#include "doctor/check.h"

/* How the outputs of an operation are judged. */
enum judge {
    JUDGE_BITS,      /* byte by byte: logs, where all cells but one keep their value */
    JUDGE_EQUAL,     /* value by value: the device does the same operations in the same order */
    JUDGE_PRODUCT,   /* within a bound: the device sums products in its own order */
    JUDGE_STEPS,     /* within a bound: many steps of sums and functions, each using the last */
    JUDGE_ATTENTION, /* within a bound: float products in their own order, exp in float */
    JUDGE_SUM,       /* within a bound: the device sums doubles in its own order */
    JUDGE_SOFTMAX,   /* within a bound: sums, exp, log in double, perhaps rounded to float */
};
struct tolerance {
    enum judge judge;
    const char *reason; /* the reason, for the table */
};
/* tf32 is 1 if products round their factors to it. */
const struct tolerance *op_tolerance(enum op op, int tf32);

/* Sums up one operation over all its launches. */
struct tally {
    int launches;
    size_t values, wrong; /* values compared, and values outside the bound */
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

/* Compares output number `output` of `op` and adds the result to the tally. */
void judge_output(struct tally *tally, enum op op, int output, const struct comparison *c);

/* The operands of struct op_args. */
enum { INPUTS = OP_INPUTS, OUTPUTS = OP_OUTPUTS, OPERANDS = INPUTS + OUTPUTS };

/* Computes the reference values for an output (struct comparison): `want`, with the output's shape,
 * and for products `size`. They live until case_forget. */
int reference_outputs(struct op_cases *cases, enum op op, const struct op_args *args,
                      struct tensor want[OUTPUTS], struct tensor size[OUTPUTS]);

/* The device that the doctor's cases run on. */
struct op_testbed {
    struct doctor *d;
    struct device *device;
    struct tally tally;
    struct op_cases cases;
};

/* Runs `op` on the device and with the reference, and judges the outputs; op_cases calls it. */
int run_trial(struct op_cases *cases, enum op op, const struct op_args *args, size_t terms);

/* Returns 1 if this device rounds the factors of products to tf32. */
int trial_tf32(const struct op_testbed *bed);

#endif
