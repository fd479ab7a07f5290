/* The driver functions that Duet calls, found by name as in the real driver: stream memory
 * operations. A stream writes a flag in device memory when it reaches the operation, or waits until
 * a flag is large enough. The flag may be another process's. A write is a release after everything
 * that the stream has done; a wait acquires. */
#include "tests/stand_ins/cuda_emulation/emulation.h"

#include <cuda.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

static const struct timespec PAUSE = {0, 20000};

void value_run_write(const struct item *item) {
    __atomic_store_n(item->u.value.address, item->u.value.value, __ATOMIC_RELEASE);
}

void value_run_wait(const struct item *item, const struct gpu *gpu) {
    for (int turns = 0; !gpu->fault; turns++) {
        uint64_t now = __atomic_load_n(item->u.value.address, __ATOMIC_ACQUIRE);
        if ((int64_t)(now - item->u.value.value) >= 0)
            return; /* a cyclic comparison, as documented */
        if (turns < 100)
            sched_yield();
        else
            nanosleep(&PAUSE, NULL);
    }
}

static CUresult enqueue(CUstream stream, CUdeviceptr address, uint64_t value, enum item_kind kind) {
    struct emulated_allocation a;
    void *word = (void *)(uintptr_t)address;
    cudaError_t error = enter_gpu();
    struct CUstream_st *s = error == cudaSuccess ? stream_of(stream) : NULL;
    /* driver and runtime have the same codes where they are used here */
    if (error != cudaSuccess) return (CUresult)error;
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (address % sizeof value || !memory_find(word, sizeof value, &a))
        return CUDA_ERROR_INVALID_VALUE;
    struct item *item = item_new(kind, 0);
    if (!item) return CUDA_ERROR_OUT_OF_MEMORY;
    item->u.value.address = word;
    item->u.value.value = value;
    return (CUresult)stream_submit(s, item);
}

static CUresult write_value(CUstream stream, CUdeviceptr address, cuuint64_t value,
                            unsigned flags) {
    if (flags != CU_STREAM_WRITE_VALUE_DEFAULT) return CUDA_ERROR_NOT_SUPPORTED;
    return enqueue(stream, address, value, ITEM_WRITE_VALUE);
}

static CUresult wait_value(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    if (flags != CU_STREAM_WAIT_VALUE_GEQ) return CUDA_ERROR_NOT_SUPPORTED;
    return enqueue(stream, address, value, ITEM_WAIT_VALUE);
}

/* The driver takes at most 256 in a call, and runs them in order. */
static CUresult batch_values(CUstream stream, unsigned count, CUstreamBatchMemOpParams *all,
                             unsigned flags) {
    if (flags || count > 256) return CUDA_ERROR_INVALID_VALUE;
    if (emulated.trace) fprintf(stderr, "emulated GPU: %u flags in a call\n", count);
    for (unsigned i = 0; i < count; i++) {
        CUresult error = CUDA_ERROR_NOT_SUPPORTED;
        if (all[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
            error = wait_value(stream, all[i].waitValue.address, all[i].waitValue.value64,
                               all[i].waitValue.flags);
        if (all[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_64)
            error = write_value(stream, all[i].writeValue.address, all[i].writeValue.value64,
                                all[i].writeValue.flags);
        if (error != CUDA_SUCCESS) return error;
    }
    return CUDA_SUCCESS;
}

static CUresult device_attribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    if (device < 0 || device >= emulated.count) return CUDA_ERROR_INVALID_DEVICE;
    if (attribute != CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)
        return (CUresult)cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)attribute, device);
    *value = !fault_set("driver:values");
    return CUDA_SUCCESS;
}

/* Headers before CUDA 12.5 do not declare it. */
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status);

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status) {
    static const struct {
        const char *name;
        void (*function)(void);
        unsigned since;
    } known[] = {
        {"cuStreamWriteValue64", (void (*)(void))write_value, 9000},
        {"cuStreamWaitValue64", (void (*)(void))wait_value, 9000},
        {"cuStreamBatchMemOp", (void (*)(void))batch_values, 8000},
        {"cuDeviceGetAttribute", (void (*)(void))device_attribute, 2000},
    };
    ENTER(enter_driver());
    if (!symbol || !out || flags > cudaEnablePerThreadDefaultStream)
        return give(cudaErrorInvalidValue);
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    *out = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(symbol, known[i].name) &&
            !(fault_set("driver:batch") && strstr(symbol, "BatchMemOp"))) {
            found = version < known[i].since ? cudaDriverEntryPointVersionNotSufficent
                                             : cudaDriverEntryPointSuccess;
            if (version >= known[i].since) memcpy(out, &known[i].function, sizeof *out);
        }
    if (status) *status = found;
    return cudaSuccess;
}

/* The form that CUDA 13 no longer has. */
#if CUDART_VERSION < 13000
cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **out, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status) {
    return cudaGetDriverEntryPointByVersion(symbol, out, CUDART_VERSION, flags, status);
}
#endif
