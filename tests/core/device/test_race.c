/* device/: kernels are compiled without ThreadSanitizer. The reports of device/host/race.c are
 * enough for it to find two streams that use the same memory without an order. In any other build
 * the same calls run, and nothing can be found. */
#include <sys/wait.h>

#include "tests/core/device/shared.h"

#if defined(__SANITIZE_THREAD__)
enum { REPORTED = 66 }; /* tests/harness/runner.c sets the status */
#else
enum { REPORTED = 0 };
#endif

enum { COUNT = 1000 };

/* Gates with relaxed atomics: they order no other memory access. */
static atomic_int begin, done;

static int wait_until(atomic_int *gate) {
    int64_t deadline = deadline_after(20);
    while (!atomic_load_explicit(gate, memory_order_relaxed) && now_ns() < deadline)
        usleep(100);
    return OK;
}
static int wait_for_begin(void *args) {
    (void)args;
    return wait_until(&begin);
}
static int say_done(void *args) {
    (void)args;
    atomic_store_explicit(&done, 1, memory_order_relaxed);
    return OK;
}

/* Returns the exit status of a process in which both streams of a device work on the same memory:
 * `first` on the communication stream, which has a thread of its own, then `second` on the compute
 * stream; with `ordered` the second waits for the first. */
static int status_of(int (*first)(struct stream *, float *, float *),
                     int (*second)(struct stream *, float *, float *), int ordered) {
    fflush(NULL);
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(1); /* the report is expected: it is not shown */
        struct device *d = test_open(DEVICE_HOST, 0);
        float *x = test_floats(d, COUNT), *y = test_floats(d, COUNT);
        struct stream *comm = device_comm(d);
        int bad = stream_call_host(comm, "gate", 0, wait_for_begin, NULL, 0) || first(comm, x, y) ||
                  stream_call_host(comm, "done", 0, say_done, NULL, 0);
        atomic_store_explicit(&begin, 1, memory_order_relaxed);
        wait_until(&done); /* otherwise `second` could run first, and `first` in order after it */
        if (ordered) bad |= stream_sync(comm);
        bad |= second(device_compute(d), x, y) || stream_sync(comm);
        device_close(d);
        _exit(bad);
    }
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int write_y(struct stream *s, float *x, float *y) {
    (void)x;
    return test_fill(s, y, COUNT, 1);
}
static int write_end_of_y(struct stream *s, float *x, float *y) {
    (void)x;
    return test_fill(s, y + COUNT / 2, COUNT / 2, 1);
}
static int write_start_of_y(struct stream *s, float *x, float *y) {
    (void)x;
    return test_fill(s, y, COUNT / 2, 1);
}
static int read_y(struct stream *s, float *x, float *y) {
    return test_add(s, x, y, COUNT);
}
static int copy_y(struct stream *s, float *x, float *y) {
    (void)x;
    static float host[COUNT];
    return copy_to_host(s, host, y, sizeof host);
}

Test(device_race, streams_without_order_are_reported, .timeout = 60) {
    cr_expect_eq(status_of(write_y, write_y, 0), REPORTED, "two writes");
    cr_expect_eq(status_of(write_y, read_y, 0), REPORTED, "a read after a write");
    cr_expect_eq(status_of(read_y, write_y, 0), REPORTED, "a write after a read");
    cr_expect_eq(status_of(copy_y, write_y, 0), REPORTED, "a write after a copy");
    cr_expect_eq(status_of(write_y, write_end_of_y, 0), REPORTED, "a write to a part");
}

Test(device_race, what_is_in_order_is_not, .timeout = 60) {
    cr_expect_eq(status_of(write_y, write_y, 1), 0, "two writes");
    cr_expect_eq(status_of(write_y, read_y, 1), 0, "a read after a write");
    cr_expect_eq(status_of(read_y, write_y, 1), 0, "a write after a read");
    cr_expect_eq(status_of(write_start_of_y, write_end_of_y, 0), 0, "two halves");
}
