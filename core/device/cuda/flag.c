/* Stream memory operations are functions of the driver, not of the runtime. This file looks them up
 * by name, so that a program starts without a driver, and libcuda is never linked. */
#include "base/advice.h"
#include "device/cuda/flag.h"

#include <cuda.h>
#include <string.h>

typedef CUresult flag_function(CUstream stream, CUdeviceptr flag, cuuint64_t epoch, unsigned how);
typedef CUresult batch_function(CUstream stream, unsigned count, CUstreamBatchMemOpParams *all,
                                unsigned flags);
typedef CUresult attribute_function(int *value, CUdevice_attribute attribute, CUdevice device);

/* The CUDA version whose form of these functions is used: the second form, since 11.7. */
enum { DRIVER = 12000 };

/* Before CUDA 12.5 the runtime could return only the form of its own version, which is the same. */
static cudaError_t ask_runtime(const char *name, void **out,
                               enum cudaDriverEntryPointQueryResult *found) {
#if CUDART_VERSION < 12050
    return cudaGetDriverEntryPoint(name, out, cudaEnableDefault, found);
#else
    return cudaGetDriverEntryPointByVersion(name, out, DRIVER, cudaEnableDefault, found);
#endif
}

static int find(const struct cuda_device *d, const char *name, void **out) {
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    *out = NULL;
    CUDA_CHECK(ask_runtime(name, out, &found), name, d->head.name);
    if (found == cudaDriverEntryPointSuccess && *out) return OK;
    return fail(ERR_FAILED, "%s: not in this machine's driver: install a newer one, or " ADVICE_CPU,
                name);
}

int cuda_flag_open(struct cuda_device *d) {
    void *attribute;
    attribute_function *ask;
    int able = 0;
    if (d->post_flag) return OK;
    CHECK(cuda_use(&d->head));
    CHECK(find(d, "cuDeviceGetAttribute", &attribute));
    memcpy(&ask, &attribute, sizeof ask);
    if (ask(&able, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, d->gpu) != CUDA_SUCCESS ||
        !able)
        return fail(ERR_FAILED,
                    "stream memory operations on %s: not offered by %s or its driver: give each "
                    "rank a GPU, or " ADVICE_CPU,
                    d->head.name, d->gpu_name);
    CHECK(find(d, "cuStreamWaitValue64", &d->wait_flag));
    if (find(d, "cuStreamBatchMemOp", &d->batch_flags)) d->batch_flags = NULL;
    return find(d, "cuStreamWriteValue64", &d->post_flag);
}

/* The driver's error codes equal the runtime's where both have them. */
static int enqueue(struct cuda_stream *s, void *address, const uint64_t *flag, uint64_t epoch,
                   unsigned how, const char *what) {
    flag_function *function;
    memcpy(&function, &address, sizeof function);
    CUDA_STREAM_CHECK(s, (cudaError_t)function(s->stream, (CUdeviceptr)(uintptr_t)flag, epoch, how),
                      what);
    return OK;
}

static int post(struct cuda_stream *s, uint64_t *flag, uint64_t epoch) {
    const struct cuda_device *d = (const struct cuda_device *)s->head.device;
    return enqueue(s, d->post_flag, flag, epoch, CU_STREAM_WRITE_VALUE_DEFAULT, "post of a flag");
}

static int await(struct cuda_stream *s, const uint64_t *flag, uint64_t epoch) {
    const struct cuda_device *d = (const struct cuda_device *)s->head.device;
    return enqueue(s, d->wait_flag, flag, epoch, CU_STREAM_WAIT_VALUE_GEQ, "wait for a flag");
}

/* The driver's record of one post or wait. */
static CUstreamBatchMemOpParams operation_of(const struct cuda_flag_op *op) {
    CUstreamBatchMemOpParams o;
    memset(&o, 0, sizeof o);
    if (op->wait) {
        o.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
        o.waitValue.address = (CUdeviceptr)(uintptr_t)op->flag;
        o.waitValue.value64 = op->epoch;
        o.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    } else {
        o.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
        o.writeValue.address = (CUdeviceptr)(uintptr_t)op->flag;
        o.writeValue.value64 = op->epoch;
        o.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    }
    return o;
}

int cuda_flags(struct cuda_stream *s, const struct cuda_flag_op *all, int count) {
    static const char what[] = "posting and awaiting flags";
    const struct cuda_device *d = (const struct cuda_device *)s->head.device;
    CUstreamBatchMemOpParams records[CUDA_FLAGS_AT_ONCE];
    batch_function *function;
    if (count < 2 || !d->batch_flags) {
        for (int i = 0; i < count; i++)
            CHECK(all[i].wait ? await(s, all[i].flag, all[i].epoch)
                              : post(s, all[i].flag, all[i].epoch));
        return OK;
    }
    for (int i = 0; i < count; i++)
        records[i] = operation_of(&all[i]);
    memcpy(&function, &d->batch_flags, sizeof function);
    CUDA_STREAM_CHECK(s, (cudaError_t)function(s->stream, (unsigned)count, records, 0), what);
    return OK;
}

void cuda_flag_release(const struct cuda_device *d, cudaStream_t stream, uint64_t *flag) {
    flag_function *function;
    memcpy(&function, &d->post_flag, sizeof function);
    function(stream, (CUdeviceptr)(uintptr_t)flag, CUDA_FLAG_RELEASED,
             CU_STREAM_WRITE_VALUE_DEFAULT);
    cudaGetLastError();
}
