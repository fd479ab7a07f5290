/* Device group: n devices of one process and the events that order them around device 0.
 *
 * Every collective of this folder is executed by device 0's compute stream: device 0 pushes what
 * it scatters and broadcasts, and pulls what it gathers and reduces. (That is DataParallel's
 * bottleneck, and it is meant to be seen.) Two kinds of event keep the devices in order, in both
 * directions:
 *
 *     thread r:  ... produce or use ... group_ready(r)  |                        |  group_follow(r) ... use
 *                                       records ready[r]  |                        |  stream r waits for done
 *     thread 0:                                           |  enter  moves  leave   |
 *                                         stream 0 waits for all ready[r]    records done
 *
 * - ready[r] is recorded on stream r by device r's thread, when r has enqueued whatever the next collective
 *   reads from r (its output, its gradients) or overwrites on r (its input, its parameters).
 * - done is recorded on stream 0 by device 0's thread, behind the last move of each collective. Stream r
 *   waits for it before it reads what was brought, and before it overwrites what device 0 reads.
 *
 * An event stands for its most recent record, so the calls themselves need an order too: the
 * bars above are a hand-over between threads (dp/worker.h): all group_ready before the
 * collective is called, group_follow after. */
#ifndef SCATTER_GATHER_DEVICE_GROUP_H
#define SCATTER_GATHER_DEVICE_GROUP_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct device_group {
    int count;
    struct device *device[MAX_DEVICES]; /* borrowed; device[0] executes */
    struct stream *stream;              /* compute stream of device[0] */
    struct event *ready[MAX_DEVICES];   /* ready[0] stays NULL: stream 0 is in order with itself */
    struct event *done;
};

/* count 1..MAX_DEVICES; no two entries the same device. */
int device_group_init(struct device_group *group, int count, struct device *const *devices);
/* zeroed and half-built are fine; streams must be idle */
void device_group_free(struct device_group *group);

int group_ready(struct device_group *group, int r);  /* on device r's thread; nothing for r = 0 */
int group_follow(struct device_group *group, int r); /* on device r's thread; nothing for r = 0 */

/* On device 0's thread; every collective of this folder begins and ends with them. */
int group_enter(struct device_group *group);
int group_leave(struct device_group *group);

#ifdef __cplusplus
}
#endif
#endif
