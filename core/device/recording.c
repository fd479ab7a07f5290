/* Recordings, the part that is the same for every kind: which calls may be recorded, and that a
 * recording in which any call failed is not kept.
 *
 * To replay a recording must do the same as to launch everything again. So any call that fails
 * while it is made breaks the recording, even one that was refused at once for its shape: a
 * program that overlooked the error would otherwise replay a sequence with a hole in it. The
 * stream keeps the first error, and record_end returns it. */
#include "base/error.h"
#include "device/table.h"

static uintptr_t me(void) {
    return (uintptr_t)pthread_self();
}

static uintptr_t recorder_of(const struct stream *s) {
    return __atomic_load_n(&s->recorder, __ATOMIC_RELAXED);
}

int record_is_mine(const struct device *device) {
    return device->compute && recorder_of(device->compute) == me();
}

int record_keep(struct stream *s, int code) {
    return recorder_of(s) ? failures_first(&s->record_failed, code) : code;
}

static int refuse(struct stream *s, const char *what) {
    return record_keep(s, fail(ERR_FAILED,
                               "%s on %s: cannot be part of a recording: do it before or after",
                               what, s->device->name));
}

int record_refuse(struct stream *s, const char *what) {
    return recorder_of(s) ? refuse(s, what) : OK;
}

int record_refuse_on(struct device *device, const char *what) {
    return record_is_mine(device) ? refuse(device->compute, what) : OK;
}

int device_can_record(const struct device *device) {
    return device->ops->record_begin != NULL;
}

int stream_record_begin(struct stream *s) {
    struct device *device = s->device;
    if (!device_can_record(device))
        return fail(ERR_FAILED,
                    "recording on %s: this kind of device cannot record: launch each time",
                    device->name);
    if (s != device->compute)
        return fail(ERR_FAILED,
                    "recording on %s: of stream %s: only the compute stream is recorded",
                    device->name, lane_name(s->lane));
    CHECK(record_refuse(s, "recording"));
    CHECK(device->ops->record_begin(s));
    s->record_failed = (struct failures){0};
    __atomic_store_n(&s->recorder, me(), __ATOMIC_RELAXED);
    return OK;
}

int stream_record_end(struct stream *s, struct recording **out) {
    if (out) *out = NULL;
    if (!recorder_of(s))
        return fail(ERR_FAILED, "end of a recording on %s: nothing is being recorded",
                    s->device->name);
    if (recorder_of(s) != me())
        return fail(ERR_FAILED,
                    "end of a recording on %s: another thread is recording: end it there",
                    s->device->name);
    int code = s->device->ops->record_end(s, s->record_failed.code ? NULL : out);
    if (s->record_failed.code) code = failures_end(&s->record_failed);
    __atomic_store_n(&s->recorder, 0, __ATOMIC_RELAXED);
    return code;
}

int stream_replay(struct stream *s, struct recording *recording, const char *span_name) {
    CHECK(record_refuse(s, span_name));
    if (recording->stream != s)
        return fail(ERR_FAILED,
                    "%s on %s: a recording of another stream: replay it on the one that made it",
                    span_name, s->device->name);
    return recording->ops->replay(s, recording, span_name);
}

static int aside(struct stream *s, int begin) {
    const struct device_ops *ops = s->device->ops;
    if (recorder_of(s) != me() || !ops->aside) return OK;
    return record_keep(s, ops->aside(s, begin));
}

int stream_aside_begin(struct stream *s) {
    return aside(s, 1);
}

int stream_aside_end(struct stream *s) {
    return aside(s, 0);
}

void recording_free(struct recording *recording) {
    if (recording) recording->ops->recording_free(recording);
}
