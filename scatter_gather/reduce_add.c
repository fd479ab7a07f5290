/* Reduce-add sums all devices' gradients into those of one device, the root, in fold order
 * (base/fold.h). The root is device 0, unless every device adds up a shard (shards.h):
 *
 *     n = 4:   (g0 + g2) + (g1 + g3)          n = 5:   ((g0 + g3) + g2) + (g1 + g4)
 *
 * or in the order of an allreduce (struct reduce_plan). A single device adds the same n segments in
 * the same order, so both train the same bits.
 *
 * The sum of an element needs only the n values of that element, so the loop works tile by tile. It
 * loads a few hundred elements from one device, adds those of the others, and writes only the
 * result. Each of the n arenas is read once, and no whole array of partial sums ever exists.
 *
 * The root reads the others' memory while it adds (remote loads, charged r -> root). It may
 * overwrite its own arena in place, because a tile of it is read before it is written, and
 * nobody else reads it.
 *
 * On emulated devices this is a host function on the root's stream, below; on GPUs it is one
 * kernel (cuda/reduce.c), where a tile is what one thread holds in registers. */
#include <string.h>

#include "base/error.h"
#include "device/scheduled.h"
#include "scatter_gather/reduce_executor.h"

enum { TILE = 256 }; /* elements: 1 KiB for each device */

int reduce_plan_init(struct reduce_plan *plan, struct device_group *group, int root,
                     float *const *arenas, size_t most, const struct sum_pieces *sums) {
    memset(plan, 0, sizeof *plan);
    plan->sums = sums;
    plan->group = group;
    plan->root = root;
    plan->most = most;
    for (int r = 0; r < group->count; r++)
        plan->arena[r] = arenas[r];
    int cuda = device_config(group->device[0])->kind == DEVICE_CUDA;
    plan->executor = cuda ? cuda_reduce_executor : &host_reduce_executor;
    int code = plan->executor->open ? plan->executor->open(plan) : OK;
    if (code) reduce_plan_free(plan);
    return code;
}

void reduce_plan_free(struct reduce_plan *plan) {
    for (int r = 0; plan->group && r < plan->group->count; r++)
        device_free(plan->group->device[plan->root], plan->staging[r]);
    memset(plan, 0, sizeof *plan);
}

/* The compiler knows the length of a whole tile and uses vectors for it. The last tile may be
 * shorter; it makes the same additions. */
static void add_tile(float *restrict to, const float *restrict from, size_t m) {
    if (m == TILE)
        for (size_t i = 0; i < TILE; i++)
            to[i] += from[i];
    else
        for (size_t i = 0; i < m; i++)
            to[i] += from[i];
}

void reduce_add_piece(const struct reduce_plan *plan, const struct sum_piece *piece) {
    const float *term[MAX_DEVICES]; /* each term: in its arena, or summed in a tile */
    float tile[MAX_DEVICES][TILE];
    for (size_t done = 0; done < piece->count; done += TILE) {
        size_t m = piece->count - done < TILE ? piece->count - done : TILE;
        for (int r = 0; r < piece->order.n; r++)
            term[r] = plan->arena[r] + piece->first + done;
        for (int k = 0; k < piece->order.n - 1; k++) {
            const struct addition *add = &piece->order.add[k];
            float *to = tile[add->to];
            if (term[add->to] != to) term[add->to] = memcpy(to, term[add->to], m * sizeof(float));
            add_tile(to, term[add->from], m);
        }
        memcpy(plan->arena[plan->root] + piece->first + done, term[0], m * sizeof(float));
    }
}

struct reduce_call {
    const struct reduce_plan *plan;
    struct sum_piece piece;
};

/* Adds one piece. The root's stream calls it when its turn comes. */
static int reduce_step(void *args) {
    const struct reduce_call *call = args;
    struct device_group *group = call->plan->group;
    struct device *root = group->device[call->plan->root];
    const size_t count = call->piece.count;
    if (!device_is_dry(root)) reduce_add_piece(call->plan, &call->piece);
    for (int r = 0; r < group->count; r++)
        if (group->device[r] != root) {
            int from = device_index(group->device[r]), to = device_index(root);
            traffic_add(device_traffic_mutable(root), from, to, count * sizeof(float));
            scheduled_move(root, from, to, count * sizeof(float));
        }
    return OK;
}

static int host_add(const struct reduce_plan *plan, const struct sum_piece *piece) {
    struct reduce_call call = {plan, *piece};
    uint64_t bytes = (uint64_t)(plan->group->count - 1) * piece->count * sizeof(float);
    return stream_call_host(device_compute(plan->group->device[plan->root]), "reduce add", bytes,
                            reduce_step, &call, sizeof call);
}

const struct reduce_executor host_reduce_executor = {.add = host_add};

static int add_pieces(const struct reduce_plan *plan, struct param_range range) {
    struct sum_piece piece = {range.first, range.count, fold_order(plan->group->count)};
    if (!plan->sums) return plan->executor->add(plan, &piece);
    for (int i = 0; i < plan->sums->count; i++)
        if (sum_piece_in(&plan->sums->piece[i], range.first, range.count, &piece))
            CHECK(plan->executor->add(plan, &piece));
    return OK;
}

int reduce_add_one(const struct reduce_plan *plan, struct param_range range) {
    if (range.count > plan->most)
        return fail(ERR_FAILED, "reduce add: a range of %zu elements: the plan was made for %zu",
                    range.count, plan->most);
    if (!range.count || plan->group->count == 1) return OK;
    struct span_ends ends = {0, 0, 0};
    for (int r = 0; r < plan->group->count; r++)
        ends.sources |= (uint64_t)1 << device_index(plan->group->device[r]);
    ends.destinations = (uint64_t)1 << device_index(plan->group->device[plan->root]);
    struct stream *stream = device_compute(plan->group->device[plan->root]);
    stream_set_ends(stream, &ends);
    int code = add_pieces(plan, range);
    stream_set_ends(stream, NULL);
    return code;
}

int reduce_add_coalesced(const struct reduce_plan *plan, const struct param_range *groups,
                         int group_count) {
    CHECK(device_group_enter(plan->group));
    for (int g = 0; g < group_count; g++)
        CHECK(reduce_add_one(plan, groups[g]));
    return device_group_leave(plan->group);
}
