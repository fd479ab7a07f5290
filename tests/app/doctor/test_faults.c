/* Faulty devices: each fault is found by the check that looks for it, and by no other. Copies
 * that lose a byte, writes and allocations that are wrong, events that order nothing, memory
 * mapped from the wrong place, steps of a model that are a little off.
 * tests/app/doctor/test_ranks.c has the faults of collectives. */
#include <unistd.h>

#include "base/clock.h"
#include "tests/app/doctor/shared.h"

/* ---- correct devices pass: else what follows would prove nothing ---- */

Test(doctor_faults, correct_devices_pass, .timeout = 280) {
    doctor_check *const checks[] = {check_machine, check_memory, check_streams,   check_peers,
                                    check_ipc,     check_ops,    check_allreduce, check_step};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        struct findings *f = examine_faulty(checks[i], NULL);
        only_off(f, "");
        cr_expect_gt(findings_count(f, FINDING_OK), 0);
        findings_free(f);
    }
}

/* ---- memory ---- */

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
        struct findings *f = examine_faulty(check_memory, short_copies);
        only_off(f, loses == OUT ? "cpu(0): copies|cpu(0): pinned copies|cpu(0): written values"
                                 : "cpu(0): copies|cpu(0): pinned copies");
        findings_free(f);
        f = examine_faulty(check_peers, short_copies);
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

/* As if the device had kept the caller's pointer and read the value later. */
static int late_write(struct stream *stream, void *destination, const void *value, size_t bytes) {
    static const unsigned char later[256];
    (void)value;
    return correct->write(stream, destination, later, bytes);
}

static void late_writes(struct device_ops *ops) {
    ops->write = late_write;
}

Test(doctor_faults, a_write_that_does_not_capture, .timeout = 60) {
    struct findings *f = examine_faulty(check_memory, late_writes);
    only_off(f, "cpu(0): written values");
    findings_free(f);
}

static void *generous_alloc(struct device *device, size_t bytes) {
    void *memory = correct->alloc(device, bytes);
    return memory ? memory : correct->alloc(device, 256);
}

static void generous(struct device_ops *ops) {
    ops->alloc = generous_alloc;
}

Test(doctor_faults, memory_that_is_not_there, .timeout = 60) {
    struct findings *f = examine_faulty(check_memory, generous);
    only_off(f, "cpu(0): end of its memory");
    findings_free(f);
}

/* ---- streams ---- */

/* 1: the reader has copied the block. The writer does not begin before. */
static _Atomic int has_read;

static int until_read(void *args) {
    (void)args;
    int64_t end = deadline_after(50);
    while (!has_read && now_ns() < end)
        usleep(1000);
    return has_read ? OK : fail(ERR_TIMEOUT, "the reader did not come within 50 s");
}

static int no_wait(struct stream *stream, struct event *event) {
    (void)stream, (void)event;
    return OK;
}

/* The communication stream writes only after the other stream has read, so a reader that does not
 * wait always reads too early. */
static int late_copy(struct stream *stream, struct device *to, void *destination,
                     struct device *from, const void *source, size_t bytes) {
    int on_device = to && from, late = stream == device_comm(stream->device);
    if (on_device && late && !has_read)
        CHECK(correct->call_host(stream, "late", 0, until_read, "", 1));
    CHECK(correct->copy(stream, to, destination, from, source, bytes));
    if (on_device && !late) has_read = 1;
    return OK;
}

static void no_waits(struct device_ops *ops) {
    ops->event_wait = no_wait;
    ops->copy = late_copy;
}

/* In the other direction there is nothing to find: the compute stream of an emulated device is done
 * before a reader could come. */
Test(doctor_faults, an_event_that_orders_nothing, .timeout = 60) {
    struct findings *f = examine_faulty(check_streams, no_waits);
    only_off(f, "cpu(0): compute after comm");
    findings_free(f);
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
