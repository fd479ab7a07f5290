/* The events of a device group: ready[r] says that device r is done with the memory that it lends.
 * done[r] says that device r is done with the collective that it leads. */
#include "scatter_gather/device_group.h"

#include <string.h>

#include "base/error.h"

int device_group_init(struct device_group *group, int count, struct device *const *devices) {
    memset(group, 0, sizeof *group);
    if (count < 1 || count > MAX_DEVICES)
        return fail(ERR_USAGE, "device group: %d devices: give 1 to %d", count, MAX_DEVICES);
    int code = OK;
    group->count = count;
    for (int r = 0; r < count; r++)
        group->device[r] = devices[r];
    group->stream = device_compute(devices[0]);
    for (int r = 0; r < count; r++)
        for (int peer = 0; peer < count; peer++)
            if (peer != r) CHECK_GOTO(device_meet(devices[r], devices[peer]), code, failed);
    for (int r = 0; r < count; r++)
        CHECK_GOTO(event_create(devices[r], &group->ready[r]), code, failed);
    CHECK_GOTO(event_create(devices[0], &group->done[0]), code, failed);
    return OK;

failed:
    device_group_free(group);
    return code;
}

void device_group_free(struct device_group *group) {
    for (int r = 0; r < group->count; r++) {
        event_destroy(group->ready[r]);
        event_destroy(group->done[r]);
    }
    memset(group, 0, sizeof *group);
}

int device_group_lead(struct device_group *group, int lead) {
    int before = group->lead;
    if (lead == before) return OK;
    if (!group->done[lead]) CHECK(event_create(group->device[lead], &group->done[lead]));
    CHECK(device_group_leave(group));
    group->lead = lead;
    group->stream = device_compute(group->device[lead]);
    CHECK(stream_wait(group->stream, group->done[before]));
    return device_group_leave(group); /* who follows the new leader also follows the previous one */
}

int device_group_ready(struct device_group *group, int r) {
    return event_record(group->ready[r], device_compute(group->device[r]));
}

int device_group_follow(struct device_group *group, int r) {
    if (r == group->lead) return OK; /* work on one stream is already in order */
    return stream_wait(device_compute(group->device[r]), group->done[group->lead]);
}

int device_group_enter(struct device_group *group) {
    for (int r = 0; r < group->count; r++)
        if (r != group->lead) CHECK(stream_wait(group->stream, group->ready[r]));
    return OK;
}

int device_group_leave(struct device_group *group) {
    return event_record(group->done[group->lead], group->stream);
}
