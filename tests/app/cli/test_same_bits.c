/* The same bits: single, dp and ddp on any number of devices end with equal files of losses and
 * weights, where docs/design.md section 2 promises it. From the initial weights a wrong order of
 * summing changes few parameters, so tests of LeNet start from weights after 300 steps. */
#include "device/op.h"
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"
#include "tests/app/cli/of_mode.h"

struct way {
    const char *mode;
    int devices;
    const char *allreduce;
};

static const struct way ALL[] = {{"dp", 1, "auto"},    {"dp", 2, "auto"},     {"dp", 4, "auto"},
                                 {"ddp", 1, "direct"}, {"ddp", 2, "naive"},   {"ddp", 2, "oneshot"},
                                 {"ddp", 2, "direct"}, {"ddp", 2, "ring"},    {"ddp", 2, "tree"},
                                 {"ddp", 4, "naive"},  {"ddp", 4, "oneshot"}, {"ddp", 4, "direct"},
                                 {"ddp", 4, "auto"},   {NULL, 0, NULL}};
static const struct way SOME[] = {{"dp", 2, "auto"},
                                  {"dp", 4, "auto"},
                                  {"ddp", 2, "ring"},
                                  {"ddp", 4, "direct"},
                                  {NULL, 0, NULL}};
static const struct way FEW[] = {{"dp", 4, "auto"}, {"ddp", 2, "ring"}, {NULL, 0, NULL}};
static const struct way FOUR[] = {{"dp", 4, "auto"}, {"ddp", 4, "direct"}, {NULL, 0, NULL}};

static void train(const char *mode, int devices, const char *allreduce, const char *options,
                  const char *to) {
    char all[1024];
    snprintf(all, sizeof all, "--devices %d --allreduce %s %s", devices, allreduce, options);
    cli_well("train --mode %s %s --quiet --log-loss %s.csv --save %s", mode, of_mode(mode, all), to,
             to);
}

