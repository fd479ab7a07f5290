/* Tests the command on random data: PyTorch's losses, and refusals. tests/app/cli/test_same_bits.c
 * tests equal bits in every mode. */
#include "tests/app/cli/json.h"
#include "tests/golden/golden.h"

/* Promised are 2e-6 for a loss. Duet's float kernels were at most 3e-8 from float64 here; a wrong
 * sample, target or gradient changes a loss by 1e-2 and more. */
static const double LOSS_TOLERANCE = 2e-7;

enum { STEPS = 5 };

static void as_pytorch(const char *name, const char *mode, const char *options) {
    char *text, *line, key[64];
    cli_well("train %s %s --dataset random --samples 80 --batch-size 16 --no-shuffle --steps 5 "
             "--log-loss l.csv --quiet",
             mode, options);
    line = strchr(text = cli_read("l.csv", NULL), '\n');
    for (int step = 0; step < STEPS; step++, line = strchr(line + 1, '\n')) {
        double got = NAN, want;
        snprintf(key, sizeof key, "loss %s %d", name, step);
        want = golden_number("golden/random.txt", key);
        sscanf(line + 1, "%*d,%*d,%lf", &got);
        cr_expect(fabs(got - want) <= LOSS_TOLERANCE * want, "%s: %.9g, not %.9g: %s", key, got,
                  want, options);
    }
    free(text);
}

CliTest(cli_random, losses_are_pytorchs, 120) {
    static const char *const modes[] = {"--mode single", "--mode dp --devices 2",
                                        "--mode ddp --devices 4"};
    for (int m = 0; m < 3; m++) {
        as_pytorch("simple", modes[m], "--model simple --loss mse --lr 0.1");
        as_pytorch("complex", modes[m], "--model complex --lr 0.001 --seed 3");
        as_pytorch("narrow", modes[m],
                   "--model simple --loss mse --lr 0.1 --shape 3 --classes 2 --seed 7");
    }
}

/* There are no test samples, so there is no accuracy; and --loss mse would have none. */
CliTest(cli_random, what_the_record_says, 60) {
    cli_well(
        "train --mode dp --dataset random --model simple --loss mse --steps 3 --quiet --json j");
    struct json *j = json_of("j");
    cr_expect_str_eq(json_text(j, "loss"), "mse");
    cr_expect_str_eq(json_text(j, "dataset"), "random");
    cr_expect(json_int(j, "channels") == 10 && json_int(j, "height") == 1);
    cr_expect(json_int(j, "train_samples") == 6400 && json_int(j, "test_samples") == 0);
    cr_expect_eq(json_at(j, "accuracy/0")->kind, JSON_NULL);
    json_free(j);
    cli_says(0, "!test acc:|complex on random",
             "compare --model complex --dataset random --samples 64 --batch-size 32 --epochs 1");
}

CliTest(cli_random, bad_input_is_one_line, 120) {
    static const char *const wrong[][2] = {
        {"--dataset random --shape 3x32", "--shape: '3x32'|CxHxW"},
        {"--dataset random --shape 0x3x3", "--shape: '0x3x3'"},
        {"--dataset random --shape 99999999999x1x1", "--shape"},
        {"--dataset random --shape 4096x4096x4096", "--shape"},
        {"--dataset random --samples 0", "--samples"},
        {"--dataset random --samples 100000000", "--samples: 100000000|GiB|give at most"},
        {"--dataset random --shape 3x1024x1024 --samples 4000", "46.9 GiB|give at most 85"},
        {"--dataset random --classes 16777217", "--classes"},
        {"--dataset random --loss mse --classes 1000000 --model simple", "--samples|GiB"},
        {"--dataset random --model complex --classes 20000", "1310741792 parameters"},
        {"--dataset random --model mlp --shape 3x2048x2048 --samples 2", "parameters"},
        {"--dataset random --model lenet --shape 10", "lenet|at least 14 x 14"},
        {"--dataset random --loss l1",
         "--loss: 'l1'|cross-entropy, mse, smooth-l1 or bce-with-logits"},
        {"--dataset random --data-dir d", "--data-dir: no effect with data set random"},
        {"--dataset synthetic --shape 10", "at least 4 x 4"},
        {"--dataset synthetic --loss mse", "--loss: mse: synthetic has labels|--dataset random"},
        {"--loss mse", "--loss: mse: fashion-mnist has labels|--dataset random"},
        {"--samples 100", "--samples: no effect with data set fashion-mnist"},
        {"--shape 1x28x28", "--shape: no effect with data set fashion-mnist"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cli_fails(2, wrong[i][1], "%s %s", i % 2 ? "train" : "compare", wrong[i][0]);
}

/* Weights of BF16 that are all zero: scores of zeros, so the loss of 10 classes is log(10). */
CliTest(cli_random, weights_of_half_precision, 30) {
    static const char header[] =
        "{\"fc.bias\":{\"dtype\":\"BF16\",\"shape\":[10],\"data_offsets\":[0,20]},"
        "\"fc.weight\":{\"dtype\":\"BF16\",\"shape\":[10,10],\"data_offsets\":[20,220]}}";
    const uint64_t length = sizeof header - 1;
    const char zeros[220] = {0};
    FILE *f = fopen("h", "w");
    fwrite(&length, 8, 1, f), fwrite(header, length, 1, f), fwrite(zeros, sizeof zeros, 1, f);
    fclose(f);
    cli_says(0, "single weights of BF16 in h: they are read as float32\n|loss 2.3026",
             "train --model simple --dataset random --steps 1 --init-from h");
}
