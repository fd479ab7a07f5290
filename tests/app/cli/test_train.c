/* Tests duet train: its output to a file and to a terminal, its file of losses and its JSON, runs
 * over several epochs, losses that are not finite, and two jobs at once. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"
#include "tests/app/cli/of_mode.h"

static const char *const MODES[] = {"single", "dp", "ddp"};
static const char *const TITLES[] = {"single", "DP", "DDP"};

static int lines(const char *text) {
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Standard output has one line that says what is trained and one with the result, standard error
 * one line for each epoch, from one rank alone. */
CliTest(cli_train, plain_lines, 120) {
    put_data(60, 20);
    for (int m = 0; m < 3; m++) {
        struct cli c;
        char line[256];
        cli_run(&c, "train --mode %s %s --data-dir d --batch-size 20 --epochs 4", MODES[m],
                of_mode(MODES[m], "--devices 3"));
        cr_assert(c.status == 0 && !*c.err, "%s: status %d: %s", MODES[m], c.status, c.err);
        cr_expect(lines(c.out) == 4 && plain_lines(c.out), "%s", c.out);
        cr_expect(lines(c.progress) == 8 && plain_lines(c.progress), "%s", c.progress);
        snprintf(line, sizeof line,
                 "^%s: lenet on fashion-mnist, batch global 20 = (20|6 or 7) per device x %d, "
                 "sgd[ \n]+lr[ \n]+0.2,[ \n]+virtual devices %d$",
                 TITLES[m], m ? 3 : 1, m ? 3 : 1);
        cr_expect(matches(c.out, line), "%s", c.out);
        snprintf(line, sizeof line,
                 "^%s +step 12  loss [0-9.]+  valid_loss [0-9.]+  test acc [01]\\.[0-9]{4}\n"
                 "%s +wall [0-9.]+ s, training [0-9.]+ s$",
                 TITLES[m], TITLES[m]);
        cr_expect(matches(c.out, line), "%s", c.out);
        for (int epoch = 1; epoch <= 4; epoch++) {
            snprintf(line, sizeof line,
                     "^%s +epoch %d/4  step %d  loss [0-9.]+  [0-9]+ samples/s  [0-9.]+ s\n"
                     "%s +epoch %d/4  valid_loss [0-9.]+  test acc [01]\\.[0-9]{4}$",
                     TITLES[m], epoch, epoch * 3, TITLES[m], epoch);
            cr_expect(matches(c.progress, line), "no '%s' in %s", line, c.progress);
        }
        cli_free(&c);
        char *quiet =
            cli_output("train --mode %s %s --data-dir d --batch-size 20 --epochs 4 --quiet",
                       MODES[m], of_mode(MODES[m], "--devices 3"));
        cr_expect_str_eq(quiet, "");
        free(quiet);
    }
}

/* Remarks: samples that pad the order of an epoch, the order of sums, and bits that other modes
 * need not share. */
CliTest(cli_train, remarks, 120) {
    static const struct {
        const char *words, *remark;
    } with[] = {{"--mode dp --devices 7",
                 "^DP +3 duplicates per epoch: the order is padded to a multiple of 7$"},
                {"--mode ddp --devices 7",
                 "^DDP +3 duplicates per epoch: the order is padded to a multiple of 7$"},
                {"--mode ddp --devices 2 --virtual-devices 6",
                 "^DDP +equal bits are not promised: 6 virtual devices on 2 "},
                {"--mode ddp --devices 3 --allreduce ring",
                 "^DDP +gradients are added in the order of ring over 3 devices$"},
                {"--steps 100", "^single stopped after 1 epoch = 3 steps, before --steps 100: "},
                {"--mode dp --devices 3 --virtual-devices off",
                 "^DP +equal bits are not promised: virtual devices are off"}};
    static const char *const without[] = {"--mode dp --devices 7 --drop-last",
                                          "--mode ddp --devices 2 --allreduce ring",
                                          "--mode ddp --devices 2 --virtual-devices 4"};
    put_data(60, 20);
    for (size_t i = 0; i < sizeof with / sizeof *with; i++)
        cli_says(0, with[i].remark, "train --data-dir d --batch-size 20 --epochs 1 %s",
                 with[i].words);
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        cli_says(0, "!duplicates|!promised", "train --data-dir d --batch-size 20 --epochs 1 %s",
                 without[i]);
}

