/* The memory of one device: what is copied in must come out again, in each of these ways.
 *
 *     copies     host -> block -> another block of the same device, at an odd address -> host
 *     pinned     the same from and to pinned host memory
 *     write      small values that stream_write must capture at the call: the caller's copy of a
 *                value is overwritten right after it
 *     the end    an allocation of one byte more than is free must be refused as out of memory, and
 *                must not change the ledger */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "doctor/check.h"
#include "doctor/cuda/gpu.h"
#include "doctor/pattern.h"

struct testbed {
    struct doctor *d;
    struct device *device;
    size_t bytes;         /* of a block */
    char *a, *b;          /* device memory: a has `bytes` bytes, b has SHIFT more */
    unsigned char *host;  /* [bytes] plain host memory: what is copied in */
    unsigned char *check; /* [bytes] plain host memory: what is copied out */
};
enum { SHIFT = 3, POISON = 0xa5, SPEED_BYTES = 64 };

static const char *title(const struct testbed *bed, const char *what, char text[CHECK_NAME_BYTES]) {
    snprintf(text, CHECK_NAME_BYTES, "%s: %s", device_name(bed->device), what);
    return text;
}

static void note_bytes(struct testbed *bed, const char *what, size_t good, size_t bytes,
                       const char *more) {
    char name[CHECK_NAME_BYTES], size[32];
    format_bytes(bytes, size, sizeof size);
    if (good == bytes)
        note(bed->d, FINDING_OK, title(bed, what, name), "every byte equal", "%s equal%s", size,
             more);
    else
        note(bed->d, FINDING_OFF, title(bed, what, name), "every byte equal",
             "%s: byte %zu is the first wrong one", size, good);
}

static void describe(struct testbed *bed) {
    char name[CHECK_NAME_BYTES], memory[32], available[32];
    struct gpu_facts facts;
    uint64_t bytes = 0;
    int gpus = bed->d->progress->gpus, gpu = gpus ? device_index(bed->device) % gpus : 0;
    format_bytes(device_ledger(bed->device).capacity, memory, sizeof memory);
    if (bed->d->kind != DEVICE_CUDA) {
        note(bed->d, FINDING_OK, title(bed, "device", name), "", "emulated; opened with %s",
             memory);
    } else if (gpu_facts(gpu, &facts) || gpu_free_memory(gpu, &bytes)) {
        note(bed->d, FINDING_OFF, title(bed, "device", name), "", "%s", error_message());
    } else {
        char all[32];
        note(bed->d, FINDING_OK, title(bed, "device", name), "",
             "GPU %d: %s, compute capability %d.%d, %d SMs, %s, free %s%s; opened with %s", gpu,
             facts.name, facts.major, facts.minor, facts.multiprocessors,
             format_bytes(facts.memory, all, sizeof all),
             format_bytes(bytes, available, sizeof available),
             facts.exclusive ? ", one process at a time" : "", memory);
    }
}

/* Host -> a -> b -> host. The source is overwritten before the result is compared, so that a copy
 * which did nothing cannot look right. *good: how many bytes are right before the first wrong one.
 * speed: the three speeds as text. */
static int there_and_back(struct testbed *bed, unsigned char *source, unsigned char *back,
                          size_t bytes, uint64_t seed, size_t *good, char speed[SPEED_BYTES]) {
    struct stream *stream = device_compute(bed->device);
    pattern_fill(source, bytes, seed);
    memset(back, POISON, bytes);
    int64_t start = now_ns();
    CHECK(copy_to_device(stream, bed->a, source, bytes));
    CHECK(stream_sync(stream));
    int64_t there = now_ns();
    memset(source, POISON, bytes);
    CHECK(copy_peer(stream, bed->device, bed->b + SHIFT, bed->device, bed->a, bytes));
    CHECK(stream_sync(stream));
    int64_t across = now_ns();
    CHECK(copy_to_host(stream, back, bed->b + SHIFT, bytes));
    CHECK(stream_sync(stream));
    int64_t end = now_ns();
    double b = (double)bytes; /* bytes per nanosecond are GB/s */
    snprintf(speed, SPEED_BYTES, ", GB/s in %.1f, across %.1f, out %.1f",
             b / (double)(there - start), b / (double)(across - there), b / (double)(end - across));
    *good = pattern_check(back, bytes, seed);
    return OK;
}

/* Twice, with different bytes: the first time the memory is untouched, and the second time it holds
 * the first pattern. */
