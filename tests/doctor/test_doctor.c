/* The doctor finds what is wrong: copies that lose a byte, events that order nothing, memory of
 * a wrong place, ranks that do not come, a step that is a little off; and it outlives a check
 * that crashes or hangs. */
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/doctor/shared.h"

/* ---- honest devices pass: else what follows would prove nothing ---- */

Test(doctor, honest_devices_pass, .timeout = 280) {
    doctor_check *const checks[] = {check_machine, check_memory, check_streams,   check_peers,
                                    check_ipc,     check_ops,    check_allreduce, check_step};
    for (int i = 0; i < 8; i++) {
        struct findings *f = examine_lying(checks[i], NULL);
        only_off(f, "");
        cr_expect_gt(findings_count(f, FINDING_OK), 0);
        findings_free(f);
    }
}

/* ---- memory ---- */

enum { IN = 1, OUT = 2, ACROSS = 4 };
static int loses; /* which copies are a byte short */

static int short_copy(struct stream *stream, struct device *to, void *destination,
                      struct device *from, const void *source, size_t bytes) {
    int way = !from ? IN : !to ? OUT : ACROSS;
    return honest->copy(stream, to, destination, from, source, bytes - (bytes > 0 && loses & way));
}

static void short_copies(struct device_ops *ops) {
    ops->copy = short_copy;
}

Test(doctor, a_copy_that_drops_the_last_byte, .timeout = 120) {
    for (loses = IN; loses <= ACROSS; loses *= 2) {
        struct findings *f = examine_lying(check_memory, short_copies);
        only_off(f, loses == OUT ? "cpu(0): copies|cpu(0): pinned copies|cpu(0): written values"
                                 : "cpu(0): copies|cpu(0): pinned copies");
        findings_free(f);
        f = examine_lying(check_peers, short_copies);
        only_off(f, "cpu(0) -> cpu(1)|cpu(1) -> cpu(0)");
        findings_free(f);
    }
}

/* Between two devices: by the destination's stream, or the source's. */
static int pulled; /* lost: what the destination's stream copies; else what the source's does */

static int short_on_one_side(struct stream *stream, struct device *to, void *destination,
                             struct device *from, const void *source, size_t bytes) {
    int lost = from && to && from != to && stream->device == (pulled ? to : from);
    return honest->copy(stream, to, destination, from, source, bytes - (bytes > 4 && lost));
}

static void short_copies_on_one_side(struct device_ops *ops) {
    ops->copy = short_on_one_side;
}

Test(doctor, a_copy_that_one_side_drops_a_byte_of, .timeout = 60) {
    for (pulled = 0; pulled < 2; pulled++) {
        struct findings *f = examine_lying(check_peers, short_copies_on_one_side);
        only_off(f, "cpu(0) -> cpu(1)|cpu(1) -> cpu(0)");
        cr_expect(strstr(row_of(f, "cpu(0) -> cpu(1)")->measured, pulled ? "pulled" : "pushed"));
        findings_free(f);
    }
}

/* Keeps the pointer, not the value. */
static int late_write(struct stream *stream, void *destination, const void *value, size_t bytes) {
    static const unsigned char later[256];
    (void)value;
    return honest->write(stream, destination, later, bytes);
}

static void late_writes(struct device_ops *ops) {
    ops->write = late_write;
}

Test(doctor, a_write_that_does_not_capture, .timeout = 60) {
    struct findings *f = examine_lying(check_memory, late_writes);
    only_off(f, "cpu(0): written values");
    findings_free(f);
}

static void *generous_alloc(struct device *device, size_t bytes) {
    void *memory = honest->alloc(device, bytes);
    return memory ? memory : honest->alloc(device, 256);
}

static void generous(struct device_ops *ops) {
    ops->alloc = generous_alloc;
}

Test(doctor, memory_that_is_not_there, .timeout = 60) {
    struct findings *f = examine_lying(check_memory, generous);
    only_off(f, "cpu(0): end of its memory");
    findings_free(f);
}

/* ---- streams ---- */

/* the reader has copied the block; before that the writer does not begin */
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

