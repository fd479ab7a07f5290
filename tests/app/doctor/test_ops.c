/* Checks that the doctor examines every output of every op: the smallest change to one value is
 * reported in the row of that op. */
#include "doctor/ops.h"
#include "tests/app/doctor/shared.h"

/* In turn 0 the operations with an even number are faulty, in turn 1 those with an odd one: so a
 * row that is off must be due to its own operation. */
static int turn;

static int is_faulty(enum op op) {
    return (int)op % 2 == turn;
}

/* Which output is wrong where all operations are faulty: the first of those that are in turn, the
 * second of the others, if they have one. */
static int wrong_output(enum op op) {
    return !is_faulty(op);
}

/* Changes the first value by the least that must be found: one unit in the last place, since values
 * (of products: those of integers) must be equal; about 1e-5 for softmax and recurrent layers,
 * 1e-3 for attention and 1e-6 for sums of doubles, whose bounds allow rounding. */
static void spoil(enum op op, const struct tensor *t) {
    enum judge judge = op_tolerance(op, 0)->judge;
    float change = judge == JUDGE_ATTENTION ? 1e-3f : 1e-5f;
    int soft = judge == JUDGE_ATTENTION || judge == JUDGE_SOFTMAX || judge == JUDGE_SUM ||
               judge == JUDGE_STEPS;
    double *wide = t->data;
    float *narrow = t->data;
    if (!tensor_count(t)) return;
    switch (t->dtype) {
    case DTYPE_F32:
        *narrow = soft ? *narrow + change * (1 + fabsf(*narrow)) : nextafterf(*narrow, 2);
        break;
    case DTYPE_F64: *wide = isnan(*wide) ? 0 : soft ? *wide + 1e-6 : nextafter(*wide, 2); break;
    case DTYPE_I32: ++*(int32_t *)t->data; break;
    default: ++*(int64_t *)t->data; break;
    }
}

static int spoiling_launch(struct stream *stream, enum op op, const struct op_args *args) {
    CHECK(correct->launch(stream, op, args));
    if (args->out[wrong_output(op)].data) spoil(op, &args->out[wrong_output(op)]);
    return OK;
}

static void spoils(struct device_ops *ops) {
    ops->launch = spoiling_launch;
}

static int has_second(enum op op) {
    return op == OP_CONV2D_BACKWARD_WEIGHT || op == OP_LINEAR_BACKWARD_WEIGHT ||
           op == OP_CROSS_ENTROPY_FORWARD || op == OP_MSE_FORWARD || op == OP_LOSS_SUM ||
           op == OP_SGD || op == OP_ADADELTA || op == OP_ADAM || op == OP_BATCH_NORM_TRACK ||
           op == OP_BATCH_NORM_BACKWARD_WEIGHT || op == OP_LAYER_NORM_FORWARD ||
           op == OP_LAYER_NORM_BACKWARD_WEIGHT || op == OP_RECURRENT_FORWARD ||
           op == OP_RECURRENT_BACKWARD || op == OP_ATTENTION_FORWARD || op == OP_ATTENTION_BACKWARD;
}

/* words: what the row of that operation says; NULL: it is not off. */
static void is_off(const struct findings *f, enum op op, const char *words) {
    char name[CHECK_NAME_BYTES];
    snprintf(name, sizeof name, "cpu: %s", op_name(op));
    const struct finding *row = row_of(f, name);
    cr_expect_eq((int)row->state, words ? (int)FINDING_OFF : (int)FINDING_OK, "%s: %s", name,
                 row->measured);
    cr_expect(!words || strstr(row->measured, words), "%s: %s", name, row->measured);
}

Test(doctor_ops, one_wrong_value_is_found, .timeout = 280) {
    for (turn = test_short(); turn < 2; turn++) {
        struct findings *f = examine_faulty(check_ops, spoils);
        for (enum op op = 0; op < OP_COUNT; op++)
            is_off(f, op, wrong_output(op) == 0 ? "out[0]" : has_second(op) ? "out[1]" : NULL);
        findings_free(f);
    }
}

