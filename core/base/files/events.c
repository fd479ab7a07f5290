/* duet_events: the numbers that a program wants to see as curves, in an event file of TensorBoard's
 * (base/files/event_file.h has the format, and writes it). */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/files/event_file.h"
#include "duet/train.h"

struct duet_events {
    struct event_file file;
};

int duet_events_open(duet_events **out, const char *folder) {
    CHECK_OUT(out);
    if (!folder || !*folder) return fail(ERR_USAGE, "duet_events_open: no folder was given");
    duet_events *e = calloc(1, sizeof *e);
    if (!e) return fail(ERR_MEMORY, "duet_events_open: no host memory");
    int code = event_file_open(&e->file, folder);
    if (code) {
        event_file_close(&e->file);
        free(e);
        return code;
    }
    *out = e;
    return OK;
}

int duet_events_scalar(duet_events *e, const char *tag, double value, int64_t step) {
    struct timespec now;
    if (!e) return OK;
    if (!tag || !*tag || strlen(tag) > EVENT_TAG_BYTES)
        return fail(ERR_USAGE, "duet_events_scalar: a tag has 1 to %d bytes: %s", EVENT_TAG_BYTES,
                    tag && *tag ? tag : "none was given");
    if (step < 0)
        return fail(ERR_USAGE, "duet_events_scalar: step %lld: steps count from 0",
                    (long long)step);
    clock_gettime(CLOCK_REALTIME, &now);
    event_file_scalar(&e->file, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec, step, tag, value);
    event_file_flush(&e->file);
    return OK;
}

int duet_events_close(duet_events **events) {
    duet_events *e = events ? *events : NULL;
    if (!e) return OK;
    int code = event_file_close(&e->file);
    free(e);
    *events = NULL;
    return code;
}
