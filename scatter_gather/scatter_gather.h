/* The four collectives of DataParallel, between device 0 and all devices of one process.
 *
 *     scatter               0 -> all   rows of a tensor, sizes[r] of them to device r    batch, labels, dL/dy
 *     gather                all -> 0   the way back                                      outputs
 *     broadcast_coalesced   0 -> all   the same values to each, in groups of 10 MiB      parameters
 *     reduce_add_coalesced  all -> 0   the sum, in the fold order of base/fold.h           gradients
 *
 * All are called on device 0's thread, enqueue on device 0's compute stream and return;
 * device_group.h says which events the other threads record before and wait for after. The
 * caller sets the stream's phase. What crosses devices is charged to the link in device 0's
 * traffic; device 0's own share never is. Pointers stand in device memory. */
#ifndef SCATTER_GATHER_SCATTER_GATHER_H
#define SCATTER_GATHER_SCATTER_GATHER_H

#include "base/fold.h"
#include "scatter_gather/chunk.h"
#include "scatter_gather/coalesce.h"
#include "scatter_gather/device_group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Hands rows [offset r, offset r + sizes[r]) of `source` (PLAIN, any dtype, on device 0) to
 * parts[r] on device r, where sizes[r] rows have space; nothing is touched where sizes[r] is 0.
 * parts[0] may be source->data (or NULL): device 0's share is then a view of the first rows and
 * nothing moves. ERR_FAILED where the sizes do not sum to source->dims[0]. */
int scatter(struct device_group *group, const struct tensor *source, const int *sizes,
            void *const *parts);

/* Lays inputs[r] (PLAIN, on device r, sizes[r] rows) one below the other into `output` (on
 * device 0). sizes are the scatter's; an input of 0 rows is not looked at. inputs[0] may already
 * lie in place. ERR_FAILED in PyTorch's words where a shape is wrong. */
int gather(struct device_group *group, const struct tensor *inputs, const int *sizes,
           const struct tensor *output);

/* Copies each range of arenas[0] to the same range of every other arena. */
int broadcast_coalesced(struct device_group *group, float *const *arenas,
                        const struct param_range *groups, int group_count);

/* arenas[0] = the sum of all arenas, range by range, one collective step each: reads n
 * devices' memory, adds in registers, writes device 0. The other arenas are read only. The plan
 * is read by the stream when it gets there: it must stay until a sync or an event behind the
 * call, so keep it as long as the group. */
struct reduce_plan {
    struct device_group *group; /* borrowed */
    float *arena[MAX_DEVICES];
    /* the order of the additions, for one tile of elements */
    struct fold_step steps[2 * MAX_DEVICES];
    int step_count, buffers;
    const struct reduce_executor *executor; /* reduce_executor.h: by the kind of the devices */
    size_t most; /* elements of the largest range that will be asked for */
    /* cuda: `most` elements on device 0, where it cannot read device r; else NULL */
    float *staging[MAX_DEVICES];
};

/* `most`: see above. Allocates staging (MEM_COMM on device 0) only where GPUs do not reach each
 * other. On failure the plan is zeroed. free: zeroed is fine; the stream must be done with it. */
int reduce_plan_init(struct reduce_plan *plan, struct device_group *group, float *const *arenas,
                     size_t most);
void reduce_plan_free(struct reduce_plan *plan);
int reduce_add_coalesced(const struct reduce_plan *plan, const struct param_range *groups,
                         int group_count);

/* The arithmetic of one step alone, apart from streams and devices: arena[0][first..first+count)
 * = sum. */
void reduce_add_range(const struct reduce_plan *plan, size_t first, size_t count);

#ifdef __cplusplus
}
#endif
#endif
