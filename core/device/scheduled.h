/* What the calls of device.h write into a schedule (trace/schedule.h), on devices that keep one:
 * device_config.schedule. Without a schedule all functions do nothing. */
#ifndef DEVICE_SCHEDULED_H
#define DEVICE_SCHEDULED_H

#include "device/device.h"
#include "trace/schedule.h"

/* A pass tells which of its kernels an eager program would launch as operations of its own: the
 * next kernel stands for one operation, or for `more` besides those of which it has been told, or
 * for additions (trace/schedule.h). A kernel of a pass that is told of none belongs to the
 * operation before it. */
void scheduled_operation(struct stream *stream);
void scheduled_more_operations(struct stream *stream, int more);
void scheduled_additions(struct stream *stream, int more);
void scheduled_concatenation(struct stream *stream);
/* The next operation works in place, and its gradient needs its input: PyTorch copies that. */
void scheduled_copies_input(struct stream *stream);

void scheduled_launch(struct stream *stream, enum op op, const struct op_args *args);
/* A NULL device is the host. */
void scheduled_copy(struct stream *stream, const char *name, const struct device *from,
                    const struct device *to, uint64_t bytes);
void scheduled_record(struct stream *stream, struct event *event);
void scheduled_wait(struct stream *stream, const struct event *event);
void scheduled_host_wait(const struct event *event);
void scheduled_sync(struct stream *stream);

/* Around a function of the host that moves memory of several devices. It adds its parts by
 * scheduled_move and by schedule_add. */
void scheduled_group_begin(struct stream *stream, const char *name, uint64_t bytes);
void scheduled_group_end(struct stream *stream);

/* A part of the open group: bytes from one device to another. then: only when all parts before it
 * are done. */
void scheduled_move(const struct device *device, int from, int to, uint64_t bytes, int then);

#endif
