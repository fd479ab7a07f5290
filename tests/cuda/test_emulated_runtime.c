/* The emulated CUDA runtime: launches, streams, events, memory. It has to behave as CUDA documents,
 * first of all where a program could otherwise get away with a mistake: nothing happens before its
 * turn. */
#include "tests/stand_ins/cuda_emulated.h"

#ifndef CUDA_EMULATION
ONLY_EMULATED(emulated_runtime)
#else
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

/* ---- launches ---- */

struct counting {
    atomic_int *runs;
    int *wrong;
};
static void count_places(const struct counting *p) {
    struct emulated_place h = emulated_here;
    unsigned block = (h.block.z * h.grid.y + h.block.y) * h.grid.x + h.block.x;
    unsigned thread = (h.thread.z * h.threads.y + h.thread.y) * h.threads.x + h.thread.x;
    if (h.grid.x != 3 || h.grid.y != 2 || h.grid.z != 2 || h.threads.x != 4 || h.threads.y != 3 ||
        h.threads.z != 2)
        *p->wrong = 1;
    atomic_fetch_add(&p->runs[block * 24 + thread], 1);
}
KERNEL(count_places, struct counting);

Test(emulated_runtime, a_kernel_runs_once_for_each_thread_of_each_block, .timeout = 30) {
    atomic_int runs[12 * 24] = {0};
    int wrong = 0;
    struct counting p = {runs, &wrong};
    void *params[1] = {&p};
    cudaStream_t s = new_stream();
    DONE(cudaLaunchKernel(&count_places_kernel, (dim3){3, 2, 2}, (dim3){4, 3, 2}, params, 0, s));
    DONE(cudaStreamSynchronize(s));
    for (int i = 0; i < 12 * 24; i++)
        cr_assert_eq(runs[i], 1, "thread %d ran %d times", i, runs[i]);
    cr_assert_eq(wrong, 0);
}

static void count_blocks(const struct counting *p) {
    emulated_here.block_kernel = 1; /* what DUET_BLOCK_KERNEL does */
    atomic_fetch_add(&p->runs[emulated_here.block.x], 1);
}
KERNEL(count_blocks, struct counting);

Test(emulated_runtime, a_kernel_in_phases_runs_once_for_each_block, .timeout = 30) {
    atomic_int runs[5] = {0};
    struct counting p = {runs, NULL};
    cudaStream_t s = new_stream();
    DONE(start(&count_blocks_kernel, 5, 256, &p, s));
    DONE(cudaStreamSynchronize(s));
    for (int i = 0; i < 5; i++)
        cr_assert_eq(runs[i], 1);
}

Test(emulated_runtime, a_parameter_is_taken_at_the_call, .timeout = 30) {
    atomic_int open = 0;
    cudaStream_t s = new_stream();
    int *x = device_ints(8, 0);
    struct adding p = {x, 5};
    hold_stream(s, &open);
    struct cudaFuncAttributes attributes;
    DONE(cudaFuncGetAttributes(&attributes, &add_kernel));
    DONE(start(&add_kernel, 2, 4, &p, s));
    p.add = 1000, p.at = NULL;
    open = 1;
    DONE(cudaStreamSynchronize(s));
    for (int i = 0; i < 8; i++)
        cr_assert_eq(read_int(x + i), 5);
}

Test(emulated_runtime, what_a_launch_refuses, .timeout = 30) {
    struct adding p = {device_ints(1, 0), 1};
    void *params[1] = {&p};
    cudaStream_t s = new_stream();
    GIVES(start(&add_kernel, 0, 1, &p, s), cudaErrorInvalidConfiguration);
    GIVES(start(&add_kernel, 1, 0, &p, s), cudaErrorInvalidConfiguration);
    GIVES(start(&add_kernel, 1, 1025, &p, s), cudaErrorInvalidConfiguration);
    GIVES(cudaLaunchKernel(&add_kernel, (dim3){1, 65536, 1}, (dim3){1, 1, 1}, params, 0, s),
          cudaErrorInvalidConfiguration);
    GIVES(cudaLaunchKernel(&add_kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, params, 1 << 20, s),
          cudaErrorInvalidValue);
    GIVES(cudaLaunchKernel(&add_kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, s),
          cudaErrorInvalidValue);
    void (*function)(const struct adding *) = add;
    const void *address;
    memcpy(&address, &function, sizeof address);
    GIVES(cudaLaunchKernel(address, (dim3){1, 1, 1}, (dim3){1, 1, 1}, params, 0, s),
          cudaErrorInvalidDeviceFunction);
    DONE(cudaStreamSynchronize(s));
    cr_assert_eq(read_int(p.at), 0);
}

