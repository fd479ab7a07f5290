/* Two streams and an event between them. One stream overwrites a block many times, alternately with
 * two patterns, and then records the event. The other stream waits for the event and copies the
 * block. If it did not wait, it would find an earlier pattern or a mixture of both, because the
 * writing takes much longer than reaching the wait. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "doctor/check.h"
#include "doctor/pattern.h"

enum {
    TURNS = 16
}; /* copies that the writer makes; even, so that the second pattern is the last */
/* Rounds. A round in which the writer was done before the reader came proves nothing; on a busy
 * machine that may happen again and again. */
enum { LEAST_ROUNDS = 4, LEAST_TRIED = 2, MOST_ROUNDS = 64 };

struct testbed {
    struct doctor *d;
    struct device *device;
    size_t bytes;
    char *pattern[2], *block, *copy; /* [bytes] device memory */
    unsigned char *host;             /* [bytes] host memory */
    struct event *written;
};

static int open_testbed(struct testbed *bed, int index) {
    struct stream *stream;
    char **const all[] = {&bed->pattern[0], &bed->pattern[1], &bed->block, &bed->copy};
    bed->bytes = doctor_block(bed->d) / 4;
    CHECK(doctor_open(bed->d, index, 4 * (uint64_t)bed->bytes, 0, &bed->device));
    for (int i = 0; i < 4; i++)
        CHECK(device_alloc(bed->device, (void **)all[i], bed->bytes, MEM_WORKSPACE));
    CHECK(event_create(bed->device, &bed->written));
    bed->host = malloc(bed->bytes);
    if (!bed->host) return fail(ERR_MEMORY, "doctor: no host memory for a block: free some memory");
    stream = device_compute(bed->device);
    for (uint64_t i = 0; i < 2; i++) {
        pattern_fill(bed->host, bed->bytes, bed->d->config.seed + i);
        CHECK(copy_to_device(stream, bed->pattern[i], bed->host, bed->bytes));
        CHECK(stream_sync(stream));
    }
    return OK;
}

/* One round. *good: how many bytes are right before the first wrong one. *over: the writer was done
 * before the reader came to its wait, so the round says nothing about order. */
static int one_round(struct testbed *bed, struct stream *writer, struct stream *reader, int *over,
                     size_t *good) {
    struct device *device = bed->device;
    for (int i = 0; i < TURNS; i++)
        CHECK(copy_peer(writer, device, bed->block, device, bed->pattern[i % 2], bed->bytes));
    CHECK(event_record(bed->written, writer));
    *over = event_done(bed->written);
    CHECK(stream_wait(reader, bed->written));
    CHECK(copy_peer(reader, device, bed->copy, device, bed->block, bed->bytes));
    CHECK(stream_sync(reader));
    CHECK(stream_sync(writer));
    CHECK(event_sync(bed->written));
    CHECK(copy_to_host(reader, bed->host, bed->copy, bed->bytes));
    CHECK(stream_sync(reader));
    *good = pattern_check(bed->host, bed->bytes, bed->d->config.seed + 1);
    return OK;
}

static int one_way(struct testbed *bed, struct stream *writer, struct stream *reader,
                   const char *what) {
    static const char bound[] = "the reader finds what was written last";
    char name[CHECK_NAME_BYTES];
    int tried = 0;
    size_t good = bed->bytes;
    for (int round = 0; round < MOST_ROUNDS && good == bed->bytes; round++) {
        int over;
        if (round >= LEAST_ROUNDS && tried >= LEAST_TRIED) break;
        CHECK(one_round(bed, writer, reader, &over, &good));
        tried += !over;
    }
    snprintf(name, sizeof name, "%s: %s", device_name(bed->device), what);
    if (good == bed->bytes)
        note(bed->d, FINDING_OK, name, bound, "in order; the reader came %s",
             tried ? "while it was being written" : "after the last write");
    else
        note(bed->d, FINDING_OFF, name, bound, "byte %zu of %zu is not what was written last", good,
             bed->bytes);
    return OK;
}

int check_streams(struct doctor *d, int first) {
    int gpus = d->progress->gpus, devices = d->kind == DEVICE_CUDA && gpus ? gpus : 1;
    for (int i = first; i < devices; i++) {
        struct testbed bed = {.d = d};
        doctor_step(d, i, "%s(%d): streams", doctor_kind_name(d), i);
        int code = open_testbed(&bed, i);
        if (!code)
            code = one_way(&bed, device_comm(bed.device), device_compute(bed.device),
                           "compute after comm");
        if (!code)
            code = one_way(&bed, device_compute(bed.device), device_comm(bed.device),
                           "comm after compute");
        event_destroy(bed.written);
        free(bed.host);
        device_close(bed.device);
        CHECK(code);
    }
    return OK;
}
