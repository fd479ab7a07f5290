/* Reduce-add on GPUs is one kernel on the root's stream, which allreduce also uses
 * (device/cuda/kernels/sum.h). It reads a range of all n arenas, adds in fold order in registers,
 * and writes the root's arena. In other orders the kernel adds two terms at a time, and the terms
 * of the other GPUs are first copied to staging, which can hold partial sums.
 *
 * The root's GPU reads a peer's memory directly if it can reach it. If it cannot, the driver first
 * copies the range through the host into staging on the root. Either way the same bytes cross the
 * same link and are charged to it. */
#include <string.h>

#include "device/cuda/kernels/sum_launch.h"
#include "scatter_gather/reduce_executor.h"

/* Allocates staging for the GPUs whose memory the root's GPU cannot read. Also loads the kernel,
 * while nothing can wait on the GPU yet. */
static int open_plan(struct reduce_plan *plan) {
    struct device_group *group = plan->group;
    struct device *root = group->device[plan->root];
    CHECK(cuda_use(root));
    CHECK(cuda_sum_load((struct cuda_device *)root));
    for (int r = 0; r < group->count; r++) {
        const struct cuda_device *other = (struct cuda_device *)group->device[r];
        if (r == plan->root || (!plan->sums && cuda_reach((struct cuda_device *)root, other->gpu)))
            continue;
        void *memory;
        CHECK(device_alloc(root, &memory, plan->most * sizeof(float), MEM_COMM));
        plan->staging[r] = memory;
    }
    return OK;
}

/* Sets *source to the address at which the root reads device r's part of the range, after a copy if
 * necessary. */
static int bring(const struct reduce_plan *plan, const struct sum_piece *piece, int r,
                 const float **source) {
    struct device_group *group = plan->group;
    struct device *root = group->device[plan->root];
    size_t bytes = piece->count * sizeof(float);
    *source = plan->arena[r] + piece->first;
    if (r == plan->root) return OK;
    if (!plan->staging[r]) {
        traffic_add(device_traffic_mutable(root), device_index(group->device[r]),
                    device_index(root), bytes);
        return OK;
    }
    const float *there = *source;
    *source = plan->staging[r];
    return copy_peer(device_compute(root), root, plan->staging[r], group->device[r], there, bytes);
}

/* The additions of the order, pair by pair in the staging; the last one has the sum. */
static int add_pairs(struct cuda_stream *stream, const struct sum *all,
                     const struct sum_order *order) {
    for (int k = 0; k < order->n - 1; k++) {
        const struct addition *add = &order->add[k];
        struct sum pair = *all;
        pair.sources = 2;
        pair.source[0] = all->source[add->to];
        pair.source[1] = all->source[add->from];
        if (k < order->n - 2) pair.dest[0] = (float *)all->source[add->to];
        CHECK(cuda_sum(stream, &pair, "reduce add"));
    }
    return OK;
}

static int add(const struct reduce_plan *plan, const struct sum_piece *piece) {
    struct device *root = plan->group->device[plan->root];
    struct cuda_stream *stream = (struct cuda_stream *)device_compute(root);
    int n = plan->group->count;
    struct sum sum;
    memset(&sum, 0, sizeof sum);
    for (int r = 0; r < n; r++)
        CHECK(bring(plan, piece, r, &sum.source[r]));
    sum.dest[0] = plan->arena[plan->root] + piece->first;
    sum.length = piece->count;
    sum.sources = (uint32_t)n;
    sum.dests = 1;
    sum.first_scale = sum.scale = 1;
    CHECK(cuda_begin(stream, "reduce add", (uint64_t)(n - 1) * piece->count * sizeof(float), 0));
    CHECK(plan->sums ? add_pairs(stream, &sum, &piece->order)
                     : cuda_sum(stream, &sum, "reduce add"));
    return cuda_end(stream);
}

static const struct reduce_executor executor = {.open = open_plan, .add = add};
const struct reduce_executor *const cuda_reduce_executor = &executor;