/* On a terminal the line of progress is rewritten with a carriage return and spaces alone. */
CliTest(cli_train, terminal, 120) {
    put_data(60, 20);
    for (int m = 0; m < 3; m++) {
        struct cli c;
        cli_start_on_terminal(&c, "train --mode %s --data-dir d --batch-size 20 --epochs 2",
                              MODES[m]);
        cli_wait(&c);
        cr_assert(c.status == 0 && !*c.err, "%s: status %d: %s", MODES[m], c.status, c.err);
        cr_expect(matches(c.shown,
                          "\r(single|DP|DDP) +epoch 1/2  step 1/6  loss [0-9.]+  [0-9]+ samples/s  "
                          "[0-9]+:[0-9]{2} left"),
                  "%s", c.shown);
        cr_expect(matches(c.shown, "\r(single|DP|DDP) +epoch 2/2  step 6  loss "), "%s", c.shown);
        cr_expect(!strchr(c.shown, '\033') && c.shown[strlen(c.shown) - 1] == '\n');
        cli_free(&c);
    }
}

/* On a narrow terminal the line of progress is cut: one that wraps could not be rewritten. */
CliTest(cli_train, narrow_terminal, 120) {
    enum { COLUMNS = 20 };
    struct cli c;
    put_data(60, 20);
    cli_start_in(&c, COLUMNS,
                 "train --data-dir d --model mlp --mlp-hidden 2 --batch-size 20 --epochs 2");
    cli_wait(&c);
    cr_assert_eq(c.status, 0, "%s", c.err);
    int rewritten = 0;
    for (const char *at = c.shown; (at = strchr(at, '\r')); at++) {
        size_t length = strcspn(at + 1, "\r\n");
        if (at[1 + length] != '\r' || at[2 + length] == '\n') continue; /* it stays on its line */
        rewritten++;
        cr_expect_lt(length, COLUMNS, "'%.*s'", (int)length, at + 1);
    }
    cr_expect_gt(rewritten, 0, "%s", c.shown);
    cli_free(&c);
}

/* A run of 2^31 steps or more is cut, and its first line counts the epochs that fit. */
CliTest(cli_train, more_steps_than_an_int, 120) {
    put_data(2200, 1);
    char command[PATH_MAX + 256], line[256] = "";
    snprintf(command, sizeof command,
             "exec %s train --mode single --device cpu --model mlp --mlp-hidden 1 --data-dir d "
             "--batch-size 1 --epochs 1000000 2>&1",
             cli_program);
    FILE *from = popen(command, "r");
    for (int i = 0; i < 3; i++)
        cr_assert(from && fgets(line, sizeof line, from));
    /* (2^31 - 2) / 2200, rounded up */
    cr_expect(strstr(line, "epoch 1/976129 ") && strstr(line, "step 2200 "), "%s", line);
    pclose(from); /* the command ends because its reader has closed the pipe */
}

