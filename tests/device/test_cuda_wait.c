/* Waits of a GPU's device layer, against the stand-in for the runtime (cuda_stand_in.h): they
 * end with the job, close ends too, and what a kernel may still use is not given back under its
 * feet. Needs CUDA's headers, no GPU. */
#include <limits.h>

#include "tests/device/shared.h"

#ifdef HAVE_CUDA
#include "tests/stand_ins/cuda_stand_in.h"

/* A job that has ended at the `end`-th look at it: by looks and not by time, so that a busy
 * machine changes nothing. */
struct end_of_job {
    int looks, end;
};
static int job_ended(void *context) {
    struct end_of_job *job = context;
    return ++job->looks < job->end ? OK : fail(ERR_PEER, "rank 1: it fell over");
}

/* What is on the stream is done now. */
static void end_work(struct stream *stream) {
    ((struct cuda_stream *)stream)->stream->busy_until = 0;
}

static struct device *open_in(struct end_of_job *job) {
    struct device_config config = config_of(0, 1);
    struct device *d;
    config.interrupted = job_ended, config.interrupt_context = job;
    MUST(device_open(&d, &config));
    return d;
}

Test(cuda_wait, ends_with_the_job_and_its_words, .timeout = 30) {
    struct end_of_job job = {.end = INT_MAX};
    struct event *event;
    stand_in_reset();
    struct device *d = open_in(&job);
    MUST(event_create(d, &event));
    float *x = test_floats(d, 4);
    job.looks = 0, job.end = 5;
    gpu.work_ns = 18000000000; /* which a rank that lives would wait for */
    MUST(test_fill(device_comm(d), x, 4, 1));
    MUST(event_record(event, device_comm(d)));
    int64_t begun = now_ns();
    cr_assert_eq(stream_sync(device_comm(d)), ERR_PEER);
    cr_assert_str_eq(error_message(), "rank 1: it fell over");
    cr_assert_eq(job.looks, 5, "asked at each pause, and never again: %d looks", job.looks);
    fail(ERR_FAILED, "something else");
    cr_assert_eq(event_sync(event), ERR_PEER);
    MUST_SAY("rank 1: it fell over");
    cr_assert_lt(now_ns() - begun, 10000000000);
    MUST(stream_sync(device_compute(d)));      /* nothing to wait for */
    MUST(event_record(event, device_comm(d))); /* the stream itself has no error */
    event_destroy(event);
    device_close(d);
}

/* The runtime would wait inside the call, where nobody can end it: so the stream is waited for
 * first, out here. */
Test(cuda_wait, a_copy_of_pageable_memory_never_waits_inside_the_runtime, .timeout = 30) {
    struct end_of_job job = {.end = INT_MAX};
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
        gpu.work_ns = 15000000000; /* behind which a copy would stand */
        MUST(test_fill(s, x, 4, 7));
        gpu.copies = 0;
        job.looks = 0, job.end = 3;
        cr_assert_eq(copy_to_host(s, host, x, sizeof host), pageable ? ERR_PEER : OK);
        cr_assert_eq(gpu.copies, !pageable, "into pinned memory it is enqueued at once");
        cr_assert_eq(copy_to_device(s, x, host, sizeof host), pageable ? ERR_PEER : OK);
        cr_assert_eq(gpu.copies, pageable ? 0 : 2);
        job.end = INT_MAX; /* the job goes on, and so does the stream */
        end_work(s);
        MUST(stream_sync(s));
    }
    device_close(d);
    cr_assert_eq(stand_in_left(), 0);
}

/* Two of them put work on the device that CUDA knows no failure of. */
struct watcher {
    struct cuda_watch watch; /* first */
    int looks, released, code;
};
static int look_on(struct cuda_watch *watch, int waiting) {
    struct watcher *w = (struct watcher *)watch;
    (void)waiting;
    w->looks++;
    return w->code ? fail(w->code, "watcher %d", w->code) : OK;
}
static void count_release(struct cuda_watch *watch) {
    ((struct watcher *)watch)->released++;
}

