/* What the files of device/cuda do when CUDA fails, on the emulated runtime. Any failed call is
 * reported, and everything is freed. A fault names what ran and reaches every waiter. Work that
 * never ends meets the deadline or the end of the job, and close ends too. (The tests of all kinds
 * of device cover the normal case.) */
#include "tests/core/device/shared.h"
#include "tests/stand_ins/cuda_emulated.h"

#ifndef CUDA_EMULATION
ONLY_EMULATED(cuda)
#else
#include <sys/wait.h>

#include "device/cuda/cuda.h"

static struct device *open_gpu(double timeout_s) {
    struct device_config config = test_config(DEVICE_CUDA, 0);
    struct device *d;
    config.timeout_s = timeout_s;
    MUST(device_open(&d, &config));
    return d;
}

/* ---- the k-th call of CUDA fails ---- */

/* Two launches, an event and a copy: y becomes 6. */
static int use(struct device *d) {
    struct stream *s = device_compute(d);
    struct event *event = NULL;
    void *y = NULL;
    float got = 0;
    int code;
    CHECK_GOTO(device_alloc(d, &y, sizeof(float), MEM_WORKSPACE), code, done);
    CHECK_GOTO(event_create(d, &event), code, done);
    CHECK_GOTO(test_fill(s, y, 1, 1), code, done);
    CHECK_GOTO(test_scale(s, y, 1, 6), code, done);
    CHECK_GOTO(event_record(event, s), code, done);
    CHECK_GOTO(stream_wait(device_comm(d), event), code, done);
    CHECK_GOTO(copy_to_host(device_comm(d), &got, y, sizeof got), code, done);
    CHECK_GOTO(stream_sync(device_comm(d)), code, done);
    if (got != 6) code = fail(ERR_CHECK, "y is %g", (double)got);
done:
    event_destroy(event);
    device_free(d, y);
    return code;
}

enum { FINE = 10, TOLD, LOST_MEMORY, NO_WORDS };

static int child(int k) {
    struct device_config config = test_config(DEVICE_CUDA, 0);
    struct device *d = NULL;
    char fault[32];
    config.spans = 0; /* which take thousands of events */
    snprintf(fault, sizeof fault, "call:%d", k);
    setenv("EMULATED_CUDA_FAULT", fault, 1);
    int code = device_open(&d, &config);
    if (!code) code = use(d);
    device_close(d);
    if (!code) return FINE; /* a harmless failure, or one in close, or fewer than k calls */
    if (!strstr(error_message(), "cuda")) return NO_WORDS;
    return emulated.gpus[0].used ? LOST_MEMORY : TOLD;
}

Test(cuda, whatever_call_fails_is_told_and_nothing_is_left, .timeout = 120) {
    int told = 0, fine = 0;
    for (int k = 1; fine < 40; k++) { /* in a row: there are no further calls */
        int status;
        pid_t pid = fork();
        if (pid == 0) _exit(child(k));
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        int end = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        cr_assert(end == FINE || end == TOLD, "call %d: end %d, status %d", k, end, status);
        fine = end == FINE ? fine + 1 : 0;
        told += end == TOLD;
        cr_assert_lt(k, 1000, "calls without end");
    }
    cr_assert_gt(told, 40, "%d calls", told);
}

Test(cuda, out_of_memory_names_device_and_cause, .timeout = 30) {
    struct device_config config = test_config(DEVICE_CUDA, 3);
    struct device *d;
    void *memory;
    config.devices = 4;
    setenv("EMULATED_CUDA_FAULT", "malloc:1", 1);
    cr_assert_eq(device_open(&d, &config), ERR_MEMORY);
    MUST_SAY("out of memory on device 3");
    MUST(device_open(&d, &config));
    cr_assert_eq(device_alloc(d, &memory, 9 << 20, MEM_ACTIVATIONS), ERR_MEMORY);
    MUST_SAY("out of memory on device 3: 9 MiB asked for activations");
    MUST_SAY("workspace 64 MiB");
    device_close(d);
}

/* ---- faults ---- */

