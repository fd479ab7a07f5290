/* Waits of a GPU's device layer, against the stand-in for the runtime (cuda_stand_in.h): they end with the job, close
 * ends too, and what a kernel may still use is not given back under its feet. Needs CUDA's headers, no GPU. */
#include "tests/test_device.h"

#ifdef HAVE_CUDA
#include "tests/cuda_stand_in.h"

/* A job that ends `after_ns` from its first look on. */
struct end_of_job {
    atomic_int looks;
    int64_t after_ns, first;
};
static int job_ended(void *context) {
    struct end_of_job *job = context;
    if (atomic_fetch_add(&job->looks, 1) == 0) job->first = now_ns();
    return now_ns() - job->first < job->after_ns ? OK : fail(ERR_PEER, "rank 1: it fell over");
}

static struct device *open_in(struct end_of_job *job) {
    struct device_config config = config_of(0, 1);
    struct device *d;
    config.interrupted = job_ended, config.interrupt_context = job;
    MUST(device_open(&d, &config));
    return d;
}

Test(cuda_wait, ends_with_the_job_and_its_words, .timeout = 30) {
    struct end_of_job job = {.after_ns = 100 * 1000000};
    struct event *event;
    stand_in_reset();
    struct device *d = open_in(&job);
    MUST(event_create(d, &event));
    gpu.work_ns = 3000000000; /* which a rank that lives would wait for */
    MUST(test_fill(device_comm(d), test_floats(d, 4), 4, 1));
    MUST(event_record(event, device_comm(d)));
    int64_t begun = now_ns();
    cr_assert_eq(stream_sync(device_comm(d)), ERR_PEER);
    cr_assert_str_eq(error_message(), "rank 1: it fell over");
    cr_assert_gt(job.looks, 3, "asked at each pause");
    fail(ERR_FAILED, "something else");
    cr_assert_eq(event_sync(event), ERR_PEER);
    MUST_SAY("rank 1: it fell over");
    cr_assert_lt(now_ns() - begun, 2000000000);
    MUST(stream_sync(device_compute(d))); /* nothing to wait for */
    MUST(event_record(event, device_comm(d))); /* the stream itself has no error */
    event_destroy(event);
    device_close(d);
}

/* The runtime would wait inside the call, where nobody can end it: so the stream is waited for first, out here. */
Test(cuda_wait, a_copy_of_pageable_memory_never_waits_inside_the_runtime, .timeout = 30) {
    struct end_of_job job = {.after_ns = 50 * 1000000};
    float host[4] = {1, 2, 3, 4};
    stand_in_reset();
    struct device *d = open_in(&job);
    struct stream *s = device_compute(d);
    float *x = test_floats(d, 4);
    MUST(test_fill(s, x, 4, 7));
    for (int pageable = 0; pageable < 2; pageable++) {
        gpu.pageable = pageable;
        gpu.work_ns = 0;
        MUST(stream_sync(s));
        gpu.work_ns = 400000000; /* behind which a copy would stand */
        MUST(test_fill(s, x, 4, 7));
        gpu.copies = 0;
        job.looks = 0;
        cr_assert_eq(copy_to_host(s, host, x, sizeof host), pageable ? ERR_PEER : OK);
        cr_assert_eq(gpu.copies, !pageable, "into pinned memory it is enqueued at once");
        cr_assert_eq(copy_to_device(s, x, host, sizeof host), pageable ? ERR_PEER : OK);
        cr_assert_eq(gpu.copies, pageable ? 0 : 2);
        job.after_ns = INT64_MAX; /* the job goes on, and so does the stream */
        MUST(stream_sync(s));
        job.after_ns = 50 * 1000000;
    }
    device_close(d);
    cr_assert_eq(stand_in_left(), 0);
}

Test(cuda_wait, close_gives_what_was_let_go_a_moment_to_end, .timeout = 30) {
    struct end_of_job job = {.after_ns = 0};
    stand_in_reset();
    struct device *d = open_in(&job);
    gpu.work_ns = 300000000; /* of the second that there is */
    MUST(test_fill(device_comm(d), test_floats(d, 4), 4, 1));
    int64_t begun = now_ns();
    device_close(d);
    cr_assert_geq(now_ns() - begun, 250000000, "memory was given back while it was in use");
    cr_assert_eq(stand_in_left(), 0);
}

Test(cuda_wait, close_of_a_stuck_gpu_in_a_job_that_ended_takes_seconds_and_leaves_the_slab, .timeout = 30) {
    struct end_of_job job = {.after_ns = 0};
    struct memory_handle handle;
    void *seen;
    int fd;
    stand_in_reset();
    struct device *d = open_in(&job);
    float *x = test_floats(d, 4);
    MUST(device_export(d, x, &handle, &fd));
    handle.pid = 1; /* as from another process */
    MUST(device_import(d, &handle, -1, &seen));
    gpu.work_ns = NEVER;
    MUST(test_fill(device_comm(d), x, 4, 1));
    MUST(test_fill(device_compute(d), x, 4, 1));
    int64_t begun = now_ns();
    device_close(d);
    cr_assert_lt(now_ns() - begun, 4000000000, "of the 20 s of a wait");
    cr_assert_eq(gpu.memory, 1);
    cr_assert_eq(gpu.opened, 1, "a peer's memory that a kernel may write stays mapped");
    cr_assert_eq(stand_in_left() - gpu.math, 2, "events and streams were given back");
}
#else
Test(cuda_wait, needs_the_headers_of_cuda, .timeout = 10) {
    cr_skip_test("no CUDA here: the files under test are not built");
}
#endif
