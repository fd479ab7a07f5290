/* Passes broken files to the command in every mode: images, labels and weights.
 * core/data/test_data.c tests every fault of an IDX file. Each file is listed with the words that
 * the one-line error must contain. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/run.h"

static const char *const MODES[] = {"single", "dp", "ddp"};
enum { TRAIN = 24, TEST = 12 };

/* ---- images ---- */

static void all_modes_fail(const char *words) {
    for (int m = 0; m < 3; m++)
        cli_fails(
            1, words,
            "train --mode %s --data-dir d --batch-size 8 --steps 2 --save w --log-loss l --json j",
            MODES[m]);
    cli_fails(1, words, "compare --data-dir d --batch-size 8 --steps 2 --json j");
}

static void good_again(void) {
    put_data(TRAIN, TEST);
    cli_well("train --mode ddp --data-dir d --batch-size 8 --steps 2 --quiet");
}

CliTest(cli_bad_files, pictures, 300) {
    good_again();
    put_images("d/train-images-idx3-ubyte", 2051, TRAIN, TRAIN - 1);
    all_modes_fail("truncated|train-images-idx3-ubyte");
    unlink("d/train-images-idx3-ubyte");
    all_modes_fail("train-images-idx3-ubyte|make data");
}

/* Test images that are larger or smaller than those for training, or have as many pixels in
 * another shape. Read in the wrong shape they would be read across rows or too far. */
CliTest(cli_bad_files, pictures_of_two_sizes, 120) {
    static const int sizes[][2] = {{32, 32}, {14, 56}, {28, 27}};
    for (int i = 0; i < 3; i++) {
        char words[64];
        good_again();
        snprintf(words, sizeof words, "test images|1x28x28|1x%dx%d", sizes[i][0], sizes[i][1]);
        put_images_of("d/train-images-idx3-ubyte", 2051, TRAIN, TRAIN, sizes[i][0], sizes[i][1]);
        all_modes_fail(words);
    }
    put_images_of("d/train-images-idx3-ubyte", 2051, TRAIN, TRAIN, 13, 28);
    cli_fails(2, "model lenet|1x13x28|at least 14 x 14", "train --data-dir d --batch-size 8");
}

CliTest(cli_bad_files, labels, 300) {
    good_again();
    put_labels("d/t10k-labels-idx1-ubyte", 2049, TEST, TEST,
               255); /* the training set has 10 classes, and so does the model */
    all_modes_fail("test labels|up to 255|10 classes|--classes 256");
}

CliTest(cli_bad_files, folders, 120) {
    static const char all_ways[] =
        "apt install dataset-fashion-mnist|make data|--data-dir|--dataset synthetic";
    cr_assert_eq(mkdir("d", 0777), 0);
    all_modes_fail(all_ways);
    cli_fails(1, all_ways, "train --data-dir nowhere");
    put_data(TRAIN, TEST);
    cli_fails(1, "in d/train-images|--data-dir DIR", "train --data-dir d/train-images-idx3-ubyte");
    unlink("d/train-images-idx3-ubyte");
    cr_assert_eq(mkdir("d/train-images-idx3-ubyte", 0777), 0);
    all_modes_fail("train-images-idx3-ubyte|not a regular file");
}

/* ---- weights ---- */

static void put_weights(const char *header, uint64_t length, size_t data) {
    FILE *f = fopen("w", "w");
    fwrite(&length, 8, 1, f);
    fputs(header, f);
    for (size_t i = 0; i < data; i++)
        fputc(0, f);
    fclose(f);
}

static void all_modes_refuse(const char *words) {
    for (int m = 0; m < 3; m++)
        cli_fails(
            1, words,
            "train --mode %s --model mlp --mlp-hidden 1 --dataset synthetic --samples 64 --steps 1 "
            "--init-from w --save w2 --json j",
            MODES[m]);
}

/* A file with the four tensors of mlp with one hidden unit: the name and shape of the first are
 * given. */
static void put_mlp(const char *first, const char *shape) {
    char header[1024];
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[0,3136]},"
             "\"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[3136,3140]},"
             "\"fc2.weight\":{\"dtype\":\"F32\",\"shape\":[10,1],\"data_offsets\":[3140,3180]},"
             "\"fc2.bias\":{\"dtype\":\"F32\",\"shape\":[10],\"data_offsets\":[3180,3220]}}   ",
             first, shape);
    put_weights(header, strlen(header), 3220);
}

CliTest(cli_bad_files, weights, 300) {
    static const char good[] = "[1,784]";
    put_mlp("fc1.weight", good);
    cli_well(
        "train --mode ddp --model mlp --mlp-hidden 1 --dataset synthetic --samples 64 --steps 1 "
        "--init-from w --quiet");
    put_mlp("fc1.weight", "[784,1]");
    all_modes_refuse("'fc1.weight'|[784, 1]|[1, 784]");
    put_mlp("fc1.weights", good);
    all_modes_refuse("'fc1.weight'|w");
    put_weights(" {}", 0x04034b50, 0); /* "PK\3\4", as a zip file begins */
    all_modes_refuse("not a safetensors file: w: it is a file of torch.save: convert it: "
                     "python -m duet convert w w.safetensors");
    unlink("w");
    all_modes_refuse("cannot read|w|No such file");
    cli_fails(1, "cannot read|missing",
              "compare --dataset synthetic --samples 64 --steps 1 --init-from missing --json j");
    cli_fails(1, "'fc1.weight'|lenet_300",
              "train --model mlp --dataset synthetic --samples 64 --steps 1 --init-from "
              "golden/lenet_300.safetensors");
}
