/* Every output of every op is looked at: the least change of one value of it is found, in the
 * row of that op. */
#include "doctor/ops.h"
#include "tests/doctor/shared.h"

/* ops whose number is even, or odd, lie by turns: a finding is its own op's alone */
static int turn, wrong_output;

static int lies(enum op op) {
    return (int)op % 2 == turn;
}

/* What must be found: one unit in the last place where values must be equal, and a product's
 * whole numbers are; a hundred thousandth where exp and log are rounded. */
static void spoil(enum op op, const struct tensor *t) {
    int soft = op_tolerance(op, 0)->judge == JUDGE_SOFTMAX;
    double *wide = t->data;
    float *narrow = t->data;
    if (!tensor_count(t)) return;
    switch (t->dtype) {
    case DTYPE_F32:
        *narrow = soft ? *narrow + 1e-5f * (1 + fabsf(*narrow)) : nextafterf(*narrow, 2);
        break;
    case DTYPE_F64: *wide = isnan(*wide) ? 0 : soft ? *wide + 1e-6 : nextafter(*wide, 2); break;
    case DTYPE_I32: ++*(int32_t *)t->data; break;
    default: ++*(int64_t *)t->data; break;
    }
}

static int spoiling_launch(struct stream *stream, enum op op, const struct op_args *args) {
    CHECK(honest->launch(stream, op, args));
    if (lies(op) && args->out[wrong_output].data) spoil(op, &args->out[wrong_output]);
    return OK;
}

static void spoils(struct device_ops *ops) {
    ops->launch = spoiling_launch;
}

static int has_output(enum op op, int output) {
    return output == 0 || op == OP_CONV2D_BACKWARD_WEIGHT || op == OP_LINEAR_BACKWARD_WEIGHT ||
           op == OP_NLL_FORWARD || op == OP_CROSS_ENTROPY_FORWARD || op == OP_LOSS_SUM ||
           op == OP_SGD || op == OP_ADADELTA || op == OP_ADAM || op == OP_GATHER_SAMPLES;
}

static void exactly_those_lie(const struct findings *f, int output, const char *words) {
    for (int op = 0; op < OP_COUNT; op++) {
        char name[48];
        int wanted = lies((enum op)op) && has_output((enum op)op, output);
        snprintf(name, sizeof name, "cpu: %s", op_name((enum op)op));
        const struct finding *row = row_of(f, name);
        cr_expect_eq((int)row->state, wanted ? (int)FINDING_OFF : (int)FINDING_OK, "%s: %s", name,
                     row->measured);
        cr_expect(!wanted || strstr(row->measured, words), "%s: %s", name, row->measured);
    }
}

Test(doctor_ops, one_wrong_value_is_found, .timeout = 280) {
    for (turn = 0; turn < 2; turn++)
        for (wrong_output = 0; wrong_output < 2; wrong_output++) {
            struct findings *f = examine_lying(check_ops, spoils);
            exactly_those_lie(f, wrong_output, wrong_output ? "out[1]" : "out[0]");
            findings_free(f);
        }
}

/* Outputs hold NaN, or what is to be changed, before. */
static int lazy_launch(struct stream *stream, enum op op, const struct op_args *args) {
    return lies(op) ? OK : honest->launch(stream, op, args);
}

static void lazy(struct device_ops *ops) {
    ops->launch = lazy_launch;
}

Test(doctor_ops, an_op_that_does_nothing, .timeout = 280) {
    for (turn = 0; turn < 2; turn++) {
        struct findings *f = examine_lying(check_ops, lazy);
        exactly_those_lie(f, 0, "wrong");
        findings_free(f);
    }
}

static int leaky_launch(struct stream *stream, enum op op, const struct op_args *args) {
    CHECK(honest->launch(stream, op, args));
    const struct tensor *y = &args->out[0];
    if (op == OP_MAX_POOL_BACKWARD && y->layout == LAYOUT_N16 && y->dims[0] % GROUP)
        tensor_f32(y)[tensor_stored_count(y) - 1] = 1;
    return OK;
}

static void leaky(struct device_ops *ops) {
    ops->launch = leaky_launch;
}

Test(doctor_ops, lanes_past_the_last_sample, .timeout = 60) {
    struct findings *f = examine_lying(check_ops, leaky);
    only_off(f, "cpu: max pool backward");
    cr_expect(strstr(row_of(f, "cpu: max pool backward")->measured, "a lane past the last"));
    findings_free(f);
}

/* ---- the tolerances themselves ---- */

/* A product of k terms may be off by (k + 2) roundings of its sum of |a b|, and not by a quarter
 * more; with whole numbers by nothing; with tf32 by a thousandth of that sum. */
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
            if (soft && i == 7) continue; /* within what softmax allows */
            judge_output(&tally, soft ? OP_LOG_SOFTMAX_FORWARD : OP_RELU_FORWARD, 0, &c);
            cr_expect_eq(tally.wrong, (size_t)cases[i].wrong, "case %zu, %d: %g for %g", i, soft,
                         (double)got, (double)want);
        }
}
