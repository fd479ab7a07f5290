/* A model with BatchNorm on GPUs, by the command: single, dp and ddp end with equal files, running
 * statistics included, synchronised or not, with graphs; a rank that waits for the statistics of
 * others inside forward and backward records none. Skipped where no GPU opens; in the build with
 * EMULATION=1 there are EMULATED_GPUS of them, and a step of ResNet-18 on tiny pictures takes
 * seconds. */
#include "tests/cli/data.h"
#include "tests/cli/run.h"
#include "tests/harness/gpus.h"

#define RUN                                                                         \
    "--device cuda --model resnet18 --dataset synthetic --shape 1x4x4 --samples 8 " \
    "--virtual-devices 2 --batch-size 4 --lr 0.05 --seed 3 --quiet --steps 2"

static void same_files(const char *mode, const char *options) {
    cli_well("train --mode %s %s " RUN " --save two --log-loss two.csv", mode, options);
    cr_expect(cli_same_file("one.csv", "two.csv"), "%s %s: losses differ", mode, options);
    cr_expect(cli_same_file("one", "two"), "%s %s: weights or buffers differ", mode, options);
}

Test(cuda_batch_norm, synchronised, .timeout = 300, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    need_gpus(2);
    cli_well("train --mode single --sync-bn " RUN " --save one --log-loss one.csv");
    same_files("ddp --devices 2", "--sync-bn");
}

Test(cuda_batch_norm, by_device, .timeout = 300, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    if (test_short()) cr_skip_test("short form: the synchronised one has all of it but DP");
    need_gpus(1); /* the devices share it */
    cli_well("train --mode single " RUN " --save one --log-loss one.csv");
    same_files("dp --devices 2", "");
    same_files("ddp --devices 2", "");
}