/* A kernel that is loaded late waits for all that is queued. In Duet that would be a deadlock
 * behind a kernel that waits for a peer. */
static void *open_later(void *argument) {
    pause_us(100000);
    *(atomic_int *)argument = 1;
    return NULL;
}

Test(emulated_runtime, the_first_launch_of_a_kernel_not_loaded_waits_for_the_gpu, .timeout = 30) {
    atomic_int open = 0;
    pthread_t thread;
    cudaStream_t a = new_stream(), b = new_stream();
    struct adding p = {device_ints(1, 0), 1};
    hold_stream(a, &open);
    cr_assert_eq(pthread_create(&thread, NULL, open_later, &open), 0);
    DONE(start(&add_kernel, 1, 1, &p, b));
    cr_assert_eq(open, 1, "it did not wait for the other stream");
    DONE(cudaStreamQuery(a));
    pthread_join(thread, NULL);
    open = 0;
    hold_stream(a, &open);
    DONE(start(&add_kernel, 1, 1, &p, b)); /* it is loaded, so it runs at once */
    GIVES(cudaStreamQuery(a), cudaErrorNotReady);
    open = 1;
    DONE(cudaDeviceSynchronize());
    cr_assert_eq(read_int(p.at), 2);
}

/* ---- cooperative ---- */

struct meeting {
    atomic_int *here;
};
static void meet(const struct meeting *p) {
    emulated_here.block_kernel = 1;
    atomic_fetch_add(p->here, 1);
    while (*p->here < (int)emulated_here.grid.x)
        pause_us(50);
}
KERNEL(meet, struct meeting);

Test(emulated_runtime, blocks_of_a_cooperative_launch_are_there_at_once, .timeout = 60) {
    atomic_int here = 0;
    struct meeting p = {&here};
    void *params[1] = {&p};
    int most = 0, blocks = test_short() ? 16 : 132;
    cudaStream_t s = new_stream();
    DONE(cudaLaunchCooperativeKernel(&meet_kernel, (dim3){(unsigned)blocks, 1, 1},
                                     (dim3){128, 1, 1}, params, 0, s));
    DONE(cudaStreamSynchronize(s));
    cr_assert_eq(here, blocks);
    DONE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&most, &meet_kernel, 512, 0));
    cr_assert_eq(most, 4);
    GIVES(cudaLaunchCooperativeKernel(&meet_kernel, (dim3){132 * 4 + 1, 1, 1}, (dim3){512, 1, 1},
                                      params, 0, s),
          cudaErrorCooperativeLaunchTooLarge);
}

/* ---- streams ---- */

Test(emulated_runtime, work_is_done_later_and_in_order, .timeout = 30) {
    atomic_int open = 0;
    cudaStream_t s = new_stream();
    int *x = device_ints(1, 0), *pinned, result = 0;
    DONE(cudaMallocHost((void **)&pinned, sizeof *pinned));
    *pinned = 1;
    hold_stream(s, &open);
    DONE(cudaMemcpyAsync(x, pinned, sizeof *pinned, cudaMemcpyHostToDevice, s));
    struct adding p = {x, 10};
    struct cudaFuncAttributes attributes;
    DONE(cudaFuncGetAttributes(&attributes, &add_kernel));
    DONE(start(&add_kernel, 1, 1, &p, s));
    DONE(cudaMemcpyAsync(&result, x, sizeof result, cudaMemcpyDeviceToHost, s));
    GIVES(cudaStreamQuery(s), cudaErrorNotReady);
    *pinned = 7; /* the copy reads what is there when its turn comes */
    open = 1;
    DONE(cudaStreamSynchronize(s));
    DONE(cudaStreamQuery(s));
    cr_assert_eq(result, 17);
    DONE(cudaFreeHost(pinned));
}

