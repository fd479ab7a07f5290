/* The sharded reduce: every device adds up a part of the gradients, and the sums then go to device
 * 0, where the optimizer runs. It is exercise 3 of "Dive into Deep Learning" 13.5: "aggregate
 * different parameters on different devices".
 *
 * With n devices and S bytes of gradients, n = 4, and g1[2] being the second shard of device 1:
 *
 *     all sums on device 0                       sharded
 *     device 0 reads g1, g2, g3                  device 1 reads g0[1], g2[1], g3[1], adds shard 1
 *     and adds all of them                       device 2 reads g0[2], g1[2], g3[2], adds shard 2
 *                                                device 3 reads g0[3], g1[3], g2[3], adds shard 3
 *                                                device 0 copies the three sums
 *     into device 0:         (n-1) S             S
 *     into each other:       0                   S
 *     out of device 0:       0                   S
 *     additions on device 0: (n-1) S / 4         none
 *
 * So the link into device 0 carries S bytes for any n, and the additions run in parallel. Device 0
 * adds nothing itself: if it added a share w, it would receive S + w (n-2) S bytes. Only with two
 * devices is that free, so there each adds up one half.
 *
 * The shards are cut by bytes, not by parameters, because one parameter may hold most of a model:
 * each range of the arena is divided evenly at multiples of 256 bytes. A shard is added in fold
 * order over all devices, so the bits are those of one sum on device 0. */
#ifndef SCATTER_GATHER_SHARDS_H
#define SCATTER_GATHER_SHARDS_H

#include "scatter_gather/scatter_gather.h"

struct sharded_reduce {
    struct device_group *group;       /* borrowed */
    const struct param_range *ranges; /* borrowed: the reduced ranges, [range_count] */
    int range_count;
    float *arena[MAX_DEVICES];         /* each device's arena, borrowed */
    struct reduce_plan *plan;          /* [group->count], owned; set for the devices that add */
    struct event *summed[MAX_DEVICES]; /* for each device that adds: its shard is summed */
};

/* The part of `range` that device d of n adds up; its count is 0 if it adds none. The parts of all
 * devices cover the range, each element once. */
struct param_range shard_of(struct param_range range, int n, int d);

/* Makes the plans of all devices; after a failure everything is freed. The ranges and arenas must
 * stay as long as the group. `sums` is as in struct reduce_plan. */
int sharded_reduce_init(struct sharded_reduce *s, struct device_group *group, float *const *arenas,
                        const struct param_range *ranges, int range_count,
                        const struct sum_pieces *sums);
/* The streams must be done with it. Zeroed is fine. */
void sharded_reduce_free(struct sharded_reduce *s);

/* The first half, called by each device's thread after the hand-over that follows
 * device_group_ready on ALL devices. Stream d waits for all gradients and adds up its shard, in
 * place, in arena[d]. */
int sharded_reduce_add(struct sharded_reduce *s, int d);
/* The second half, called by device 0's thread, which leads. It copies the shards into arena[0],
 * whose ranges then hold the sums. The other arenas are left half summed. */
int sharded_reduce_collect(struct sharded_reduce *s);

#endif
