/* Tests equal bits: single, dp and ddp on any number of devices end with equal files of losses and
 * weights if docs/design.md section 2 promises it. From the initial weights a wrong order of sums
 * changes few parameters, so LeNet's tests start from weights after 300 steps. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"
#include "tests/app/cli/nets.h"
#include "tests/app/cli/ways.h"

#define LENET "--init-from golden/lenet_300.safetensors "
#define OWN "--data-dir d --virtual-devices 4 "
#define MLP OWN "--model mlp --mlp-hidden 20 --batch-size 24 --epochs 4 --lr 0.1 "
#define RANDOM "--dataset random --virtual-devices 4 --batch-size 12 "
#define NORM                                                                                  \
    "--dataset synthetic --shape 1x9x8 --samples 22 --virtual-devices 4 --batch-size 8 --lr " \
    "0.05 --seed 3 --epochs 1 "

#define BRANCHES OWN "--model branches --find-unused-parameters --epochs 2 --batch-size 11 "

/* Of a flag given twice the last one counts: the short form takes fewer and smaller steps. */
static const char *words(int pictures, const char *options) {
    static char text[512];
    snprintf(text, sizeof text, "%s --virtual-devices 4 --lr 0.2 --batch-size 64 %s%s",
             few_pictures(pictures), options, test_short() ? " --steps 3 --batch-size 16" : "");
    return text;
}

/* The matrix: what is trained, and in which ways, by kind of test. The short form runs only the
 * first row of most kinds. Each row ends with other weights than the row before, so its options
 * have an effect. */