Test(emulated_runtime, a_late_stream_shows_a_missing_wait, .timeout = 30) {
    setenv("EMULATED_CUDA_LATE_US", "100000", 1);
    cudaStream_t s = new_stream();
    int *pinned;
    DONE(cudaMallocHost((void **)&pinned, sizeof *pinned));
    *pinned = 1;
    struct adding p = {pinned, 1};
    DONE(start(&add_kernel, 1, 1, &p, s));
    GIVES(cudaStreamQuery(s), cudaErrorNotReady);
    DONE(cudaStreamSynchronize(s));
    cr_assert_eq(*pinned, 2);
}

/* As on a GPU, a thread that runs far ahead of a stream that stands still waits in a launch. */
static void *run_ahead(void *argument) {
    cudaStream_t s = argument;
    cudaEvent_t e = test_event(cudaEventDisableTiming);
    for (int i = 0; i < 8; i++)
        DONE(cudaEventRecord(e, s));
    return NULL;
}

Test(emulated_runtime, a_queue_has_an_end, .timeout = 30) {
    setenv("EMULATED_CUDA_QUEUE", "8", 1);
    atomic_int open = 0;
    pthread_t thread;
    struct timespec soon;
    cudaStream_t s = new_stream();
    hold_stream(s, &open);
    cr_assert_eq(pthread_create(&thread, NULL, run_ahead, s), 0);
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_sec++;
    cr_assert_eq(pthread_timedjoin_np(thread, NULL, &soon), ETIMEDOUT,
                 "nine items in a queue of eight");
    open = 1;
    cr_assert_eq(pthread_join(thread, NULL), 0);
    DONE(cudaStreamSynchronize(s));
}

Test(emulated_runtime, a_stream_destroyed_ends_its_work_first, .timeout = 30) {
    atomic_int open = 0;
    cudaStream_t s = new_stream();
    struct adding p = {device_ints(1, 0), 3};
    DONE(start(&add_kernel, 1, 1, &p, s));
    hold_stream(s, &open);
    DONE(start(&add_kernel, 1, 1, &p, s));
    DONE(cudaStreamDestroy(s));
    GIVES(cudaStreamDestroy(s), cudaErrorInvalidResourceHandle);
    GIVES(cudaStreamQuery(s), cudaErrorInvalidResourceHandle);
    GIVES(start(&add_kernel, 1, 1, &p, s), cudaErrorInvalidResourceHandle);
    open = 1;
    DONE(cudaFree(NULL));
    DONE(cudaDeviceSynchronize());
    cr_assert_eq(read_int(p.at), 6);
}

static void call_cuda(void *data) {
    *(cudaError_t *)data = cudaStreamQuery(NULL);
}

Test(emulated_runtime, a_host_function_has_its_turn_and_may_not_call_cuda, .timeout = 30) {
    cudaError_t got = cudaSuccess;
    atomic_int open = 0;
    cudaStream_t s = new_stream();
    hold_stream(s, &open);
    DONE(cudaLaunchHostFunc(s, call_cuda, &got));
    GIVES(cudaStreamQuery(s), cudaErrorNotReady);
    open = 1;
    DONE(cudaStreamSynchronize(s));
    cr_assert_eq(got, cudaErrorNotPermitted);
}

/* ---- events ---- */

