/* Tests checkpoints and --resume: a run in several parts, each in another mode and on other
 * devices, ends with the files of an uninterrupted run. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"
#include "tests/app/cli/nets.h"
#include "tests/app/cli/of_mode.h"

enum { MOST_WORDS = 512 };

/* The number of one epoch's test in a record: the last one. */
static double last_accuracy(const char *path) {
    struct json *j = json_of(path);
    const struct json *tests = json_at(j, "accuracy"), *last = tests->child;
    while (last && last->next)
        last = last->next;
    cr_assert_not_null(last, "%s: never evaluated", path);
    double accuracy = last->number;
    json_free(j);
    return accuracy;
}

static int resumed_from(const char *path) {
    struct json *j = json_of(path);
    int step = (int)json_int(j, "resumed_from_step");
    cr_expect_eq(json_int(j, "first_step"), step);
    json_free(j);
    return step;
}

/* Appends the lines of a loss file, without its heading, to another file. */
static void append_losses(const char *from, const char *to, int with_heading) {
    char command[128];
    snprintf(command, sizeof command, "tail -n +%d %s >> %s", with_heading ? 1 : 2, from, to);
    cr_assert_eq(system(command), 0);
}

/* The options of a part of the run, and the step at which it is cut. */
struct part {
    const char *way;
    int until; /* 0: to the end */
};

/* Trains once without a break and once in these parts, and compares. */
static void in_parts_of(const char *whole, const char *options, const struct part *parts,
                        int count) {
    char resume[32] = "";
    cr_assert_eq(system("rm -f part.csv"), 0);
    cli_well("train --mode %s %s --quiet --save one --log-loss one.csv --json one.json", whole,
             of_mode("single", options));
    for (int i = 0; i < count; i++) {
        char until[32] = "";
        if (parts[i].until) snprintf(until, sizeof until, "--steps %d", parts[i].until);
        cli_well("train --mode %s %s %s %s --quiet --save two --log-loss two.csv --json two.json "
                 "--checkpoint ck",
                 parts[i].way, of_mode(parts[i].way, options), until, resume);
        cr_expect_eq(resumed_from("two.json"), i ? parts[i - 1].until : 0);
        append_losses("two.csv", "part.csv", i == 0);
        snprintf(resume, sizeof resume, "--resume ck");
    }
    cr_expect(cli_same_file("one", "two"), "%s, %s: other weights", options, parts[1].way);
    cr_expect(cli_same_file("one.csv", "part.csv"), "%s, %s: other losses", options, parts[1].way);
    cr_expect(last_accuracy("one.json") == last_accuracy("two.json"), "%s: other accuracy",
              options);
}

static void in_parts(const char *options, const struct part *parts, int count) {
    in_parts_of("single", options, parts, count);
}

/* Ten batches an epoch, the last of which is cut; three epochs. The first part ends within an
 * epoch, the second at the end of one, the third after one step more. */
static const struct part WAYS[][4] = {
    {{"ddp --devices 2", 13}, {"single", 20}, {"dp --devices 4", 21}, {"ddp --devices 4", 0}},
    {{"single", 3}, {"ddp --devices 4", 10}, {"ddp --devices 2", 11}, {"dp --devices 2", 0}},
    {{"dp --devices 2", 9}, {"dp --devices 4", 20}, {"single", 29}, {"single", 0}},
};

static void in_every_way(const char *options, int ways) {
    char words[2 * MOST_WORDS];
    snprintf(words, sizeof words, "--data-dir d --batch-size 11 --epochs 3 --virtual-devices 4 %s",
             options);
    for (int i = 0; i < ways; i++)
        in_parts(words, WAYS[i], 4);
}

CliTest(cli_resume, optimizers, 600) {
    static const char *const options[] = {
        "--momentum 0.9 --weight-decay 1e-3", "--optimizer adadelta --lr 1 --drop-last",
        "--optimizer adam --lr 0.01 --seed -5 --workers 0",
        "--optimizer adamw --lr 0.01 --weight-decay 0.1", "--no-shuffle --lr 0.05"};
    enum { OPTIONS = sizeof options / sizeof *options };
    put_data(103, 20);
    for (int i = test_short() ? OPTIONS - 3 : 0; i < OPTIONS; i++) {
        char words[MOST_WORDS];
        snprintf(words, sizeof words, "--model mlp --mlp-hidden 20 %s", options[i]);
        in_every_way(words, i == 2 && !test_short() ? 3 : 1);
    }
}

