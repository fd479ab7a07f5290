/* Tests equal bits: single, dp and ddp on any number of devices end with equal files of losses and
 * weights if docs/design.md section 2 promises it. From the initial weights a wrong order of sums
 * changes few parameters, so LeNet's tests start from weights after 300 steps. */
#include "device/op.h"
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"
#include "tests/app/cli/nets.h"
#include "tests/app/cli/of_mode.h"

/* A way: mode, devices, allreduce. */
struct way {
    const char *mode;
    int devices;
    const char *allreduce;
};

enum { MOST_WAYS = 16 };
struct ways {
    struct way way[MOST_WAYS];
};
static const struct ways ALL = {{{"dp", 1, "auto"},
                                 {"dp", 2, "auto"},
                                 {"dp", 4, "auto"},
                                 {"ddp", 1, "direct"},
                                 {"ddp", 2, "naive"},
                                 {"ddp", 2, "oneshot"},
                                 {"ddp", 2, "direct"},
                                 {"ddp", 2, "ring"},
                                 {"ddp", 2, "tree"},
                                 {"ddp", 4, "naive"},
                                 {"ddp", 4, "oneshot"},
                                 {"ddp", 4, "direct"},
                                 {"ddp", 4, "auto"}}},
                         SOME = {{{"dp", 2, "auto"},
                                  {"dp", 4, "auto"},
                                  {"ddp", 2, "ring"},
                                  {"ddp", 4, "direct"}}},
                         FEW = {{{"dp", 4, "auto"}, {"ddp", 2, "ring"}}},
                         FOUR = {{{"dp", 4, "auto"}, {"ddp", 4, "direct"}}},
                         DP = {{{"dp", 2, "auto"}, {"dp", 4, "auto"}}},
                         DDP = {{{"ddp", 2, "ring"}, {"ddp", 4, "direct"}}},
                         FUSED = {{{"ddp", 2, "auto"}, {"dp", 4, "auto"}, {"ddp", 4, "fused"}}},
                         EIGHT = {{{"dp", 2, "auto"},
                                   {"dp", 4, "auto"},
                                   {"dp", 8, "auto"},
                                   {"ddp", 2, "tree"},
                                   {"ddp", 4, "oneshot"},
                                   {"ddp", 8, "direct"}}},
                         JOINED = {{{"dp", 4, "auto"}, {"ddp", 2, "auto"}, {"ddp", 8, "auto"}}};

static void train(const char *mode, int devices, const char *allreduce, const char *options,
                  const char *to) {
    char all[1024];
    snprintf(all, sizeof all, "--devices %d --allreduce %s %s", devices, allreduce, options);
    cli_well("train --mode %s %s --quiet --log-loss %s.csv --save %s", mode, of_mode(mode, all), to,
             to);
}

/* All ways end with the files of a single device. short_form: two of the ways. */
static void all_equal(const struct ways *ways, const char *options, int short_form) {
    if (short_form && ways != &FOUR) ways = &FEW;
    train("single", 1, "auto", options, "one");
    for (const struct way *way = ways->way; way < ways->way + MOST_WAYS && way->mode; way++) {
        train(way->mode, way->devices, way->allreduce, options, "two");
        cr_expect(cli_same_file("one.csv", "two.csv"), "%s on %d, %s: losses differ: %s", way->mode,
                  way->devices, way->allreduce, options);
        cr_expect(cli_same_file("one", "two"), "%s on %d, %s: weights differ: %s", way->mode,
                  way->devices, way->allreduce, options);
    }
}

enum { PICTURES = 6 * 64 + 100 }; /* more than 6 steps of 64 */

/* Of a flag given twice the last one counts: the short form takes fewer and smaller steps. */
static const char *words(const char *options) {
    static char text[512];
    snprintf(text, sizeof text, "%s --virtual-devices 4 --lr 0.2 --batch-size 64 %s%s",
             few_pictures(PICTURES), options, test_short() ? " --steps 3 --batch-size 16" : "");
    return text;
}

#define LENET "--init-from golden/lenet_300.safetensors "
#define OWN "--data-dir d --virtual-devices 4 "
#define MLP OWN "--model mlp --mlp-hidden 20 --batch-size 24 --epochs 4 --lr 0.1 "
#define RANDOM "--dataset random --virtual-devices 4 --batch-size 12 "
#define NORM                                                                                  \
    "--dataset synthetic --shape 1x9x8 --samples 22 --virtual-devices 4 --batch-size 8 --lr " \
    "0.05 --seed 3 --epochs 1 "

/* The matrix: what is trained, and in which ways, by kind of test. The short form runs only the
 * first row of most kinds. */
