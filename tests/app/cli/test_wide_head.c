/* Tests wide outputs: with 20000 classes they are larger than the model, and DP gathers all of them
 * on device 0. For some memory sizes DDP trains and DP does not.
 *
 * All sizes follow from the shapes, for a batch of 64 samples on 4 devices:
 *
 *     parameters, and their gradients   (10 + 1) x 20000 floats          880,000 bytes each
 *     outputs of one device             16 x 20000 floats              1,280,000
 *     outputs of the whole batch        64 x 20000 floats              5,120,000
 *
 * Each device holds its outputs twice (in its kernels' layout, and row-major), and in backward also
 * their gradient in both. DP's device 0 reads the row-major gradient where the loss left it. It
 * also holds the outputs of the whole batch and their gradient. */
#include "tests/app/cli/json.h"

#define COMMON \
    "--model simple --dataset random --classes 20000 --samples 128 --batch-size 64 --devices 4"

enum {
    PARAMS = (10 + 1) * 20000 * 4,
    SHARE = 16 * 20000 * 4,
    WHOLE = 64 * 20000 * 4,
    /* step block, logs, the batch, padding of each allocation to 256 bytes */
    SMALL = 32 << 10,
    MIB = 1 << 20
};

static void expect(struct json *j, int device, const char *cause, int64_t least, int64_t slack) {
    int64_t got = json_int(j, "per_device/%d/memory_peak_by_cause/%s", device, cause);
    cr_expect(got >= least && got <= least + slack, "device %d: %s: %lld bytes, not %lld", device,
              cause, (long long)got, (long long)least);
}

CliTest(cli_wide_head, outputs_weigh_on_device_0_of_dp, 60) {
    cli_well("train --mode dp " COMMON " --epochs 1 --quiet --json dp");
    cli_well("train --mode ddp " COMMON " --epochs 1 --quiet --json ddp");
    struct json *dp = json_of("dp"), *ddp = json_of("ddp");
    for (int d = 0; d < 4; d++) {
        expect(dp, d, "params", PARAMS, SMALL);
        expect(ddp, d, "params", PARAMS, SMALL);
        expect(dp, d, "activations", (d ? 4 : 3) * SHARE, SMALL);
        expect(ddp, d, "activations", 4 * SHARE, SMALL);
        expect(dp, d, "gathered_output", d ? 0 : 2 * WHOLE, d ? 0 : SMALL);
        expect(ddp, d, "gathered_output", 0, 0);
    }
    json_free(dp);
    json_free(ddp);
}

/* DDP: 2 x 880,000 + 4 x 1,280,000 = 6.6 MiB, and 1 MiB for allreduce. DP's device 0: 2 x 880,000 +
 * 3 x 1,280,000 + 2 x 5,120,000 = 15.1 MiB. */
CliTest(cli_wide_head, dp_runs_out_of_memory_where_ddp_trains, 60) {
    cr_assert(2 * PARAMS + 4 * SHARE + 2 * MIB < 12 * MIB &&
              2 * PARAMS + 3 * SHARE + 2 * WHOLE > 12 * MIB &&
              2 * PARAMS + 3 * SHARE + 2 * WHOLE + MIB / 2 < 16 * MIB);
    cli_fails(1, "out of memory on device 0|asked for gathered output|--device-memory",
              "train --mode dp " COMMON " --device-memory 12M --quiet");
    cli_well("train --mode ddp " COMMON " --device-memory 12M --epochs 1 --quiet");
    cli_well("train --mode dp --loss-in-forward " COMMON " --device-memory 12M --epochs 1 --quiet");
    cli_well("train --mode dp " COMMON " --device-memory 16M --epochs 1 --quiet");
}

/* A profile measures the kinds that fit, says what DP held when it asked for more, and ends with
 * status 1 (and one line: test_bad_input.c). */
CliTest(cli_wide_head, profile_goes_on_with_what_fits, 60) {
    cli_says(
        1,
        "^duet: DP: out of memory: .*--device-memory$|^DP does not fit:$|held: gathered output |"
        "^DP, loss in forward: 4 devices|^DDP: 4 devices|"
        "^  DP: does not fit: it needs at least 15\\.[0-9]+ MiB on device 0 |"
        "^  DP, loss in forward: fits, with at most [0-9.]+ MiB of 12 MiB|"
        "^  DDP: fits, with at most [0-9.]+ MiB of 12 MiB on a device$",
        "profile " COMMON " --device-memory 12M --steps 2 --quiet --json j");
    struct json *root = json_of("j");
    cr_expect(strstr(json_text(root, "dp/does_not_fit"), "asked for gathered output"));
    cr_expect_eq(json_int(root, "ddp/steps"), 2);
    json_free(root);
}

/* compare judges the modes that fit. Beside device 0, DP holds 2 x 880,000 + 4 x 1,280,000 bytes;
 * DDP holds adam's state there as well, 2 x 880,000 more, and 1 MiB of scratch: 9.24 MiB. */
CliTest(cli_wide_head, compare_goes_on_with_what_fits, 60) {
    cr_assert(2 * PARAMS + 4 * SHARE + SMALL < 8 * MIB && 4 * PARAMS + 4 * SHARE > 8 * MIB);
    cli_says(
        1,
        "^duet: DDP: .*out of memory on device [123]: |^ +single +DP x 4$|"
        "^DP = single: identical to the bit after 2 steps|"
        "^DDP does not fit into the memory of its devices: it needs at least 9\\.[0-9]+ MiB on$",
        "compare " COMMON
        " --device-memory 64M,8M,8M,8M --optimizer adam --steps 2 --quiet --json j");
    struct json *root = json_of("j");
    cr_expect(strstr(json_text(root, "ddp/does_not_fit"), "out of memory on device"));
    cr_expect_eq(json_int(root, "dp/steps"), 2);
    json_free(root);
}

/* Where single does not fit, DDP is judged against DP, by hashes or in lock step; and a mode
 * without a partner is measured without a verdict. Single and DP's device 0 hold the outputs of all
 * samples: single 6 times the whole, with what was said above; DP 2 times, and 3 of one device. */
CliTest(cli_wide_head, compare_goes_on_without_single, 60) {
    cr_assert(2 * PARAMS + 3 * SHARE + 2 * WHOLE + MIB < 18 * MIB && 4 * WHOLE > 18 * MIB);
    cli_says(1,
             "^duet: single: .*out of memory on device 0: |^ +DP x 4 +DDP x 4$|"
             "^speed-up over DP(, [0-9]+ cores?)? +1.00 |"
             "^single does not fit into the memory of its devices: it needs at least |"
             "^DDP = DP: identical to the bit after 5 steps",
             "compare " COMMON " --device-memory 18M --steps 5 --quiet --json j");
    struct json *root = json_of("j");
    cr_expect(strstr(json_text(root, "single/does_not_fit"), "out of memory on device 0"));
    cr_expect_str_eq(json_text(root, "ddp/verdict/verdict"), "identical");
    cr_expect_eq(json_at(root, "dp/verdict")->kind, JSON_NULL);
    json_free(root);
    cli_says(1, "^DDP ~ DP: agree within rounding in the first step",
             "compare " COMMON " --device-memory 18M --steps 2 --quiet --virtual-devices off");
    cli_says(1,
             "^ +DDP x 4$|^DP does not fit into the memory of its devices: it needs at least 15\\.|"
             "there is no other run to compare DDP with",
             "compare " COMMON " --device-memory 12M --steps 2 --quiet");
    cli_fails(1, "single: out of memory on device 0", "compare " COMMON " --device-memory 4M");
}