/* An operation that does nothing leaves NaN in its outputs, or the values that it should update. */
static int lazy_launch(struct stream *stream, enum op op, const struct op_args *args) {
    return is_faulty(op) ? OK : correct->launch(stream, op, args);
}

static void lazy(struct device_ops *ops) {
    ops->launch = lazy_launch;
}

Test(doctor_ops, an_op_that_does_nothing, .timeout = 280) {
    for (turn = test_short(); turn < 2; turn++) {
        struct findings *f = examine_faulty(check_ops, lazy);
        for (enum op op = 0; op < OP_COUNT; op++)
            is_off(f, op, is_faulty(op) ? "wrong" : NULL);
        findings_free(f);
    }
}

static int leaky_launch(struct stream *stream, enum op op, const struct op_args *args) {
    CHECK(correct->launch(stream, op, args));
    const struct tensor *y = &args->out[0];
    if (op == OP_MAX_POOL_BACKWARD && y->layout == LAYOUT_N16 && y->dims[0] % y->lanes)
        tensor_f32(y)[tensor_stored_count(y) - 1] = 1;
    return OK;
}

static void leaky(struct device_ops *ops) {
    ops->launch = leaky_launch;
}

Test(doctor_ops, lanes_past_the_last_sample, .timeout = 60) {
    struct findings *f = examine_faulty(check_ops, leaky);
    only_off(f, "cpu: max pool backward");
    cr_expect(strstr(row_of(f, "cpu: max pool backward")->measured, "a lane past the last"));
    findings_free(f);
}

/* ---- the tolerances themselves ---- */

/* A product of k terms may be off by (k + 2) roundings of its sum of |a b|, but not by a quarter
 * more; with integers it may not be off at all; with tf32 by about a thousandth of that
 * sum. */
Test(doctor_ops, the_bound_of_a_product_is_a_bound, .timeout = 20) {
    float want = 1, size = 3;
    const struct {
        double off;
        size_t terms;
        int tf32, wrong;
    } cases[] = {{0, 10, 0, 0},
                 {12 * 0x1p-24 * 3 * .9, 10, 0, 0},
                 {12 * 0x1p-24 * 3 * 1.25, 10, 0, 1},
                 {0x1p-23, 0, 0, 1},
                 {3e-3 * .9, 10, 1, 0},
                 {3e-3 * 1.1, 10, 1, 1},
                 {0x1p-23, 0, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float got = (float)(1 + cases[i].off);
        struct tensor g = tensor_plain(&got, DTYPE_F32, 1, (int[1]){1}), w = g, s = g;
        w.data = &want, s.data = &size;
        struct comparison c = {&g, &w, &s, cases[i].terms, cases[i].tf32};
        struct tally tally = {0};
        judge_output(&tally, OP_CONV2D_FORWARD, 0, &c);
        cr_expect_eq(tally.wrong, (size_t)cases[i].wrong, "case %zu: off by %g, allowed %g of it",
                     i, tally.off, tally.share);
    }
}

Test(doctor_ops, what_counts_as_equal, .timeout = 20) {
    enum { DENORMAL = 7 }; /* the last case */
    static const struct {
        float got, want;
        int wrong;
    } cases[] = {{0, -0.0f, 0},    {NAN, -NAN, 0},          {NAN, 1, 1},
                 {1, NAN, 1},      {INFINITY, INFINITY, 0}, {INFINITY, -INFINITY, 1},
                 {INFINITY, 1, 1}, {0x1p-149f, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int soft = 0; soft < 2; soft++) {
            float got = cases[i].got, want = cases[i].want;
            struct tensor g = tensor_plain(&got, DTYPE_F32, 1, (int[1]){1}), w = g;
            w.data = &want;
            struct comparison c = {.got = &g, .want = &w};
            struct tally tally = {0};
            if (soft && i == DENORMAL) continue; /* within the bound of softmax */
            judge_output(&tally, soft ? OP_SOFTMAX_FORWARD : OP_ADD_FORWARD, 0, &c);
            cr_expect_eq(tally.wrong, (size_t)cases[i].wrong, "case %zu, %d: %g for %g", i, soft,
                         (double)got, (double)want);
        }
}