enum kind { OPTIONS, ALGORITHMS, EIGHT_PARTS, OPTIMIZERS, LAST_BATCHES, SUMS, NORMS, DRAWN };
static const struct row {
    enum kind kind;
    const struct ways *ways;
    const char *options;
    int few; /* 1: on few_pictures, with its options above */
} rows[] = {
    {ALGORITHMS, &ALL, "--steps 6 " LENET, 1},
    /* small buckets, momentum, weight decay */
    {OPTIONS, &SOME,
     "--steps 6 --momentum 0.9 --weight-decay 1e-3 --lr 0.02 --bucket-cap-mb 0.1 --seed 7 "
     "--workers 0 " LENET,
     1},
    /* the sums do not depend on when the allreduce runs */
    {OPTIONS, &DDP, "--steps 6 --no-overlap --bucket-cap-mb 0.1 " LENET, 1},
    {OPTIONS, &DP, "--steps 6 --loss-in-forward " LENET, 1},
    {OPTIONS, &DP, "--steps 6 --output-device 1 --dp-reduce sharded " LENET, 1},
    {OPTIONS, &DP, "--steps 6 --output-device 1 --dp-reduce sharded --loss-in-forward " LENET, 1},
    {OPTIONS, &SOME, "--model convnet --batch-size 33 --steps 4 --seed 3", 1}, /* with dropout */
    {OPTIONS, &SOME,
     "--model mlp --mlp-hidden 100,30 --batch-size 65 --steps 6 --seed -3 --workers 3", 1},
    {EIGHT_PARTS, &EIGHT, "--virtual-devices 8 --steps 6 " LENET, 1},
    /* no two of these end with the same weights, so each flag has an effect */
    {OPTIMIZERS, &SOME, MLP "--optimizer adam --lr 0.01", 0},
    {OPTIMIZERS, &SOME, MLP "--optimizer adamw --lr 0.01 --weight-decay 0.1", 0},
    {OPTIMIZERS, &SOME, MLP "--momentum 0.9", 0},
    {OPTIMIZERS, &SOME, MLP "--momentum 0.9 --weight-decay 1e-3", 0},
    {OPTIMIZERS, &SOME, MLP "--optimizer adadelta --lr 1", 0},
    /* 103 images are padded to 104, or cut to 100. The last batch is short, has fewer samples
     * than devices, or is left out; or the only one is short, and its samples weigh by its own
     * size. */
    {LAST_BATCHES, &FOUR, OWN LENET "--epochs 2 --batch-size 11", 0},
    {LAST_BATCHES, &FOUR, OWN LENET "--epochs 1 --batch-size 11 --drop-last", 0},
    {LAST_BATCHES, &FOUR, OWN LENET "--epochs 1 --batch-size 17", 0},
    {LAST_BATCHES, &FOUR, OWN LENET "--epochs 1 --batch-size 51 --no-shuffle", 0},
    {LAST_BATCHES, &FOUR, OWN LENET "--epochs 1 --batch-size 500", 0},
    /* 103 in batches of 8: the last has 7, and the last of the devices has none of them */
    {LAST_BATCHES, &JOINED,
     "--data-dir d --epochs 2 --batch-size 8 --join --virtual-devices 8 --momentum 0.9 --model mlp",
     0},
    /* Three batches per update. An epoch has ten batches, so the last update has one, which is
     * short; updates of four leave two for the last. DDP sums over the ranks once per update. */
    {SUMS, &FOUR, OWN LENET "--epochs 2 --batch-size 11 --lr 0.1 --no-sync-steps 3", 0},
    {SUMS, &FOUR, OWN "--epochs 1 --batch-size 11 --lr 0.1 --no-sync-steps 4 --model convnet", 0},
    {SUMS, &FOUR,
     OWN LENET "--epochs 1 --batch-size 11 --lr 0.1 --no-sync-steps 3 --loss-in-forward "
               "--bucket-cap-mb 0.1",
     0},
    {SUMS, &FOUR,
     OWN LENET "--epochs 1 --batch-size 11 --lr 0.1 --no-sync-steps 100 --momentum 0.9", 0},
    /* BatchNorm, running statistics included; the last batch of an epoch is short. With --join the
     * last batch of 19 samples has 3: the fourth rank has none and shadows the others, buffers
     * included. */
    {NORMS, &FUSED, NORM "--model small", 0},
    {NORMS, &FOUR, NORM "--model small --samples 19 --join", 0},
    {NORMS, &DDP, NORM "--model small --samples 19 --no-sync-steps 2", 0},
    {NORMS, &DDP, NORM "--model small --sync-bn", 0},
    {NORMS, &FOUR, NORM "--model resnet18", 0},
    /* samples of other shapes, outputs of other sizes, targets */
    {DRAWN, &SOME, RANDOM "--model simple --loss mse --samples 103 --epochs 3 --lr 0.1", 0},
    {DRAWN, &SOME, RANDOM "--model complex --samples 50 --epochs 1 --lr 0.01 --workers 0", 0},
    {DRAWN, &DP, RANDOM "--model complex --samples 50 --epochs 1 --lr 0.01 --loss-in-forward", 0},
    {DRAWN, &SOME,
     RANDOM "--model complex --loss mse --shape 2x9x5 --classes 3 --samples 70 --epochs 2 --lr "
            "0.01 --momentum 0.9",
     0},
    {DRAWN, &SOME,
     RANDOM "--model mlp --shape 17 --mlp-hidden 9 --classes 300 --samples 70 --epochs 2", 0},
};

