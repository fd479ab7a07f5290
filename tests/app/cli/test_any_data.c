/* Tests data of any shape: the model adapts to the data set in every mode, and all modes end with
 * the same bits. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"
#include "tests/app/cli/nets.h"

/* Makes the folder "d" with images of rows x cols pixels and labels up to `label`. */
static void put_shape(int count, int rows, int cols, int label) {
    put_data(count, 24);
    put_images_of("d/train-images-idx3-ubyte", 2051, (uint32_t)count, count, rows, cols);
    put_images_of("d/t10k-images-idx3-ubyte", 2051, 24, 24, rows, cols);
    put_labels("d/train-labels-idx1-ubyte", 2049, (uint32_t)count, count, label);
}

/* single, dp and ddp on four devices with equal bits, which compare judges, and a comparison in
 * lock step. */
static void same_in_all_modes(const char *options) {
    cli_well("train --virtual-devices 4 %s --quiet --json one.json", options);
    cli_well("compare --devices 4 %s --quiet", options);
    cli_well("compare --devices 3 --virtual-devices off %s --quiet", options);
}

static void expect_shape(const char *file, int rows, int cols, int classes, int parameters) {
    struct json *j = json_of(file);
    cr_expect(json_int(j, "channels") == 1 && json_int(j, "height") == rows &&
              json_int(j, "width") == cols && json_int(j, "classes") == classes);
    cr_expect_eq(json_int(j, "parameter_count"), parameters);
    json_free(j);
}

CliTest(cli_any_data, files_of_any_size_and_classes, 300) {
    put_shape(31, 20, 33, 36);
    same_in_all_modes("--data-dir d --batch-size 14 --epochs 1 --lr 0.1");
    /* 20 x 33 -> 18 x 31 -> 9 x 15 -> 5 x 11 -> 2 x 5 */
    expect_shape("one.json", 20, 33, 37, 200 + 25050 + 500 * 128 + 128 + 128 * 37 + 37);
    same_in_all_modes("--data-dir d --batch-size 14 --epochs 1 --lr 0.1 --model convnet");
    /* 20 x 33 -> 18 x 31 -> 16 x 29 -> 8 x 14 */
    expect_shape("one.json", 20, 33, 37, 160 + 4640 + 32 * 112 * 64 + 64 + 64 * 37 + 37);
    put_shape(31, 1, 9, 200);
    same_in_all_modes("--data-dir d --batch-size 14 --epochs 1 --model mlp --mlp-hidden 20");
    expect_shape("one.json", 1, 9, 201, 9 * 20 + 20 + 20 * 201 + 201);
    put_shape(31, 28, 28, 3); /* with few classes the model has ten, as for a part of MNIST */
    cli_well("train --data-dir d --batch-size 14 --steps 2 --json one.json --quiet");
    expect_shape("one.json", 28, 28, 10, 129068);
}

/* A model file may accept images of only one size, which the header of the data file states. So
 * flags that depend on the model are judged by that header, too. */
CliTest(cli_any_data, a_model_that_fits_these_files_alone, 100) {
    put_norm_model("m");
    put_shape(32, 9, 8, 9);
    cli_well("compare --data-dir d --model m --batch-size 16 --epochs 1 --quiet --sync-bn");
    put_shape(32, 8, 8, 9);
    cli_fails(2, "samples of 1x9x8, the data has 1x8x8", "train --data-dir d --model m --sync-bn");
}

/* Writes the file "own.safetensors": 45 samples of 2 x 7 numbers with labels of 3 classes, and 9
 * for the test; `last` stands for the last class, and labels have 8 bytes if `wide` is 1. */
static void put_tensors(int last, int wide) {
    enum { TRAIN = 45, TEST = 9, NUMBERS = 14, CLASSES = 3 };
    const int each = wide ? 8 : 4;
    char header[400];
    uint64_t length = (uint64_t)snprintf(
        header, sizeof header,
        "{\"x\":{\"dtype\":\"F32\",\"shape\":[45,2,7],\"data_offsets\":[0,2520]},"
        "\"x_test\":{\"dtype\":\"F32\",\"shape\":[9,2,7],\"data_offsets\":[2520,3024]},"
        "\"y\":{\"dtype\":\"I%d\",\"shape\":[45],\"data_offsets\":[3024,%d]},"
        "\"y_test\":{\"dtype\":\"I%d\",\"shape\":[9],\"data_offsets\":[%d,%d]}}",
        8 * each, 3024 + 45 * each, 8 * each, 3024 + 45 * each, 3024 + 54 * each);
    FILE *f = fopen("own.safetensors", "w");
    fwrite(&length, sizeof length, 1, f);
    fputs(header, f);
    for (int i = 0; i < (TRAIN + TEST) * NUMBERS; i++)
        fwrite(&(float){(float)(i * 37 % 101 - 50) / 25}, sizeof(float), 1, f);
    for (int i = 0; i < TRAIN + TEST; i++) {
        int64_t label = i % CLASSES < CLASSES - 1 ? i % CLASSES : last;
        fwrite(&label, (size_t)each, 1, f); /* little-endian */
    }
    fclose(f);
}

CliTest(cli_any_data, a_file_of_tensors, 300) {
    put_tensors(2, 0);
    same_in_all_modes("--dataset own.safetensors --batch-size 14 --epochs 1 --model mlp "
                      "--mlp-hidden 20");
    struct json *j = json_of("one.json");
    cr_expect_str_eq(json_text(j, "dataset"), "own.safetensors");
    cr_expect(json_int(j, "train_samples") == 45 && json_int(j, "test_samples") == 9);
    cr_expect(json_int(j, "channels") == 2 && json_int(j, "height") == 7);
    json_free(j);
    cli_well("estimate --dataset ./own.safetensors --model mlp --devices 2 --batch-size 14");
    cli_fails(2, "--shape: no effect with data set",
              "train --dataset own.safetensors --model mlp --shape 14");
    cli_fails(2, "--data-dir: d: --dataset own.safetensors is a file",
              "train --dataset own.safetensors --model mlp --data-dir d");
    cli_fails(2, "--dataset and --json|the same file",
              "train --dataset own.safetensors --model mlp --json ./own.safetensors");
    cli_fails(1, "--loss: mse: y of data set",
              "train --dataset own.safetensors --model mlp --loss mse");
    cli_fails(1, "cannot read: none.safetensors", "train --dataset none.safetensors --model mlp");
}

/* Labels of -100 do not count, as in PyTorch, in every mode. */
CliTest(cli_any_data, labels_that_are_ignored, 100) {
#define IGNORING "--dataset own.safetensors --batch-size 14 --epochs 1 --model mlp --mlp-hidden 20"
    put_tensors(2, 0);
    cli_well("train " IGNORING " --log-loss counted.csv --quiet");
    put_tensors(-100, 1);
    cli_well("train " IGNORING " --log-loss wide.csv --quiet");
    put_tensors(-100, 0);
    cli_well("train " IGNORING " --log-loss ignored.csv --quiet");
    cr_expect(cli_same_file("wide.csv", "ignored.csv") &&
              !cli_same_file("counted.csv", "ignored.csv"));
    same_in_all_modes(IGNORING);
    put_tensors(-99, 0);
    cli_fails(1,
              "label -99 of sample 2: labels are 0 to the number of classes - 1, or -100, the "
              "ignore_index",
              "train " IGNORING);
}