Test(emulated_runtime, a_wait_takes_the_record_of_its_moment, .timeout = 30) {
    atomic_int first = 0, second = 0;
    cudaStream_t a = new_stream(), b = new_stream(), c = new_stream();
    cudaEvent_t e = test_event(cudaEventDisableTiming), never = test_event(cudaEventDefault);
    DONE(cudaEventQuery(never));
    DONE(cudaStreamWaitEvent(c, never, 0));
    DONE(cudaStreamSynchronize(c));
    hold_stream(a, &first);
    DONE(cudaEventRecord(e, a));
    DONE(cudaStreamWaitEvent(b, e, 0));
    hold_stream(a, &second);
    DONE(cudaEventRecord(e, a));
    DONE(cudaStreamWaitEvent(c, e, 0));
    GIVES(cudaStreamQuery(b), cudaErrorNotReady);
    first = 1;
    DONE(
        cudaStreamSynchronize(b)); /* waits for the first record, though there is a second by now */
    GIVES(cudaStreamQuery(c), cudaErrorNotReady);
    GIVES(cudaEventQuery(e), cudaErrorNotReady);
    second = 1;
    DONE(cudaStreamSynchronize(c));
    DONE(cudaEventQuery(e));
}

Test(emulated_runtime, an_event_may_go_while_it_is_waited_for, .timeout = 30) {
    atomic_int open = 0;
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t e = test_event(cudaEventDisableTiming);
    hold_stream(a, &open);
    DONE(cudaEventRecord(e, a));
    DONE(cudaStreamWaitEvent(b, e, 0));
    DONE(cudaEventDestroy(e));
    GIVES(cudaEventDestroy(e), cudaErrorInvalidResourceHandle);
    GIVES(cudaEventRecord(e, a), cudaErrorInvalidResourceHandle);
    GIVES(cudaStreamQuery(b), cudaErrorNotReady);
    open = 1;
    DONE(cudaStreamSynchronize(b));
}

#ifdef __SANITIZE_THREAD__
/* What ThreadSanitizer is for here: two streams write to one memory, and it reports a race unless
 * an event is between them. */
static int two_streams_write(int with_event) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        struct adding p = {device_ints(1, 0), 1};
        cudaStream_t a = new_stream(), b = new_stream();
        cudaEvent_t e = test_event(cudaEventDisableTiming);
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        DONE(start(&add_kernel, 1, 1, &p, a));
        DONE(cudaEventRecord(e, a));
        if (with_event) DONE(cudaStreamWaitEvent(b, e, 0));
        DONE(start(&add_kernel, 1, 1, &p, b));
        DONE(cudaDeviceSynchronize());
        _exit(0);
    }
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

Test(emulated_runtime, a_missing_wait_is_a_race_that_is_reported, .timeout = 60) {
    cr_assert_eq(two_streams_write(1), 0);
    cr_assert_eq(two_streams_write(0), 66);
}
#endif

Test(emulated_runtime, times_are_of_the_stream_not_of_the_caller, .timeout = 30) {
    atomic_int open = 0;
    float ms = -1;
    cudaStream_t s = new_stream();
    cudaEvent_t a = test_event(cudaEventDefault), b = test_event(cudaEventDefault),
                untimed = test_event(cudaEventDisableTiming);
    GIVES(cudaEventElapsedTime(&ms, a, b), cudaErrorInvalidResourceHandle);
    DONE(cudaEventRecord(a, s));
    hold_stream(s, &open);
    DONE(cudaEventRecord(b, s));
    DONE(cudaEventRecord(untimed, s));
    DONE(cudaEventSynchronize(a));
    GIVES(cudaEventElapsedTime(&ms, a, b), cudaErrorNotReady);
    pause_us(30000);
    open = 1;
    DONE(cudaEventSynchronize(b));
    DONE(cudaEventElapsedTime(&ms, a, b));
    cr_assert(ms >= 30 && ms < 20000, "%g ms", (double)ms);
    DONE(cudaEventElapsedTime(&ms, b, a));
    cr_assert_leq(ms, -30);
    DONE(cudaStreamSynchronize(s));
    GIVES(cudaEventElapsedTime(&ms, a, untimed), cudaErrorInvalidResourceHandle);
}
#endif