static void all_equal(const struct way *ways, const char *options) {
    train("single", 1, "auto", options, "one");
    for (const struct way *way = ways; way->mode; way++) {
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

/* One test runs all algorithms also in the short form; the others vary something else. */
static const struct way *some(void) {
    return test_short() ? FEW : SOME;
}

CliTest(cli_same_bits, every_algorithm, 600) {
    all_equal(ALL, words("--steps 6 --init-from golden/lenet_300.safetensors"));
}

CliTest(cli_same_bits, small_buckets_momentum_weight_decay, 600) {
    all_equal(some(),
              words("--steps 6 --momentum 0.9 --weight-decay 1e-3 --lr 0.02 --bucket-cap-mb 0.1 "
                    "--seed 7 --workers 0 "
                    "--init-from golden/lenet_300.safetensors"));
}

static const struct way DP[] = {{"dp", 2, "auto"}, {"dp", 4, "auto"}, {NULL, 0, NULL}};
static const struct way DDP[] = {{"ddp", 2, "ring"}, {"ddp", 4, "direct"}, {NULL, 0, NULL}};

/* The sums do not depend on when the allreduce runs. */
CliTest(cli_same_bits, no_overlap, 600) {
    all_equal(DDP, words("--steps 6 --no-overlap --bucket-cap-mb 0.1 "
                         "--init-from golden/lenet_300.safetensors"));
}

static const struct way EACH[] = {{"dp", 2, "auto"},
                                  {"dp", 4, "auto"},
                                  {"ddp", 2, "direct"},
                                  {"ddp", 4, "auto"},
                                  {NULL, 0, NULL}};

/* No two of these runs end with the same weights, so each flag has an effect. */
CliTest(cli_same_bits, each_optimizer, 600) {
    static const char *const options[] = {
        "--momentum 0.9", "--momentum 0.9 --weight-decay 1e-3", "--optimizer adadelta --lr 1",
        "--optimizer adam --lr 0.01", "--optimizer adamw --lr 0.01 --weight-decay 0.1"};
    enum { OPTIONS = sizeof options / sizeof *options };
    put_data(90, 20);
    for (int i = test_short() ? OPTIONS - 2 : 0; i < OPTIONS; i++) {
        char line[256];
        snprintf(line, sizeof line,
                 "--data-dir d --model mlp --mlp-hidden 20 --batch-size 24 --epochs 4 --lr 0.1 "
                 "--virtual-devices 4 %s",
                 options[i]);
        all_equal(test_short() ? FEW : EACH, line);
        cr_expect(access("before", F_OK) || !cli_same_file("one", "before"), "%s: as without it",
                  options[i]);
        cr_assert_eq(rename("one", "before"), 0);
    }
}

CliTest(cli_same_bits, loss_in_forward, 600) {
    all_equal(DP, words("--steps 6 --loss-in-forward --init-from golden/lenet_300.safetensors"));
}

CliTest(cli_same_bits, convnet_with_dropout, 600) {
    all_equal(some(), words("--model convnet --batch-size 33 --steps 4 --seed 3"));
}

CliTest(cli_same_bits, mlp, 600) {
    all_equal(some(), words("--model mlp --mlp-hidden 100,30 --batch-size 65 --steps 6 --seed "
                            "-3 --workers 3"));
}

static const struct way EIGHT[] = {{"dp", 2, "auto"},  {"dp", 4, "auto"},     {"dp", 8, "auto"},
                                   {"ddp", 2, "tree"}, {"ddp", 4, "oneshot"}, {"ddp", 8, "direct"},
                                   {NULL, 0, NULL}};

CliTest(cli_same_bits, eight_virtual_devices, 600) {
    all_equal(test_short() ? FEW : EIGHT,
              words("--virtual-devices 8 --steps 6 --init-from golden/lenet_300.safetensors"));
}

/* 103 pictures are padded to 104, or cut to 100. The last batch is short, has fewer samples than
 * devices, or is left out. */
CliTest(cli_same_bits, short_last_batches, 600) {
    put_data(103, 20);
    const char *const ends[] = {"--batch-size 11", "--batch-size 11 --drop-last", "--batch-size 17",
                                "--batch-size 51 --no-shuffle", "--batch-size 500"};
    for (int i = 0; i < (test_short() ? 1 : 5); i++) {
        char options[256];
        snprintf(options, sizeof options,
                 "--data-dir d --virtual-devices 4 --epochs %d --init-from "
                 "golden/lenet_300.safetensors %s",
                 test_short() || i ? 1 : 2, ends[i]);
        all_equal(FOUR, options);
    }
}

/* The samples of a batch that is not full are weighted by the batch's own size, not by
 * --batch-size. */
CliTest(cli_same_bits, a_batch_that_is_not_full, 120) {
    const char *const ways[] = {"--mode single", "--mode dp", "--mode ddp"};
    put_data(96, 20);
    cli_well("train --data-dir d --virtual-devices 2 --epochs 2 --batch-size 96 --init-from "
             "golden/lenet_300.safetensors --quiet --log-loss one.csv --save one");
    for (int i = 0; i < 3; i++) {
        cli_well(
            "train %s --data-dir d --virtual-devices 2 --epochs 2 --batch-size 256 --init-from "
            "golden/lenet_300.safetensors --quiet "
            "--log-loss two.csv --save two",
            ways[i]);
        cr_expect(cli_same_file("one.csv", "two.csv") && cli_same_file("one", "two"), "%s",
                  ways[i]);
    }
}

/* Three batches an update. Of the ten batches of an epoch the last update has one, which is short;
 * an update of four leaves two to the last. DDP sums over the ranks once an update. */
CliTest(cli_same_bits, accumulated_gradients, 300) {
    static const char *const more[] = {"--no-sync-steps 3", "--no-sync-steps 4 --model convnet",
                                       "--no-sync-steps 3 --loss-in-forward --bucket-cap-mb 0.1",
                                       "--no-sync-steps 100 --momentum 0.9"};
    put_data(103, 20);
    for (int i = 0; i < (test_short() ? 1 : 4); i++) {
        char options[256];
        snprintf(
            options, sizeof options,
            "--data-dir d --virtual-devices 4 --epochs %d --batch-size 11 --lr 0.1 %s%s", i ? 1 : 2,
            strstr(more[i], "convnet") ? "" : "--init-from golden/lenet_300.safetensors ", more[i]);
        all_equal(FOUR, options);
    }
}

/* What travels into device 1 in 12 batches of which each `passes` make one update. */
static int64_t bytes_of_twelve_batches(const char *mode, int passes) {
    cli_well("train --mode %s --data-dir d --steps %d --no-sync-steps %d --batch-size 8 --quiet "
             "--json j",
             mode, 12 / passes, passes);
    struct json *j = json_of("j");
    int64_t bytes = json_int(j, "per_device/1/bytes_in");
    cr_assert_eq(json_int(j, "steps"), 12 / passes);
    cr_assert_eq(json_int(j, "images"), 96);
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

/* 103 pictures in batches of 8: the last has 7, and the last of the devices has none of them. */
CliTest(cli_same_bits, uneven_inputs, 300) {
    static const struct way eight[] = {
        {"dp", 4, "auto"}, {"ddp", 2, "auto"}, {"ddp", 8, "auto"}, {NULL, 0, NULL}};
    static const char common[] = "--data-dir d --epochs 2 --batch-size 8 --join";
    put_data(103, 20);
    char options[256];
    snprintf(options, sizeof options, "%s --virtual-devices 8 --momentum 0.9 --model mlp", common);
    all_equal(eight, options);
    cli_well("train --mode ddp --devices 8 %s --model mlp --quiet --json j", common);
    struct json *j = json_of("j");
    cr_expect_eq(json_int(j, "images"), 206);
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
        all_equal(some(), options);
    }
    cli_well("compare --data-dir d --model branches --find-unused-parameters --virtual-devices off "
             "--steps 3 --batch-size 8 --devices 3 --quiet");
    struct cli c;
    cli_run(&c, "train --mode ddp --data-dir d --model mlp --steps 2 --find-unused-parameters");
    cr_expect(strstr(c.out, "did not find any unused parameters in the forward pass"), "%s", c.out);
    cli_free(&c);
    cli_run(&c, "train --mode ddp --data-dir d --model branches --steps 2 --batch-size 8 "
                "--find-unused-parameters");
    cr_expect(!strstr(c.out, "did not find any unused parameters"), "%s", c.out);
    cli_free(&c);
    cli_fails(1,
              "Expected to have finished reduction in the prior iteration|You can enable unused "
              "parameter detection by passing --find-unused-parameters|: right.weight, "
              "right.bias. ",
              "train --mode ddp --data-dir d --model branches --batch-size 16 --quiet");
    /* no step follows the last one that could fail */
    cli_run(&c, "train --mode ddp --data-dir d --model branches --batch-size 16 --steps 1");
    cr_expect(c.status == 0 && strstr(c.err, "right.weight, right.bias"), "%s", c.err);
    cli_free(&c);
    cli_run(&c, "compare --data-dir d --model branches --batch-size 16 --steps 1");
    cr_expect_eq(c.status, 3);
    cr_expect(strstr(c.out, "(rank 0: right.weight,"), "%s", c.out);
    cli_free(&c);
}

static int64_t occupied(int64_t bytes) { /* memory of a device that an allocation takes */
    return (bytes + 255) / 256 * 256;
}

/* The device makes the batches from a data set in its own memory: the same pixels, so the same bits
 * and the same accuracy. The last batch has 4 of 103 pictures, one for each device. */
CliTest(cli_same_bits, data_set_on_the_device, 300) {
    static const char *const ways[] = {
        "--mode single", "--mode ddp --devices 2", "--mode dp --devices 4 --loss-in-forward",
        "--mode dp --devices 2", "--mode ddp --devices 4 --workers 0"};
    static const char common[] =
        "--data-dir d --virtual-devices 4 --epochs 2 --batch-size 20 --model convnet --quiet "
        "--log-loss l --save w --json j";
    put_data(103, 20);
    cli_well("train %s --data-on host", common);
    cr_assert_eq(system("mv l l0; mv w w0; mv j j0"), 0);
    struct json *staged = json_of("j0");
    for (int i = 0; i < (test_short() ? 3 : 5); i++) {
        cli_well("train %s %s --data-on device", ways[i], common);
        cr_expect(cli_same_file("l", "l0") && cli_same_file("w", "w0"), "%s", ways[i]);
        struct json *j = json_of("j");
        cr_expect(json_double(j, "accuracy/1") == json_double(staged, "accuracy/1"),
                  "%s: another accuracy", ways[i]);
        cr_expect(json_double(j, "valid_loss/1") == json_double(staged, "valid_loss/1"),
                  "%s: another valid_loss", ways[i]);
        cr_expect(json_at(j, "data_on_device")->integer &&
                  !json_at(staged, "data_on_device")->integer);
        cr_expect_eq(json_int(j, "per_device/0/memory_now_by_cause/data_set"),
                     occupied(103 * 784) + occupied(103) + occupied(20 * 784) + occupied(20));
        int64_t in = json_int(j, "per_device/0/bytes_in"), steps = json_int(j, "steps");
        if (i == 0)
            cr_expect_eq(in, steps * (int64_t)sizeof(struct step_block),
                         "step blocks alone, since the order comes before the steps: %lld",
                         (long long)in);
        json_free(j);
    }
    json_free(staged);
    put_data(4000, 20); /* 3 MiB of pictures */
    cli_fails(1, "out of memory on device 0|data set",
              "train --data-dir d --data-on device --device-memory 2M");
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

/* A whole epoch of 60 steps, the last with 24 pictures: long enough for SGD to amplify a
 * difference in a last bit. */
CliTest(cli_same_bits, whole_epoch, 600) {
    if (test_short()) cr_skip_test("a whole epoch is for the full suite");
    char options[160];
    snprintf(options, sizeof options, "%s --virtual-devices 4 --lr 0.1 --batch-size 64 --epochs 1",
             few_pictures(59 * 64 + 24));
    all_equal(FOUR, options);
}