/* --steps ends a run in the middle of an epoch, in a later epoch, or not before the epochs end. */
CliTest(cli_train, steps_and_files, 120) {
    static const struct {
        int steps, done, epochs;
    } table[] = {{1, 1, 1}, {3, 3, 1}, {4, 4, 2}, {8, 8, 3}, {1000, 9, 3}};
    put_data(61, 20); /* batches of 20: four steps per epoch, three with --drop-last */
    for (int m = test_short() ? 2 : 0; m < 3; m++)
        for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
            cli_well(
                "train --mode %s --data-dir d --batch-size 20 --epochs 3 --drop-last --steps %d "
                "--log-loss l --json j --quiet",
                MODES[m], table[i].steps);
            struct json *root = json_of("j");
            char *text = cli_read("l", NULL), *line = text;
            cr_assert(!strncmp(text, "step,epoch,loss\n", 16) && lines(text) == table[i].done + 1,
                      "%s", text);
            cr_assert(json_int(root, "steps") == table[i].done &&
                      json_at(root, "losses")->count == table[i].done);
            cr_assert(json_at(root, "epoch_seconds")->count == table[i].epochs &&
                      json_at(root, "accuracy")->count == table[i].epochs);
            cr_assert_eq(json_int(root, "samples"), table[i].done * 20);
            cr_assert_eq(json_int(root, "steps_per_epoch"), 3);
            double epochs = table[i].done / 3.0; /* with 3 steps each */
            cr_assert_eq(json_at(root, "seconds_per_epoch_extrapolated")->integer,
                         table[i].done % 3 != 0);
            cr_assert_float_eq(json_double(root, "seconds_per_epoch") * epochs,
                               json_double(root, "training_seconds"),
                               1e-9 * json_double(root, "training_seconds"));
            for (int s = 0; s < table[i].done; s++) {
                char want[64];
                snprintf(want, sizeof want, "\n%d,%d,%.9g\n", s, s / 3,
                         json_double(root, "losses/%d", s));
                line = strchr(line, '\n');
                cr_assert(!strncmp(line, want, strlen(want)), "row %d is not '%s' in %s", s,
                          want + 1, text);
                line++;
            }
            free(text);
            json_free(root);
        }
    cr_assert_eq(cli_files(), 4, "the folder holds golden, d, l and j alone");
}

