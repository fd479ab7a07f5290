/* Executors of GPUs: which one, and what both have in common. */
#include "allreduce/cuda/executor.h"
#include "allreduce/cuda/nccl.h"

#include <stdlib.h>
#include <string.h>

#include "device/cuda/value.h"
#include "device/gpu_handle.h"

/* ---- the choice ---- */

static int is_shared(const struct executor_question *q) {
    for (int a = 0; a < q->n; a++)
        for (int b = 0; b < a; b++)
            if (gpu_handles_share(q->handle[a], q->handle[b])) return 1;
    return 0;
}

/* Kernels that run a whole plan load from and store to the peers' memory. A peer's GPU that is
 * hidden from this process (CUDA_VISIBLE_DEVICES) is not found here: its import will tell. A
 * GPU's properties take a while, so each is asked once. */
static int check_peers(const struct executor_question *q) {
    const struct cuda_device *d = (const struct cuda_device *)q->device;
    struct gpu_handle peer[MAX_DEVICES];
    for (int r = 0; r < q->n; r++)
        CHECK(gpu_handle_unpack(q->handle[r], &peer[r]));
    for (int gpu = 0; gpu < d->gpus; gpu++) {
        struct cudaDeviceProp p;
        int can = 1;
        if (gpu == d->gpu) continue;
        CUDA_CHECK(cudaGetDeviceProperties(&p, gpu), "properties of a peer's GPU", d->head.name);
        CUDA_CHECK(cudaDeviceCanAccessPeer(&can, d->gpu, gpu), "peer access", d->head.name);
        for (int r = 0; r < q->n && !can; r++)
            if (!memcmp(p.uuid.bytes, peer[r].uuid, sizeof peer[r].uuid))
                return fail(ERR_FAILED,
                            "allreduce: rank %d's GPU %d cannot reach rank %d's GPU %d: its "
                            "kernels need peer access: use "
                            "--allreduce nccl, or --device cpu",
                            q->rank, d->gpu, r, gpu);
    }
    return OK;
}

static int choose(const struct executor_question *q, const struct executor_ops **ops,
                  struct allreduce_link *link) {
    if (q->algorithm == ALLREDUCE_NCCL) { /* a library's own collective: by name alone */
        *link = allreduce_link_gpus();
        *ops = &cuda_nccl_ops;
        return cuda_nccl_check(q);
    }
    *link = allreduce_link_shared_gpu();
    *ops = &cuda_stepwise_ops;
    if (q->n == 1 || is_shared(q)) return OK;
    CHECK(check_peers(q));
    *link = allreduce_link_gpus();
    *ops = &cuda_spin_ops;
    return OK;
}

/* ---- from the side ---- */

/* Under service_lock; `error` is what enqueuing gave. */
static int finish(struct cuda_device *d, cudaError_t error) {
    int code = OK;
    if (error == cudaSuccess) code = cuda_poll(&d->head, NULL, d->service, &error);
    pthread_mutex_unlock(&d->service_lock);
    if (code) return code;
    if (error == cudaErrorNotReady)
        return fail(ERR_TIMEOUT,
                    "allreduce: memory of %s: not written after %g s: the GPU may be stuck",
                    d->head.name, d->head.config.timeout_s);
    CUDA_CHECK(error, "allreduce: writing memory", d->head.name);
    return OK;
}

int cuda_fill(struct cuda_device *d, void *memory, int byte, size_t bytes) {
    CHECK(cuda_use(&d->head));
    pthread_mutex_lock(&d->service_lock);
    return finish(d, cudaMemsetAsync(memory, byte, bytes, d->service));
}

int cuda_upload(struct cuda_device *d, void *memory, const void *pinned, size_t bytes) {
    CHECK(cuda_use(&d->head));
    pthread_mutex_lock(&d->service_lock);
    return finish(d, cudaMemcpyAsync(memory, pinned, bytes, cudaMemcpyHostToDevice, d->service));
}

static int clear(struct device *device, void *flags, size_t bytes) {
    return cuda_fill((struct cuda_device *)device, flags, 0, bytes);
}

/* ---- life ---- */

int cuda_executor_open(struct executor **out, const struct executor_ranks *ranks) {
    struct executor *e = calloc(1, sizeof *e);
    if (!e) return fail(ERR_MEMORY, "allreduce: no host memory: free some");
    e->ranks = ranks;
    e->device = (struct cuda_device *)ranks->device;
    int code = cuda_use(ranks->device);
    if (!code) code = cuda_calls_open(e);
    if (code)
        cuda_executor_close(e);
    else
        *out = e;
    return code;
}

void cuda_executor_close(struct executor *e) {
    if (!e) return;
    cuda_calls_close(e);
    free(e);
}

static const struct executor_kind kind = {.flags_bytes = cuda_flags_bytes,
                                          .scratch_pad = 16,
                                          .clear = clear,
                                          .choose = choose,
                                          .libraries = cuda_nccl_describe};
const struct executor_kind *const cuda_executors = &kind;