Test(cuda, a_fault_stays_names_op_and_step_and_travels_by_events, .timeout = 30) {
    struct device *d = open_gpu(20);
    struct stream *s = device_compute(d);
    struct event *event;
    char text[600];
    float *x = test_floats(d, 4);
    MUST(event_create(d, &event));
    stream_set_phase(s, PHASE_FORWARD, 12);
    MUST(test_fill(s, x, 4, 1));
    DONE(cudaDeviceSynchronize());
    emulated.gpus[0].fault = cudaErrorIllegalAddress;
    cr_assert_eq(stream_sync(s), ERR_FAILED);
    MUST_SAY("fill of step 12");
    MUST_SAY("cudaErrorIllegalAddress");
    snprintf(text, sizeof text, "%s", error_message());
    emulated.gpus[0].fault = cudaSuccess; /* even if the GPU healed, the stream would not */
    cr_assert_eq(test_fill(s, x, 4, 3), ERR_FAILED);
    cr_assert_str_eq(error_message(), text);
    cr_assert_eq(event_record(event, s), ERR_FAILED);
    cr_assert_eq(event_done(event), 1);
    cr_assert_eq(event_sync(event), ERR_FAILED);
    cr_assert_str_eq(error_message(), text);
    cr_assert_eq(stream_wait(device_comm(d), event), ERR_FAILED);
    cr_assert_eq(stream_sync(device_comm(d)), ERR_FAILED);
    cr_assert_str_eq(error_message(), text);
    event_destroy(event);
    device_close(d);
}

Test(cuda, a_broken_context_is_closed_without_a_hang, .timeout = 30) {
    struct device *d = open_gpu(20);
    float *x = test_floats(d, 4);
    emulated.gpus[0].fault = cudaErrorIllegalAddress;
    cr_assert_neq(test_fill(device_compute(d), x, 4, 1), OK);
    device_close(d);
}

/* ---- work that does not end ---- */

static cudaStream_t cuda_of(struct stream *s) {
    return ((struct cuda_stream *)s)->stream;
}

Test(cuda, work_that_never_ends_meets_the_deadline, .timeout = 60) {
    struct device *d = open_gpu(0.2);
    struct stream *comm = device_comm(d);
    struct event *event;
    atomic_int open = 0;
    MUST(event_create(d, &event));
    hold_stream(cuda_of(comm), &open);
    MUST(event_record(event, comm));
    cr_assert_eq(stream_sync(comm), ERR_TIMEOUT);
    MUST_SAY("stream comm of cuda(0)");
    cr_assert_eq(event_sync(event), ERR_TIMEOUT);
    cr_assert_eq(event_record(event, device_compute(d)), ERR_FAILED,
                 "still on its way on the other stream");
    MUST(stream_sync(device_compute(d)));
    event_destroy(event);
    device_close(d); /* ends, but memory that a kernel may still use is not freed */
    cr_assert_gt(emulated.gpus[0].used, 0);
    open = 1;
}

static int job_has_ended(void *ended) {
    return *(atomic_int *)ended ? fail(ERR_PEER, "rank 1: it fell over") : OK;
}

Test(cuda, a_wait_ends_with_the_job_and_its_words, .timeout = 60) {
    struct device_config config = test_config(DEVICE_CUDA, 0);
    struct device *d;
    struct event *event;
    atomic_int ended = 0, open = 0;
    config.interrupted = job_has_ended, config.interrupt_context = &ended;
    MUST(device_open(&d, &config));
    MUST(event_create(d, &event));
    hold_stream(cuda_of(device_comm(d)), &open);
    MUST(event_record(event, device_comm(d)));
    ended = 1;
    int64_t begun = now_ns();
    cr_assert_eq(stream_sync(device_comm(d)), ERR_PEER);
    cr_assert_str_eq(error_message(), "rank 1: it fell over");
    fail(ERR_FAILED, "something else");
    cr_assert_eq(event_sync(event), ERR_PEER);
    MUST_SAY("rank 1: it fell over");
    cr_assert_lt(now_ns() - begun, 10000000000, "of the 20 s of a wait");
    MUST(stream_sync(device_compute(d))); /* nothing to wait for */
    open = 1;
    event_destroy(event);
    device_close(d);
    cr_assert_eq(emulated.gpus[0].used, 0, "what was let go had a moment to end");
}
#endif
