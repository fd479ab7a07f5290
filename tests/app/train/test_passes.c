/* Tests accumulated gradients in the trainer: except for rounding, K batches of B samples train
 * like one batch of K B samples. */
#include <math.h>

#include "base/error.h"
#include "tests/app/train/config.h"
#include "train/compare/bits.h"
#include "train/trainer.h"

/* Two programs that sum 64 samples in different orders, after one step of SGD: the losses of LeNet
 * were 3e-8 apart. A loss that weighs samples by 1/B instead of 1/(K B) is 4 times as large. */
#define LOSS_TOLERANCE 1e-5

static struct run_config config_of(enum run_mode mode, const char *model, int batch_size,
                                   int passes) {
    struct run_config config = config_on_cpu(mode, model);
    config.batch_size = batch_size;
    config.update.passes = passes;
    config.epochs = 1;
    config.virtual_devices = 4;
    return config;
}

static void run(const struct run_config *config, struct run_record *record) {
    struct failures unwritten = {0};
    int in_use;
    cr_assert_eq(trainer_run(config, NULL, record, &unwritten, &in_use), OK, "%s", error_message());
}

/* 208 samples: updates of 64, 64, 64 and 16 samples, whose batches are 4, 4, 4 and 1. */
CliTest(passes, train_as_one_large_batch, 120) {
    static const enum run_mode modes[] = {MODE_SINGLE, MODE_DP};
    put_data(208, 20);
    for (int i = 0; i < 2; i++) {
        struct run_config large = config_of(modes[i], "lenet", 64, 1),
                          small = config_of(modes[i], "lenet", 16, 4);
        struct run_record a = {0}, b = {0};
        char why_not[160];
        run(&large, &a);
        run(&small, &b);
        cr_assert_eq(a.steps, 4);
        cr_assert_eq(b.steps, 4);
        cr_assert_eq(b.samples, 208);
        for (int s = 0; s < 4; s++)
            cr_expect(fabs(a.losses[s] - b.losses[s]) <= LOSS_TOLERANCE * fabs(a.losses[s]),
                      "%s, step %d: %.9g and %.9g", mode_name(modes[i]), s, a.losses[s],
                      b.losses[s]);
        cr_assert_neq(a.losses[0], a.losses[1]);
        cr_assert_eq(bits_promised_between(&a, &b, why_not, sizeof why_not), 0);
        cr_assert(strstr(why_not, "1 batches per update against 4"), "%s", why_not);
        record_free(&a), record_free(&b);
    }
}

/* Each batch of a step has its own dropout masks: with the same images in each batch, equal masks
 * would make the losses of all batches equal. */
CliTest(passes, have_masks_of_their_own, 120) {
    struct run_config one = config_of(MODE_SINGLE, "convnet", 8, 1),
                      two = config_of(MODE_SINGLE, "convnet", 8, 2);
    struct run_record a = {0}, b = {0};
    put_data(8, 4);
    cr_assert_eq(
        system("cd d && f=train-images-idx3-ubyte && (printf '\\0\\0\\10\\3\\0\\0\\0\\20"
               "\\0\\0\\0\\34\\0\\0\\0\\34'; tail -c +17 $f; tail -c +17 $f) >x && mv x $f && "
               "f=train-labels-idx1-ubyte && (printf '\\0\\0\\10\\1\\0\\0\\0\\20'; tail -c +9 "
               "$f; tail -c +9 $f) >x && mv x $f"),
        0);
    one.update.lr = two.update.lr = 0; /* parameters stay, so losses differ only by masks */
    one.data.shuffle = two.data.shuffle = 0;
    run(&one, &a); /* two steps: batches 0 and 1 are equal */
    run(&two, &b);
    cr_assert_eq(a.steps, 2);
    cr_assert_eq(b.steps, 1);
    cr_assert_neq(a.losses[0], a.losses[1]);
    cr_assert_lt(fabs((a.losses[0] + a.losses[1]) / 2 - b.losses[0]), LOSS_TOLERANCE,
                 "masks of batch 0 and 1: %.9g %.9g, together %.9g", a.losses[0], a.losses[1],
                 b.losses[0]);
    record_free(&a), record_free(&b);
}
