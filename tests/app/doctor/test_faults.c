/* Tests faulty devices: copies that lose a byte, and steps of a model that are slightly wrong. Only
 * the check for a fault finds it. tests/app/doctor/test_ranks.c has the faults of collectives. */

#include "base/clock.h"
#include "tests/app/doctor/shared.h"

/* ---- correct devices pass: else what follows would prove nothing ---- */

Test(doctor_faults, correct_devices_pass, .timeout = 280) {
    doctor_check *const checks[] = {check_machine, check_peers, check_ops, check_allreduce,
                                    check_step};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        struct findings *f = examine_faulty(checks[i], NULL);
        only_off(f, "");
        cr_expect_gt(findings_count(f, FINDING_OK), 0);
        findings_free(f);
    }
}

/* ---- copies ---- */

enum { IN = 1, OUT = 2, ACROSS = 4 }; /* from the host, to the host, between devices */
static int loses;                     /* which copies are a byte short, as a mask of those bits */

static int short_copy(struct stream *stream, struct device *to, void *destination,
                      struct device *from, const void *source, size_t bytes) {
    int way = !from ? IN : !to ? OUT : ACROSS;
    return correct->copy(stream, to, destination, from, source, bytes - (bytes > 0 && loses & way));
}

static void short_copies(struct device_ops *ops) {
    ops->copy = short_copy;
}

Test(doctor_faults, a_copy_that_drops_the_last_byte, .timeout = 120) {
    for (loses = IN; loses <= ACROSS; loses *= 2) {
        struct findings *f = examine_faulty(check_peers, short_copies);
        only_off(f, "cpu(0) -> cpu(1)|cpu(1) -> cpu(0)");
        findings_free(f);
    }
}

/* Which copies between two devices are a byte short. 1: those by the destination's stream; 0: those
 * by the source's stream. */
static int pulled;

static int short_on_one_side(struct stream *stream, struct device *to, void *destination,
                             struct device *from, const void *source, size_t bytes) {
    int lost = from && to && from != to && stream->device == (pulled ? to : from);
    return correct->copy(stream, to, destination, from, source, bytes - (bytes > 4 && lost));
}

static void short_copies_on_one_side(struct device_ops *ops) {
    ops->copy = short_on_one_side;
}

Test(doctor_faults, a_copy_that_one_side_drops_a_byte_of, .timeout = 60) {
    for (pulled = 0; pulled < 2; pulled++) {
        struct findings *f = examine_faulty(check_peers, short_copies_on_one_side);
        only_off(f, "cpu(0) -> cpu(1)|cpu(1) -> cpu(0)");
        cr_expect(strstr(row_of(f, "cpu(0) -> cpu(1)")->measured, pulled ? "pulled" : "pushed"));
        findings_free(f);
    }
}

/* ---- the model step ---- */

static int large_batch; /* the fault appears in batches of at least this many samples */

/* The gradients of convolutions are 1 % too large. */
static int sloppy_launch(struct stream *stream, enum op op, const struct op_args *args) {
    CHECK(correct->launch(stream, op, args));
    for (size_t i = 0; op == OP_CONV2D_BACKWARD_WEIGHT && i < tensor_count(&args->out[0]); i++)
        tensor_f32(&args->out[0])[i] *= 1.01f;
    return OK;
}

static void sloppy(struct device_ops *ops) {
    ops->launch = sloppy_launch;
}

/* The last bit of activations is wrong where the whole batch is computed at once. */
static int batch_dependent_launch(struct stream *stream, enum op op, const struct op_args *args) {
    CHECK(correct->launch(stream, op, args));
    int wrong = op == OP_LINEAR_FORWARD && args->out[0].dims[0] >= large_batch;
    float *y = tensor_f32(&args->out[0]);
    for (size_t i = 0; wrong && i < tensor_stored_count(&args->out[0]); i++)
        y[i] = nextafterf(y[i], INFINITY);
    return OK;
}

static void batch_dependent(struct device_ops *ops) {
    ops->launch = batch_dependent_launch;
}

Test(doctor_faults, a_gradient_a_hundredth_off, .timeout = 120) {
    struct findings *f = examine_faulty(check_step, sloppy);
    only_off(f, "cpu: step of lenet|cpu: step of convnet|cpu: step of complex");
    findings_free(f);
}

/* With this seed a value of the batch lies within rounding of the kink of a ReLU, so that correct
 * gradients were 2.8e-3 apart: the next batch must clear the device. */
Test(doctor_faults, a_kink_is_no_fault, .timeout = 120) {
    struct doctor_config config = faulty_config();
    plant = NULL;
    config.seed = 1211608;
    struct findings *f = examine(check_step, &config);
    only_off(f, "");
    cr_expect(strstr(row_of(f, "cpu: step of convnet")->measured, "; batch 2"), "%s",
              row_of(f, "cpu: step of convnet")->measured);
    cr_expect(!strstr(row_of(f, "cpu: step of lenet")->measured, "batch"));
    findings_free(f);
}

Test(doctor_faults, bits_that_depend_on_the_batch, .timeout = 120) {
    large_batch = 9;
    struct findings *f = examine_faulty(check_step, batch_dependent);
    only_off(
        f, "cpu: lenet in two segments|cpu: convnet in two segments|cpu: complex in two segments");
    findings_free(f);
}
