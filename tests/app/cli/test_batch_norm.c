/* Tests the command with a BatchNorm model: the proof covers running statistics, files hold them
 * and are read back, and wrong uses are refused. */
#include "base/error.h"
#include "base/files/safetensors.h"
#include "models/model.h"
#include "tests/app/cli/data.h"
#include "tests/app/cli/nets.h"
#include "tests/app/cli/run.h"

#define OF(MODEL) "--model " MODEL " --dataset synthetic --shape 1x9x8 --samples 22 "
#define DATA OF("resnet18")
#define RUN OF("small") "--virtual-devices 4 --batch-size 8 --lr 0.05 --seed 3 --quiet "

/* The proof covers buffers. Without virtual devices each mode normalises other shares; with
 * SyncBatchNorm it does not, but adds in another order, and biases before a norm have gradients of
 * rounding alone. */
CliTest(cli_batch_norm, the_proof_looks_at_buffers, 300) {
    static const char off[] = "compare " RUN "--steps 1 --virtual-devices off";
    put_norm_model("small");
    cli_says(0,
             "\nDP = single: identical to the bit after 2 steps|\nDDP = single: identical to the "
             "bit after 2 steps",
             "compare " RUN "--steps 2");
    cli_says(0,
             "DDP = single: identical to the bit after 2 steps|DP was left out: SyncBatchNorm is "
             "only supported within",
             "compare " RUN "--steps 2 --sync-bn");
    cli_fails(2, "the modes train different models|--sync-bn", "%s", off);
    cli_says(0, "DDP ~ single: agree within rounding", "%s --sync-bn", off);
}

/* PyTorch's names, an I64 without dimensions, every tensor aligned. A step with rate 0 still
 * updates the statistics, and counts on from the file's number. */
CliTest(cli_batch_norm, a_file_holds_the_buffers, 120) {
    static const char *const runs[] = {"train --mode ddp " RUN "--steps 2 --save w0",
                                       "train --mode dp " RUN
                                       "--steps 1 --lr 0 --init-from w0 --save w1"};
    float mean[2][8];
    put_norm_model("small");
    for (int run = 0; run < 2; run++) {
        struct safetensors s;
        int64_t batches;
        cli_well("%s", runs[run]);
        cr_assert_eq(safetensors_open(&s, run ? "w1" : "w0"), OK, "%s", error_message());
        cr_assert_eq(s.count, 6 + 3);
        for (int i = 0; i < s.count; i++)
            cr_assert_eq(s.entries[i].offset % (s.entries[i].bytes / s.entries[i].count), 0u, "%s",
                         s.entries[i].name);
        cr_assert_eq(safetensors_read(&s, "I64", "bn.num_batches_tracked", 0, NULL, &batches), OK,
                     "%s", error_message());
        cr_assert_eq(batches, 2 + run);
        cr_assert_eq(safetensors_read(&s, "F32", "bn.running_mean", 1, (int64_t[]){8}, mean[run]),
                     OK);
        safetensors_close(&s);
    }
    for (int c = 0; c < 8; c++)
        cr_assert(mean[1][c] != mean[0][c] && fabsf(mean[1][c] - 0.9f * mean[0][c]) < 0.2f,
                  "channel %d", c);
}

CliTest(cli_batch_norm, what_is_refused, 120) {
    static const struct {
        int status;
        const char *says, *command;
    } cases[] = {
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
        {2, "SyncBatchNorm is only supported within",
         "train --mode dp --sync-bn --model resnet18 --data-dir none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cli_fails(cases[i].status, cases[i].says, "%s", cases[i].command);
}
