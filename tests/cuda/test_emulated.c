/* Tests the emulated CUDA runtime itself, briefly: nothing runs before its turn, an event orders
 * two streams, and failures occur where a test plants them. The tests that run on it show the
 * rest. */
#include "tests/stand_ins/cuda_emulated.h"

#ifndef CUDA_EMULATION
ONLY_EMULATED(emulated)
#else
#include <cuda.h>
#include <signal.h>
#include <sys/wait.h>

Test(emulated, a_parameter_is_taken_at_the_call, .timeout = 30) {
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

Test(emulated, work_is_done_later_and_in_order, .timeout = 30) {
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
    *pinned = 7; /* the copy reads the value that is there when it runs */
    open = 1;
    DONE(cudaStreamSynchronize(s));
    DONE(cudaStreamQuery(s));
    cr_assert_eq(result, 17);
    DONE(cudaFreeHost(pinned));
}

Test(emulated, a_wait_takes_the_record_of_its_moment, .timeout = 30) {
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

#ifdef __SANITIZE_THREAD__
/* The use of ThreadSanitizer here: two streams write to one memory, and it reports a race unless
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

Test(emulated, a_missing_wait_is_a_race_that_is_reported, .timeout = 60) {
    cr_assert_eq(two_streams_write(1), 0);
    cr_assert_eq(two_streams_write(0), 66);
}
#endif

static void leave(int signal) {
    _exit(40 + (signal == SIGSEGV));
}

static int look_at_device_memory(const char *guard) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        setenv("EMULATED_CUDA_GUARD", guard, 1);
        signal(SIGSEGV, leave);
        int *x = device_ints(1, 0), value = 0;
        DONE(cudaMemcpy(&value, x, 4, cudaMemcpyDeviceToHost)); /* the right direction */
        _exit(value == 0 && *(volatile int *)x == 0 ? 0 : 1);
    }
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

Test(emulated, a_guard_notices_the_host_in_device_memory, .timeout = 30) {
    cr_assert_eq(look_at_device_memory("1"), 41);
    cr_assert_eq(look_at_device_memory("0"), 0, "without it nobody would");
}

typedef CUresult value_function(CUstream, CUdeviceptr, cuuint64_t, unsigned);

static value_function *driver(const char *name) {
    enum cudaDriverEntryPointQueryResult found;
    value_function *function = NULL;
    void *address;
    DONE(cudaGetDriverEntryPointByVersion(name, &address, 12000, cudaEnableDefault, &found));
    cr_assert_eq(found, cudaDriverEntryPointSuccess);
    memcpy(&function, &address, sizeof address);
    return function;
}

Test(emulated, a_stream_waits_for_a_value, .timeout = 30) {
    value_function *write = driver("cuStreamWriteValue64"), *wait = driver("cuStreamWaitValue64");
    cudaStream_t a = new_stream(), b = new_stream();
    int *x = device_ints(4, 0);
    CUdeviceptr word = (CUdeviceptr)(uintptr_t)x;
    cr_assert_eq(wait(a, word, 5, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
    DONE(cudaMemsetAsync(x + 2, 1, 4, a));
    cr_assert_eq(write(b, word, 4, CU_STREAM_WRITE_VALUE_DEFAULT), CUDA_SUCCESS);
    DONE(cudaStreamSynchronize(b));
    pause_us(20000);
    GIVES(cudaStreamQuery(a), cudaErrorNotReady);
    cr_assert_eq(write(b, word, 6, CU_STREAM_WRITE_VALUE_DEFAULT), CUDA_SUCCESS);
    DONE(cudaStreamSynchronize(a));
    cr_assert_eq(read_int(x + 2), 0x01010101);
    cr_assert_eq(wait(a, word, (cuuint64_t)-3, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS,
                 "6 is beyond -3: the comparison is cyclic");
    DONE(cudaStreamSynchronize(a));
    cr_assert_eq(write(b, word + 4, 1, 0), CUDA_ERROR_INVALID_VALUE, "not on a multiple of 8");
    cr_assert_eq(write(b, (CUdeviceptr)(uintptr_t)&word, 1, 0), CUDA_ERROR_INVALID_VALUE,
                 "not CUDA's memory");
    cr_assert_eq(wait(a, word, 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_ERROR_NOT_SUPPORTED);
    enum cudaDriverEntryPointQueryResult found;
    void *address;
    DONE(cudaGetDriverEntryPointByVersion("cuNothing", &address, 12000, 0, &found));
    cr_assert(found == cudaDriverEntryPointSymbolNotFound && !address);
}

Test(emulated, a_fault_stays_with_its_gpu, .timeout = 30) {
    setenv("EMULATED_GPUS", "2", 1);
    setenv("EMULATED_CUDA_FAULT", "launch:3,malloc:4", 1);
    cudaStream_t s = new_stream();
    cudaEvent_t e = test_event(0);
    struct adding p = {device_ints(1, 0), 1};
    void *more;
    atomic_int open = 0;
    struct cudaFuncAttributes attributes;
    DONE(cudaFuncGetAttributes(&attributes, &add_kernel));
    hold_stream(s, &open);
    for (int i = 0; i < 3; i++)
        DONE(start(&add_kernel, 1, 1, &p, s));
    DONE(cudaEventRecord(e, s));
    open = 1;
    cudaError_t got = cudaStreamSynchronize(s);
    cr_assert_eq(got, cudaErrorIllegalAddress);
    cr_assert_eq(cudaGetLastError(), cudaErrorIllegalAddress);
    cr_assert_eq(cudaGetLastError(), cudaErrorIllegalAddress, "it stays");
    cr_assert_eq(cudaEventSynchronize(e), cudaErrorIllegalAddress);
    cr_assert_eq(cudaMalloc(&more, 1), cudaErrorIllegalAddress);
    cr_assert_eq(cudaStreamDestroy(s), cudaErrorIllegalAddress);
    DONE(cudaSetDevice(1));
    cr_assert_eq(cudaGetLastError(), cudaErrorIllegalAddress,
                 "the last error of this thread, once");
    DONE(cudaMalloc(&more, 1)); /* 2 */
    DONE(cudaMalloc(&more, 1)); /* 3 */
    GIVES(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
    DONE(cudaMalloc(&more, 1));
}

Test(emulated, a_kernel_may_never_end, .timeout = 30) {
    setenv("EMULATED_CUDA_FAULT", "hang:2", 1);
    cudaStream_t s = new_stream(), t = new_stream();
    struct adding p = {device_ints(1, 0), 1}, q = {device_ints(1, 0), 1};
    DONE(start(&add_kernel, 1, 1, &p, s));
    DONE(start(&add_kernel, 1, 1, &p, s));
    DONE(start(&add_kernel, 1, 1, &q, t));
    DONE(cudaStreamSynchronize(t));
    pause_us(50000);
    GIVES(cudaStreamQuery(s), cudaErrorNotReady);
}
#endif
