/* How much a device may differ from the reference, and why. Each bound is derived from the
 * arithmetic; none was measured. So a device that follows the rules of floating point stays within
 * it, and the bounds leave no slack for one that does not. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "device/op_table.h"
#include "doctor/ops.h"

/* Half a unit in the last place of a float and of a double, relative. */
static const double FLOAT_ROUNDING = 0x1p-24, DOUBLE_ROUNDING = 0x1p-53;

/* Both factors are rounded to 10 bits of mantissa, each with a relative error of at most 2^-11. So
 * a product has a relative error of a little more than 2^-10. */
static const double TF32_PRODUCT = 0x1.01p-10;

/* Softmax in double: a sum of 1000 terms of at most 1 each, in any order, is off by at most
 * 1000 * 1000 * 2^-53, which is below 2^-33. exp and log are right to a few units in the last place
 * of a double, which is far below that. */
static const double DOUBLE_WORK = 0x1p-33;

static const char equal[] = "equal: same operations, same order",
                  product[] = "(k+2) 2^-24 sum|ab|: k products in any order; integers equal",
                  tf32_product[] =
                      "2^-10 sum|ab| plus the float bound: factors have 11 bits; integers equal",
                  softmax[] = "1 ulp of float; in double 2^-33: sums, exp, log",
                  steps[] = "l (k+16) 2^-24: l steps of sums of k products, exp, tanh",
                  sums[] = "n^2 2^-53: sums of n doubles below 4, in any order",
                  attention[] = "n 2^-24, n from the sizes of queries, keys and values",
                  integers[] = "must be equal: integers, doubles in one order";

const struct tolerance *op_tolerance(enum op op, int tf32) {
    static const struct tolerance table[] = {
        {JUDGE_EQUAL, equal},   {JUDGE_PRODUCT, product},      {JUDGE_SOFTMAX, softmax},
        {JUDGE_BITS, integers}, {JUDGE_PRODUCT, tf32_product}, {JUDGE_SUM, sums},
        {JUDGE_STEPS, steps},   {JUDGE_ATTENTION, attention}};
    switch (op_table[op].family) {
    case PRODUCT: return &table[tf32 ? 4 : 1];
    case LAYER_NORM: return &table[2];
    case RECURRENT: return &table[6];
    case ATTENTION: return &table[7];
    default: break;
    }
    switch (op) {
    case OP_MATMUL: return &table[tf32 ? 4 : 1];
    case OP_SUM:
    case OP_ACTIVATION_FORWARD:
    case OP_ACTIVATION_BACKWARD:
    case OP_SOFTMAX_FORWARD:
    case OP_SOFTMAX_BACKWARD:
    case OP_MSE_FORWARD:
    case OP_MSE_BACKWARD:
    case OP_CROSS_ENTROPY_FORWARD:
    case OP_CROSS_ENTROPY_BACKWARD: return &table[2];
    case OP_BATCH_NORM_MOMENTS:
    case OP_BATCH_NORM_SUMS: return &table[5];
    case OP_BATCH_NORM_TRACK:
    case OP_LOSS_SUM:
    case OP_HASH: return &table[3];
    default: return &table[0];
    }
}

static double value_of(const struct tensor *t, size_t i) {
    switch (t->dtype) {
    case DTYPE_F32: return (double)tensor_f32(t)[i];
    case DTYPE_F64: return ((double *)t->data)[i];
    case DTYPE_I32: return ((int32_t *)t->data)[i];
    default: return NAN; /* 64-bit integers are compared as bytes */
    }
}

/* The bound on |got - want| of value i. For a sum of k products it is (k + 2) roundings: k of the
 * device's sum in any order, one of rounding the result to float, and one of the reference, which
 * sums in double and rounds once. The bias counts as one more term. The host's convolutions of many
 * channels by Winograd's filtering have fewer, larger products; random numbers keep them far below
 * this bound. With tiles of 2 x 2, the only ones among the cases of integers, they are exact. */
static double allowed(enum op op, const struct comparison *c, size_t i) {
    double want = fabs(value_of(c->want, i));
    switch (op_tolerance(op, c->tf32)->judge) {
    case JUDGE_BITS:
    case JUDGE_EQUAL: return 0;
    case JUDGE_PRODUCT:
        if (!c->terms) return 0;
        return ((double)(c->terms + 2) * FLOAT_ROUNDING + (c->tf32 ? TF32_PRODUCT : 0)) *
               value_of(c->size, i);
    case JUDGE_STEPS: /* terms is l (k + 16): cases_rows.c keeps errors from growing */
        return (double)c->terms * FLOAT_ROUNDING * (1 + want);
    case JUDGE_SUM: /* values are in -1 .. 1, products of two distances from their mean below 4 */
        return 4 * (double)c->terms * (double)c->terms * DOUBLE_ROUNDING;
    case JUDGE_ATTENTION: return (double)c->terms * FLOAT_ROUNDING; /* see cases_rows.c */
    case JUDGE_SOFTMAX:
        if (c->want->dtype == DTYPE_I32) return 0; /* hits must be equal */
        if (c->want->dtype == DTYPE_F64) return DOUBLE_WORK * (1 + want) + DOUBLE_ROUNDING * want;
        return 2 * FLOAT_ROUNDING * want + DOUBLE_WORK;
    }
    return 0;
}

static void describe_first(struct tally *tally, int output, const struct comparison *c, size_t i,
                           double most) {
    char shape[48] = "";
    for (int k = 0; k < c->want->rank; k++)
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), k ? ",%d" : "%d",
                 c->want->dims[k]);
    snprintf(tally->first, sizeof tally->first, "out[%d] (%s)[%zu] is %.9g, not %.9g, allowed %.2g",
             output, shape, i, value_of(c->got, i), value_of(c->want, i), most);
}

void judge_output(struct tally *tally, enum op op, int output, const struct comparison *c) {
    size_t width = dtype_bytes(c->want->dtype);
    int bits = op_tolerance(op, c->tf32)->judge == JUDGE_BITS;
    for (size_t i = 0, count = tensor_stored_count(c->want); i < count; i++) {
        const char *g = (const char *)c->got->data + i * width,
                   *w = (const char *)c->want->data + i * width;
        tally->values++;
        if (!memcmp(g, w, width)) continue;
        double got = value_of(c->got, i), want = value_of(c->want, i);
        /* 0 and -0 count as equal, and so do all NaN */
        if (!bits && (got == want || (isnan(got) && isnan(want)))) continue;
        double most = allowed(op, c, i), off = fabs(got - want);
        if (off > tally->off) tally->off = off;
        if (most > 0 && off / most > tally->share) tally->share = off / most;
        if (isfinite(off) && off <= most) continue; /* an infinity equals only itself */
        if (tally->wrong++ == 0) describe_first(tally, output, c, i, most);
    }
}
