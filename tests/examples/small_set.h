/* A scratch folder with a data set that is small enough for sanitizer builds. */
#ifndef TESTS_API_SMALL_SET_H
#define TESTS_API_SMALL_SET_H

#include "base/error.h"
#include "tests/core/data/synthetic.h"
#include "tests/examples/shell.h"

static inline void write_file(const char *name, const unsigned char *header, size_t header_bytes,
                              const void *data, size_t bytes) {
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(header, 1, header_bytes, file) + fwrite(data, 1, bytes, file),
                 header_bytes + bytes);
    cr_assert_eq(fclose(file), 0);
}

/* Writes a part of a data set as IDX files; it is small enough for sanitizer builds. Only the two
 * low bytes of each size can differ from 0. */
static inline void small_set(const char *images, const char *labels, int count, int train) {
    struct dataset set;
    unsigned char high = (unsigned char)(count >> 8), low = (unsigned char)count;
    cr_assert_eq(synthetic_set(&set, count, train), OK, "%s", error_message());
    write_file(images, (unsigned char[]){0, 0, 8, 3, 0, 0, high, low, 0, 0, 0, 28, 0, 0, 0, 28}, 16,
               set.images, (size_t)count * 784);
    write_file(labels, (unsigned char[]){0, 0, 8, 1, 0, 0, high, low}, 8, set.labels,
               (size_t)count);
    dataset_free(&set);
}

static inline void data_make(void) {
    scratch_make();
    small_set("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 600, 1);
    small_set("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 100, 0);
}

#endif
