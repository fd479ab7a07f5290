/* Tests duet compare and demo: their output, their --json, and that the two agree. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"

enum { PICTURES = 900, BATCH = 125 };

#define IDENTICAL                            \
    "identical to the bit after 6 steps\n  " \
    "\\(every loss, parameter and reduced gradient, every step, every device\\)$"

#define PART_OF_AN_EPOCH \
    ",[ \n]+extrapolated[ \n]+from[ \n]+3[ \n]+steps[ \n]+of[ \n]+[0-9]+[ \n]+per[ \n]+epoch$"
#define ON_TWO                                                          \
    " +test acc: [01]\\.[0-9]{2}, [0-9.]+ sec/epoch on \\[cpu\\(0\\), " \
    "cpu\\(1\\)\\]" PART_OF_AN_EPOCH

static const char *const ROWS[] = {"^ +single +DP x %d +DDP x %d$",
                                   "^samples/s( +[0-9]+){3}$",
                                   "^speed-up over single(, [0-9]+ cores?)? +1.00( +[0-9.]+){2}$",
                                   "^bytes per step: into device 0( +[0-9.]+ ([KM]i)?B){3}$",
                                   "^  scatter",
                                   "^  allreduce, exposed +- +- +[0-9.]+ \\| [0-9.]+$"};

static void check_rows(const char *out, int devices) {
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        char row[256];
        if (strstr(ROWS[i], "%d"))
            snprintf(row, sizeof row, "^ +single +DP x %d +DDP x %d$", devices, devices);
        else
            snprintf(row, sizeof row, "%s", ROWS[i]);
        cr_expect(matches(out, row), "no line like '%s' in:\n%s", row, out);
    }
    cr_expect(plain_lines(out), "%s", out);
}

/* The JSON: equal losses in all modes, every device described, the verdict as it was printed. */
static void check_json(const char *path, int devices) {
    static const char *const runs[] = {"single", "dp", "ddp"};
    struct json *root = json_of(path);
    for (int m = 0; m < 3; m++) {
        const struct json *run = json_at(root, runs[m]);
        int here = m ? devices : 1;
        cr_assert_str_eq(json_text(run, "mode"), runs[m]);
        cr_assert(json_int(run, "devices") == here && json_at(run, "per_device")->count == here);
        cr_assert(json_int(run, "steps") == 6 && json_at(run, "losses")->count == 6 &&
                  json_int(run, "batch_size") == BATCH);
        cr_assert(json_int(run, "samples") == 6 * BATCH &&
                  json_int(run, "parameter_count") == 129068 &&
                  json_at(run, "parameters")->count == 8);
        cr_assert(json_int(run, "virtual_devices") == devices &&
                  json_at(run, "bits_promised")->integer);
        cr_assert(json_double(run, "training_seconds") > 0 &&
                  json_double(run, "samples_per_second") > 0);
        /* It counts from the launch, on a clock that ranks and launcher share. */
        double first = json_double(run, "first_step_seconds");
        cr_assert(first > 0 && first < CLI_SECONDS, "%g s to the first step", first);
        cr_assert(json_at(run, "accuracy")->count == 1 &&
                  json_double(run, "accuracy/0") == json_double(root, "single/accuracy/0") &&
                  json_double(run, "valid_loss/0") == json_double(root, "single/valid_loss/0") &&
                  json_double(run, "final_valid_loss") == json_double(run, "valid_loss/0"));
        for (int s = 0; s < 6; s++)
            cr_assert_eq(json_double(run, "losses/%d", s), json_double(root, "single/losses/%d", s),
                         "loss of step %d", s);
        for (int d = 0; d < here; d++) {
            const struct json *x = json_at(run, "per_device/%d", d);
            int64_t sum = 0;
            for (const struct json *c = json_at(x, "memory_at_peak_by_cause")->child; c;
                 c = c->next)
                sum += c->integer;
            cr_assert(json_int(x, "device") == d && json_int(x, "memory_peak") == sum);
            /* Reading losses and hashes is not counted as traffic of training: nothing leaves a
             * single device. */
            cr_assert(json_int(x, "bytes_in") > 0 && (json_int(x, "bytes_out") > 0) == (m > 0));
        }
    }
    cr_assert_str_eq(json_text(root, "dp/verdict/verdict"), "identical");
    cr_assert_str_eq(json_text(root, "ddp/verdict/verdict"), "identical");
    cr_assert_eq(json_int(root, "ddp/verdict/steps"), 6);
    json_free(root);
}

CliTest(cli_compare, identical, 300) {
    const char *data = few_pictures(PICTURES);
    for (int devices = test_short() ? 3 : 2; devices <= (test_short() ? 3 : 4); devices++) {
        char *out = cli_output("compare %s --devices %d --steps 6 --batch-size %d --init-from "
                               "golden/lenet_300.safetensors --json j",
                               data, devices, BATCH);
        cr_expect(matches(out, "^DP = single: " IDENTICAL) &&
                      matches(out, "^DDP = single: " IDENTICAL) &&
                      matches(out, "^  sgd, learning rate 0.2; [234] virtual devices, "
                                   "[0-9]+ duplicates per epoch$"),
                  "%s", out);
        char batch[64];
        static const char *const shares[] = {"62 or 63", "41 or 42", "31 or 32"};
        snprintf(batch, sizeof batch, "DDP: %s x %d", shares[devices - 2], devices);
        cr_expect(strstr(out, batch), "'%s' is not in: %s", batch, out);
        check_rows(out, devices);
        check_json("j", devices);
        free(out);
    }
}

