/* The emulated CUDA runtime: memory, events and values between two processes, a program each
 * (tests/cuda/helper_cuda_emulated.c). */
#include "tests/stand_ins/cuda_emulated.h"

#ifndef CUDA_EMULATION
ONLY_EMULATED(emulated_ipc)
#else
#include <cuda.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

/* The other process: this one writes to `in`, the other one to `out`. */
struct other {
    pid_t pid;
    int in, out;
};

static struct other begin(const char *word, const char *number) {
    static const char program[] = BUILD_DIR "/tests/cuda/helper_cuda_emulated";
    int in[2], out[2];
    cr_assert(pipe(in) == 0 && pipe(out) == 0);
    struct other o = {fork(), in[1], out[0]};
    if (o.pid == 0) {
        dup2(in[0], 0), dup2(out[1], 1);
        for (int fd = 3; fd < 64; fd++)
            close(fd);
        execl(program, program, word, number, (char *)NULL);
        _exit(127);
    }
    close(in[0]), close(out[1]);
    return o;
}

static void tell(const struct other *o, const void *from, size_t bytes) {
    cr_assert_eq(write(o->in, from, bytes), (ssize_t)bytes);
}

static void hear(const struct other *o, void *to, size_t bytes) {
    cr_assert_eq(read(o->out, to, bytes), (ssize_t)bytes, "the other process said nothing");
}

