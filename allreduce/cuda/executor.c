/* Chooses the executor of a job on GPUs. All ranks see the same memory handles, and tell each other
 * what only one of them can see, so all make the same choice. */
#include "allreduce/cuda/executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allreduce/cuda/trial.h"
#include "allreduce/cuda/nccl.h"
#include "allreduce/cuda/step.h"
#include "allreduce/cuda/upload.h"
#include "base/advice.h"

/* Two ranks a < b that share a GPU; -1, -1: there are none. */
static void find_sharers(const struct executor_question *q, int *a, int *b) {
    for (*b = 1; *b < q->n; ++*b)
        for (*a = 0; *a < *b; ++*a)
            if (!memcmp(q->handle[*a]->uuid, q->handle[*b]->uuid, GPU_UUID_BYTES)) return;
    *a = *b = -1;
}

/* Two ranks of which the first's GPU cannot reach the second's; -1, -1: all can reach all. */
struct reach {
    int from, to;
    int broken; /* 1: P2P is advertised and moves no bytes */
};

/* Collective: each rank knows only the paths from its own GPU. */
static int find_unreachable(const struct executor_question *q, struct reach *found) {
    struct reach own = {-1, -1, 0}, all[MAX_DEVICES];
    for (int r = 0; r < q->n && own.to < 0; r++)
        if (!device_reaches(q->device, q->handle[r]))
            own = (struct reach){q->rank, r, *device_p2p_fault(q->device) != 0};
    CHECK(comm_gather(q->comm, &own, sizeof own, all));
    *found = own;
    for (int r = q->n - 1; r >= 0; r--)
        if (all[r].to >= 0) *found = all[r];
    return OK;
}

/* Collective: 1 in *serves if every rank can use NCCL here. Loading the library is not enough,
 * since a container or a driver may still stop it: each rank makes its own communicator. */
static int find_nccl(const struct executor_question *q, int a, int b, int *serves) {
    struct executor_ranks alone = {.n = 1, .device = q->device};
    struct executor *probe;
    int own = 0, all[MAX_DEVICES];
    if (!cuda_nccl_check(q->device, a, b) && !cuda_nccl_ops.open(&probe, &alone)) {
        cuda_nccl_ops.close(probe);
        own = 1;
    }
    CHECK(comm_gather(q->comm, &own, sizeof own, all));
    *serves = 1;
    for (int r = 0; r < q->n; r++)
        *serves &= all[r];
    return OK;
}

/* For ranks whose GPUs do not all reach each other. `auto` takes NCCL if it is available and keeps
 * the promised order of adding: over 2 ranks there is only one order. All other algorithms have
 * plans. */
static int choose_out_of_reach(const struct executor_question *q, const struct reach *reach, int a,
                               int b, const struct executor_ops **ops,
                               struct allreduce_link *link) {
    const struct allreduce_link host = *link;
    int takes_nccl = q->algorithm == ALLREDUCE_AUTO && (q->n == 2 || q->any_order);
    char why[64];
    snprintf(why, sizeof why,
             reach->broken         ? "P2P of ranks %d and %d moves no bytes: an IOMMU?"
             : cuda_p2p_disabled() ? "NCCL_P2P_DISABLE keeps the GPUs of ranks %d and %d apart"
                                   : "rank %d's GPU cannot reach rank %d's",
             reach->from, reach->to);
    if (takes_nccl) CHECK(find_nccl(q, a, b, &takes_nccl));
    *ops = takes_nccl ? &cuda_nccl_ops : &cuda_staged_ops;
    *link = takes_nccl ? allreduce_link_gpus() : allreduce_link_staged(&host);
    snprintf(link->name, sizeof link->name, "%s%s",
             takes_nccl ? "" : "staged in host memory: ", why);
    return OK;
}

/* NCCL would believe the driver. It reads the variable when a communicator is made. */
static void disable_p2p_of_nccl(void) {
    setenv("NCCL_P2P_DISABLE", "1", 0);
}

/* Only NCCL goes from the GPU of one machine to that of another. */
static int choose_over_machines(const struct executor_question *q, const struct executor_ops **ops,
                                struct allreduce_link *link) {
    if (q->n > 2 && q->algorithm != ALLREDUCE_NCCL && !q->any_order)
        return fail(
            ERR_USAGE,
            "allreduce over GPUs of several machines: only NCCL can do that, and it adds in "
            "its own order, so that no bits are promised: give --allreduce nccl, "
            "or " ADVICE_CPU);
    *link = allreduce_link_gpus();
    *ops = &cuda_nccl_ops;
    return cuda_nccl_check(q->device, -1, -1);
}

static int choose(const struct executor_question *q, const struct executor_ops **ops,
                  struct allreduce_link *link) {
    struct reach reach = {-1, -1, 0};
    int a, b;
    if (comm_is_spread(q->comm)) return choose_over_machines(q, ops, link);
    find_sharers(q, &a, &b);
    if (q->n > 1) CHECK(find_unreachable(q, &reach));
    if (reach.broken) disable_p2p_of_nccl();
    if (q->algorithm == ALLREDUCE_NCCL) {
        *link = allreduce_link_gpus();
        *ops = &cuda_nccl_ops;
        return cuda_nccl_check(q->device, a, b);
    }
    if (reach.to >= 0) {
        return choose_out_of_reach(q, &reach, a, b, ops, link);
    } else if (q->n == 1 || a >= 0) {
        *link = allreduce_link_shared_gpu(cuda_mps_is_there());
        *ops = &cuda_stepwise_ops;
    } else {
        *link = allreduce_link_gpus();
        *ops = &cuda_spin_ops;
    }
    return OK;
}

static int clear(struct device *device, void *flags, size_t bytes) {
    return cuda_fill((struct cuda_device *)device, flags, 0, bytes);
}

static const struct executor_kind kind = {.flags_bytes = cuda_flags_bytes,
                                          .scratch_pad = 16,
                                          .clear = clear,
                                          .meet = cuda_meet_ranks,
                                          .choose = choose,
                                          .libraries = cuda_nccl_describe};
const struct executor_kind *const cuda_executors = &kind;
