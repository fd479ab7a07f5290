/* A data set on emulated devices. On host-late, staging memory that is filled again before the copy
 * from it is done leads to wrong bytes. */
#include <pthread.h>

#include "tests/core/data/device_dataset.h"

static struct device *open_with(enum device_kind kind, uint64_t memory) {
    struct device_config config = test_config(kind, 0);
    struct device *d;
    config.memory_bytes += memory - (8 << 20); /* besides the workspace that a GPU needs */
    MUST(device_open(&d, &config));
    return d;
}

Test(device_dataset, arrives_whole, .timeout = 60) {
    for (int k = 0; k < ALL_KINDS; k++) {
        struct device *d = open_with(all_kinds[k], 24 << 20);
        resident_arrives_whole(d);
        device_close(d);
    }
}

Test(device_dataset, batches_equal_the_loaders, .timeout = 60) {
    for (int k = 0; k < ALL_KINDS; k++) {
        struct device *d = open_with(all_kinds[k], 8 << 20);
        resident_batches_equal_the_loaders(d);
        device_close(d);
    }
}

Test(device_dataset, one_that_does_not_fit_leaves_nothing, .timeout = 60) {
    for (int k = 0; k < ALL_KINDS; k++) {
        struct device *d = open_with(all_kinds[k], 4 << 20);
        void *rest;
        resident_too_large(d, 5000);
        MUST(device_alloc(d, &rest, (4 << 20) - 3000 * 1024, MEM_INPUT));
        resident_too_large(d, 3000); /* the pictures fit, the labels do not */
        device_close(d);
    }
}

static int job_ended(void *context) {
    (void)context;
    return fail(ERR_PEER, "rank 1: it fell over");
}

static void *open_later(void *gate) {
    usleep(200000);
    ((struct gate *)gate)->open = 1;
    return NULL;
}

Test(device_dataset, an_upload_in_a_job_that_ends_gives_everything_back, .timeout = 60) {
    struct device_config config = test_config(DEVICE_HOST_LATE, 0);
    struct dataset set = dataset_of(13 << 20, 1);
    struct device_dataset resident;
    struct gate gate = {0};
    struct device *d;
    pthread_t thread;
    config.memory_bytes = 32 << 20;
    config.interrupted = job_ended;
    MUST(device_open(&d, &config));
    MUST(block(device_compute(d), &gate));
    pthread_create(&thread, NULL, open_later, &gate);
    cr_assert_eq(device_dataset_init(&resident, d, &set), ERR_PEER);
    MUST_SAY("rank 1: it fell over");
    cr_assert(gate.open, "staging memory was given back under a copy that may still read it");
    cr_assert_eq(device_ledger(d).total, 0);
    pthread_join(thread, NULL);
    device_close(d);
    dataset_free(&set);
}