/* The communication stream writes, and is so late that whoever does not wait for it always reads
 * too early. */
static int late_copy(struct stream *stream, struct device *to, void *destination,
                     struct device *from, const void *source, size_t bytes) {
    int on_device = to && from, late = stream == device_comm(stream_device(stream));
    if (on_device && late && !has_read)
        CHECK(honest->call_host(stream, "late", 0, until_read, "", 1));
    CHECK(honest->copy(stream, to, destination, from, source, bytes));
    if (on_device && !late) has_read = 1;
    return OK;
}

static void no_waits(struct device_ops *ops) {
    ops->event_wait = no_wait;
    ops->copy = late_copy;
}

/* The other way round the compute stream of an emulated device is done before anybody can wait. */
Test(doctor, an_event_that_orders_nothing, .timeout = 60) {
    struct findings *f = examine_lying(check_streams, no_waits);
    only_off(f, "cpu(0): compute after comm");
    findings_free(f);
}

/* ---- memory of another process ---- */

static int wrong_import(struct device *device, const struct memory_handle *handle, int fd,
                        void **out) {
    CHECK(honest->import_memory(device, handle, fd, out));
    if (device_index(device) == 1) *out = (char *)*out + 8;
    return OK;
}

static void wrong_imports(struct device_ops *ops) {
    ops->import_memory = wrong_import;
}

static int refused_import(struct device *device, const struct memory_handle *handle, int fd,
                          void **out) {
    (void)handle, (void)fd, (void)out;
    return fail(ERR_FAILED, "import on %s: refused by the test", device_name(device));
}

static void refused_imports(struct device_ops *ops) {
    ops->import_memory = refused_import;
}

Test(doctor, imported_memory_of_a_wrong_place, .timeout = 60) {
    struct findings *f = examine_lying(check_ipc, wrong_imports);
    only_off(f, "cpu: rank 1 opens memory of rank 0");
    findings_free(f);
}

Test(doctor, import_refused_is_told_in_the_drivers_words, .timeout = 60) {
    struct findings *f = examine_lying(check_ipc, refused_imports);
    only_off(f, "cpu: memory of another process");
    cr_expect(strstr(f->row[0].measured, "refused by the test") &&
                  strstr(f->row[0].measured, "rank "),
              "%s", f->row[0].measured);
    findings_free(f);
}

/* ---- allreduce ---- */

static int calls_made;

/* Rank 1 leaves out its calls from the fourth on: the others wait for it. */
static int forgetful(struct stream *stream, const char *span_name, uint64_t span_bytes,
                     host_function *function, const void *args, size_t args_bytes) {
    if (device_index(stream_device(stream)) == 1 && ++calls_made >= 4) return OK;
    return honest->call_host(stream, span_name, span_bytes, function, args, args_bytes);
}

static void forgets(struct device_ops *ops) {
    ops->call_host = forgetful;
}

Test(doctor, a_rank_that_does_not_come, .timeout = 200) {
    struct doctor_config config = lying_config();
    config.timeout = test_short() ? 3 : 2; /* a rank waits for half of it */
    plant = forgets;
    struct findings *f = examine(check_allreduce, &config);
    int off = findings_count(f, FINDING_OFF);
    cr_expect(!findings_count(f, FINDING_OK) && off > 8,
              "every algorithm of both worlds is some calls short: %d", off);
    for (int i = 0; i < f->count; i++)
        cr_expect(f->row[i].state == FINDING_NOT_HERE ||
                      strstr(f->row[i].measured, "no word from rank") ||
                      strstr(f->row[i].measured, "no end within"),
                  "%s: %s",
                  /* the second where the machine is too busy for the first */
                  f->row[i].check, f->row[i].measured);
    findings_free(f);
}

static int wrong_end(struct stream *stream, struct device *to, void *destination,
                     struct device *from, const void *source, size_t bytes) {
    CHECK(honest->copy(stream, to, destination, from, source, bytes));
    CHECK(honest->sync(stream)); /* the communication stream has a thread of its own */
    if (!to && device_index(stream_device(stream)) == 1)
        ((unsigned char *)destination)[bytes / 2] ^= 1;
    return OK;
}