static int check_copies(struct testbed *bed, const char *what, unsigned char *source,
                        unsigned char *back, size_t bytes, uint64_t seed) {
    size_t good = bytes;
    char speed[SPEED_BYTES];
    for (uint64_t turn = 0; turn < 2 && good == bytes; turn++)
        CHECK(there_and_back(bed, source, back, bytes, seed + turn, &good, speed));
    note_bytes(bed, what, good, bytes, speed);
    return OK;
}

static int check_pinned(struct testbed *bed, uint64_t seed) {
    size_t bytes = bed->bytes / 4;
    unsigned char *source = NULL, *back = NULL;
    int code = OK;
    CHECK_GOTO(device_host_alloc(bed->device, (void **)&source, bytes), code, out);
    CHECK_GOTO(device_host_alloc(bed->device, (void **)&back, bytes), code, out);
    code = check_copies(bed, "pinned copies", source, back, bytes, seed);
out:
    device_host_free(bed->device, source);
    device_host_free(bed->device, back);
    return code;
}

/* Writes values of every size up to the largest, one behind the other, all from one buffer, which
 * is overwritten after each call. */
static int check_write(struct testbed *bed, uint64_t seed) {
    enum { LARGEST = 256, TOTAL = LARGEST * (LARGEST + 1) / 2 };
    struct stream *stream = device_compute(bed->device);
    unsigned char value[LARGEST], want[TOTAL];
    size_t at = 0, good = 0;
    pattern_fill(want, TOTAL, seed);
    for (size_t bytes = 1; bytes <= LARGEST; at += bytes++) {
        memcpy(value, want + at, bytes);
        CHECK(stream_write(stream, bed->a + at, value, bytes));
        memset(value, POISON, bytes);
    }
    memset(bed->check, POISON, TOTAL);
    CHECK(copy_to_host(stream, bed->check, bed->a, TOTAL));
    CHECK(stream_sync(stream));
    while (good < TOTAL && bed->check[good] == want[good])
        good++;
    note_bytes(bed, "written values", good, TOTAL, ", 1 to 256 bytes at a time");
    return OK;
}

static int check_the_end(struct testbed *bed) {
    struct ledger before = device_ledger(bed->device);
    char name[CHECK_NAME_BYTES];
    void *memory;
    int code =
        device_alloc(bed->device, &memory, before.capacity - before.total + 1, MEM_ACTIVATIONS);
    struct ledger after = device_ledger(bed->device);
    int right = code == ERR_MEMORY && !memory && after.total == before.total &&
                strstr(error_message(), "out of memory");
    const char *outcome = code ? error_message() : "handed out what it does not have";
    note(bed->d, right ? FINDING_OK : FINDING_OFF, title(bed, "end of its memory", name),
         "a byte too many is refused by name", "%s", right ? "refused" : outcome);
    device_free(bed->device, memory);
    return OK;
}

static int look_at_device(struct testbed *bed, int index) {
    struct doctor *d = bed->d;
    uint64_t seed = d->config.seed + 16 * (uint64_t)index;
    bed->bytes = doctor_block(d);
    CHECK(doctor_open(d, index, 2 * (uint64_t)bed->bytes, 0, &bed->device));
    describe(bed);
    CHECK(device_alloc(bed->device, (void **)&bed->a, bed->bytes, MEM_WORKSPACE));
    CHECK(device_alloc(bed->device, (void **)&bed->b, bed->bytes + SHIFT, MEM_WORKSPACE));
    bed->host = malloc(bed->bytes);
    bed->check = malloc(bed->bytes);
    if (!bed->host || !bed->check)
        return fail(ERR_MEMORY, "doctor: no host memory for a block: free some memory");
    CHECK(check_copies(bed, "copies", bed->host, bed->check, bed->bytes, seed));
    CHECK(check_pinned(bed, seed + 2));
    CHECK(check_write(bed, seed + 4));
    return check_the_end(bed);
}

int check_memory(struct doctor *d, int first) {
    int gpus = d->progress->gpus, devices = d->kind == DEVICE_CUDA && gpus ? gpus : 1;
    for (int i = first; i < devices; i++) {
        struct testbed bed = {.d = d};
        doctor_step(d, i, "%s(%d): memory", doctor_kind_name(d), i);
        int code = look_at_device(&bed, i);
        free(bed.host);
        free(bed.check);
        device_close(bed.device);
        CHECK(code);
    }
    return OK;
}
