/* Which executor serves a job on GPUs. All ranks see the same memory handles and choose alike. */
#include "allreduce/cuda/executor.h"

#include <string.h>

#include "allreduce/cuda/nccl.h"
#include "allreduce/cuda/step.h"
#include "allreduce/cuda/upload.h"
#include "device/gpu_handle.h"

/* Two ranks a < b that share a GPU; -1, -1: there are none. */
static void find_sharers(const struct executor_question *q, int *a, int *b) {
    for (*b = 1; *b < q->n; ++*b)
        for (*a = 0; *a < *b; ++*a)
            if (gpu_handles_share(q->handle[*a], q->handle[*b])) return;
    *a = *b = -1;
}

/* Kernels that run a whole plan load from and store to the peers' memory. A peer's GPU that is
 * hidden from this process (CUDA_VISIBLE_DEVICES) is not found here: the import of its memory will
 * tell. Asking for a GPU's properties takes a while, so each GPU is asked once. */
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
                            "kernels need peer access: use --allreduce nccl, or --device cpu",
                            q->rank, d->gpu, r, gpu);
    }
    return OK;
}

static int choose(const struct executor_question *q, const struct executor_ops **ops,
                  struct allreduce_link *link) {
    int a, b;
    find_sharers(q, &a, &b);
    if (q->algorithm == ALLREDUCE_NCCL) {
        *link = allreduce_link_gpus();
        *ops = &cuda_nccl_ops;
        return cuda_nccl_check(q->device, a, b);
    }
    *link = allreduce_link_shared_gpu();
    *ops = &cuda_stepwise_ops;
    if (q->n == 1 || a >= 0) return OK;
    CHECK(check_peers(q));
    *link = allreduce_link_gpus();
    *ops = &cuda_spin_ops;
    return OK;
}

static int clear(struct device *device, void *flags, size_t bytes) {
    return cuda_fill((struct cuda_device *)device, flags, 0, bytes);
}

static const struct executor_kind kind = {.flags_bytes = cuda_flags_bytes,
                                          .scratch_pad = 16,
                                          .clear = clear,
                                          .choose = choose,
                                          .libraries = cuda_nccl_describe};
const struct executor_kind *const cuda_executors = &kind;