enum kind {
    OPTIONS,
    ALGORITHMS,
    OPTIMIZERS,
    LAST_BATCHES,
    SUMS,
    LEFT_OUT,
    NORMS,
    SHARDED_DATA,
    DRAWN
};
enum { PICTURES = 6 * 64 + 100 }; /* more than 6 steps of 64 */
static const struct row {
    enum kind kind;
    way *ways;
    const char *options;
    int pictures; /* not 0: of so many, with the options of `words` */
} rows[] = {
    {ALGORITHMS, ALL, "--steps 6 " LENET, PICTURES},
    {ALGORITHMS, EIGHT, "--virtual-devices 8 --steps 6 " LENET, PICTURES},
    /* 60 steps, the last with 24 images: long enough for SGD to amplify a difference in a last
     * bit */
    {ALGORITHMS, FOUR, "--lr 0.1 --epochs 1", 59 * 64 + 24},
    {OPTIONS, SOME,
     "--steps 6 --momentum 0.9 --weight-decay 1e-3 --lr 0.02 --bucket-cap-mb 0.1 --seed 7 "
     "--workers 0 " LENET,
     PICTURES},
    {OPTIONS, SOME, "--model convnet --batch-size 33 --steps 4 --seed 3", PICTURES}, /* dropout */
    {OPTIONS, SOME,
     "--model mlp --mlp-hidden 100,30 --batch-size 65 --steps 6 --seed -3 --workers 3", PICTURES},
    {OPTIMIZERS, SOME, MLP "--optimizer adam --lr 0.01", 0},
    {OPTIMIZERS, SOME, MLP "--optimizer adamw --lr 0.01 --weight-decay 0.1", 0},
    {OPTIMIZERS, SOME, MLP "--momentum 0.9", 0},
    {OPTIMIZERS, SOME, MLP "--momentum 0.9 --weight-decay 1e-3", 0},
    {OPTIMIZERS, SOME, MLP "--optimizer adadelta --lr 1", 0},
    /* 103 images are padded to 104, or cut to 100. The last batch is short, has fewer samples
     * than devices, or is left out; or the only one is short, and its samples weigh by its own
     * size. */
    {LAST_BATCHES, DP, OWN LENET "--epochs 2 --batch-size 11", 0},
    {LAST_BATCHES, DP, OWN LENET "--epochs 1 --batch-size 11 --drop-last", 0},
    {LAST_BATCHES, DP, OWN LENET "--epochs 1 --batch-size 17", 0},
    {LAST_BATCHES, DP, OWN LENET "--epochs 1 --batch-size 51 --no-shuffle", 0},
    {LAST_BATCHES, DP, OWN LENET "--epochs 1 --batch-size 500", 0},
    /* 103 in batches of 8: the last has 7, and the last of the devices has none of them */
    {LAST_BATCHES, EIGHT,
     "--data-dir d --epochs 2 --batch-size 8 --join --virtual-devices 8 --momentum 0.9 --model mlp",
     0},
    /* Three batches per update. An epoch has ten batches, so the last update has one, which is
     * short; updates of four leave two for the last. DDP sums over the ranks once per update. */
    {SUMS, SOME, OWN LENET "--epochs 2 --batch-size 11 --lr 0.1 --no-sync-steps 3", 0},
    {SUMS, FOUR, OWN "--epochs 1 --batch-size 11 --lr 0.1 --no-sync-steps 4 --model convnet", 0},
    {SUMS, FOUR, OWN LENET "--epochs 1 --batch-size 11 --no-sync-steps 100 --momentum 0.9", 0},
    /* A layer that no device used keeps its momentum, and counts its own updates in Adam. */
    {LEFT_OUT, SOME, BRANCHES "--momentum 0.9 --weight-decay 1e-3 --lr 0.05", 0},
    {LEFT_OUT, SOME, BRANCHES "--optimizer adam --no-sync-steps 2", 0},
    {LEFT_OUT, DP, BRANCHES "--optimizer adadelta", 0},
    /* BatchNorm, running statistics included; the last batch of an epoch is short. With --join the
     * last batch of 19 samples has 3: the fourth rank has none and shadows the others, buffers
     * included. */
    {NORMS, FOUR, NORM "--model small", 0},
    {NORMS, FOUR, NORM "--model small --samples 19 --join", 0},
    {NORMS, DDP, NORM "--model small --samples 19 --no-sync-steps 2", 0},
    {NORMS, DDP, NORM "--model small --sync-bn", 0},
    {NORMS, DDP, RANDOM "--model without --samples 32 --sync-bn --epochs 1", 0},
    {NORMS, FOUR, NORM "--model resnet18", 0},
    /* each layer a unit, or all of them; of 103 images in batches of 51 the last one has one */
    {SHARDED_DATA, SHARDS, BRANCHES "--optimizer adam --lr 0.001", 0},
    {SHARDED_DATA, SHARDS, OWN LENET "--epochs 1 --batch-size 32 --momentum 0.9", 0},
    {SHARDED_DATA, SHARDS,
     OWN "--model convnet --epochs 1 --batch-size 11 --no-sync-steps 3 --optimizer adadelta", 0},
    {SHARDED_DATA, SHARDS, OWN LENET "--epochs 1 --batch-size 51 --join --optimizer adam", 0},
    {SHARDED_DATA, ODD,
     "--data-dir d --virtual-devices 5 --model convnet --batch-size 32 --epochs 1 --momentum 0.9",
     0},
    /* samples of other shapes, outputs of other sizes, targets */
    {DRAWN, SOME, RANDOM "--model simple --loss mse --samples 103 --epochs 3 --lr 0.1", 0},
    {DRAWN, SOME, RANDOM "--model complex --samples 50 --epochs 1 --lr 0.01 --workers 0", 0},
    {DRAWN, SOME,
     RANDOM "--model complex --loss mse --shape 2x9x5 --classes 3 --samples 70 --epochs 2 --lr "
            "0.01 --momentum 0.9",
     0},
    {DRAWN, SOME,
     RANDOM "--model mlp --shape 17 --mlp-hidden 9 --classes 300 --samples 70 --epochs 2", 0},
};

static void all_rows(enum kind kind) {
    int first = 1;
    put_norm_model("small");
    put_net("without", "duet 1\n" /* running statistics */
                       "input %x: f32[N, 10]\n"
                       "parameter bn.weight: f32[10]\n"
                       "parameter bn.bias: f32[10]\n"
                       "%1: f32[N, 10] = batch_norm(%x, bn.weight, bn.bias, none, none, none)\n"
                       "return %1\n");
    put_data(kind == OPTIMIZERS ? 90 : 103, 20);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        if (r->kind != kind || (test_short() && !first && kind != OPTIONS)) continue;
        const char *options = r->pictures ? words(r->pictures, r->options) : r->options;
        train("single", options, "one");
        all_as_one(test_short() && kind != ALGORITHMS && kind != SHARDED_DATA ? TWO : r->ways,
                   options);
        cr_expect(first || !cli_same_file("one", "before"), "%s: as the row before", r->options);
        cr_assert_eq(rename("one", "before"), 0);
        first = 0;
    }
}

#define KIND(NAME, OF)                  \
    CliTest(cli_same_bits, NAME, 600) { \
        all_rows(OF);                   \
    }
KIND(every_algorithm, ALGORITHMS)
KIND(options, OPTIONS)
KIND(each_optimizer, OPTIMIZERS)
KIND(short_last_batches, LAST_BATCHES)
KIND(accumulated_gradients, SUMS)
KIND(layers_that_steps_leave_out, LEFT_OUT)
KIND(batch_norm, NORMS)
KIND(shards, SHARDED_DATA)
KIND(random_data, DRAWN)

