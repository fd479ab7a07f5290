/* The four collectives of DataParallel, between the leading device and all devices of one process.
 * Device 0 leads unless device_group_lead says otherwise.
 *
 *     scatter                lead -> all   rows of a tensor, sizes[r] of them to device r
 *     gather                 all -> lead   the reverse
 *     broadcast_coalesced    lead -> all   the same values to each, in groups of 10 MiB
 *     reduce_add_coalesced   all -> 0      the sum, by default in fold order (base/fold.h)
 *
 * A step scatters the batch, its labels and dL/dy, gathers the outputs, broadcasts the parameters
 * and reduces the gradients. shards.h has the sharded reduce, in which every device adds up a part.
 *
 * All are called on device 0's thread; they enqueue on the leading device's compute stream and
 * return. device_group.h says which events the other threads record before and wait for after. The
 * caller sets the stream's phase. Bytes that cross devices are charged to the link, in the traffic
 * of the device whose stream moves them. A device's own share is not charged. All data pointers
 * point to the caller's device memory. After an error of a collective the data are half moved. */
#ifndef SCATTER_GATHER_SCATTER_GATHER_H
#define SCATTER_GATHER_SCATTER_GATHER_H

#include "base/fold.h"
#include "scatter_gather/coalesce.h"
#include "scatter_gather/device_group.h"

/* The first row of each of k devices in the whole batch: offsets[i] = sizes[0] + ... + sizes[i-1]
 * for i = 0..k. Returns 0, or -1 if a size is negative or the sum does not fit an int. */
int row_offsets(const int *sizes, int k, int *offsets /* [k + 1] */);

/* Copies sizes[r] rows of `source` (PLAIN, any dtype, on the leading device) to parts[r] on device
 * r, which has space for them. Device r's rows follow device r-1's. If sizes[r] is 0, parts[r] is
 * not touched. parts[lead] may be the same rows of `source`, or NULL; its share is then a view, and
 * nothing moves. ERR_FAILED if the sizes do not sum to source->dims[0]. */
int scatter(struct device_group *group, const struct tensor *source, const int *sizes,
            void *const *parts);

/* Copies inputs[r] (PLAIN, on device r, sizes[r] rows) one below the other into `output` (on the
 * leading device). An input of 0 rows is ignored. The leading device's input may already be at its
 * place in `output`, or where others' rows go, but not across both. ERR_FAILED, in PyTorch's words,
 * if a shape is wrong. */
int gather(struct device_group *group, const struct tensor *inputs, const int *sizes,
           const struct tensor *output);

/* Copies each range of arenas[lead] to the same range of every other arena. `arenas` has one per
 * device. */
int broadcast_coalesced(struct device_group *group, float *const *arenas,
                        const struct param_range *groups, int group_count);

/* A reduce-add, made once and used in every step. The stream reads it when it runs a call, so it
 * must stay until a sync or an event after the last call. Keep it as long as the group. */
struct reduce_plan {
    struct device_group *group; /* borrowed */
    int root;                   /* the device that adds, on its compute stream */
    float *arena[MAX_DEVICES];  /* each device's arena, borrowed; arena[root] gets the sum */

    /* Orders of summing, in elements of the arenas, read when a call is enqueued; borrowed. NULL:
     * the fold order. */
    const struct sum_pieces *sums;

    const struct reduce_executor *executor; /* see reduce_executor.h; one for each kind of device */
    size_t most; /* elements of the largest range that may be requested */
    /* [r]: `most` elements on the root's GPU, used if it cannot read GPU r or if it adds in an
     * order of `sums` */
    float *staging[MAX_DEVICES];
};

/* Makes a plan for ranges of at most `most` elements. Allocates staging (MEM_COMM on the root) only
 * if GPUs do not reach each other, or with sums. On failure the plan is zeroed. */
int reduce_plan_init(struct reduce_plan *plan, struct device_group *group, int root,
                     float *const *arenas, size_t most, const struct sum_pieces *sums);

/* A zeroed plan is fine. The stream must be done with the plan. */
void reduce_plan_free(struct reduce_plan *plan);

/* arena[root] = the sum of all arenas in the order of the plan, range by range. The other arenas
 * are only read. The root must be the leading device. ERR_FAILED: a range is larger than `most`. */
int reduce_add_coalesced(const struct reduce_plan *plan, const struct param_range *groups,
                         int group_count);

/* Enqueues one range on the root's compute stream, without any event. */
int reduce_add_one(const struct reduce_plan *plan, struct param_range range);

/* Only the arithmetic of one piece, without streams and devices: sets arena[root] to the sum of all
 * arenas in the piece, on the calling thread. */
void reduce_add_piece(const struct reduce_plan *plan, const struct sum_piece *piece);

#endif
