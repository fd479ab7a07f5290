/* Device group: n devices of one process, and the events that order them around device 0.
 *
 * Every collective of this folder runs on device 0's compute stream: device 0 pushes what it
 * scatters and broadcasts, and pulls what it gathers and reduces. That is DataParallel's
 * bottleneck, and it is meant to be seen. Two kinds of event keep the devices in order:
 *
 *     thread r:  produce or use    group_ready(r)                       group_follow(r)   use
 *                                  records ready[r]                     waits for done
 *                                         |                                   ^
 *     ------------------------------------|----- hand-over of threads --------|---------------
 *                                         v                                   |
 *     thread 0:                      group_enter        moves        group_leave
 *                                    waits for all ready             records done
 *
 * - ready[r] is recorded on stream r by device r's thread, once r has enqueued whatever produces
 *   what the next collective reads from r (its output, its gradients), and whatever still reads
 *   what the collective overwrites on r (its input, its parameters).
 * - done is recorded on stream 0 by device 0's thread, behind the last move of each collective.
 *   Stream r waits for it before it reads what was brought, and before it overwrites what device 0
 *   reads.
 *
 * An event stands for its most recent record, so the calls themselves need an order too. Threads
 * hand over to each other (dp/worker.h): all call group_ready before the collective is called, and
 * group_follow after it. */
#ifndef SCATTER_GATHER_DEVICE_GROUP_H
#define SCATTER_GATHER_DEVICE_GROUP_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct device_group {
    int count;
    struct device *device[MAX_DEVICES]; /* borrowed; device[0] executes the collectives */
    struct stream *stream;              /* the compute stream of device[0] */
    struct event *ready[MAX_DEVICES];   /* ready[0] stays NULL: stream 0 is in order with itself */
    struct event *done;                 /* of device[0] */
};

/* devices[0..count): 1 .. MAX_DEVICES different devices, which must outlive the group. ERR_USAGE;
 * on failure the group is zeroed. */
int device_group_init(struct device_group *group, int count, struct device *const *devices);

/* The streams must be idle. A zeroed or half-built group is fine. */
void device_group_free(struct device_group *group);

/* Called on device r's thread, before and after a collective. They do nothing for r = 0. */
int group_ready(struct device_group *group, int r);
int group_follow(struct device_group *group, int r);

/* Called on device 0's thread: every collective of this folder begins and ends with them. */
int group_enter(struct device_group *group);
int group_leave(struct device_group *group);

#ifdef __cplusplus
}
#endif
#endif
