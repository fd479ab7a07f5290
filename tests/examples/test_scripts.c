/* Tests the scripts of PyTorch's tutorials as programs of the library: their output equals the
 * tutorials', and the command's for the same model, data, seed and batch. */
#include "tests/examples/small_set.h"
#include "tests/golden/golden.h"

#define EXAMPLES BUILD_DIR "/examples/"
#define FASHION_MNIST "/usr/share/datasets/fashion-mnist/"

static int has_fashion_mnist(void) {
    return access(FASHION_MNIST "train-images-idx3-ubyte.gz", R_OK) == 0;
}

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
    if (!has_fashion_mnist()) cr_skip_test("Fashion-MNIST is not installed");
    enum { STEPS = 6 };
    const struct golden_tensor want = golden_tensor("tests/golden/convnet.txt", "steps"),
                               apart = golden_tensor("tests/golden/convnet.txt", "apart");
    for (int n = 1; n <= (test_short() ? 1 : 2); n++) {
        double losses[STEPS + 1];
        char line[200];
        snprintf(line, sizeof line, EXAMPLES "convnet_mnist %d fashion-mnist %d plain 2>&-", n,
                 STEPS);
        RUN(0, line);
        cr_assert_eq(read_losses(losses, STEPS + 1), STEPS, "%s", output());
        for (int i = 0; i < STEPS; i++) {
            cr_expect_leq(apart.x[i], SAME_TRAJECTORY / 2);
            cr_expect_lt(fabs(losses[i] - want.x[i]), SAME_TRAJECTORY,
                         "%d processes, step %d: %.9g", n, i, losses[i]);
        }
    }
}

/* The folder has a data set that programs find by the name mnist, if they run in the folder. */
static void put_data(void) {
    data_make();
    RUN(0, "mkdir {}/data && ln -s .. {}/data/mnist");
}

/* Its images become the first of Fashion-MNIST, which can be learnt. */
static void put_real_data(void) {
    put_data();
    if (!has_fashion_mnist()) return;
    RUN(0, "cut() { head -c $4 {}/$1 >{}/head && { cat {}/head && zcat " FASHION_MNIST "$1.gz | "
           "tail -c +$(($4 + 1)) | head -c $(($2 * $3)); } >{}/new && mv {}/new {}/$1; } && "
           "cut train-images-idx3-ubyte 600 784 16 && cut train-labels-idx1-ubyte 600 1 8 && "
           "cut t10k-images-idx3-ubyte 100 784 16 && cut t10k-labels-idx1-ubyte 100 1 8");
}

/* A tenth of the images is right by chance; the scripts were seen to have 0.6 and more after four
 * epochs, that is 40 steps. */
static void check_accuracy(void) {
    double loss = 0, accuracy = 0;
    const char *line = strstr(output(), "epoch 3: valid_loss ");
    cr_assert(line && sscanf(line, "epoch 3: valid_loss %lf  test acc %lf", &loss, &accuracy) == 2,
              "%s", output());
    if (has_fashion_mnist()) cr_expect_gt(accuracy, 0.35, "%s", output());
}

/* In the scratch folder, where $build is that of this build. */
#define INSIDE "build=$(realpath " BUILD_DIR ") && cd {} && "
#define SAYS(text) cr_assert_not_null(strstr(output(), (text)), "'%s': %s", (text), output())

/* With dropout and shuffle. */
Test(scripts, convnets_losses_are_those_of_the_command_to_the_byte, .timeout = 120,
     .init = put_data, .fini = scratch_remove) {
    for (int n = 1; n <= (test_short() ? 2 : 4); n *= 2) {
        char line[400];
        snprintf(line, sizeof line,
                 INSIDE "$build/examples/convnet_mnist %d mnist 3 >ours && "
                        "$build/duet train --mode %s --devices %d --model convnet --dataset mnist "
                        "--optimizer adadelta --lr 0.5 --batch-size 128 --steps 3 --quiet "
                        "--log-loss commands && wc -l <ours && cmp ours commands",
                 n, n == 1 ? "single" : "ddp", n);
        RUN(0, line);
        cr_assert_not_null(strstr(output(), "\n4\n"), "%s", output());
    }
    RUN(2, EXAMPLES "convnet_mnist --epochs x");
    RUN(2, EXAMPLES "convnet_mnist 1 fashion-mnist x");
}

/* ---- the training scripts of a single machine ---- */

