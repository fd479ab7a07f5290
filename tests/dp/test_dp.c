/* DP trains the very same model: after several steps on 1 to 4 devices every parameter,
 * gradient, loss and hash has the bits of one device that holds all segments itself. */
#include "tests/dp/judge.h"

/* Samples of each step: a multiple of the devices, not a multiple, fewer than devices, one; then an
 * evaluation (negative), and training goes on. */
static const int batches[] = {40, 37, 3, 1, -29, 24, 2};
enum { STEPS = 7 };

static void train(const char *model, int devices, int segments, enum device_kind kind,
                  int loss_in_forward, const struct record *want) {
    char what[96];
    struct rig rig;
    snprintf(what, sizeof what, "%s on %d devices, %d segments%s%s", model, devices, segments,
             loss_in_forward ? ", loss in forward" : "", kind == DEVICE_HOST_LATE ? ", late" : "");
    rig_open(&rig, model, devices, segments, kind, 0);
    struct rig_config config = rig_config(&rig, loss_in_forward);
    cr_assert_eq(rig_init(&rig, &config), OK, "%s: %s", what, error_message());
    for (int i = 0; i < STEPS; i++)
        cr_assert_eq(rig_run(&rig, i, abs(batches[i]), batches[i] > 0), OK, "%s: step %d: %s", what,
                     i, error_message());
    struct step_block last = rig_step(STEPS, 1);
    cr_assert_eq(rig_hash_values(&rig, &last), OK, "%s: %s", what, error_message());
    check_against(&rig, want, batches, STEPS, 0, what);
    rig_free(&rig);
}

static void train_all(const char *model, int segments) {
    struct record want;
    judge(&want, model, segments, batches, STEPS);
    for (int devices = 1; devices <= 4; devices++) {
        int k = segments / devices;
        if (segments % devices || (devices > 1 && (k & (k - 1)))) continue; /* fold_fits */
        train(model, devices, segments, DEVICE_HOST, 0, &want);
        train(model, devices, segments, DEVICE_HOST, 1, &want);
        train(model, devices, segments, DEVICE_HOST_LATE, 0, &want);
        train(model, devices, segments, DEVICE_HOST_LATE, 1, &want);
    }
    judged_free(&want);
}

Test(dp, lenet_has_the_bits_of_one_device, .timeout = 240) {
    train_all("lenet", 4); /* 1, 2 and 4 devices */
}

Test(dp, mlp_has_the_bits_of_one_device, .timeout = 120) {
    for (int segments = 1; segments <= 4; segments++)
        train_all("mlp", segments);
}

Test(dp, mlp_with_many_virtual_devices, .timeout = 120) {
    train_all("mlp", 8);
    train_all("mlp", 12); /* 3 devices of 4 segments each */
    if (test_short()) return;
    struct record want; /* more devices than most batches have samples */
    judge(&want, "mlp", 8, batches, STEPS);
    train("mlp", 8, 8, DEVICE_HOST, 0, &want);
    train("mlp", 8, 8, DEVICE_HOST_LATE, 1, &want);
    judged_free(&want);
}

/* Dropout masks belong to the virtual device; log-softmax and nll instead of cross entropy. */
Test(dp, convnet_has_the_bits_of_one_device, .timeout = 240) {
    struct record want;
    judge(&want, "convnet", 4, batches, STEPS);
    train("convnet", 2, 4, DEVICE_HOST, 0, &want);
    train("convnet", 4, 4, DEVICE_HOST, 1, &want);
    judged_free(&want);
}

/* The judge must notice a wrong order: in these very steps sums over four segments in another order
 * give other hashes. */
Test(dp, the_order_of_summing_shows, .timeout = 120) {
    struct record four, one;
    judge(&four, "lenet", 4, batches, 1);
    judge(&one, "lenet", 1, batches, 1);
    int same = 0;
    for (int p = 0; p < four.params; p++)
        same += four.hashes[four.params + p] == one.hashes[four.params + p];
    cr_assert_lt(same, four.params,
                 "gradients summed over 1 or 4 segments are equal: the data is too easy");
    judged_free(&four);
    judged_free(&one);
}