static void all_rows(enum kind kind) {
    int first = 1;
    put_norm_model("small");
    put_data(kind == OPTIMIZERS ? 90 : 103, 20);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        if (r->kind != kind || (test_short() && !first && kind != OPTIONS)) continue;
        first = 0;
        all_equal(r->ways, r->few ? words(r->options) : r->options,
                  test_short() && kind != ALGORITHMS);
        cr_expect(kind != OPTIMIZERS || access("before", F_OK) || !cli_same_file("one", "before"),
                  "%s: as without it", r->options);
        cr_assert_eq(rename("one", "before"), 0);
    }
}

#define KIND(NAME, OF)                  \
    CliTest(cli_same_bits, NAME, 600) { \
        all_rows(OF);                   \
    }
KIND(every_algorithm, ALGORITHMS)
KIND(options, OPTIONS)
KIND(eight_virtual_devices, EIGHT_PARTS)
KIND(each_optimizer, OPTIMIZERS)
KIND(short_last_batches, LAST_BATCHES)
KIND(accumulated_gradients, SUMS)
KIND(batch_norm, NORMS)
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

CliTest(cli_same_bits, uneven_inputs, 300) {
    put_data(103, 20);
    cli_well(
        "train --mode ddp --devices 8 --data-dir d --epochs 2 --batch-size 8 --join --model mlp "
        "--quiet --json j");
    struct json *j = json_of("j");
    cr_expect_eq(json_int(j, "samples"), 206);
    cr_expect_eq(json_int(j, "duplicates"), 0);
    json_free(j);
    cli_fails(2, "--join and --drop-last", "train --join --drop-last");
}

/* A model whose steps do not all use the same layers: a layer that no device used keeps its
 * momentum, and counts its own updates in Adam. */
CliTest(cli_same_bits, layers_that_steps_leave_out, 300) {
    static const char *const more[] = {"--momentum 0.9 --weight-decay 1e-3 --lr 0.05",
                                       "--optimizer adam --no-sync-steps 2 --bucket-cap-mb 0.01",
                                       "--optimizer adadelta --loss-in-forward"};
    put_data(103, 20);
    for (int i = 0; i < (test_short() ? 1 : 3); i++) {
        char options[256];
        snprintf(options, sizeof options,
                 "--data-dir d --model branches --find-unused-parameters --virtual-devices 4 "
                 "--epochs 2 --batch-size 11 %s",
                 more[i]);
        all_equal(&SOME, options, test_short());
    }
    cli_well("compare --data-dir d --model branches --find-unused-parameters --virtual-devices off "
             "--steps 3 --batch-size 8 --devices 3 --quiet");
    cli_says(0, "did not find any unused parameters in the forward pass",
             "train --mode ddp --data-dir d --model mlp --steps 2 --find-unused-parameters");
    cli_says(0, "!did not find any unused parameters",
             "train --mode ddp --data-dir d --model branches --steps 2 --batch-size 8 "
             "--find-unused-parameters");
    cli_fails(1,
              "Expected to have finished reduction in the prior iteration|You can enable unused "
              "parameter detection by passing --find-unused-parameters|: right.weight, "
              "right.bias. ",
              "train --mode ddp --data-dir d --model branches --batch-size 16 --quiet");
    /* no step after the last one could fail */
    cli_says(0, "right.weight, right.bias",
             "train --mode ddp --data-dir d --model branches --batch-size 16 --steps 1");
    cli_says(3, "(rank 0: right.weight,",
             "compare --data-dir d --model branches --batch-size 16 --steps 1");
}

/* The checks above can fail: with virtual devices off each mode cuts the batch by its own number of
 * devices, and the bits differ. */
CliTest(cli_same_bits, off_differs, 120) {
    const char *options =
        words("--virtual-devices off --steps 6 --init-from golden/lenet_300.safetensors");
    train("single", 1, "auto", options, "one");
    train("dp", 2, "auto", options, "two");
    cr_assert(!cli_same_file("one", "two"));
    train("ddp", 2, "auto", options, "two");
    cr_assert(!cli_same_file("one", "two"));
}

/* A whole epoch of 60 steps, the last with 24 images: long enough for SGD to amplify a
 * difference in a last bit. */
CliTest(cli_same_bits, whole_epoch, 600) {
    if (test_short()) cr_skip_test("a whole epoch is for the full suite");
    char options[160];
    snprintf(options, sizeof options, "%s --virtual-devices 4 --lr 0.1 --batch-size 64 --epochs 1",
             few_pictures(59 * 64 + 24));
    all_equal(&FOUR, options, 0);
}