/* DDP: the ranks come from the program or from duet run; all load the file of rank 0. */
Test(scripts, ddp_trains_evaluates_and_saves, .timeout = 120, .init = put_real_data,
     .fini = scratch_remove) {
    RUN(0, INSIDE "$build/examples/ddp_train mnist 4 model && $build/duet run --nproc-per-node 3 "
                  "$build/examples/ddp_train mnist 1 other");
    check_accuracy();
    /* the same names as those of a state_dict, the layer without a part in the loss too */
    RUN(0, "cd {} && for name in conv.bias bn.weight bn.running_mean bn.num_batches_tracked "
           "fc.weight aux.bias; do grep -aq \"\\\"$name\\\"\" model && grep -aq "
           "\"\\\"$name\\\"\" other || exit 1; done && ! cmp -s model other");
    RUN(2, BUILD_DIR "/examples/ddp_train mnist");
    RUN(2, BUILD_DIR "/examples/ddp_train mnist x");
}

Test(scripts, dp_trains_evaluates_and_saves, .timeout = 120, .init = put_real_data,
     .fini = scratch_remove) {
    RUN(0, INSIDE "$build/examples/dp_train 3 mnist 4 model && grep -aq fc.weight model");
    SAYS("Let's use 3 devices!\nepoch 0: valid_loss ");
    check_accuracy();
    RUN(2, EXAMPLES "dp_train 3 mnist x");
}

/* ResNet-18 on 8 images, on one device, where it has the bits of the command's, and on two. */
Test(scripts, resnet18_trains_as_the_command_does, .timeout = 200, .init = scratch_make,
     .fini = scratch_remove) {
    small_set("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 8, 1);
    small_set("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 2, 0);
    RUN(0, "mkdir {}/data && ln -s .. {}/data/mnist");
    RUN(0,
        INSIDE "$build/examples/resnet18 1 4 0.1 mnist 1 ours && $build/duet train --mode single "
               "--model resnet18 --init d2l --dataset mnist --batch-size 4 --lr 0.1 --epochs 1 "
               "--save commands --quiet && cmp ours commands");
    SAYS(" sec/epoch, test acc: ");
    RUN(2, EXAMPLES "resnet18 1 4 0.1 mnist 0");
    if (test_short()) return;
    RUN(0, INSIDE "$build/examples/resnet18 2 8 0.1 mnist 1");
    SAYS(" sec/epoch, test acc: ");
}

/* ---- the traps ---- */

static const char *first_labels(int epoch, char line[80]) {
    char begin[48];
    snprintf(begin, sizeof begin, "epoch %d begins with the labels ", epoch);
    const char *at = strstr(output(), begin);
    cr_assert_not_null(at, "%s", output());
    snprintf(line, 80, "%.*s", (int)strcspn(at + strlen(begin), "\n"), at + strlen(begin));
    return line;
}

Test(scripts, without_set_epoch_every_epoch_has_the_same_order, .timeout = 60, .init = scratch_make,
     .fini = scratch_remove) {
    char one[80], two[80];
    RUN(0, EXAMPLES "ddp_traps set_epoch");
    SAYS("epoch 0 begins again");
    cr_expect_str_eq(first_labels(0, one), first_labels(1, two));
    RUN(0, EXAMPLES "ddp_traps set_epoch mended");
    cr_expect_str_neq(first_labels(0, one), first_labels(1, two));
    cr_expect_null(strstr(output(), "once more"));
}

/* It waits as long as the group's timeout says, and then says for whom. */
Test(scripts, evaluation_on_rank_0_alone_ends_at_the_deadline, .timeout = 60, .init = scratch_make,
     .fini = scratch_remove) {
    RUN(1, EXAMPLES "ddp_traps evaluate");
    SAYS("ddp_traps: rank 0: broadcast");
    SAYS("no word from rank 1 after 2 s");
    RUN(0, EXAMPLES "ddp_traps evaluate mended");
    SAYS("evaluated\n");
    RUN(0, EXAMPLES "ddp_traps evaluate module");
    SAYS("evaluated\n");
    RUN(2, EXAMPLES "ddp_traps --help");
    RUN(2, EXAMPLES "ddp_traps set_epoch module");
    SAYS("[mended], or evaluate module\n");
}

Test(scripts, the_first_process_prepares_the_data_while_the_others_wait, .timeout = 60,
     .init = scratch_make, .fini = scratch_remove) {
    RUN(0, INSIDE "$build/examples/ddp_traps prepare && $build/examples/ddp_traps prepare");
    SAYS("rank 1: the data is not there");
    RUN(0, INSIDE "$build/examples/ddp_traps prepare mended");
    SAYS("rank 0: the data is there");
    SAYS("rank 1: the data is there");
}