/* Dropout, and buckets that are laid out anew. */
CliTest(cli_resume, convnet_and_lenet, 600) {
    if (test_short()) cr_skip_test("short form: the other tests write and read the same files");
    put_data(103, 20);
    in_every_way("--model convnet --lr 0.05 --momentum 0.9", 1);
    in_every_way("--lr 0.1 --bucket-cap-mb 0.1 --momentum 0.9", 1);
}

/* An epoch has ten batches, four of which make an update: three updates. */
CliTest(cli_resume, accumulated_gradients, 300) {
    static const struct part parts[] = {
        {"ddp --devices 2", 2}, {"single", 3}, {"dp --devices 4", 7}, {"ddp --devices 4", 0}};
    put_data(103, 20);
    in_parts("--data-dir d --batch-size 11 --epochs 3 --virtual-devices 4 --no-sync-steps 4 "
             "--model mlp --optimizer adam --lr 0.01",
             parts, 4);
}

/* In the order of a ring buckets stay as they were cut, also after the first step, when nobody has
 * cut them yet. Another order is refused. */
CliTest(cli_resume, ring, 300) {
#define AS_RING " --devices 4 --allreduce ring --bucket-cap-mb 0.01"
    static const struct part parts[] = {
        {"ddp" AS_RING, 1}, {"single" AS_RING, 12}, {"dp" AS_RING, 20}, {"ddp" AS_RING, 0}};
    const char *options = "--data-dir d --batch-size 11 --epochs 3 --virtual-devices 4 --model mlp "
                          "--mlp-hidden 20 --optimizer adam --lr 0.01";
    put_data(103, 20);
    in_parts_of("single" AS_RING, options, parts, 4);
    cli_fails(2, "--allreduce: |written with ring over 4 devices, buckets of 0.01 MiB",
              "train %s --resume ck --epochs 4", options);
}

/* A parameter that was left out of updates counts its own, and its means stay. */
CliTest(cli_resume, parameters_left_out, 300) {
    static const struct part parts[] = {{"ddp --devices 2 --find-unused-parameters", 2},
                                        {"single", 7},
                                        {"dp --devices 4", 20},
                                        {"ddp --devices 4 --find-unused-parameters", 0}};
    put_data(103, 20);
    in_parts("--data-dir d --batch-size 11 --epochs 3 --virtual-devices 4 --model branches "
             "--optimizer adam --lr 0.01",
             parts, 4);
}

/* A checkpoint includes running statistics. */
CliTest(cli_resume, batch_norm, 600) {
    static const struct part parts[2][3] = {
        {{"ddp --devices 2", 2}, {"dp --devices 2", 3}, {"single", 0}},
        {{"ddp --devices 2 --sync-bn", 2},
         {"single --sync-bn", 3},
         {"ddp --devices 2 --sync-bn", 0}}};
    const char *data = "--model m --dataset synthetic --shape 1x9x8 --samples 22 "
                       "--batch-size 6 --epochs 1 --virtual-devices 2 --lr 0.01";
    char words[MOST_WORDS];
    put_norm_model("m");
    in_parts(data, parts[0], 3);
    snprintf(words, sizeof words, "%s --sync-bn", data);
    in_parts(words, parts[1], 3);
}

