/* Makes small data sets in IDX files for a test: correct ones, and ones with a single fault. */
#ifndef TESTS_CLI_DATA_H
#define TESTS_CLI_DATA_H

#include <errno.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/harness.h"

static inline void put_number(FILE *f, uint32_t n) {
    for (int shift = 24; shift >= 0; shift -= 8)
        fputc((int)(n >> shift & 255), f);
}

/* An IDX file of images: the header says `said` of them, the file holds `there`. put_labels does
 * the same for labels; the last label is `label`. */
static inline void put_images_of(const char *path, uint32_t magic, uint32_t said, int there,
                                 int rows, int cols) {
    FILE *f = fopen(path, "w");
    put_number(f, magic), put_number(f, said), put_number(f, (uint32_t)rows),
        put_number(f, (uint32_t)cols);
    for (int i = 0; i < there * rows * cols; i++)
        fputc((int)((unsigned)i * (unsigned)i >> 3 & 255), f);
    fclose(f);
}

static inline void put_images(const char *path, uint32_t magic, uint32_t said, int there) {
    put_images_of(path, magic, said, there, 28, 28);
}

static inline void put_labels(const char *path, uint32_t magic, uint32_t said, int there,
                              int label) {
    FILE *f = fopen(path, "w");
    put_number(f, magic), put_number(f, said);
    for (int i = 0; i < there; i++)
        fputc(i == there - 1 ? label : i % 10, f);
    fclose(f);
}

/* Makes the folder "d" with a whole data set of `train` training and `test` test images. */
static inline void put_data(int train, int test) {
    cr_assert(mkdir("d", 0777) == 0 || errno == EEXIST);
    cr_assert_eq(system("rm -f d/*"), 0);
    put_images("d/train-images-idx3-ubyte", 2051, (uint32_t)train, train);
    put_labels("d/train-labels-idx1-ubyte", 2049, (uint32_t)train, train, 9);
    put_images("d/t10k-images-idx3-ubyte", 2051, (uint32_t)test, test);
    put_labels("d/t10k-labels-idx1-ubyte", 2049, (uint32_t)test, test, 0);
}

#define FASHION_MNIST "/usr/share/datasets/fashion-mnist/"

static inline int has_fashion_mnist(void) {
    return access(FASHION_MNIST "train-images-idx3-ubyte.gz", R_OK) == 0;
}

/* Copies the first `count` samples of `bytes` bytes each from a file of Fashion-MNIST to the folder
 * "d", with a header of their own. */
static inline void put_real(const char *name, uint32_t magic, int header, int count, int bytes) {
    char command[256], *data = malloc((size_t)(header + count * bytes));
    snprintf(command, sizeof command, "zcat " FASHION_MNIST "%s.gz", name);
    FILE *from = popen(command, "r");
    cr_assert(data && from &&
              fread(data, 1, (size_t)(header + count * bytes), from) ==
                  (size_t)(header + count * bytes));
    pclose(from);
    snprintf(command, sizeof command, "d/%s", name);
    FILE *to = fopen(command, "w");
    put_number(to, magic), put_number(to, (uint32_t)count);
    fwrite(data + 8, 1, (size_t)(header - 8 + count * bytes), to);
    fclose(to);
    free(data);
}

/* Returns flags for a small data set, so that a run of few steps is quick: the first `train`
 * training images of Fashion-MNIST and 100 test images, in the folder "d". Where Fashion-MNIST
 * is not installed it is the synthetic set. */
static inline const char *few_pictures(int train) {
    static char synthetic[64];
    snprintf(synthetic, sizeof synthetic, "--dataset synthetic --samples %d", train);
    if (!has_fashion_mnist()) return synthetic;
    put_data(1, 100);
    put_real("train-images-idx3-ubyte", 2051, 16, train, 784);
    put_real("train-labels-idx1-ubyte", 2049, 8, train, 1);
    return "--data-dir d";
}

#endif
