/* The emulated CUDA runtime: memory, copies, values that streams wait for, GPUs, and failures
 * that a test may order. */
#include "tests/stand_ins/cuda_emulated.h"

#ifndef CUDA_EMULATION
ONLY_EMULATED(emulated_memory)
#else
#include <cuda.h>
#include <signal.h>
#include <sys/wait.h>

/* ---- memory ---- */

Test(emulated_memory, a_gpu_has_as_much_as_was_said, .timeout = 30) {
    setenv("EMULATED_GPU_MEMORY", "64M", 1);
    void *a, *b, *c;
    size_t free_now, total;
    DONE(cudaMalloc(&a, 40 << 20));
    DONE(cudaMemGetInfo(&free_now, &total));
    cr_assert_eq(total, 64u << 20);
    cr_assert_eq(free_now, 24u << 20);
    GIVES(cudaMalloc(&b, (24 << 20) + 1), cudaErrorMemoryAllocation);
    cr_assert_null(b);
    GIVES(cudaMalloc(&b, SIZE_MAX), cudaErrorMemoryAllocation);
    DONE(cudaMalloc(&b, 24 << 20));
    GIVES(cudaMalloc(&c, 1), cudaErrorMemoryAllocation);
    DONE(cudaFree(a));
    DONE(cudaMalloc(&c, 40 << 20));
    cr_assert_eq((uintptr_t)c % (2 << 20), 0);
    GIVES(cudaFree((char *)b + 256), cudaErrorInvalidValue);
    DONE(cudaFree(b));
    GIVES(cudaFree(b), cudaErrorInvalidValue);
    DONE(cudaFree(c));
    DONE(cudaFree(NULL));
}

static void *open_later(void *argument) {
    pause_us(100000);
    *(atomic_int *)argument = 1;
    return NULL;
}

Test(emulated_memory, free_waits_for_queued_work, .timeout = 30) {
    atomic_int open = 0;
    pthread_t thread;
    cudaStream_t s = new_stream();
    int *x = device_ints(1 << 20, 0);
    hold_stream(s, &open);
    DONE(cudaMemsetAsync(x, 1, 4 << 20, s));
    cr_assert_eq(pthread_create(&thread, NULL, open_later, &open), 0);
    DONE(cudaFree(x));
    cr_assert_eq(open, 1);
    DONE(cudaStreamQuery(s));
    pthread_join(thread, NULL);
}

Test(emulated_memory, copies_know_what_lies_where, .timeout = 30) {
    cudaStream_t s = new_stream();
    int *x = device_ints(4, 0), *pinned, plain[4] = {1, 2, 3, 4}, other[4];
    DONE(cudaHostAlloc((void **)&pinned, 16, cudaHostAllocPortable | cudaHostAllocMapped));
    DONE(cudaMemcpyAsync(x, plain, 16, cudaMemcpyHostToDevice, s));
    DONE(cudaMemcpyAsync(pinned, x, 16, cudaMemcpyDeviceToHost, s));
    DONE(cudaMemcpyAsync(other, x, 16, cudaMemcpyDefault, s));
    DONE(cudaStreamSynchronize(s));
    cr_assert_eq(pinned[3], 4);
    cr_assert_eq(other[0], 1);
    GIVES(cudaMemcpyAsync(pinned, plain, 16, cudaMemcpyHostToDevice, s), cudaErrorInvalidValue);
    GIVES(cudaMemcpyAsync(plain, pinned, 16, cudaMemcpyDeviceToHost, s), cudaErrorInvalidValue);
    GIVES(cudaMemcpyAsync(x, plain, 16, cudaMemcpyDeviceToDevice, s), cudaErrorInvalidValue);
    GIVES(cudaMemcpyAsync(x, plain, 20, cudaMemcpyHostToDevice, s), cudaErrorInvalidValue);
    GIVES(cudaMemcpyAsync(x + 3, plain, 8, cudaMemcpyHostToDevice, s), cudaErrorInvalidValue);
    GIVES(cudaMemcpyAsync(x, pinned, 20, cudaMemcpyHostToDevice, s), cudaErrorInvalidValue);
    GIVES(cudaMemcpyAsync(x + 3, plain, 8, cudaMemcpyDefault, s), cudaErrorInvalidValue);
    GIVES(cudaMemsetAsync(x + 3, 0, 5, s), cudaErrorInvalidValue);
    GIVES(cudaMemsetAsync(plain, 0, 4, s), cudaErrorInvalidValue);
    GIVES(cudaMemcpyAsync(x, plain, 4, (enum cudaMemcpyKind)9, s), cudaErrorInvalidMemcpyDirection);
    DONE(cudaFree(x));
    GIVES(cudaMemcpyAsync(x, plain, 4, cudaMemcpyHostToDevice, s), cudaErrorInvalidValue);
    DONE(cudaFreeHost(pinned));
    GIVES(cudaFreeHost(pinned), cudaErrorInvalidValue);
}