static void wrong_bit(struct device_ops *ops) {
    ops->copy = wrong_end;
}

Test(doctor, one_bit_of_one_rank, .timeout = 120) {
    struct findings *f = examine_lying(check_allreduce, wrong_bit);
    for (int i = 0; i < f->count; i++)
        cr_expect(f->row[i].state == FINDING_NOT_HERE || strstr(f->row[i].measured, "rank 1: 1 of"),
                  "%s: %s", f->row[i].check, f->row[i].measured);
    cr_expect(!findings_count(f, FINDING_OK) && findings_count(f, FINDING_OFF) > 8);
    findings_free(f);
}

/* ---- the model step ---- */

static int large_batch; /* samples from which on the lie is told */

/* A hundredth too much in the gradients of convolutions. */
static int sloppy_launch(struct stream *stream, enum op op, const struct op_args *args) {
    CHECK(honest->launch(stream, op, args));
    for (size_t i = 0; op == OP_CONV2D_BACKWARD_WEIGHT && i < tensor_count(&args->out[0]); i++)
        tensor_f32(&args->out[0])[i] *= 1.01f;
    return OK;
}

static void sloppy(struct device_ops *ops) {
    ops->launch = sloppy_launch;
}

/* The last bit of activations, where the whole batch goes through at once. */
static int moody_launch(struct stream *stream, enum op op, const struct op_args *args) {
    CHECK(honest->launch(stream, op, args));
    int told = op == OP_LINEAR_FORWARD && args->out[0].dims[0] >= large_batch;
    float *y = tensor_f32(&args->out[0]);
    for (size_t i = 0; told && i < tensor_stored_count(&args->out[0]); i++)
        y[i] = nextafterf(y[i], INFINITY);
    return OK;
}

static void moody(struct device_ops *ops) {
    ops->launch = moody_launch;
}

Test(doctor, a_gradient_a_hundredth_off, .timeout = 120) {
    struct findings *f = examine_lying(check_step, sloppy);
    only_off(f, "cpu: step of lenet|cpu: step of convnet");
    findings_free(f);
}

/* A batch of this seed has a value within rounding of a kink: right gradients were 2.8e-3 apart. */
Test(doctor, a_kink_is_no_fault, .timeout = 120) {
    struct doctor_config config = lying_config();
    plant = NULL;
    config.seed = 1211608;
    struct findings *f = examine(check_step, &config);
    only_off(f, "");
    cr_expect(strstr(row_of(f, "cpu: step of convnet")->measured, "; batch 2"), "%s",
              row_of(f, "cpu: step of convnet")->measured);
    cr_expect(!strstr(row_of(f, "cpu: step of lenet")->measured, "batch"));
    findings_free(f);
}

Test(doctor, bits_that_hang_on_the_company, .timeout = 120) {
    large_batch = 9;
    struct findings *f = examine_lying(check_step, moody);
    only_off(f, "cpu: lenet in two segments|cpu: convnet in two segments");
    findings_free(f);
}

/* ---- checks that do not come to their end ---- */

static int fatal_launch(struct stream *stream, enum op op, const struct op_args *args) {
    if (op == OP_RELU_FORWARD) raise(SIGKILL);
    if (op == OP_FILL) _exit(7);
    if (op == OP_SCALE)
        return fail(ERR_FAILED, "scale on %s: a fault of the test", stream->device->name);
    return honest->launch(stream, op, args);
}

static void fatal(struct device_ops *ops) {
    ops->launch = fatal_launch;
}

Test(doctor, a_crash_is_one_finding_and_the_others_go_on, .timeout = 120) {
    struct findings *f = examine_lying(check_ops, fatal);
    only_off(f, "cpu: relu forward|cpu: fill|cpu: scale");
    cr_expect(strstr(row_of(f, "cpu: relu forward")->measured, "ended by signal 9"));
    cr_expect(strstr(row_of(f, "cpu: fill")->measured, "status 7"));
    cr_expect(strstr(row_of(f, "cpu: scale")->measured, "a fault of the test"));
    for (int op = 0; op < OP_COUNT; op++) {
        char name[48];
        snprintf(name, sizeof name, "cpu: %s", op_name((enum op)op));
        row_of(f, name);
    }
    cr_expect_eq(f->count, OP_COUNT, "each op once");
    findings_free(f);
}