/* Ring and tree add in orders of their own: single and DP use the same order, and say so. */
CliTest(cli_compare, orders_of_allreduces, 300) {
    static const char *const table[][2] = {
        {"--devices 4 --allreduce ring", "ring over 4 devices"},
        {"--devices 5 --allreduce tree --model convnet --no-sync-steps 2", "tree over 5 devices"},
        {"--devices 3 --allreduce ring --virtual-devices 6 --bucket-cap-mb 0.1 --join",
         "ring over 3 devices, buckets of 0.1 MiB"},
        {"--devices 8 --allreduce tree --dp-reduce sharded --momentum 0.9", "tree over 8 devices"},
        {"--devices 4 --allreduce ring --model branches --find-unused-parameters", "ring"}};
    const char *data = few_pictures(PICTURES);
    for (size_t i = 0; i < (test_short() ? 2 : sizeof table / sizeof *table); i++) {
        char *out = cli_output("compare %s --steps 4 --batch-size 60 --lr 0.05 %s --json j", data,
                               table[i][0]),
             *text = unbroken(out);
        cr_expect(strstr(text, "\nDP = single: identical to the bit after 4 steps") &&
                      strstr(text, "\nDDP = single: identical to the bit after 4 steps") &&
                      strstr(text, "of all segments at once") && strstr(text, table[i][1]),
                  "%s: %s", table[i][0], text);
        free(text), free(out);
        struct json *root = json_of("j");
        cr_expect(strstr(json_text(root, "single/sum_order"), table[i][1]), "%s", table[i][0]);
        json_free(root);
    }
}

/* Modes that diverge alike are identical, but that is no success: status 3, and the first step. */
CliTest(cli_compare, not_finite, 120) {
    put_data(60, 20);
    cli_says(3,
             "^duet: loss: not finite since step [1-9]|"
             "^DDP = single: identical to the bit, but the loss is not finite since step [1-9]",
             "compare --data-dir d --batch-size 20 --epochs 4 --lr 1e30 --json j");
    struct json *root = json_of("j");
    cr_expect_str_eq(json_text(root, "ddp/verdict/verdict"), "identical");
    cr_expect_gt(json_int(root, "ddp/verdict/not_finite_at_step"), 0);
    json_free(root);
    cli_says(0, "duet: DP, loss in forward: loss: not finite since step ",
             "profile --data-dir d --batch-size 20 --steps 6 --lr 1e30 --quiet");
}

/* The demo ends with the line of the chapter for each mode, and says that it trains for less. Then
 * it profiles a wide head, whose memory follows from its sizes: outputs and their gradient 2 x 256
 * x 2000 floats, Adam's means 2 x 1690576. */
CliTest(cli_compare, demo, 300) {
    const char *data = few_pictures(PICTURES);
    cli_says(0,
             "^d2l.*: lenet, at most 3 steps of 1 epoch instead\n  of the chapter's 10 \\(--epochs "
             "10|^single +test acc: [01]\\.[0-9]{2}, [0-9.]+ sec/epoch on "
             "\\[cpu\\(0\\)\\]" PART_OF_AN_EPOCH "|^DP" ON_TWO "|^DDP" ON_TWO
             "|^DDP = single: identical to the bit after 3 steps|^speed-up: give at least 5 steps$|"
             "^    duet collective --ranks 4 --pictures pictures$|"
             "^Where DataParallel hurts: 2000 outputs, Adam, 4 devices|"
             "^  gathered outputs, gradient +3\\.91 MiB +0 B +0 B$|"
             "^  Adam's two moments +12\\.9 MiB +0 B +12\\.9 MiB$|"
             "^DP and DDP train the same model as one device, to the bit: 3 steps|"
             "^With 2000 outputs and Adam, device 0 of DP holds 2\\.1 times the memory|"
             "^resnet50 +4 +128( +[0-9.]+){4}( +[0-9.]+x){4}$|!duet: ",
             "demo %s --epochs 1 --steps 3 --json j", data);
    struct json *root = json_of("j");
    cr_assert_eq(json_int(root, "ddp/steps"), 3);
    json_free(root);
    if (test_short()) return;
    put_data(60, 20);
    cli_says(0, /* only whole epochs, so nothing is extrapolated */
             "^Where DataParallel hurts: 2000 outputs, Adam, 4 devices|"
             "^d2l.*: lenet, 3 epochs instead of the chapter's 10|"
             "^DDP .* on \\[cpu\\(0\\), cpu\\(1\\), cpu\\(2\\)\\]$|"
             "^seconds per epoch( +[0-9.]+){3}$",
             "demo --data-dir d --devices 3");
}
