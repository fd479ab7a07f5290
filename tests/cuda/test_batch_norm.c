/* A model with BatchNorm on GPUs, by the command: single, dp and ddp end with equal files, running
 * statistics included, synchronised or not, with graphs; a rank that waits for the statistics of
 * others inside forward and backward records none. ResNet-18 on GPUs; emulated ones, on which its
 * step takes seconds, train a small model. Skipped where no GPU opens. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/nets.h"
#include "tests/app/cli/run.h"
#include "tests/harness/gpus.h"

#ifdef CUDA_EMULATION
#define MODEL "small"
#else
#define MODEL "resnet18"
#endif
#define RUN                                                                          \
    "--device cuda --model " MODEL " --dataset synthetic --shape 1x9x8 --samples 8 " \
    "--virtual-devices 2 --batch-size 4 --lr 0.05 --seed 3 --quiet --steps 2"

static void train_alone(const char *options) {
    put_norm_model("small");
    cli_well("train --mode single %s " RUN " --save one --log-loss one.csv", options);
}

static void same_files(const char *mode, const char *options) {
    cli_well("train --mode %s %s " RUN " --save two --log-loss two.csv", mode, options);
    cr_expect(cli_same_file("one.csv", "two.csv"), "%s %s: losses differ", mode, options);
    cr_expect(cli_same_file("one", "two"), "%s %s: weights or buffers differ", mode, options);
}

Test(cuda_batch_norm, synchronised, .timeout = 300, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    need_gpus(2);
    train_alone("--sync-bn");
    same_files("ddp --devices 2", "--sync-bn");
}

Test(cuda_batch_norm, by_device, .timeout = 300, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    need_gpus(1); /* the devices share it */
    train_alone("");
    same_files("dp --devices 2", "");
    same_files("ddp --devices 2", "");
}