static int hanging_launch(struct stream *stream, enum op op, const struct op_args *args) {
    for (; op == OP_HASH;)
        pause();
    return honest->launch(stream, op, args);
}

static void hangs(struct device_ops *ops) {
    ops->launch = hanging_launch;
}

Test(doctor, a_hang_is_stopped_in_time, .timeout = 200) {
    struct doctor_config config = lying_config();
    config.timeout = test_short() ? 9 : 6;
    plant = hangs;
    int64_t start = now_ns();
    struct findings *f = examine(check_ops, &config);
    only_off(f, "cpu: hash");
    cr_expect(strstr(row_of(f, "cpu: hash")->measured, "no end within"));
    cr_expect_lt((double)(now_ns() - start) * 1e-9, OP_COUNT * config.timeout / 2);
    cr_expect_lt(waitpid(-1, NULL, WNOHANG), 0, "a process is left");
    findings_free(f);
}

static int refuse_to_open(struct device **out, const struct device_config *config) {
    *out = NULL;
    return fail(ERR_MEMORY, "device %d: not today", config->index);
}

Test(doctor, nothing_opens, .timeout = 200) {
    struct doctor_config config = lying_config();
    struct findings *f = findings_new();
    config.open_device = refuse_to_open;
    config.timeout = 20;
    int code = doctor_run(&config, f, NULL, NULL);
    cr_expect_eq(code, ERR_CHECK);
    cr_expect_eq(error_exit_status(code), 3);
    cr_expect(strstr(error_message(), "are off: first: cpu(0): memory: device 0: not today"), "%s",
              error_message());
    cr_expect_gt(findings_count(f, FINDING_OFF), OP_COUNT, "each step of each check says so");
    findings_free(f);
}

static int silent(struct doctor *d, int first) {
    (void)d, (void)first;
    return OK;
}

Test(doctor, a_check_that_finds_nothing_is_off, .timeout = 20) {
    struct doctor_config config = lying_config();
    struct findings *f = examine(silent, &config);
    only_off(f, "cpu: test");
    findings_free(f);
}

/* ---- findings and patterns ---- */

Test(doctor, a_full_table_says_so, .timeout = 20) {
    struct findings *f = findings_new();
    for (int i = 0; i < FINDINGS_MOST + 5; i++)
        finding_add(f, FINDING_OK, "x", "y", "");
    cr_expect_eq(f->count, FINDINGS_MOST);
    cr_expect_eq(findings_count(f, FINDING_OFF), 1);
    findings_free(f);
    findings_free(NULL);
}

/* What lands pages or blocks away from its place is another pattern there. */
Test(doctor, a_pattern_does_not_repeat_itself, .timeout = 20) {
    enum { WORDS = 1 << 17 }; /* 1 MiB */
    static uint64_t x[WORDS];
    pattern_fill(x, sizeof x, 5);
    for (size_t away = 1; away < WORDS; away *= 2)
        for (size_t i = 0; i + away < WORDS; i++)
            cr_assert_neq(x[i], x[i + away], "word %zu is that of %zu words before", i + away,
                          away);
}

Test(doctor, a_pattern_sees_every_byte, .timeout = 20) {
    enum { BYTES = 1003 };
    unsigned char x[BYTES], shifted[BYTES + 8];
    pattern_fill(x, BYTES, 5);
    pattern_fill(shifted, BYTES + 8, 5);
    cr_expect_eq(pattern_check(x, BYTES, 5), BYTES);
    cr_expect_lt(pattern_check(x, BYTES, 6), 8u, "another seed");
    cr_expect_lt(pattern_check(shifted + 8, BYTES, 5), 8u, "a word too far");
    for (size_t i = 0; i < BYTES; i++) {
        x[i] ^= 0x10;
        cr_assert_eq(pattern_check(x, BYTES, 5), i);
        x[i] ^= 0x10;
    }
    cr_expect_eq(pattern_check(x, 0, 5), 0u);
}
