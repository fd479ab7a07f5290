/* Stream memory operations: functions of the driver, not of the runtime. They are asked for by
 * name, so that a program starts where there is no driver, and libcuda is never linked. */
#include "device/cuda/value.h"

#include <cuda.h>
#include <string.h>

typedef CUresult value_function(CUstream stream, CUdeviceptr word, cuuint64_t value,
                                unsigned flags);
typedef CUresult attribute_function(int *value, CUdevice_attribute attribute, CUdevice device);

/* the version whose form of the functions is meant: the second, there since 11.7 */
enum { DRIVER = 12000 };

static int find(const struct cuda_device *d, const char *name, void **out) {
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    *out = NULL;
    CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, out, DRIVER, cudaEnableDefault, &found), name,
               d->head.name);
    if (found == cudaDriverEntryPointSuccess && *out) return OK;
    return fail(ERR_FAILED,
                "%s: not in this machine's driver: install a newer one, or use --device cpu", name);
}

int cuda_value_open(struct cuda_device *d) {
    void *attribute;
    attribute_function *ask;
    int able = 0;
    if (d->value_write) return OK;
    CHECK(cuda_use(&d->head));
    CHECK(find(d, "cuDeviceGetAttribute", &attribute));
    memcpy(&ask, &attribute, sizeof ask);
    if (ask(&able, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, d->gpu) != CUDA_SUCCESS ||
        !able)
        return fail(ERR_FAILED,
                    "stream memory operations on %s: not offered by %s or its driver: use --device "
                    "cpu, or a GPU for "
                    "each rank",
                    d->head.name, d->gpu_name);
    CHECK(find(d, "cuStreamWaitValue64", &d->value_wait));
    return find(d, "cuStreamWriteValue64", &d->value_write);
}

/* The driver's codes are the runtime's where both have them. */
static int enqueue_value(struct cuda_stream *s, void *address, const uint64_t *flag, uint64_t value,
                         unsigned how, const char *what) {
    value_function *function;
    if (s->capturing)
        return fail(ERR_FAILED, "%s on %s: not inside a recording: put it behind or before", what,
                    s->head.device->name);
    memcpy(&function, &address, sizeof function);
    CUDA_STREAM_CHECK(s, (cudaError_t)function(s->stream, (CUdeviceptr)(uintptr_t)flag, value, how),
                      what);
    return OK;
}

int cuda_value_write(struct cuda_stream *s, uint64_t *flag, uint64_t value) {
    const struct cuda_device *d = (const struct cuda_device *)s->head.device;
    return enqueue_value(s, d->value_write, flag, value, CU_STREAM_WRITE_VALUE_DEFAULT,
                         "write of a word");
}

int cuda_value_wait(struct cuda_stream *s, const uint64_t *flag, uint64_t at_least) {
    const struct cuda_device *d = (const struct cuda_device *)s->head.device;
    return enqueue_value(s, d->value_wait, flag, at_least, CU_STREAM_WAIT_VALUE_GEQ,
                         "wait for a word");
}

void cuda_value_put(const struct cuda_device *d, cudaStream_t stream, uint64_t *flag,
                    uint64_t value) {
    value_function *function;
    memcpy(&function, &d->value_write, sizeof function);
    function(stream, (CUdeviceptr)(uintptr_t)flag, value, CU_STREAM_WRITE_VALUE_DEFAULT);
    cudaGetLastError();
}
