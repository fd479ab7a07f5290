/* Training on random data on GPUs, by the command: numbers that lie on the device or come from the
 * host, labels and targets, in every mode. The losses are PyTorch's, or those of emulated devices.
 *
 * Skipped where no GPU opens; in the build with EMULATION=1 one does (tests/cuda/test_train.c). */
#include "device/device.h"
#include "tests/app/cli/json.h"
#include "tests/golden/golden.h"

/* Promised are 2e-6 for a loss; products are summed in another order than on emulated devices. A
 * wrong sample, target or gradient changes a loss by 1e-2 and more. */
static const double LOSS_TOLERANCE = 2e-6;

enum { MOST_STEPS = 16 };

static void set_up(void) {
    int count;
    setenv("EMULATED_GPUS", "2", 1);
    if (device_probe(DEVICE_CUDA, &count)) cr_skip_test("%s", error_message());
}

static int losses_of(const char *path, double loss[MOST_STEPS]) {
    char *text = cli_read(path, NULL), *rest = text, *line;
    int count = 0;
    while ((line = strsep(&rest, "\n")) && count < MOST_STEPS)
        count += sscanf(line, "%*d,%*d,%lf", &loss[count]) == 1;
    free(text);
    return count;
}

static void expect_near(double got, double want, const char *what, int step) {
    cr_expect(fabs(got - want) <= LOSS_TOLERANCE * want, "%s: step %d: %.9g, not %.9g", what, step,
              got, want);
}

static void all_equal(const char *options) {
    static const char *const ways[] = {"single --no-graph",
                                       "dp --devices 2",
                                       "dp --devices 4 --loss-in-forward --data-on host",
                                       "dp --devices 2 --no-graph --data-on host",
                                       "ddp --devices 2 --data-on host",
                                       "ddp --devices 4"};
    static const char common[] = "--device cuda --dataset random --virtual-devices 4 --quiet";
    cli_well("train --mode single %s %s --log-loss one.csv --save one --json one.json", common,
             options);
    struct json *j = json_of("one.json");
    cr_expect(json_at(j, "data_on_device")->integer);
    json_free(j);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        cli_well("train --mode %s %s %s --log-loss two.csv --save two", ways[i], common, options);
        cr_expect(cli_same_file("one.csv", "two.csv"), "%s: losses differ: %s", ways[i], options);
        cr_expect(cli_same_file("one", "two"), "%s: weights differ: %s", ways[i], options);
    }
}

Test(cuda_train_random, targets_have_pytorchs_losses, .timeout = 300, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    static const char *const cases[][2] = {{"simple", "--seed 0"},
                                           {"narrow", "--shape 3 --classes 2 --seed 7"}};
    set_up();
    for (int i = 0; i < 2; i++) {
        char options[256], key[64];
        double loss[MOST_STEPS];
        snprintf(options, sizeof options,
                 "--model simple --loss mse --samples 80 --batch-size 16 --no-shuffle --steps 5 "
                 "--lr 0.1 %s",
                 cases[i][1]);
        all_equal(options);
        cr_assert_eq(losses_of("one.csv", loss), 5);
        for (int step = 0; step < 5; step++) {
            snprintf(key, sizeof key, "loss %s %d", cases[i][0], step);
            expect_near(loss[step], golden_number("golden/random.txt", key), cases[i][0], step);
        }
    }
}

/* The convolution of complex, over pictures that an emulated GPU can manage; batches of 12, the
 * last of 11. */
Test(cuda_train_random, pictures_have_the_losses_of_the_cpu, .timeout = 300,
     .init = cli_folder_make, .fini = cli_folder_remove) {
    static const char *const options[] = {"--model complex --shape 2x5x4 --classes 3 --samples 83 "
                                          "--batch-size 12 --epochs 2 --lr 0.1",
                                          "--model complex --shape 2x5x4 --loss mse --samples 24 "
                                          "--batch-size 12 --epochs 2 --lr 0.01"};
    set_up();
    for (int i = 0; i < 2; i++) {
        double cpu[MOST_STEPS], cuda[MOST_STEPS];
        all_equal(options[i]);
        cli_well("train --mode single --device cpu --dataset random --virtual-devices 4 --quiet %s "
                 "--log-loss cpu.csv",
                 options[i]);
        int steps = losses_of("cpu.csv", cpu);
        cr_assert(steps == losses_of("one.csv", cuda) && steps > 3);
        for (int step = 0; step < steps; step++)
            expect_near(cuda[step], cpu[step], options[i], step);
    }
}