Test(emulated_memory, host_memory_is_known_once_registered, .timeout = 30) {
    struct cudaPointerAttributes a;
    static char memory[8192];
    void *device;
    DONE(cudaPointerGetAttributes(&a, memory));
    cr_assert_eq(a.type, cudaMemoryTypeUnregistered);
    GIVES(cudaHostGetDevicePointer(&device, memory, 0), cudaErrorInvalidValue);
    DONE(cudaHostRegister(memory, sizeof memory, cudaHostRegisterMapped));
    GIVES(cudaHostRegister(memory + 4096, 4096, 0), cudaErrorHostMemoryAlreadyRegistered);
    DONE(cudaPointerGetAttributes(&a, memory + 100));
    cr_assert_eq(a.type, cudaMemoryTypeHost);
    DONE(cudaHostGetDevicePointer(&device, memory, 0));
    cr_assert_eq(device, (void *)memory);
    DONE(cudaHostUnregister(memory));
    GIVES(cudaHostUnregister(memory), cudaErrorHostMemoryNotRegistered);
    int *x = device_ints(2, 0);
    DONE(cudaPointerGetAttributes(&a, x + 1));
    cr_assert_eq(a.type, cudaMemoryTypeDevice);
    cr_assert_eq(a.device, 0);
}

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

Test(emulated_memory, a_guard_notices_the_host_in_device_memory, .timeout = 30) {
    cr_assert_eq(look_at_device_memory("1"), 41);
    cr_assert_eq(look_at_device_memory("0"), 0, "without it nobody would");
}

/* ---- values ---- */

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

Test(emulated_memory, a_stream_waits_for_a_value, .timeout = 30) {
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

/* ---- GPUs ---- */

Test(emulated_memory, gpus_are_told_apart_and_hidden_by_number, .timeout = 30) {
    struct cudaDeviceProp p, q;
    int count, can;
    setenv("EMULATED_GPUS", "4", 1);
    setenv("CUDA_VISIBLE_DEVICES", "2,0,9,1", 1);
    DONE(cudaGetDeviceCount(&count));
    cr_assert_eq(count, 2, "up to the first that is not there");
    DONE(cudaGetDeviceProperties(&p, 0));
    DONE(cudaGetDeviceProperties(&q, 1));
    cr_assert_eq(p.uuid.bytes[15], 2);
    cr_assert_eq(q.uuid.bytes[15], 0);
    cr_assert_str_eq(p.name, "emulated GPU (no hardware)");
    GIVES(cudaSetDevice(2), cudaErrorInvalidDevice);
    DONE(cudaDeviceCanAccessPeer(&can, 0, 1));
    cr_assert_eq(can, 1);
    DONE(cudaDeviceEnablePeerAccess(1, 0));
    GIVES(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    GIVES(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
    cudaStream_t s = new_stream();
    int *x = device_ints(1, 1);
    DONE(cudaSetDevice(1));
    int *y = device_ints(1, 0);
    DONE(cudaMemcpyPeerAsync(y, 1, x, 0, 4, s));
    DONE(cudaStreamSynchronize(s));
    cr_assert_eq(read_int(y), 0x01010101);
    struct adding a = {y, 1};
    GIVES(start(&add_kernel, 1, 1, &a, s), cudaErrorInvalidResourceHandle);
    GIVES(cudaEventRecord(test_event(0), s), cudaErrorInvalidResourceHandle);
}

/* ---- failures on demand ---- */

Test(emulated_memory, a_fault_stays_with_its_gpu, .timeout = 30) {
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

Test(emulated_memory, a_fault_may_be_of_one_rank_alone, .timeout = 30) {
    void *memory;
    setenv("EMULATED_CUDA_FAULT", "malloc:1@1,malloc:2@0", 1);
    setenv("RANK", "0", 1);
    DONE(cudaMalloc(&memory, 1));
    GIVES(cudaMalloc(&memory, 1), cudaErrorMemoryAllocation);
}

Test(emulated_memory, a_kernel_may_never_end, .timeout = 30) {
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

static void refused(const char *fault, cudaError_t error, int version) {
    int count = 9, driver = -1;
    setenv("EMULATED_CUDA_FAULT", fault, 1);
    GIVES(cudaGetDeviceCount(&count), error);
    cr_assert_eq(count, 0);
    DONE(cudaDriverGetVersion(&driver));
    cr_assert_eq(driver, version);
}

Test(emulated_memory, there_may_be_no_driver_or_an_old_one_or_no_gpu, .timeout = 30) {
    refused("driver:none", cudaErrorInsufficientDriver, 0);
    refused("driver:old", cudaErrorInsufficientDriver, 11040);
    setenv("EMULATED_CUDA_FAULT", "", 1);
    pid_t child = fork(); /* CUDA was called in this process, so it does not work in a fork of it */
    int status = -1, count;
    if (child == 0) _exit(cudaGetDeviceCount(&count) == cudaErrorInitializationError ? 0 : 1);
    waitpid(child, &status, 0);
    cr_assert_eq(status, 0);
}

Test(emulated_memory, a_machine_may_have_no_gpu, .timeout = 30) {
    setenv("EMULATED_GPUS", "0", 1);
    int count = 9;
    GIVES(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    GIVES(cudaSetDevice(0), cudaErrorNoDevice);
}
#endif