CliTest(cli_train, what_the_json_says, 60) {
    put_data(102, 20);
    cli_well(
        "train --mode ddp --devices=3 --virtual_devices 6 --data-dir d --batch_size=20 --epochs 1 "
        "--model mlp --mlp-hidden 9,8 --lr 0.25 --momentum 0.5 "
        "--weight-decay 0.125 --seed -7 --allreduce oneshot --bucket-cap-mb "
        "0.0001 --json j --quiet");
    struct json *j = json_of("j");
    static const char *const words[][2] = {
        {"mode", "ddp"},        {"model", "mlp"},         {"dataset", "fashion-mnist"},
        {"device_kind", "cpu"}, {"allreduce", "oneshot"}, {"parameters/0", "fc1.weight"}};
    static const struct {
        const char *key;
        double value;
    } numbers[] = {{"devices", 3},
                   {"virtual_devices", 6},
                   {"batch_size", 20},
                   {"lr", 0.25},
                   {"momentum", 0.5},
                   {"weight_decay", 0.125},
                   {"duplicates", 0},
                   {"train_samples", 102},
                   {"test_samples", 20},
                   {"seed", 0x1p64 - 7}, /* as torch.manual_seed takes it */
                   {"parameter_count", 784 * 9 + 9 + 9 * 8 + 8 + 80 + 10}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        cr_expect_str_eq(json_text(j, words[i][0]), words[i][1], "%s", words[i][0]);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        cr_expect_eq(json_double(j, numbers[i].key), numbers[i].value, "%s is %g", numbers[i].key,
                     json_double(j, numbers[i].key));
    cr_expect_gt(json_at(j, "bucket_sizes")->count, 1, "more than one bucket");
    int64_t in_buckets = 0;
    for (const struct json *b = json_at(j, "bucket_sizes")->child; b; b = b->next)
        in_buckets += b->integer;
    cr_expect_geq(in_buckets, json_int(j, "parameter_count") * 4);
    /* Times by phase are not measured here, so they are absent rather than zero. */
    cr_expect(!json_at(j, "phases_measured")->integer);
    for (int d = 0; d < 3; d++) {
        static const char *const absent[] = {"phase_ns", "comm_ns", "wait_ns", "busy_ns", "flops"};
        const struct json *device = json_at(j, "per_device/%d", d);
        cr_expect(json_int(device, "memory_peak") > 0 && json_int(device, "bytes_in") > 0);
        for (int i = 0; i < 5; i++)
            cr_expect_null(json_find(device, absent[i]), "%s", absent[i]);
    }
    json_free(j);
}

/* The global batch is that many samples for each device of the mode. */
CliTest(cli_train, batch_per_device, 60) {
#define SMALL "--model simple --dataset random --samples 100 --epochs 1 --quiet --json j"
    static const char *const ways[] = {"train --mode single", "train --mode dp --devices 4",
                                       "train --mode ddp --devices 3", "compare --devices 2"};
    static const int batch[] = {5, 20, 15, 10};
    for (int i = 0; i < 4; i++) {
        cli_well("%s --batch-per-device 5 " SMALL, ways[i]);
        struct json *j = json_of("j");
        cr_expect_eq(json_int(j, i < 3 ? "batch_size" : "single/batch_size"), batch[i]);
        json_free(j);
    }
    cli_fails(2, "--batch-per-device: 5: --batch-size 10 is given too",
              "train --batch-size 10 --batch-per-device 5");
    cli_fails(2, "--batch-per-device: 9000000 on 2 devices: give at most 8388608",
              "train --mode dp --batch-per-device 9000000");
}

/* A batch larger than the data set is the whole data set, so buffers are sized by that. The larger
 * of both sets counts: evaluation takes the same batch size. 16777216 images are 49 GiB. */
CliTest(cli_train, buffers_follow_the_data_set, 60) {
    static const char *const ways[] = {"single", "dp --devices 3", "ddp --devices 3",
                                       "dp --devices 3 --virtual-devices off"};
    for (int more_to_test = 0; more_to_test < 2; more_to_test++) {
        put_data(more_to_test ? 8 : 100, more_to_test ? 100 : 8);
        for (int i = 0; i < 4; i++)
            cli_well("train --mode %s --data-dir d --batch-size 16777216 --epochs 1 --quiet "
                     "--device-memory 32M --optimizer adam",
                     ways[i]);
    }
}

/* With --virtual-devices off DP cuts a batch as PyTorch's scatter does: 5 samples over 4 devices
 * are 2, 2, 1 and 0, by virtual device they would be 2, 1, 1 and 1. The bytes that came into each
 * device show it: the same parameters, and images of 784 floats with their labels. */
CliTest(cli_train, off_cuts_in_chunks, 60) {
    static const int64_t shares[2][4] = {{2, 2, 1, 0}, {2, 1, 1, 1}};
    put_data(8, 8);
    for (int on = 0; on < 2; on++) {
        cli_well("train --mode dp --devices 4 --virtual-devices %s --no-shuffle --data-dir d "
                 "--batch-size 5 --steps 1 --json j --quiet",
                 on ? "4" : "off");
        struct json *root = json_of("j");
        int64_t in[4];
        for (int d = 1; d < 4; d++)
            in[d] = json_int(root, "per_device/%d/bytes_in", d);
        for (int d = 2; d < 4; d++) {
            int64_t more = in[1] - in[d], pictures = shares[on][1] - shares[on][d];
            cr_expect(more >= pictures * 784 * 4 && more < (pictures + 1) * 784 * 4,
                      "device %d took in %lld bytes less than device 1", d, (long long)more);
        }
        json_free(root);
    }
}

/* One line says since which step the loss is not finite. */
static int says_not_finite(const char *errors) {
    return lines(errors) == 1 &&
           matches(errors, "^duet: loss: not finite since step [1-9][0-9]*, in [0-9]+ of 12 steps: "
                           "try a smaller --lr$");
}

/* A run that diverges goes on and ends with status 0. Its files say nan or inf in CSV and null in
 * JSON, which has neither. */
CliTest(cli_train, loss_that_is_no_number, 120) {
    put_data(60, 20);
    for (int m = 0; m < 3; m++) {
        struct cli c;
        cli_run(&c,
                "train --mode %s --data-dir d --batch-size 20 --epochs 4 --lr 1e30 --log-loss l "
                "--json j --save w",
                MODES[m]);
        cr_assert_eq(c.status, 0, "%s: status %d: %s", MODES[m], c.status, c.err);
        cr_expect(matches(c.progress, "loss (-?nan|inf).*not finite since step [0-9]+"), "%s",
                  c.out);
        cr_expect(says_not_finite(c.err), "%s: '%s'", MODES[m], c.err);
        char *text = cli_read("l", NULL);
        cr_expect(lines(text) == 13 && matches(text, "^11,3,(-?nan|inf)$"), "%s", text);
        free(text);
        struct json *root = json_of("j");
        cr_expect_eq(json_at(root, "losses/11")->kind, JSON_NULL);
        int64_t since = json_int(root, "losses_not_finite_since_step");
        cr_expect(since > 0 && since < 11 && json_int(root, "losses_not_finite") == 12 - since);
        json_free(root);
        cli_free(&c);
        cli_run(&c, "train --mode %s --data-dir d --batch-size 20 --epochs 4 --lr 1e30 --quiet",
                MODES[m]);
        cr_expect(c.status == 0 && !*c.out && says_not_finite(c.err), "%s, quiet: %d '%s' '%s'",
                  MODES[m], c.status, c.out, c.err);
        cli_free(&c);
    }
}

/* Old files stay until new ones are complete, so a run that fails leaves them as they were. */
CliTest(cli_train, a_failed_run_keeps_old_files, 120) {
    put_data(60, 20);
    for (int m = 0; m < 3; m++) {
        cli_well("train --mode %s --data-dir d --steps 1 --batch-size 20 --quiet --save w "
                 "--log-loss l --json j",
                 MODES[m]);
        cr_assert_eq(system("cp w w0; cp l l0; cp j j0"), 0);
        cli_fails(
            1, "out of memory",
            "train --mode %s --data-dir d --steps 1 --batch-size 20 --save w --log-loss l --json j "
            "--device-memory 2M --model convnet",
            MODES[m]);
        cr_assert(cli_same_file("w", "w0") && cli_same_file("l", "l0") && cli_same_file("j", "j0"));
        cli_well(
            "train --mode %s --data-dir d --steps 2 --batch-size 20 --quiet --init-from w --save w "
            "--log-loss l",
            MODES[m]);
        cr_assert(!cli_same_file("w", "w0") && !cli_same_file("l", "l0"));
    }
}

/* Two jobs run in one folder at once, each as if it were alone. */
CliTest(cli_train, two_jobs_at_once, 120) {
    struct cli c[4];
    put_data(test_short() ? 100 : 400, 20);
    for (int i = 0; i < 4; i++)
        cli_start(&c[i],
                  "train --mode %s --devices %d --data-dir d --batch-size 40 --epochs 2 "
                  "--virtual-devices 4 --seed %d --quiet --save w%d --log-loss l%d",
                  i == 3 ? "dp" : "ddp", i == 1 ? 4 : 2, i / 2, i, i);
    for (int i = 0; i < 4; i++) {
        cli_wait_beside(&c[i], 3 - i);
        cr_assert(c[i].status == 0 && !*c[i].err, "job %d: status %d: %s", i, c[i].status,
                  c[i].err);
        cli_free(&c[i]);
    }
    cr_assert(cli_same_file("w0", "w1") && cli_same_file("l0", "l1") && cli_same_file("w2", "w3") &&
              cli_same_file("l2", "l3"));
    cr_assert(!cli_same_file("w0", "w2"));
}
