/* The emulated CUDA runtime: capture and graphs. What is captured is not run; what a capture
 * forbids invalidates it. */
#include "tests/stand_ins/cuda_emulated.h"

#ifndef CUDA_EMULATION
ONLY_EMULATED(emulated_graph)
#else
#include <pthread.h>

static void load_kernels(void) {
    struct cudaFuncAttributes attributes;
    DONE(cudaFuncGetAttributes(&attributes, &add_kernel));
    DONE(cudaFuncGetAttributes(&attributes, &hold_kernel));
}

static cudaGraphExec_t finish(cudaStream_t s) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    DONE(cudaStreamEndCapture(s, &graph));
    DONE(cudaGraphInstantiate(&exec, graph, 0));
    DONE(cudaGraphDestroy(graph));
    DONE(cudaGraphUpload(exec, s));
    return exec;
}

static enum cudaStreamCaptureStatus status_of(cudaStream_t s) {
    enum cudaStreamCaptureStatus status;
    DONE(cudaStreamIsCapturing(s, &status));
    return status;
}

Test(emulated_graph, what_is_captured_runs_at_each_launch, .timeout = 30) {
    cudaStream_t s = new_stream();
    int *x = device_ints(2, 0), *y = device_ints(1, 0);
    size_t nodes = 0;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    struct adding p = {x, 2};
    load_kernels();
    DONE(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    cr_assert_eq(status_of(s), cudaStreamCaptureStatusActive);
    DONE(start(&add_kernel, 1, 2, &p, s));
    p.add = 1000;
    DONE(cudaMemcpyAsync(y, x + 1, 4, cudaMemcpyDeviceToDevice, s));
    DONE(cudaMemsetAsync(x + 1, 0, 4, s));
    DONE(cudaStreamEndCapture(s, &graph));
    cr_assert_eq(status_of(s), cudaStreamCaptureStatusNone);
    DONE(cudaStreamQuery(s));
    cr_assert_eq(read_int(x), 0, "nothing has run");
    DONE(cudaGraphGetNodes(graph, NULL, &nodes));
    cr_assert_eq(nodes, 3);
    DONE(cudaGraphInstantiate(&exec, graph, 0));
    DONE(cudaGraphDestroy(graph));
    for (int i = 0; i < 3; i++)
        DONE(cudaGraphLaunch(exec, s));
    DONE(cudaStreamSynchronize(s));
    cr_assert_eq(read_int(x), 6);
    cr_assert_eq(read_int(x + 1), 0);
    cr_assert_eq(read_int(y), 2);
    DONE(cudaGraphExecDestroy(exec));
}

Test(emulated_graph, a_launch_marks_an_external_event_anew, .timeout = 30) {
    atomic_int open = 1;
    cudaStream_t s = new_stream(), other = new_stream();
    cudaEvent_t inside = test_event(cudaEventDisableTiming);
    struct held h = {&open};
    struct adding p = {device_ints(1, 0), 1};
    load_kernels();
    DONE(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    DONE(start(&add_kernel, 1, 1, &p, s));
    DONE(cudaEventRecordWithFlags(inside, s, cudaEventRecordExternal));
    DONE(start(&hold_kernel, 1, 1, &h, s));
    cudaGraphExec_t exec = finish(s);
    DONE(cudaEventQuery(inside)); /* the capture itself records nothing */
    DONE(cudaGraphLaunch(exec, s));
    DONE(cudaStreamSynchronize(s));
    DONE(cudaEventQuery(inside));
    open = 0;
    atomic_int before = 0;
    hold_stream(s, &before);
    DONE(cudaGraphLaunch(exec, s));
    GIVES(cudaEventQuery(inside), cudaErrorNotReady);
    DONE(cudaStreamWaitEvent(other, inside, 0));
    GIVES(cudaStreamQuery(other), cudaErrorNotReady);
    before = 1;
    DONE(cudaStreamSynchronize(other)); /* in the middle of the graph, whose end is held */
    GIVES(cudaStreamQuery(s), cudaErrorNotReady);
    open = 1;
    DONE(cudaStreamSynchronize(s));
    cr_assert_eq(read_int(p.at), 2);
    DONE(cudaGraphExecDestroy(exec));
}

/* A second stream takes part between two events. The branch runs as late as it may: behind what the
 * first stream does before it waits for it. */
Test(emulated_graph, a_branch_runs_where_the_streams_meet, .timeout = 30) {
    cudaStream_t s = new_stream(), side = new_stream();
    cudaEvent_t fork = test_event(cudaEventDisableTiming),
                join = test_event(cudaEventDisableTiming);
    int *x = device_ints(2, 0), *seen = x + 1;
    struct adding one = {x, 1}, ten = {x, 10};
    cudaGraph_t graph;
    load_kernels();
    for (int joined = 0; joined < 2; joined++) {
        DONE(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
        DONE(start(&add_kernel, 1, 1, &one, s));
        DONE(cudaEventRecord(fork, s));
        DONE(cudaStreamWaitEvent(side, fork, 0));
        DONE(cudaMemcpyAsync(seen, x, sizeof *x, cudaMemcpyDeviceToDevice, side));
        DONE(start(&add_kernel, 1, 1, &ten, s));
        if (!joined) {
            GIVES(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureUnjoined);
            continue;
        }
        DONE(cudaEventRecord(join, side));
        DONE(cudaStreamWaitEvent(s, join, 0));
        DONE(start(&add_kernel, 1, 1, &ten, s));
        cudaGraphExec_t exec = finish(s);
        cr_assert_eq(status_of(side), cudaStreamCaptureStatusNone);
        DONE(cudaGraphLaunch(exec, s));
        DONE(cudaStreamSynchronize(s));
        cr_assert_eq(read_int(x), 21);
        cr_assert_eq(read_int(seen), 11, "between the two tens");
        DONE(cudaGraphExecDestroy(exec));
    }
}

/* Each of these calls is refused with `code` and ends the capture; the stream is then as before. */
static void refuse_all(cudaStream_t s, int *x) {
    cudaStream_t other = new_stream();
    cudaEvent_t e = test_event(cudaEventDisableTiming);
    void *memory;
    char plain[4] = {0};
    struct adding p = {x, 1};
    for (int i = 0; i < 12; i++) {
        cudaGraph_t graph = (cudaGraph_t)1;
        cudaError_t want = cudaErrorStreamCaptureUnsupported, got = cudaSuccess;
        DONE(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
        DONE(start(&add_kernel, 1, 1, &p, s));
        switch (i) {
        case 0: got = cudaStreamSynchronize(s); break;
        case 1: got = cudaStreamQuery(s); break;
        case 2: got = cudaMalloc(&memory, 4); break;
        case 3: got = cudaEventQuery(e); break;
        case 4: got = cudaEventSynchronize(e); break;
        case 5: got = cudaMemcpy(plain, x, 4, cudaMemcpyDeviceToHost); break;
        case 6: got = cudaDeviceSynchronize(); break;
        case 7: got = cudaMemcpyAsync(plain, x, 4, cudaMemcpyDeviceToHost, s); break;
        case 8: got = cudaHostAlloc(&memory, 4, 0); break;
        case 9: got = cudaStreamQuery(other); break;
        case 10: got = cudaFree(x); break;
        case 11: got = cudaStreamWaitEvent(s, e, 0), want = cudaErrorStreamCaptureIsolation; break;
        }
        cr_assert_eq(got, want, "call %d: %s", i, cudaGetErrorName(got));
        cr_assert_eq(status_of(s), cudaStreamCaptureStatusInvalidated, "call %d", i);
        cr_assert_eq(start(&add_kernel, 1, 1, &p, s), cudaErrorStreamCaptureInvalidated, "call %d",
                     i);
        cr_assert_eq(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated, "call %d",
                     i);
        cr_assert_null(graph);
        cudaGetLastError();
        DONE(cudaStreamQuery(s));
        cr_assert_eq(read_int(x), 0);
    }
}

Test(emulated_graph, what_a_capture_forbids_ends_it, .timeout = 30) {
    int *x = device_ints(1, 0);
    load_kernels();
    refuse_all(new_stream(), x);
    GIVES(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeThreadLocal),
          cudaErrorStreamCaptureUnsupported);
    cudaGraph_t graph;
    GIVES(cudaStreamEndCapture(new_stream(), &graph), cudaErrorIllegalState);
}

static void *in_another_thread(void *argument) {
    cudaStream_t capturing = argument;
    cudaGraph_t graph;
    void *memory;
    DONE(cudaMalloc(&memory, 4)); /* thread-local: other threads go on */
    DONE(cudaFree(memory));
    GIVES(cudaStreamEndCapture(capturing, &graph), cudaErrorStreamCaptureWrongThread);
    return NULL;
}

Test(emulated_graph, other_threads_are_free_but_may_not_end_it, .timeout = 30) {
    cudaStream_t s = new_stream();
    cudaGraph_t graph;
    pthread_t thread;
    DONE(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    cr_assert_eq(pthread_create(&thread, NULL, in_another_thread, s), 0);
    pthread_join(thread, NULL);
    GIVES(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
    DONE(cudaStreamQuery(s));
}

Test(emulated_graph, an_event_of_a_capture_is_no_event_of_the_stream, .timeout = 30) {
    cudaStream_t s = new_stream();
    cudaEvent_t e = test_event(cudaEventDisableTiming);
    DONE(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    DONE(cudaEventRecord(e, s));
    DONE(cudaStreamWaitEvent(s, e, 0));
    cudaGraphExec_t exec = finish(s);
    GIVES(cudaEventQuery(e), cudaErrorCapturedEvent);
    DONE(cudaGraphLaunch(exec, s));
    GIVES(cudaEventQuery(e), cudaErrorCapturedEvent);
    DONE(cudaEventRecord(e, s));
    DONE(cudaEventSynchronize(e));
    GIVES(cudaEventRecordWithFlags(e, s, cudaEventRecordExternal), cudaErrorInvalidValue);
    DONE(cudaGraphExecDestroy(exec));
}

struct counted {
    atomic_int *runs;
};
static void count_run(const struct counted *p) {
    ++*p->runs;
}
KERNEL(count_run, struct counted);

Test(emulated_graph, launches_of_one_graph_never_overlap, .timeout = 30) {
    atomic_int open = 0, runs = 0;
    cudaStream_t a = new_stream(), b = new_stream();
    struct held h = {&open};
    struct counted p = {&runs};
    load_kernels();
    DONE(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    DONE(start(&count_run_kernel, 1, 1, &p, a));
    DONE(start(&hold_kernel, 1, 1, &h, a));
    cudaGraphExec_t exec = finish(a);
    DONE(cudaGraphLaunch(exec, a));
    DONE(cudaGraphLaunch(exec, b));
    DONE(cudaGraphExecDestroy(exec)); /* what was launched is still run */
    while (!runs)
        pause_us(100);
    pause_us(20000);
    cr_assert_eq(runs, 1);
    open = 1;
    DONE(cudaStreamSynchronize(b));
    cr_assert_eq(runs, 2);
}
#endif
