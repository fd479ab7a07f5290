/* Tests GPUs whose advertised peer access (P2P) does not work, as behind an IOMMU: the emulated
 * runtime loses or misplaces accesses to another GPU's memory, or hangs. A trial of 4 KiB detects
 * this when devices open. Training then continues through host memory, with the bits of one device,
 * and says so. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/app/cli/data.h"
#include "tests/app/cli/run.h"
#include "tests/harness/gpus.h"
#include "tests/harness/text.h"

#ifndef CUDA_EMULATION
Test(emulated_p2p, needs_the_emulated_runtime, .timeout = 10) {
    cr_skip_test("make EMULATION=1 check runs this");
}
#else

static const char TINY[] =
    "--device cuda --data-dir d --model mlp --mlp-hidden 8 --steps 2 --batch-size 16";

static void set_up(int gpus, const char *p2p) {
    set_gpus(gpus);
    setenv("EMULATED_P2P", p2p, 1);
    setenv("DUET_NCCL", "/no/such/libnccl.so", 1);
    put_data(32, 8);
}

static void goes_by_host(int ranks, const char *p2p, const char *options) {
    struct cli c;
    cli_run(&c, "compare %s --devices %d %s", TINY, ranks, options);
    cr_assert_eq(c.status, 0, "%s: %s", p2p, c.err);
    cr_expect(strstr(c.out, "DP = single: identical to the bit after 2 steps") &&
                  strstr(c.out, "DDP = single: identical to the bit after 2 steps"),
              "%s: %s", p2p, c.out);
    cr_expect(strstr(c.err, "warning: P2P between the GPUs of cuda(0) and cuda(1) is advertised") &&
                  strstr(c.err, "warning: P2P between the GPUs of ranks 0 and 1 is advertised") &&
                  strstr(c.err, "IOMMU") && strstr(c.err, "Duet goes through host memory"),
              "%s: %s", p2p, c.err);
    if (!*options) cr_expect_eq(count_of(c.err, "\n"), 2, "a line for each mode: %s", c.err);
    cli_free(&c);
}

CliTest(emulated_p2p, bytes_that_do_not_arrive, 240) {
    static const char *const ways[] = {"lost", "stores", "wrong"};
    struct cli c;
    for (int i = 0; i < 3; i++) {
        set_up(2, ways[i]);
        goes_by_host(2, ways[i], "");
    }
    goes_by_host(4, "wrong", ""); /* two on each GPU */
    cli_run(&c, "train %s --mode ddp --devices 2", TINY);
    cr_expect(c.status == 0 && strstr(c.err, "P2P"), "%s", c.err);
    cli_free(&c);
    cli_well("train %s --mode ddp --devices 2 --quiet", TINY);
}

/* A library that trusts the driver is told not to. */
CliTest(emulated_p2p, nccl_does_without, 120) {
    char nccl[2 * PATH_MAX];
    struct cli c;
    set_up(2, "lost");
    snprintf(nccl, sizeof nccl, "%s/" BUILD_DIR "/tests/stand_ins/fake_cuda_libraries/fake_nccl.so",
             cli_root_path);
    setenv("DUET_NCCL", nccl, 1);
    goes_by_host(2, "lost", "--allreduce nccl");
    cli_run(&c, "compare %s --devices 2", TINY);
    cr_expect(c.status == 0 && says(c.out, "nccl for") && says(c.out, "an IOMMU?"), "%s%s", c.err,
              c.out);
    cli_free(&c);
}

/* Nothing takes a hanging kernel from a GPU, so the job ends, in time and with the way out; also
 * where the driver waits for the kernel when the process ends. */
CliTest(emulated_p2p, a_trial_that_hangs, 120) {
    static const char *const modes[] = {"ddp", "dp"};
    set_up(2, "hang");
    setenv("EMULATED_CUDA_EXIT", "waits", 1);
    for (int m = 0; m < 2; m++) {
        int64_t begun = now_ns();
        cli_fails(1,
                  "P2P between the GPUs of |hangs: 4 KiB have not arrived after |IOMMU|"
                  "iommu=pt, or set NCCL_P2P_DISABLE=1: Duet then goes through host memory",
                  "train %s --mode %s --devices 2 --timeout 1", TINY, modes[m]);
        cr_expect_lt(now_ns() - begun, (int64_t)20e9);
    }
    struct cli c;
    setenv("NCCL_P2P_DISABLE", "1", 1);
    cli_run(&c, "compare %s --devices 2", TINY);
    cr_expect(c.status == 0 && says(c.out, "NCCL_P2P_DISABLE keeps the GPUs of ranks 0 and 1"),
              "%s%s", c.err, c.out);
    cli_free(&c);
}

/* Only GPUs that reach each other, as the driver says, are tried. */
CliTest(emulated_p2p, pairs, 120) {
    set_up(4, "lost");
    set_peers("pairs");
    goes_by_host(4, "pairs", "");
    set_peers("0");
    cli_well("compare %s --devices 4", TINY);
}

/* Each process sees one GPU, as under many schedulers, and cannot ask whether the other is within
 * reach. A program of duet.h then trains by host memory, with the same bits. */
CliTest(emulated_p2p, a_gpu_of_its_own_for_each_process, 120) {
    struct cli c;
    FILE *script = fopen("one", "w");
    cr_assert_not_null(script);
    fprintf(script,
            "#!/bin/sh\nCUDA_VISIBLE_DEVICES=$RANK exec %s/" BUILD_DIR
            "/examples/ddp_train mnist 1 "
            "weights-$EMULATED_PEER\n",
            cli_root_path);
    cr_assert(!fclose(script) && !chmod("one", 0700));
    set_up(2, "works");
    cr_assert(!mkdir("data", 0700) && !symlink("../d", "data/mnist"));
    for (int peer = 1; peer >= 0; peer--) {
        set_peers(peer ? "1" : "0");
        cli_run(&c, "run --nproc-per-node 2 ./one");
        cr_assert(c.status == 0 && !strstr(c.err, "P2P"), "%d: %s", peer, c.err);
        cli_free(&c);
    }
    cr_expect(cli_same_file("weights-1", "weights-0"), "other weights");
}

/* Programs of duet.h also report it: in DDP rank 0, in DataParallel the one process. */
CliTest(emulated_p2p, programs_say_so, 120) {
    static const char *const lines[] = {"run --nproc-per-node 2 %s/ddp_train mnist 1",
                                        "run --nproc-per-node 1 %s/dp_train 2 mnist 1"};
    static const char *const who[] = {"ranks 0 and 1", "cuda(0) and cuda(1)"};
    struct cli c;
    char examples[PATH_MAX + 64], word[120];
    snprintf(examples, sizeof examples, "%s/" BUILD_DIR "/examples", cli_root_path);
    set_up(2, "lost");
    cr_assert(!mkdir("data", 0700) && !symlink("../d", "data/mnist"));
    for (int i = 0; i < 2; i++) {
        cli_run(&c, lines[i], examples);
        snprintf(word, sizeof word, "warning: P2P between the GPUs of %s is advertised", who[i]);
        cr_expect(c.status == 0 && count_of(c.err, "P2P between") == 1 && says(c.err, word),
                  "%s: %d: %s", lines[i], c.status, c.err);
        cli_free(&c);
    }
    setenv("EMULATED_P2P", "works", 1);
    cli_run(&c, lines[1], examples);
    cr_expect(c.status == 0 && !strstr(c.err, "P2P"), "%s", c.err);
    cli_free(&c);
}
#endif
