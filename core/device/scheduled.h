/* Writes the calls of device.h into a schedule (trace/schedule.h) on devices that keep one
 * (device_config.schedule). Without a schedule all functions do nothing. */
#ifndef DEVICE_SCHEDULED_H
#define DEVICE_SCHEDULED_H

#include "device/device.h"
#include "trace/schedule.h"

/* A pass marks the kernels that an eager program would launch as separate operations. The next
 * kernel stands for one operation, for `more` operations besides those already marked, or for
 * additions (trace/schedule.h). An unmarked kernel of a pass belongs to the operation before it. */
void scheduled_operation(struct stream *stream);
void scheduled_more_operations(struct stream *stream, int more);
void scheduled_additions(struct stream *stream, int more);
void scheduled_concatenation(struct stream *stream);
/* The next operation works in place, but its gradient needs its input, which PyTorch copies. */
void scheduled_copies_input(struct stream *stream);

void scheduled_launch(struct stream *stream, enum op op, const struct op_args *args);
/* A NULL device is the host. */
void scheduled_copy(struct stream *stream, const char *name, const struct device *from,
                    const struct device *to, uint64_t bytes);
void scheduled_record(struct stream *stream, struct event *event);
void scheduled_wait(struct stream *stream, const struct event *event);
void scheduled_host_wait(const struct event *event);
void scheduled_sync(struct stream *stream);

/* These calls surround a host function that moves memory of several devices. The function adds its
 * parts with scheduled_move. */
void scheduled_group_begin(struct stream *stream, const char *name, uint64_t bytes);
void scheduled_group_end(struct stream *stream);

/* Adds a part to the open group: bytes from one device to another. */
void scheduled_move(const struct device *device, int from, int to, uint64_t bytes);

#endif