Test(cuda_wait, asks_all_who_watch_and_lets_all_go, .timeout = 30) {
    struct watcher w[3];
    stand_in_reset();
    struct device *d = open_one(0, 1);
    struct cuda_device *cuda = (struct cuda_device *)d;
    for (int i = 0; i < 3; i++) {
        w[i] = (struct watcher){.watch = {.look = look_on, .release = count_release}};
        cuda_watch_add(cuda, &w[i].watch);
    }
    MUST(stream_sync(device_compute(d)));
    for (int i = 0; i < 3; i++)
        cr_assert_eq(w[i].looks, 1, "watcher %d was asked %d times", i, w[i].looks);
    for (int i = 0; i < 3; i++) {
        w[i].code = ERR_PEER;
        cr_assert_eq(stream_sync(device_compute(d)), ERR_PEER, "watcher %d was not heard", i);
        w[i].code = OK;
    }
    cuda_watch_release(cuda);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(w[i].released, 1);
    /* from the middle, the end, the front; and one that is not there */
    cuda_watch_remove(cuda, &w[1].watch);
    cuda_watch_remove(cuda, &w[0].watch);
    cuda_watch_remove(cuda, &w[1].watch);
    w[0].code = w[1].code = w[2].code = ERR_PEER;
    cr_assert_eq(stream_sync(device_compute(d)), ERR_PEER);
    cuda_watch_remove(cuda, &w[2].watch);
    MUST(stream_sync(device_compute(d)));
    device_close(d);
    cr_assert_eq(stand_in_left(), 0);
}

Test(cuda_wait, pinned_memory_is_freed_behind_what_either_stream_does_with_it, .timeout = 30) {
    stand_in_reset();
    struct device *d = open_one(0, 1);
    struct stream *streams[] = {device_compute(d), device_comm(d)};
    float *x = test_floats(d, 4), *host;
    for (int i = 0; i < 2; i++) {
        MUST(device_host_alloc(d, (void **)&host, sizeof *host));
        int64_t begun = now_ns();
        gpu.work_ns = 200000000;
        MUST(copy_to_device(streams[i], x, host, sizeof *host));
        device_host_free(d, host);
        cr_assert_geq(now_ns() - begun, gpu.work_ns, "while stream %d read it", i);
        gpu.work_ns = 0;
    }
    device_close(d);
    cr_assert_eq(stand_in_left(), 0);
}

/* The way to a process's end has many waits: behind a deadline that has passed each is short,
 * until one ends well. */
Test(cuda_wait, those_behind_a_passed_deadline_are_short, .timeout = 30) {
    struct device_config config = config_of(0, 1);
    struct device *d;
    stand_in_reset();
    config.timeout_s = 3;
    MUST(device_open(&d, &config));
    struct stream *s = device_compute(d);
    float *x = test_floats(d, 4);
    gpu.work_ns = NEVER;
    MUST(test_fill(s, x, 4, 1));
    int64_t begun = now_ns();
    cr_assert_eq(stream_sync(s), ERR_TIMEOUT);
    cr_assert_geq(now_ns() - begun, 3000000000);
    begun = now_ns();
    cr_assert_eq(stream_sync(s), ERR_TIMEOUT);
    cr_assert_lt(now_ns() - begun, 2500000000, "the whole time anew");
    end_work(s);
    MUST(stream_sync(s));
    gpu.work_ns = 1300000000; /* longer than a short wait */
    MUST(test_fill(s, x, 4, 1));
    MUST(stream_sync(s));
    device_close(d);
    cr_assert_eq(stand_in_left(), 0);
}

Test(cuda_wait, close_gives_what_was_let_go_a_moment_to_end, .timeout = 30) {
    struct end_of_job job = {.end = 0};
    stand_in_reset();
    struct device *d = open_in(&job);
    float *x = test_floats(d, 4);
    int64_t begun = now_ns();
    gpu.work_ns = 300000000; /* of the second that there is */
    MUST(test_fill(device_comm(d), x, 4, 1));
    device_close(d);
    cr_assert_geq(now_ns() - begun, 300000000, "memory was given back while it was in use");
    cr_assert_eq(stand_in_left(), 0);
}

Test(cuda_wait, close_of_a_stuck_gpu_in_a_job_that_ended_takes_seconds_and_leaves_the_slab,
     .timeout = 30) {
    struct end_of_job job = {.end = 0};
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
    cr_assert_lt(now_ns() - begun, 10000000000, "of the 20 s of a wait");
    cr_assert_eq(gpu.memory, 1);
    cr_assert_eq(gpu.opened, 1, "a peer's memory that a kernel may write stays mapped");
    cr_assert_eq(gpu.math, 1, "a library's handle, whose end would wait for the GPU");
    cr_assert_eq(stand_in_left() - gpu.math, 2, "events and streams were given back");
}
#else
Test(cuda_wait, needs_the_headers_of_cuda, .timeout = 10) {
    cr_skip_test("no CUDA here: the files under test are not built");
}
#endif