/* What travels into device 1 in 12 batches of which each `passes` make one update. */
static int64_t bytes_of_twelve_batches(const char *mode, int passes) {
    cli_well("train --mode %s --data-dir d --steps %d --no-sync-steps %d --batch-size 8 --quiet "
             "--json j",
             mode, 12 / passes, passes);
    struct json *j = json_of("j");
    int64_t bytes = json_int(j, "per_device/1/bytes_in");
    cr_assert_eq(json_int(j, "steps"), 12 / passes);
    cr_assert_eq(json_int(j, "samples"), 96);
    json_free(j);
    return bytes;
}

/* DDP moves gradients once an update; DP replicates its parameters for every batch. */
CliTest(cli_same_bits, accumulation_saves_allreduces, 120) {
    put_data(96, 20);
    int64_t one = bytes_of_twelve_batches("ddp", 1), three = bytes_of_twelve_batches("ddp", 3),
            six = bytes_of_twelve_batches("ddp", 6);
    cr_expect_eq((one - three) * 2, (three - six) * 8, "12, 4 and 2 allreduces: %lld %lld %lld",
                 (long long)one, (long long)three, (long long)six);
    cr_expect_gt(three - six, 129068 * 4, "two allreduces of lenet: %lld",
                 (long long)(three - six));
    cr_expect_eq(bytes_of_twelve_batches("dp", 1), bytes_of_twelve_batches("dp", 6));
}

/* Except for rounding, updates of K batches are those of batches K times as large: 64, 64, 64 and
 * 16 samples. A loss that weighs samples by 1/B instead of 1/(K B) is 4 times as large. */
CliTest(cli_same_bits, accumulation_is_one_large_batch, 120) {
    put_data(208, 20);
    for (int dp = 0; dp < 2; dp++) {
        const char *mode = dp ? "dp --devices 2" : "single";
        train(mode, OWN "--epochs 1 --batch-size 64", "one");
        train(mode, OWN "--epochs 1 --batch-size 16 --no-sync-steps 4", "two");
        cr_assert_eq(near_losses("one.csv", "two.csv", 1e-5), 4);
    }
}

/* Makes the folder "d" with images of rows x cols pixels and labels up to `label`.
 * tests/models/test_shapes.c shows how models follow the data. */
static void put_shape(int count, int rows, int cols, int label) {
    put_data(count, 24);
    put_images_of("d/train-images-idx3-ubyte", 2051, (uint32_t)count, count, rows, cols);
    put_images_of("d/t10k-images-idx3-ubyte", 2051, 24, 24, rows, cols);
    put_labels("d/train-labels-idx1-ubyte", 2049, (uint32_t)count, count, label);
}

/* Each batch of an update has its own dropout masks. All samples here are equal, and so are their
 * labels from batch to batch: the losses of two batches differ by their masks alone. */
CliTest(cli_same_bits, accumulated_batches_have_masks_of_their_own, 60) {
#define MASKS "--data-dir d --model convnet --batch-size 10 --epochs 1 --no-shuffle --lr 0 "
    double one[2], two[1];
    put_shape(20, 32, 32, 9);
    train("single", MASKS, "one");
    train("single", MASKS "--no-sync-steps 2", "two");
    cr_assert(losses_of("one.csv", one, 2) == 2 && losses_of("two.csv", two, 1) == 1);
    cr_expect(one[0] != one[1] && fabs((one[0] + one[1]) / 2 - two[0]) < 1e-5, "%.9g, %.9g: %.9g",
              one[0], one[1], two[0]);
}

/* What is said about samples and layers that steps leave out. */
CliTest(cli_same_bits, what_is_left_out, 120) {
#define OF_BRANCHES "--data-dir d --model branches --batch-size 16 --quiet"
    static const struct {
        int status;
        const char *says, *command;
    } cases[] = {
        {2, "--join and --drop-last", "train --join --drop-last"},
        {0, "DDP ~ single",
         "compare " OF_BRANCHES " --find-unused-parameters --virtual-devices off --steps 3"},
        {0, "did not find any unused parameters in the forward pass",
         "train --mode ddp --data-dir d --model mlp --steps 2 --find-unused-parameters"},
        {0, "!did not find any unused parameters",
         "train --mode ddp --steps 2 --find-unused-parameters " OF_BRANCHES},
        {1,
         "Expected to have finished reduction in the prior iteration|You can enable unused "
         "parameter detection by passing --find-unused-parameters|: right.weight, right.bias. ",
         "train --mode ddp " OF_BRANCHES},
        /* no step after the last one could fail */
        {0, "right.weight, right.bias", "train --mode ddp --steps 1 " OF_BRANCHES},
        {3, "(rank 0: right.weight,", "compare --steps 1 " OF_BRANCHES},
    };
    put_data(103, 20);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cli_says(cases[i].status, cases[i].says, "%s", cases[i].command);
    cli_well("train --mode ddp --devices 8 --epochs 2 --batch-size 8 --join --model mlp --quiet "
             "--data-dir d --json j");
    struct json *j = json_of("j");
    cr_expect(json_int(j, "samples") == 206 && json_int(j, "duplicates") == 0);
    json_free(j);
}

