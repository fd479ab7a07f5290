/* Shared by the tests of the collectives: devices, pending writes, and a check of every link.
 *
 * One thread acts for all devices in turn. On `host-late` work runs only when something waits for
 * it. So a collective that lacks an event reads old bytes there, or work that should have run
 * before it overwrites its result. Results are read from the last device down, which shows whether
 * the events cover all work before them. They are also read from device 0 up, which shows whether
 * device 0, read first and alone, waits for work still in the other devices' queues. */
#ifndef TESTS_SCATTER_GATHER_BED_H
#define TESTS_SCATTER_GATHER_BED_H

#include "tests/harness/harness.h"

#include "base/error.h"
#include "scatter_gather/scatter_gather.h"

static const int device_counts[] = {1, 2, 3, 4, 5, 8};
enum { DEVICE_COUNTS = 6, MOST_DEVICES = 8 };

static inline int most_devices(void) {
    return test_short() ? 4 : MOST_DEVICES;
}

struct bed {
    int n;
    struct device *device[MOST_DEVICES];
    struct device_group group;
    struct traffic before[MOST_DEVICES]; /* [device]: what it had moved at forget_traffic */
};

static inline void make_bed(struct bed *bed, int n, enum device_kind kind, size_t bytes) {
    memset(bed, 0, sizeof *bed);
    bed->n = n;
    for (int r = 0; r < n; r++) {
        struct device_config config = {
            .kind = kind, .index = r, .memory_bytes = bytes, .check_operands = 1, .timeout_s = 20};
        cr_assert_eq(device_open(&bed->device[r], &config), OK, "%s", error_message());
    }
    cr_assert_eq(device_group_init(&bed->group, n, bed->device), OK, "%s", error_message());
}

static inline void free_bed(struct bed *bed) {
    for (int r = 0; r < bed->n; r++)
        cr_assert_eq(stream_sync(device_compute(bed->device[r])), OK, "%s", error_message());
    device_group_free(&bed->group);
    for (int r = 0; r < bed->n; r++) {
        struct ledger ledger = device_ledger(bed->device[r]);
        /* its kernels have a workspace */
        int cuda = device_config(bed->device[r])->kind == DEVICE_CUDA;
        cr_assert_eq(ledger.total, cuda ? ledger.now[MEM_WORKSPACE] : 0,
                     "device %d still holds memory", r);
        device_close(bed->device[r]);
    }
}

static inline void *alloc(struct bed *bed, int r, size_t bytes) {
    void *memory;
    cr_assert_eq(device_alloc(bed->device[r], &memory, bytes, MEM_INPUT), OK, "%s",
                 error_message());
    return memory;
}

/* Enqueued, not waited for: the host memory stays until free_bed. */
static inline void put(struct bed *bed, int r, void *to, const void *from, size_t bytes) {
    if (bytes)
        cr_assert_eq(copy_to_device(device_compute(bed->device[r]), to, from, bytes), OK, "%s",
                     error_message());
}

/* Waits for device r alone. */
static inline void get(struct bed *bed, int r, void *to, const void *from, size_t bytes) {
    if (bytes)
        cr_assert_eq(copy_to_host(device_compute(bed->device[r]), to, from, bytes), OK, "%s",
                     error_message());
    cr_assert_eq(stream_sync(device_compute(bed->device[r])), OK, "%s", error_message());
}

static inline void all(struct bed *bed, int (*step)(struct device_group *, int)) {
    for (int r = 0; r < bed->n; r++)
        cr_assert_eq(step(&bed->group, r), OK, "%s", error_message());
}

static inline void forget_traffic(struct bed *bed) {
    for (int r = 0; r < bed->n; r++) {
        cr_assert_eq(stream_sync(device_compute(bed->device[r])), OK);
        bed->before[r] = *device_traffic(bed->device[r]);
    }
}

/* Exactly `want` bytes have moved between devices, and device 0 has moved all of them. */
static inline void check_traffic(struct bed *bed, uint64_t want[MOST_DEVICES][MOST_DEVICES],
                                 const char *what) {
    for (int r = 0; r < bed->n; r++)
        cr_assert_eq(stream_sync(device_compute(bed->device[r])), OK, "%s", error_message());
    for (int d = 0; d < bed->n; d++)
        for (int a = 0; a < bed->n; a++)
            for (int b = 0; b < bed->n; b++) {
                uint64_t got = device_traffic(bed->device[d])->bytes[a][b] -
                               bed->before[d].bytes[a][b],
                         expected = d == 0 ? want[a][b] : 0;
                cr_assert_eq(got, expected,
                             "%s over %d: device %d charged %llu bytes for %d -> %d, not %llu",
                             what, bed->n, d, (unsigned long long)got, a, b,
                             (unsigned long long)expected);
            }
}

static inline uint32_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

/* Values of every size and sign, so that another order of summing gives other bits. */
static inline void fill_random(float *x, size_t count, uint64_t seed) {
    for (size_t i = 0; i < count; i++) {
        int exponent = (int)(next_random(&seed) % 12);
        x[i] = ldexpf((float)(int32_t)next_random(&seed), -31 - exponent);
    }
}

/* The i-th device to read: 0, 1, ... or n-1, n-2, ... */
static inline int turn(int n, int i, int upwards) {
    return upwards ? i : n - 1 - i;
}

#endif
