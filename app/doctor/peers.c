/* Checks copies between the devices of one process, as in DP: every pair, both directions, on the
 * stream of the source (pushed) and on that of the destination (pulled). Measured speed and latency
 * are reported without a bound. On a machine with one GPU the devices share it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "doctor/check.h"
#include "doctor/cuda/gpu.h"

enum { SMALL_COPIES = 20, POISON = 0xa5 };

struct testbed {
    struct doctor *d;
    struct device *device[MAX_DEVICES];
    char *block[MAX_DEVICES];   /* device memory: the device's own pattern */
    char *landing[MAX_DEVICES]; /* device memory: where the patterns of others are copied to */
    size_t bytes;               /* size of each block */
    unsigned char *host, *want; /* [bytes] host memory */
};

/* The pattern of a device: random words, so that bytes of another block, of an earlier copy or from
 * a neighbouring address are wrong almost everywhere. */
static void fill(const struct testbed *bed, unsigned char *to, int device) {
    struct rng rng;
    rng_seed(&rng, bed->d->config.seed + (uint64_t)device);
    for (size_t at = 0; at < bed->bytes; at += sizeof(uint32_t)) {
        uint32_t word = rng_u32(&rng);
        memcpy(to + at, &word, bed->bytes - at < sizeof word ? bed->bytes - at : sizeof word);
    }
}

static int open_testbed(struct testbed *bed) {
    struct doctor *d = bed->d;
    bed->bytes = doctor_block(d) / 4;
    bed->host = malloc(bed->bytes), bed->want = malloc(bed->bytes);
    if (!bed->host || !bed->want)
        return fail(ERR_MEMORY, "doctor: out of host memory for a block: free some memory");
    for (int i = 0; i < d->devices; i++) {
        CHECK(doctor_open(d, i, 2 * (uint64_t)bed->bytes, 0, &bed->device[i]));
        CHECK(device_alloc(bed->device[i], (void **)&bed->block[i], bed->bytes, MEM_WORKSPACE));
        CHECK(device_alloc(bed->device[i], (void **)&bed->landing[i], bed->bytes, MEM_WORKSPACE));
        fill(bed, bed->host, i);
        CHECK(copy_to_device(device_compute(bed->device[i]), bed->block[i], bed->host, bed->bytes));
        CHECK(stream_sync(device_compute(bed->device[i])));
    }
    return OK;
}

/* One copy from -> to by `stream`. *good: how many bytes are right before the first wrong one;
 * *seconds: how long the copy took. */
static int one_copy(struct testbed *bed, struct stream *stream, int from, int to, size_t *good,
                    double *seconds) {
    struct stream *own = device_compute(bed->device[to]);
    memset(bed->host, POISON, bed->bytes);
    CHECK(copy_to_device(own, bed->landing[to], bed->host, bed->bytes));
    CHECK(stream_sync(own));
    int64_t start = now_ns();
    CHECK(copy_peer(stream, bed->device[to], bed->landing[to], bed->device[from], bed->block[from],
                    bed->bytes));
    CHECK(stream_sync(stream));
    *seconds = (double)(now_ns() - start) * 1e-9;
    CHECK(copy_to_host(own, bed->host, bed->landing[to], bed->bytes));
    CHECK(stream_sync(own));
    fill(bed, bed->want, from);
    for (*good = 0; *good < bed->bytes && bed->host[*good] == bed->want[*good];)
        ++*good;
    return OK;
}

/* The time from enqueuing a copy of 4 bytes until the host sees its end; the shortest of
 * several. */
static int latency(struct testbed *bed, int from, int to, double *microseconds) {
    struct stream *stream = device_compute(bed->device[from]);
    for (int i = 0; i < SMALL_COPIES; i++) {
        int64_t start = now_ns();
        CHECK(copy_peer(stream, bed->device[to], bed->landing[to], bed->device[from],
                        bed->block[from], 4));
        CHECK(stream_sync(stream));
        double us = (double)(now_ns() - start) * 1e-3;
        if (i == 0 || us < *microseconds) *microseconds = us;
    }
    return OK;
}

static const char DIRECT[] = "direct";

/* How bytes go from one device to the other. */
static const char *route(const struct doctor *d, int from, int to) {
    int gpus = d->progress->gpus;
    if (d->kind != DEVICE_CUDA) return "one memory";
    if (gpus == 0 || from % gpus == to % gpus) return "one GPU";
    return gpu_reaches(from % gpus, to % gpus) ? DIRECT : "through host memory";
}

static int one_pair(struct testbed *bed, int from, int to) {
    enum { PUSHED, PULLED, WAYS }; /* copied by the source's stream, by the destination's */
    size_t good[WAYS];
    double seconds[WAYS], us = 0;
    char name[CHECK_NAME_BYTES], size[32];
    for (int way = 0; way < WAYS; way++) {
        struct device *mover = bed->device[way == PULLED ? to : from];
        CHECK(one_copy(bed, device_compute(mover), from, to, &good[way], &seconds[way]));
    }
    CHECK(latency(bed, from, to, &us));
    snprintf(name, sizeof name, "%s -> %s", device_name(bed->device[from]),
             device_name(bed->device[to]));
    format_bytes(bed->bytes, size, sizeof size);
    for (int way = 0; way < WAYS; way++)
        if (good[way] != bed->bytes) {
            note(bed->d, FINDING_OFF, name, "every byte equal",
                 "%s, %s: byte %zu of %s is the first wrong one%s", route(bed->d, from, to),
                 way == PULLED ? "pulled" : "pushed", good[way], size,
                 !strcmp(route(bed->d, from, to), DIRECT) ? ": " P2P_IS_BROKEN : "");
            return OK;
        }
    note(bed->d, FINDING_OK, name, "every byte equal",
         "%s: %s, GB/s pushed %.1f, pulled %.1f; 4 B in %.1f us", route(bed->d, from, to), size,
         (double)bed->bytes / seconds[PUSHED] * 1e-9, (double)bed->bytes / seconds[PULLED] * 1e-9,
         us);
    return OK;
}

int check_peers(struct doctor *d, int first) {
    struct testbed bed = {.d = d};
    int pairs = d->devices * d->devices, code = OK;
    if (first >= pairs) return OK;
    doctor_step(d, first, "%s: peers", doctor_kind_name(d));
    code = open_testbed(&bed);
    for (int i = first; i < pairs && !code; i++) {
        int from = i / d->devices, to = i % d->devices;
        if (from == to) continue;
        doctor_step(d, i, "%s(%d) -> %s(%d)", doctor_kind_name(d), from, doctor_kind_name(d), to);
        code = one_pair(&bed, from, to);
    }
    for (int i = 0; i < d->devices; i++)
        device_close(bed.device[i]);
    free(bed.host), free(bed.want);
    return code;
}
