/* What must hold for a data set on a device of any kind, for test_device_dataset.c. */
#ifndef TESTS_DATA_DEVICE_DATASET_H
#define TESTS_DATA_DEVICE_DATASET_H

#include "data/device_dataset.h"
#include "data/loader.h"
#include "tests/core/device/gather.h"

/* Pictures of 1 x `pixels`, in which the value of a byte depends on its position. */
static inline struct dataset dataset_of(int count, int pixels) {
    size_t bytes = (size_t)count * (size_t)pixels;
    uint8_t *images = malloc(bytes), *labels = malloc((size_t)count);
    for (size_t i = 0; i < bytes; i++)
        images[i] = (uint8_t)(i * 31 + (i >> 12) + (i >> 22) * 5);
    for (int i = 0; i < count; i++)
        labels[i] = (uint8_t)(i % 10 + (i >> 22));
    return (struct dataset){.name = "tests",
                            .count = count,
                            .shape = {1, 1, pixels},
                            .classes = 256,
                            .images = images,
                            .labels = labels,
                            .owned = {images, labels}};
}

/* For sizes around the size of a piece, of pictures and of labels, every byte arrives and the
 * ledger counts it. */
static inline void resident_arrives_whole(struct device *d) {
    static const int sizes[][2] = {{1, 1},
                                   {7, 784},
                                   {DATASET_PIECE - 1, 1},
                                   {DATASET_PIECE, 1},
                                   {DATASET_PIECE + 1, 1},
                                   {3 * DATASET_PIECE / 784 + 2, 784}};
    uint64_t before = device_ledger(d).total;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct dataset set = dataset_of(sizes[i][0], sizes[i][1]);
        struct device_dataset resident;
        size_t bytes = (size_t)set.count * sample_shape_count(&set.shape);
        MUST(device_dataset_init(&resident, d, &set));
        cr_assert_eq(device_ledger(d).now[MEM_DATASET], device_dataset_bytes(&set));
        cr_assert_eq(device_ledger(d).total, before + device_dataset_bytes(&set));
        uint8_t *images = malloc(bytes), *labels = malloc((size_t)set.count);
        MUST(copy_to_host(device_compute(d), images, resident.images.data, bytes));
        MUST(copy_to_host(device_compute(d), labels, resident.labels.data, (size_t)set.count));
        MUST(stream_sync(device_compute(d)));
        cr_assert(!memcmp(images, set.images, bytes), "%d pictures of %d bytes", set.count,
                  set.shape.width);
        cr_assert(!memcmp(labels, set.labels, (size_t)set.count), "labels of %d pictures",
                  set.count);
        free(images), free(labels);
        device_dataset_free(&resident);
        cr_assert_eq(device_ledger(d).total, before);
        cr_assert_null(resident.device);
        dataset_free(&set);
    }
    device_dataset_free(NULL);
}

/* One epoch loaded in both ways gives the same batches: as floats from the loader, and made of the
 * pictures that reside on the device, where its order was brought too. */
static inline void resident_batches_equal_the_loaders(struct device *d) {
    struct dataset set = dataset_of(103, 28 * 28);
    struct loader_config c = {.set = &set,
                              .split = {SPLIT_STRIDED, 2, 4},
                              .batch_size = 40,
                              .shuffle = 1,
                              .seed = 3,
                              .device_count = 2,
                              .workers = 1,
                              .mean = 0.286f,
                              .std = 0.353f};
    struct loader *floats, *numbers;
    struct batch *want, *batch;
    struct device_dataset resident;
    void *order, *step, *x, *labels;
    const int32_t *rows;
    float *got = malloc(40 * 784 * sizeof *got);
    int32_t got_labels[40];
    int steps = 0, room;
    MUST(loader_init(&floats, &c));
    MUST(device_dataset_init(&resident, d, &set));
    c.on_device = &resident;
    MUST(loader_init(&numbers, &c));
    MUST(device_alloc(d, &step, sizeof(struct step_block), MEM_INPUT));
    MUST(device_alloc(d, &labels, sizeof got_labels, MEM_INPUT));
    MUST(device_alloc(d, &x, 40 * 784 * sizeof *got, MEM_INPUT));
    MUST(loader_start_epoch(floats, 2, 0));
    MUST(loader_start_epoch(numbers, 2, 0));
    size_t samples = (size_t)loader_order(numbers, &rows, &room);
    MUST(device_alloc(d, &order, (size_t)room * sizeof *rows, MEM_INPUT));
    MUST(copy_to_device(device_compute(d), order, rows, samples * sizeof *rows));
    for (;; steps++) {
        MUST(loader_next(floats, &want));
        MUST(loader_next(numbers, &batch));
        if (!batch) break;
        struct step_block block = {.first = batch->first};
        int n = batch->segments.n;
        const int dims[4] = {n, 1, 1, 784};
        struct tensor i = tensor_plain(order, DTYPE_I32, 1, &room),
                      l = tensor_plain(labels, DTYPE_I32, 1, dims);
        struct tensor pixels = tensor_plain(x, DTYPE_F32, 4, dims);
        MUST(stream_write(device_compute(d), step, &block, sizeof block));
        MUST(device_dataset_gather(&resident, device_compute(d), &i, step, c.mean, c.std, &pixels,
                                   &l));
        MUST(copy_to_host(device_compute(d), got, x, (size_t)n * 784 * sizeof *got));
        MUST(copy_to_host(device_compute(d), got_labels, labels, (size_t)n * 4));
        MUST(stream_sync(device_compute(d)));
        cr_assert_eq(n, want->segments.n);
        cr_assert(!memcmp(got, want->pixels, (size_t)n * 784 * sizeof *got), "pixels of step %d",
                  steps);
        cr_assert(!memcmp(got_labels, want->labels, (size_t)n * 4), "labels of step %d", steps);
        loader_release(floats, want);
        loader_release(numbers, batch);
    }
    cr_assert(steps == 3 && !want);
    loader_free(floats), loader_free(numbers);
    device_free(d, index), device_free(d, labels), device_free(d, x);
    device_dataset_free(&resident);
    free(got);
    dataset_free(&set);
}

/* A set that does not fit: the error says that memory was asked for a data set, and nothing is
 * held. */
static inline void resident_too_large(struct device *d, int count) {
    struct dataset set = dataset_of(count, 1024);
    struct device_dataset resident;
    uint64_t before = device_ledger(d).total;
    cr_assert_eq(device_dataset_init(&resident, d, &set), ERR_MEMORY);
    MUST_SAY("asked for data set");
    cr_assert_eq(device_ledger(d).total, before);
    cr_assert_null(resident.device);
    MUST(stream_sync(device_compute(d)));
    dataset_free(&set);
}

#endif
