/* Device group: n devices of one process, and the events that order them around the one that leads.
 *
 * Every collective of this folder runs on the compute stream of the leading device, which is device
 * 0 unless device_group_lead changes it. It pushes in scatter and broadcast, and pulls in gather
 * and reduce. That is DataParallel's bottleneck, and Duet keeps it visible. Two kinds of event keep
 * the devices in order (the names are short for device_group_...):
 *
 *     thread r:  produce or use    ready(r)                            follow(r)   use
 *                                  records ready[r]                    waits for done
 *                                         |                                 ^
 *     ------------------------------------|----- hand-over of threads ------|---------------
 *                                         v                                 |
 *     thread 0:                         enter          moves            leave
 *                                       waits for all ready             records done
 *
 * - ready[r] is recorded on stream r by device r's thread, after all work of r that writes memory
 *   the next collective reads from r (its output, its gradients), and all work that reads memory
 *   the collective overwrites on r (its input, its parameters).
 * - done[lead] is recorded on the leading stream by device 0's thread, after the last move of each
 *   collective. Stream r waits for it before it reads the new data, and before it overwrites data
 *   that the leading device reads.
 *
 * An event stands for its most recent record, so the calls themselves need an order, too. Threads
 * hand over to each other (dp/worker.h): all call device_group_ready before the collective starts,
 * and device_group_follow after it. */
#ifndef SCATTER_GATHER_DEVICE_GROUP_H
#define SCATTER_GATHER_DEVICE_GROUP_H

#include "device/device.h"

struct device_group {
    int count;
    int lead;                           /* the device that executes the collectives */
    struct device *device[MAX_DEVICES]; /* borrowed */
    struct stream *stream;              /* the compute stream of device[lead] */
    struct event *ready[MAX_DEVICES];   /* of each device */
    struct event *done[MAX_DEVICES];    /* of each device that has led; else NULL */
};

/* devices[0..count): 1 .. MAX_DEVICES different devices, which must outlive the group. Device 0
 * leads. It tries the paths between all of them (device_meet). ERR_USAGE, ERR_FAILED; on failure
 * the group is zeroed. */
int device_group_init(struct device_group *group, int count, struct device *const *devices);

/* The streams must be idle. A zeroed or half-built group is fine. */
void device_group_free(struct device_group *group);

/* From now on device `lead` executes the collectives. Its stream waits for everything that the
 * previous leader has enqueued. Called on device 0's thread, while the other threads sleep. */
int device_group_lead(struct device_group *group, int lead);

/* Called on device r's thread, before and after a collective. */
int device_group_ready(struct device_group *group, int r);
int device_group_follow(struct device_group *group, int r);

/* Called on device 0's thread, around every collective in this folder. */
int device_group_enter(struct device_group *group);
int device_group_leave(struct device_group *group);

#endif
