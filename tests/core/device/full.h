/* A steady step allocates nothing. Tests prove this on a device without free memory. */
#ifndef TESTS_DEVICE_FULL_H
#define TESTS_DEVICE_FULL_H

#include "tests/harness/harness.h"

#include "device/device.h"

/* What fills a device. */
struct filling {
    void *piece[1024];
    int count;
};

/* Takes all memory that is free, down to the smallest piece: every later allocation fails. */
static inline void fill_device(struct device *device, struct filling *filling) {
    filling->count = 0;
    for (size_t bytes = (size_t)device_ledger(device).capacity; bytes;) {
        cr_assert_lt(filling->count, 1024, "the free memory is in too many pieces");
        if (device_alloc(device, &filling->piece[filling->count], bytes, MEM_WORKSPACE))
            bytes /= 2;
        else
            filling->count++;
    }
}

static inline void empty_device(struct device *device, struct filling *filling) {
    while (filling->count > 0)
        device_free(device, filling->piece[--filling->count]);
}

#endif
