/* Tests the command with a BatchNorm model: the proof covers running statistics, files hold them
 * and are read back, and wrong uses are refused. */
#include "base/error.h"
#include "base/files/safetensors.h"
#include "models/model.h"
#include "tests/app/cli/data.h"
#include "tests/app/cli/nets.h"
#include "tests/app/cli/run.h"

/* The last batch of an epoch is short: 22 samples in batches of 8, padded where V = 4. */
#define DATA "--model resnet18 --dataset synthetic --shape 1x9x8 --samples 22"
#define REST " --virtual-devices 4 --batch-size 8 --lr 0.05 --seed 3 --quiet"
#define RUN DATA REST

/* A step of ResNet-18 is long, one of this model is not. */
#define SMALL_DATA "--model small --dataset synthetic --shape 1x9x8 --samples 22"
#define SMALL_RUN SMALL_DATA REST

/* Without virtual devices each mode normalises other shares. With SyncBatchNorm it does not, but
 * adds in another order, and biases before a norm have gradients of rounding alone. */
CliTest(cli_batch_norm, without_virtual_devices, 300) {
    put_norm_model("small");
    static const char line[] = "compare --devices 2 " SMALL_DATA
                               " --batch-size 8 --lr 0.05 --quiet --steps 1 --virtual-devices off";
    cli_fails(2, "the modes train different models|--sync-bn", "%s", line);
    cli_says(0, "DDP ~ single: agree within rounding", "%s --sync-bn", line);
}

CliTest(cli_batch_norm, the_proof_looks_at_buffers, 300) {
    put_norm_model("small");
    cli_says(0, "DDP = single: identical to the bit after 2 steps|!DP was left out",
             "compare --devices 2 " SMALL_RUN " --steps 2");
    cli_says(0,
             "DDP = single: identical to the bit after 2 steps|"
             "DP was left out: SyncBatchNorm is only supported within",
             "compare --devices 2 " SMALL_RUN " --steps 2 --sync-bn");
}

/* PyTorch's names, an I64 without dimensions, every tensor aligned; and evaluation with a file's
 * statistics gives the result of the run that wrote it. */
CliTest(cli_batch_norm, a_file_holds_the_buffers, 120) {
    if (test_short()) cr_skip_test("short form: a step of ResNet-18 is long here");
    struct safetensors s;
    int64_t batches;
    float mean[64], again[64];
    cli_well("train --mode ddp " RUN " --steps 2 --save w");
    cr_assert_eq(safetensors_open(&s, "w"), OK, "%s", error_message());
    cr_assert_eq(s.count, 76 + 51);
    for (int i = 0; i < s.count; i++)
        cr_assert_eq(s.entries[i].offset % (s.entries[i].bytes / s.entries[i].count), 0u, "%s",
                     s.entries[i].name);
    const char *tracked = "resnet_block4.1.bn2.num_batches_tracked";
    cr_assert_eq(safetensors_read_as(&s, "I64", tracked, 0, NULL, &batches), OK, "%s",
                 error_message());
    cr_assert_eq(batches, 2);
    cr_assert_eq(safetensors_read(&s, "1.running_mean", 1, (int64_t[]){64}, mean), OK);
    safetensors_close(&s);
    /* a step with rate 0 still updates the statistics, and counts on from the file's number */
    cli_well("train --mode dp " RUN " --steps 1 --lr 0 --init-from w --save w2");
    cr_assert_eq(safetensors_open(&s, "w2"), OK, "%s", error_message());
    cr_assert_eq(safetensors_read_as(&s, "I64", tracked, 0, NULL, &batches), OK);
    cr_assert_eq(batches, 3);
    cr_assert_eq(safetensors_read(&s, "1.running_mean", 1, (int64_t[]){64}, again), OK);
    safetensors_close(&s);
    for (int c = 0; c < 64; c++)
        cr_assert(again[c] != mean[c] && fabsf(again[c] - 0.9f * mean[c]) < 0.2f, "channel %d", c);
}

/* Without running statistics too, as in PyTorch: the losses of two ranks are one process's. */
CliTest(cli_batch_norm, synchronised_without_running_statistics, 60) {
    put_net("small", "duet 1\n"
                     "input %x: f32[N, 6]\n"
                     "parameter fc.weight: f32[8, 6]\n"
                     "parameter bn.weight: f32[8]\n"
                     "parameter bn.bias: f32[8]\n"
                     "parameter head.weight: f32[3, 8]\n"
                     "%1: f32[N, 8] = linear(%x, fc.weight, none)\n"
                     "%2: f32[N, 8] = batch_norm(%1, bn.weight, bn.bias, none, none, none)\n"
                     "%3: f32[N, 3] = linear(%2, head.weight, none)\n"
                     "return %3\n");
    const char *run = "--model small --dataset random --samples 32 --batch-size 16 "
                      "--virtual-devices 4 --quiet";
    cli_well("train --mode single %s --sync-bn --epochs 1 --log-loss one.csv --save one", run);
    cli_well("train --mode ddp --devices 2 %s --sync-bn --epochs 1 --log-loss two.csv --save two",
             run);
    cr_expect(cli_same_file("one.csv", "two.csv") && cli_same_file("one", "two"));
    cli_well("train --mode ddp --devices 2 %s --epochs 1 --log-loss two.csv", run);
    cr_assert(!cli_same_file("one.csv", "two.csv"), "--sync-bn changes nothing");
}

CliTest(cli_batch_norm, what_is_refused, 120) {
    static const struct {
        int status;
        const char *says, *command;
    } cases[] = {
        {2, "SyncBatchNorm is only supported within", "train --mode dp --sync-bn " RUN},
        {2, "no effect with model lenet: it has no BatchNorm", "train --sync-bn --model lenet"},
        {2, "--init: no effect with model mlp", "train --init d2l --model mlp"},
        {2, "expected default or d2l", "train --init d2k"},
        {1,
         "Expected more than 1 value per channel when training, got input size "
         "torch.Size([1, 512, 1, 1])",
         "train --mode ddp --devices 2 " DATA " --shape 1x8x8 --batch-size 2"},
        {1,
         "Caught ValueError in replica 0 on device 0. Expected more than 1 value per channel when "
         "training, got input size torch.Size([1, 512, 1, 1]): a device's batch has one sample: "
         "use a larger batch, or drop the last batch of an epoch if it is smaller",
         "train --mode dp --devices 2 " DATA " --shape 1x8x8 --batch-size 2"},
        /* the last batch of an epoch has one sample, on rank 1; single gives the same error */
        {1, "torch.Size([1, 512, 1, 1]): the batch of all devices has one sample",
         "train --mode ddp --devices 2 --sync-bn " DATA
         " --shape 1x8x8 --samples 4 --batch-size 3 --epochs 1 --quiet"},
        /* refused before the data are read */
        {2, "SyncBatchNorm is only", "train --mode dp --sync-bn --model resnet18 --data-dir none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cli_fails(cases[i].status, cases[i].says, "%s", cases[i].command);
}