/* Each setting that decides bits is refused by its name. What does not decide them may change. */
CliTest(cli_resume, other_settings_are_refused, 300) {
#define RUN "train --data-dir d --batch-size 8 --virtual-devices 2 --epochs 3 --quiet "
    static const char *const refused[][2] = {
        {"--model convnet", "--model: convnet|written with mlp"},
        {"--mlp-hidden 30", "--mlp-hidden: 30|written with 20"},
        {"--virtual-devices 4", "--virtual-devices: 4|written with 2"},
        {"--virtual-devices off", "--virtual-devices: off"},
        {"--batch-size 16", "--batch-size: 16|written with 8"},
        {"--no-sync-steps 2", "--no-sync-steps: 2"},
        {"--no-shuffle", "--no-shuffle: yes|written with no"},
        {"--drop-last", "--drop-last: yes"},
        {"--seed 1", "--seed: 1|written with 0"},
        {"--optimizer adamw", "--optimizer: adamw|written with adam"},
        {"--lr 0.02", "--lr: 0.02|written with 0.01"},
        {"--weight-decay 1e-3", "--weight-decay: 0.001"},
        {"--dataset synthetic --data-dir e", "--dataset"},
    };
    put_data(48, 8);
    cr_assert_eq(system("cp -r d e && printf x | dd of=e/train-images-idx3-ubyte bs=1 seek=5000 "
                        "conv=notrunc 2>/dev/null"),
                 0);
    cli_well(RUN
             "--model mlp --mlp-hidden 20 --optimizer adam --lr 0.01 --steps 4 --checkpoint ck");
    for (size_t i = 0; i < sizeof refused / sizeof *refused - 1; i++)
        cli_fails(2, refused[i][1], RUN "--model mlp --optimizer adam --lr 0.01 %s --resume ck %s",
                  strstr(refused[i][0], "hidden") || strstr(refused[i][0], "convnet")
                      ? ""
                      : "--mlp-hidden 20",
                  refused[i][0]);
    cli_fails(2, "--dataset: |48 samples, fingerprint |written with",
              RUN
              "--data-dir e --model mlp --mlp-hidden 20 --optimizer adam --lr 0.01 --resume ck");
    cli_well(RUN "--model mlp --mlp-hidden 20 --optimizer adam --lr 0.01 --resume ck --mode ddp "
                 "--workers 2 --epochs 5 --no-overlap --allreduce tree");
    /* random data depend on the seed, which must be given */
#define DRAWN "train --dataset random --shape 5 --samples 16 --model simple --steps 1 --quiet "
    cli_well(DRAWN "--seed 3 --checkpoint drawn");
    cli_fails(2, "--seed: 4|written with 3", DRAWN "--seed 4 --resume drawn");
    /* without virtual devices each mode has its own bits */
    cli_well(RUN "--virtual-devices off --mode dp --steps 4 --checkpoint ck");
    cli_fails(2, "--mode: single|written with dp", RUN "--virtual-devices off --resume ck");
    cli_fails(2, "--devices: 4|written with 2",
              RUN "--virtual-devices off --mode dp --devices 4 --resume ck");
    cli_well(RUN "--virtual-devices off --mode dp --resume ck");
}

CliTest(cli_resume, bad_files_and_words, 120) {
    put_data(48, 8);
    cli_well(RUN "--steps 4 --checkpoint ck --save w --momentum 0.9");
    cli_fails(1, "cannot read: nope", RUN "--resume nope");
    cli_fails(1, "--resume: w: not a checkpoint|--init-from", RUN "--resume w");
    cr_assert_eq(system("head -c 100000 ck > short"), 0);
    cli_fails(1, "safetensors|short", RUN "--momentum 0.9 --resume short");
    cr_assert_eq(system("sed 's/\"step\": \"4\"/\"step\": \"x\"/' ck > nostep"), 0);
    cli_fails(1, "nostep|after which step", RUN "--momentum 0.9 --resume nostep");
    cr_assert_eq(system("sed 's/\"step\": \"4\"/\"step\": \"3\"/' ck > late"), 0);
    cli_fails(1, "late|4 updates", RUN "--momentum 0.9 --resume late");
    cr_assert_eq(system("sed 's/checkpoint\": \"1\"/checkpoint\": \"9\"/' ck > new"), 0);
    cli_fails(1, "new|version 9", RUN "--momentum 0.9 --resume new");
    cli_fails(2, "--init-from|no effect", RUN "--resume ck --init-from w");
    cli_fails(2, "--resume and --save|same file", RUN "--resume ck --save ck");
    cli_fails(2, "--checkpoint|more than one model", "compare --checkpoint x");
    /* before the data are read */
    cli_fails(1, "cannot read: nope", "train --data-dir none --resume nope");
    cli_fails(1, "cannot read: nope", "train --data-dir none --init-from nope");
    cli_fails(1, "cannot write: no/ck", "train --data-dir none --checkpoint no/ck");
    cli_well(RUN "--init-from ck --steps 1"); /* its weights load like any file's */
}

/* A run that was complete is evaluated and saves what it has. */
CliTest(cli_resume, nothing_is_left_to_train, 120) {
    put_data(48, 8);
    cli_well(RUN "--checkpoint ck --save one --json one.json");
    cli_well(RUN "--resume ck --save two --json two.json --log-loss l");
    cr_expect(cli_same_file("one", "two") &&
              last_accuracy("one.json") == last_accuracy("two.json"));
    char *losses = cli_read("l", NULL);
    cr_expect_str_eq(losses, "step,epoch,loss\n");
    free(losses);
}

/* A checkpoint that cannot be written costs the run nothing but its exit status. */
CliTest(cli_resume, a_disk_that_is_full, 120) {
    put_data(48, 8);
    cli_well(RUN "--save one");
    cli_says(
        1,
        "duet: warning: checkpoint of step 2: cannot write: /dev/full: No space left on device: "
        "training goes on\n|duet: cannot write: /dev/full: No space left on device\n",
        RUN "--mode ddp --save two --checkpoint /dev/full --checkpoint-every 2");
    cr_expect(cli_same_file("one", "two"), "other weights");
}
