/* The scripts of PyTorch's texts, as programs on the library: what they print is what the texts
 * say, and what the command gives for the same model, data, seed and batch. */
#include "tests/api/small_set.h"
#include "tests/golden/convnet_losses.h"

#define EXAMPLES BUILD_DIR "/examples/"

/* The file of losses of step 0, 1, ...: returns how many there are. */
static int read_losses(double *losses, int most) {
    const char *line = strchr(output(), '\n');
    int count = 0, step, used;
    cr_assert(!strncmp(output(), "step,epoch,loss\n", 16), "%s", output());
    while (line && count < most &&
           sscanf(line, "\n%d,0,%lf%n", &step, &losses[count], &used) == 2 && step == count)
        line += used, count++;
    return count;
}

/* PyTorch agrees with itself to `spread`, at most 5e-7: on another number of threads, in float64,
 * and with the batch cut among ranks. Another order of sums is as far off; the same trajectory
 * after a mistake, such as a learning rate of 1 instead of 0.5, is 2e-2 off in the second step. */
static const double SAME_TRAJECTORY = 1e-6;

Test(scripts, convnet_has_pytorchs_losses_alone_and_distributed, .timeout = 120,
     .init = scratch_make, .fini = scratch_remove) {
    if (access("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz", R_OK))
        cr_skip_test("Fashion-MNIST is not installed");
    for (int n = 1; n <= (test_short() ? 1 : 2); n++) {
        double losses[CONVNET_STEPS + 1];
        char line[200];
        snprintf(line, sizeof line, EXAMPLES "convnet_mnist %d fashion-mnist %d plain 2>&-", n,
                 CONVNET_STEPS);
        RUN(0, line);
        cr_assert_eq(read_losses(losses, CONVNET_STEPS + 1), CONVNET_STEPS, "%s", output());
        for (int i = 0; i < CONVNET_STEPS; i++) {
            cr_expect_leq(golden_convnet[i].spread, SAME_TRAJECTORY / 2);
            cr_expect_lt(fabs(losses[i] - golden_convnet[i].loss), SAME_TRAJECTORY,
                         "%d processes, step %d: %.9g", n, i, losses[i]);
        }
    }
}

/* With dropout and shuffle. */
Test(scripts, convnets_losses_are_those_of_the_command_to_the_byte, .timeout = 120,
     .init = data_make, .fini = scratch_remove) {
    RUN(0, "mkdir {}/data && ln -s .. {}/data/mnist");
    for (int n = 1; n <= (test_short() ? 2 : 4); n *= 2) {
        char line[400];
        snprintf(line, sizeof line,
                 "build=$(realpath " BUILD_DIR ") && cd {} && "
                 "$build/examples/convnet_mnist %d mnist 3 >ours && "
                 "$build/duet train --mode %s --devices %d --model convnet --dataset mnist "
                 "--optimizer adadelta --lr 0.5 --batch-size 128 --steps 3 --quiet "
                 "--log-loss commands && wc -l <ours && cmp ours commands",
                 n, n == 1 ? "single" : "ddp", n);
        RUN(0, line);
        cr_assert_not_null(strstr(output(), "\n4\n"), "%s", output());
    }
}
