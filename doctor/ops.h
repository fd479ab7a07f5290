/* Every op against the host's reference. Inside doctor/.
 *
 *     ops.c         the check: op by op
 *     ops_run.c     runs one launch on the device and by the reference, both from the same inputs
 *     ops_judge.c   what may differ, and why: the table of tolerances
 *     ops_cases.c   shapes and data: products (convolutions, linear layers)
 *     ops_more.c    shapes and data of all other ops */
#ifndef DOCTOR_OPS_H
#define DOCTOR_OPS_H

#include "base/random.h"
#include "doctor/check.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How an op's outputs are judged. */
enum judge {
    JUDGE_BITS,    /* byte by byte: logs, in which all but one cell stay as they were */
    JUDGE_EQUAL,   /* value by value: the same operations in the same order */
    JUDGE_PRODUCT, /* sums of products in an order of the device's own */
    JUDGE_SOFTMAX, /* sums, exp and log in double, then rounded to float, or left in double */
};
struct tolerance {
    enum judge judge;
    const char *reason; /* for the table */
};
/* tf32: where products round their factors to it */
const struct tolerance *op_tolerance(enum op op, int tf32);

/* What was seen of one op, over all its launches. */
struct tally {
    int launches;
    size_t values, wrong;
    double off;      /* the largest |got - want| */
    double share;    /* the largest part of what was allowed */
    char first[160]; /* the first value that is wrong, in words */
};

/* Compares an output (PLAIN, host memory) with what the reference gave. size: the same output of
 * the reference when all inputs are taken absolute: the sum of |a b| behind each value; NULL
 * where no product is judged. terms: products in the longest sum; 0: every sum is exact, all
 * values must be equal. */
struct comparison {
    const struct tensor *got, *want, *size;
    size_t terms;
    int tf32; /* 1: factors were rounded to tf32 */
};
void judge_output(struct tally *tally, enum op op, int output, const struct comparison *c);

/* The check of one op at work: what cases are run on. */
struct trial_bed {
    struct doctor *d;
    struct device *device;
    struct rng rng;
    struct tally tally;
    void *heap[256]; /* host memory of the case at hand */
    int heap_count;
};

/* Host tensors that live until the case is over. NULL data: no memory, which run_trial reports. */
struct tensor trial_tensor(struct trial_bed *bed, enum dtype dtype, int rank, int d0, int d1,
                           int d2, int d3);
/* uniform in [-1, 1) */
struct tensor trial_random(struct trial_bed *bed, int rank, int d0, int d1, int d2, int d3);
/* whole, -4 .. 4 */
struct tensor trial_whole(struct trial_bed *bed, int rank, int d0, int d1, int d2, int d3);
struct tensor trial_copy(struct trial_bed *bed, const struct tensor *t);
void trial_forget(struct trial_bed *bed);

/* Runs `op` on the device and by the reference, from `args`: PLAIN tensors and a step block in
 * host memory. An output that the op only writes is NaN before; one that it changes (ADD, SCALE,
 * SGD) starts as given. terms: see above. */
int run_trial(struct trial_bed *bed, enum op op, const struct op_args *args, size_t terms);
/* 1: this device rounds the factors of products to tf32 */
int trial_tf32(const struct trial_bed *bed);

/* All cases of an op. */
int product_cases(struct trial_bed *bed, enum op op);
int other_cases(struct trial_bed *bed, enum op op);

#ifdef __cplusplus
}
#endif
#endif
