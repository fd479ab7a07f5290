/* The other process of the IPC tests: tests/cuda/test_emulated_ipc.c starts it by fork and exec,
 * with a pipe for stdin and one for stdout. Its first argument says what it does. It ends with
 * status 0, or with the CUDA error that stopped it.
 *
 *   export    allocates 4 MiB, whose first byte is 5, and an event; writes both handles; ends when
 *             stdin ends
 *   add N     reads a handle of ints; adds N to the first; writes the value; waits for a byte
 *   twice     opens the same handle two times: one address, closed when both are
 *   open      reads a handle and opens it
 *   raise N   reads a handle of flags; after a byte on stdin a stream writes N to the first
 *   held      takes 40 MiB of memory, writes 'x', and keeps the memory until stdin ends
 *   event     reads an event's handle; a stream of its own waits for it, then writes 'x' to
 * stdout */
#include "tests/harness/harness.h"

#ifndef CUDA_EMULATION
int main(void) {
    return 2;
}
#else
#include <cuda.h>
#include <unistd.h>

#include "tests/stand_ins/cuda_emulation/emulation.h"

#define MUST_DO(call)                                       \
    do {                                                    \
        cudaError_t error_ = (call);                        \
        if (error_ != cudaSuccess) exit((int)error_ % 256); \
    } while (0)

static void get(void *to, size_t bytes) {
    if (read(0, to, bytes) != (ssize_t)bytes) exit(250);
}

static void put(const void *from, size_t bytes) {
    if (write(1, from, bytes) != (ssize_t)bytes) exit(251);
}

static void *open_handle(void) {
    cudaIpcMemHandle_t handle;
    void *memory;
    get(&handle, sizeof handle);
    MUST_DO(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
    return memory;
}

static void export_all(void) {
    cudaIpcMemHandle_t memory_handle;
    cudaIpcEventHandle_t event_handle;
    cudaEvent_t event;
    void *memory;
    char end;
    MUST_DO(cudaMalloc(&memory, 4 << 20));
    MUST_DO(cudaMemset(memory, 5, 1));
    MUST_DO(cudaIpcGetMemHandle(&memory_handle, memory));
    MUST_DO(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
    MUST_DO(cudaIpcGetEventHandle(&event_handle, event));
    put(&memory_handle, sizeof memory_handle);
    put(&event_handle, sizeof event_handle);
    while (read(0, &end, 1) > 0) {
    }
}

static void add(int n) {
    int *memory = open_handle(), value;
    char go;
    MUST_DO(cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost));
    put(&value, sizeof value);
    value += n;
    MUST_DO(cudaMemcpy(memory, &value, sizeof value, cudaMemcpyHostToDevice));
    get(&go, 1);
    MUST_DO(cudaIpcCloseMemHandle(memory));
    if (cudaIpcCloseMemHandle(memory) != cudaErrorInvalidValue) exit(252);
    if (cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost) != cudaErrorInvalidValue)
        exit(253);
}

static void twice(void) {
    cudaIpcMemHandle_t handle;
    void *a, *b;
    char byte;
    get(&handle, sizeof handle);
    MUST_DO(cudaIpcOpenMemHandle(&a, handle, cudaIpcMemLazyEnablePeerAccess));
    MUST_DO(cudaIpcOpenMemHandle(&b, handle, cudaIpcMemLazyEnablePeerAccess));
    if (a != b || cudaFree(a) != cudaErrorInvalidValue ||
        cudaIpcGetMemHandle(&handle, a) != cudaErrorInvalidValue)
        exit(252);
    MUST_DO(cudaIpcCloseMemHandle(a));
    MUST_DO(cudaMemcpy(&byte, b, 1, cudaMemcpyDeviceToHost));
    MUST_DO(cudaIpcCloseMemHandle(b));
    if (cudaIpcCloseMemHandle(b) != cudaErrorInvalidValue) exit(253);
}

static void raise_value(int n) {
    uint64_t *words = open_handle();
    CUresult (*write_value)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
    void *address;
    cudaStream_t s;
    char go;
    MUST_DO(cudaGetDriverEntryPointByVersion("cuStreamWriteValue64", &address, 12000, 0, NULL));
    memcpy(&write_value, &address, sizeof address);
    MUST_DO(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    get(&go, 1);
    if (write_value(s, (CUdeviceptr)(uintptr_t)words, (cuuint64_t)n, 0)) exit(252);
    MUST_DO(cudaStreamSynchronize(s));
}

static void keep_memory(void) {
    void *memory;
    char end;
    MUST_DO(cudaMalloc(&memory, 40 << 20));
    put("x", 1);
    while (read(0, &end, 1) > 0) {
    }
}

static void wait_for_event(void) {
    cudaIpcEventHandle_t handle;
    cudaEvent_t event;
    cudaStream_t s;
    get(&handle, sizeof handle);
    MUST_DO(cudaIpcOpenEventHandle(&event, handle));
    MUST_DO(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    MUST_DO(cudaStreamWaitEvent(s, event, 0));
    MUST_DO(cudaStreamSynchronize(s));
    put("x", 1);
    MUST_DO(cudaEventDestroy(event));
}

int main(int count, char **words) {
    const char *word = count > 1 ? words[1] : "";
    int n = count > 2 ? atoi(words[2]) : 0;
    if (!strcmp(word, "export"))
        export_all();
    else if (!strcmp(word, "add"))
        add(n);
    else if (!strcmp(word, "twice"))
        twice();
    else if (!strcmp(word, "open"))
        open_handle();
    else if (!strcmp(word, "raise"))
        raise_value(n);
    else if (!strcmp(word, "held"))
        keep_memory();
    else if (!strcmp(word, "event"))
        wait_for_event();
    else
        return 2;
    return 0;
}
#endif