/* The checks above can fail: with virtual devices off each mode cuts the batch by its own number of
 * devices, and the bits differ. */
CliTest(cli_same_bits, off_differs, 120) {
    const char *options = words(PICTURES, "--virtual-devices off --steps 6 " LENET);
    train("single", options, "one");
    for (way *w = TWO; *w; w++) {
        train(*w, options, "two");
        cr_assert(!cli_same_file("one", "two"), "%s", *w);
    }
}

/* compare proves the bits of four devices, and agrees with three in lock step. */
static void in_all_modes(const char *options, int classes) {
    cli_well("compare --devices 4 --batch-size 14 --epochs 1 --quiet %s --json j", options);
    cli_well("compare --devices 3 --virtual-devices off --batch-size 14 --epochs 1 --quiet %s",
             options);
    struct json *j = json_of("j");
    cr_expect_eq(json_int(j, "single/classes"), classes, "%s", options);
    json_free(j);
}

CliTest(cli_same_bits, files_of_any_size_and_classes, 300) {
    put_shape(31, 20, 33, 36);
    in_all_modes("--data-dir d --lr 0.1", 37);
    in_all_modes("--data-dir d --lr 0.1 --model convnet", 37);
    put_shape(31, 1, 9, 200);
    in_all_modes("--data-dir d --model mlp --mlp-hidden 20", 201);
    put_shape(31, 28, 28, 3); /* with few classes the model has ten, as for a part of MNIST */
    in_all_modes("--data-dir d", 10);
}

/* A model file may accept images of only one size, which the header of the data file states. So
 * flags that depend on the model are judged by that header, too. */
CliTest(cli_same_bits, a_model_that_fits_these_files_alone, 100) {
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

#define OF_FILE "--dataset own.safetensors --model mlp --mlp-hidden 20 "

/* Labels of -100 do not count, as in PyTorch, in every mode. */
CliTest(cli_same_bits, a_file_of_tensors, 300) {
    static const struct {
        int status;
        const char *says, *command;
    } cases[] = {
        {0, "own.safetensors", "estimate --devices 2 --batch-size 14 " OF_FILE},
        {2, "--shape: no effect with data set", "train --shape 14 " OF_FILE},
        {2, "--data-dir: d: --dataset own.safetensors is a file", "train --data-dir d " OF_FILE},
        {2, "--dataset and --json|the same file", "train --json ./own.safetensors " OF_FILE},
        {1, "--loss: mse: y of data set", "train --loss mse " OF_FILE},
        {1, "cannot read: none.safetensors", "train " OF_FILE "--dataset none.safetensors"},
    };
    put_tensors(2, 0);
    in_all_modes(OF_FILE, 10);
    cli_well("train " OF_FILE "--epochs 1 --log-loss counted.csv --quiet --json j");
    struct json *j = json_of("j");
    cr_expect_str_eq(json_text(j, "dataset"), "own.safetensors");
    cr_expect(json_int(j, "train_samples") == 45 && json_int(j, "test_samples") == 9);
    json_free(j);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cli_says(cases[i].status, cases[i].says, "%s", cases[i].command);
    put_tensors(-100, 1);
    cli_well("train " OF_FILE "--epochs 1 --log-loss wide.csv --quiet");
    put_tensors(-100, 0);
    cli_well("train " OF_FILE "--epochs 1 --log-loss ignored.csv --quiet");
    cr_expect(cli_same_file("wide.csv", "ignored.csv") &&
              !cli_same_file("counted.csv", "ignored.csv"));
    in_all_modes(OF_FILE, 10);
    put_tensors(-99, 0);
    cli_fails(1,
              "label -99 of sample 2: labels are 0 to the number of classes - 1, or -100, the "
              "ignore_index",
              "train " OF_FILE);
}
