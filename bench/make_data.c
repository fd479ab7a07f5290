/* Writes the synthetic data set as the four IDX files for --data-dir.
 *
 *     make_data FOLDER [TRAIN [TEST]]
 *
 * TRAIN and TEST are numbers of images, by default 60000 and 10000, as in --dataset synthetic.
 * Measurements use the files: without them each process of a run draws 70,000 images before its
 * first step, and other programs (bench/torch_step.py) can read the same images. A file is written
 * whole or not at all. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/text/parse.h"
#include "data/dataset.h"

/* The header: two zero bytes, 8 for unsigned bytes, the number of dimensions, and each of them,
 * big end first. */
static void put_header(FILE *file, int rank, const int *dims) {
    const unsigned char magic[4] = {0, 0, 8, (unsigned char)rank};
    fwrite(magic, 1, sizeof magic, file);
    for (int d = 0; d < rank; d++)
        for (int shift = 24; shift >= 0; shift -= 8)
            fputc(dims[d] >> shift & 255, file);
}

static int write_idx(const char *folder, const char *name, int rank, const int *dims,
                     const uint8_t *bytes) {
    char path[PATH_MAX];
    struct atomic_file f = {0};
    size_t count = 1;
    int code = OK;
    for (int d = 0; d < rank; d++)
        count *= (size_t)dims[d];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK_GOTO(atomic_open(&f, path), code, done);
    put_header(f.file, rank, dims);
    fwrite(bytes, 1, count, f.file);
    CHECK_GOTO(atomic_commit(&f), code, done); /* also reports errors of fputc and fwrite */
done:
    atomic_abandon(&f);
    return code;
}

static int write_part(const char *folder, int count, int train) {
    struct dataset set = {0};
    const struct dataset_config config = {/* the test set is a sixth of the training set */
                                          .name = "synthetic",
                                          .samples = train ? count : 6 * count};
    int code = OK;
    CHECK_GOTO(dataset_make(&set, &config, train), code, done);
    const int dims[3] = {set.count, set.shape.height, set.shape.width};
    CHECK_GOTO(write_idx(folder, train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte", 3,
                         dims, set.images),
               code, done);
    CHECK_GOTO(write_idx(folder, train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte", 1,
                         dims, set.labels),
               code, done);
done:
    dataset_free(&set);
    return code;
}

static int run(int argc, char **argv) {
    int64_t train = 60000, test = 10000;
    if (argc < 2 || argc > 4) return fail(ERR_USAGE, "usage: make_data FOLDER [TRAIN [TEST]]");
    if (argc > 2) CHECK(parse_int("TRAIN", argv[2], 1, 1000000, &train));
    if (argc > 3) CHECK(parse_int("TEST", argv[3], 1, 1000000, &test));
    if (mkdir(argv[1], 0777) && errno != EEXIST)
        return fail_errno(ERR_FAILED, errno, "%s: cannot be made", argv[1]);
    CHECK(write_part(argv[1], (int)train, 1));
    return write_part(argv[1], (int)test, 0);
}

int main(int argc, char **argv) {
    int code = run(argc, argv);
    if (code) fprintf(stderr, "make_data: %s\n", error_message());
    return error_exit_status(code);
}