static int end(struct other *o) {
    int status = -1;
    close(o->in);
    waitpid(o->pid, &status, 0);
    close(o->out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static cudaIpcMemHandle_t handle_of(void *memory) {
    cudaIpcMemHandle_t handle;
    DONE(cudaIpcGetMemHandle(&handle, memory));
    return handle;
}

Test(emulated_ipc, memory_is_one_for_both, .timeout = 60) {
    int *x = device_ints(4, 0), seven = 7, seen;
    DONE(cudaMemcpy(x, &seven, sizeof seven, cudaMemcpyHostToDevice));
    cudaIpcMemHandle_t handle = handle_of(x);
    struct other o = begin("add", "35");
    tell(&o, &handle, sizeof handle);
    hear(&o, &seen, sizeof seen);
    cr_assert_eq(seen, 7);
    tell(&o, "g", 1);
    cr_assert_eq(end(&o), 0);
    cr_assert_eq(read_int(x), 42);
    cr_assert_eq(read_int(x + 1), 0);
}

Test(emulated_ipc, a_handle_opened_twice_is_mapped_once, .timeout = 60) {
    cudaIpcMemHandle_t handle = handle_of(device_ints(4, 0));
    struct other o = begin("twice", NULL);
    tell(&o, &handle, sizeof handle);
    cr_assert_eq(end(&o), 0);
}

Test(emulated_ipc, a_handle_has_one_owner_who_cannot_open_it, .timeout = 60) {
    int *x = device_ints(4, 0);
    void *memory;
    cudaIpcMemHandle_t handle = handle_of(x), broken = handle;
    broken.reserved[0] ^= 1;
    GIVES(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess),
          cudaErrorDeviceUninitialized);
    GIVES(cudaIpcOpenMemHandle(&memory, handle, 0), cudaErrorInvalidValue);
    GIVES(cudaIpcOpenMemHandle(&memory, broken, cudaIpcMemLazyEnablePeerAccess),
          cudaErrorInvalidValue);
    GIVES(cudaIpcGetMemHandle(&handle, &broken), cudaErrorInvalidValue);
    GIVES(cudaIpcCloseMemHandle(x), cudaErrorInvalidValue);
    cr_assert_str_eq(cudaGetErrorString(cudaErrorDeviceUninitialized), "invalid device context");
}

Test(emulated_ipc, who_is_gone_exports_nothing, .timeout = 60) {
    cudaIpcMemHandle_t handle;
    cudaIpcEventHandle_t event_handle;
    cudaEvent_t event;
    void *memory;
    char byte = 0;
    struct other o = begin("export", NULL);
    hear(&o, &handle, sizeof handle);
    hear(&o, &event_handle, sizeof event_handle);
    DONE(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
    DONE(cudaMemcpy(&byte, memory, 1, cudaMemcpyDeviceToHost));
    cr_assert_eq(byte, 5);
    DONE(cudaIpcCloseMemHandle(memory));
    cr_assert_eq(end(&o), 0);
    GIVES(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess),
          cudaErrorMapBufferObjectFailed);
    GIVES(cudaIpcOpenEventHandle(&event, event_handle), cudaErrorMapBufferObjectFailed);
}

Test(emulated_ipc, memory_that_was_freed_is_not_found, .timeout = 60) {
    void *x = device_ints(4, 0);
    cudaIpcMemHandle_t handle = handle_of(x);
    DONE(cudaFree(x));
    device_ints(4, 0); /* may take the number of the closed descriptor */
    struct other o = begin("open", NULL);
    tell(&o, &handle, sizeof handle);
    cr_assert_eq(end(&o), cudaErrorMapBufferObjectFailed);
}

Test(emulated_ipc, without_peer_access_a_gpu_is_alone, .timeout = 60) {
    setenv("EMULATED_GPUS", "2", 1);
    setenv("EMULATED_PEER", "0", 1);
    cudaIpcMemHandle_t handle = handle_of(device_ints(4, 0));
    struct other same = begin("open", NULL);
    tell(&same, &handle, sizeof handle);
    cr_assert_eq(end(&same), 0);
    setenv("CUDA_VISIBLE_DEVICES", "1",
           1); /* for the other process: this one has read it already */
    struct other o = begin("open", NULL);
    tell(&o, &handle, sizeof handle);
    cr_assert_eq(end(&o), cudaErrorPeerAccessUnsupported);
    setenv("EMULATED_PEER", "1", 1);
    o = begin("open", NULL);
    tell(&o, &handle, sizeof handle);
    cr_assert_eq(end(&o), 0);
}

Test(emulated_ipc, processes_of_one_machine_share_its_memory, .timeout = 60) {
    char name[32], said;
    size_t free_now, total;
    void *memory;
    snprintf(name, sizeof name, "test %d", (int)getpid());
    setenv("EMULATED_MACHINE", name, 1);
    setenv("EMULATED_GPU_MEMORY", "64M", 1);
    struct other o = begin("held", NULL);
    hear(&o, &said, 1);
    DONE(cudaMemGetInfo(&free_now, &total));
    cr_assert(free_now == 24 << 20 && total == 64 << 20, "%zu", free_now);
    GIVES(cudaMalloc(&memory, 26 << 20), cudaErrorMemoryAllocation);
    DONE(cudaMalloc(&memory, 22 << 20));
    GIVES(cudaMalloc(&memory, 4 << 20), cudaErrorMemoryAllocation);
    cr_assert_eq(end(&o), 0); /* its memory is free once it has ended */
    DONE(cudaMalloc(&memory, 40 << 20));
    DONE(cudaMemGetInfo(&free_now, &total));
    cr_assert_eq(free_now, 2 << 20);
}

Test(emulated_ipc, opening_may_be_made_to_fail, .timeout = 60) {
    setenv("EMULATED_CUDA_FAULT", "ipc:1", 1);
    cudaIpcMemHandle_t handle = handle_of(device_ints(4, 0));
    struct other o = begin("open", NULL);
    tell(&o, &handle, sizeof handle);
    cr_assert_eq(end(&o), cudaErrorMapBufferObjectFailed);
}

Test(emulated_ipc, a_stream_waits_for_another_processs_value, .timeout = 60) {
    CUresult (*wait_value)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
    void *address;
    int *x = device_ints(4, 0);
    cudaStream_t s = new_stream();
    cudaIpcMemHandle_t handle = handle_of(x);
    DONE(cudaGetDriverEntryPointByVersion("cuStreamWaitValue64", &address, 12000, 0, NULL));
    memcpy(&wait_value, &address, sizeof address);
    struct other o = begin("raise", "9");
    cr_assert_eq(wait_value(s, (CUdeviceptr)(uintptr_t)x, 9, CU_STREAM_WAIT_VALUE_GEQ),
                 CUDA_SUCCESS);
    tell(&o, &handle, sizeof handle);
    pause_us(20000);
    GIVES(cudaStreamQuery(s), cudaErrorNotReady);
    tell(&o, "g", 1);
    DONE(cudaStreamSynchronize(s));
    cr_assert_eq(read_int(x), 9);
    cr_assert_eq(end(&o), 0);
}

Test(emulated_ipc, an_event_is_waited_for_across_processes, .timeout = 60) {
    atomic_int open = 0;
    char said = 0;
    cudaIpcEventHandle_t handle;
    cudaEvent_t plain = test_event(cudaEventDisableTiming),
                e = test_event(cudaEventInterprocess | cudaEventDisableTiming);
    cudaStream_t s = new_stream();
    GIVES(cudaEventCreateWithFlags(&plain, cudaEventInterprocess), cudaErrorInvalidValue);
    GIVES(cudaIpcGetEventHandle(&handle, plain), cudaErrorInvalidResourceHandle);
    DONE(cudaIpcGetEventHandle(&handle, e));
    hold_stream(s, &open);
    DONE(cudaEventRecord(e, s));
    struct other o = begin("event", NULL);
    tell(&o, &handle, sizeof handle);
    cr_assert_eq(poll(&(struct pollfd){.fd = o.out, .events = POLLIN}, 1, 200), 0,
                 "it did not wait");
    GIVES(cudaEventQuery(e), cudaErrorNotReady);
    open = 1;
    hear(&o, &said, 1);
    cr_assert_eq(said, 'x');
    DONE(cudaEventQuery(e));
    cr_assert_eq(end(&o), 0);
}
#endif
