/* Tests which work a step of `duet train` enqueues on the emulated runtime: kernels, and the copies
 * of its batch. (tests/cuda/test_train.c compares the bits, and the losses with --device cpu;
 * tests/cuda/test_train_fail.c has failing GPUs.) */
#include "tests/stand_ins/cuda_emulated.h"

#ifndef CUDA_EMULATION
ONLY_EMULATED(emulated_train)
#else
#include "tests/app/cli/data.h"
#include "tests/app/cli/run.h"

/* How many items of these kinds the GPU was given in a run of so many steps. */
static void count_items(int steps, const char *const kinds[2], int count[2]) {
    struct cli c;
    cli_run(&c,
            "train --mode single --device cuda --data-dir d --quiet --model mlp --mlp-hidden 9 "
            "--batch-size 4 --steps %d --log-loss l",
            steps);
    cr_assert_eq(c.status, 0, "%s", c.err);
    for (int i = 0; i < 2; i++) {
        count[i] = 0;
        for (const char *at = c.err; (at = strstr(at, kinds[i])); at++)
            count[i]++;
    }
    cli_free(&c);
}

/* 5 and 7 of 16 batches: neither is a power of two, so both runs read the logs equally often. */
CliTest(emulated_train, a_step_brings_its_batch_alone, 60) {
    static const char *const kinds[2] = {": copy\n", "write_value"};
    int five[2], seven[2];
    put_data(64, 4);
    setenv("EMULATED_CUDA_TRACE", "1", 1);
    count_items(5, kinds, five);
    count_items(7, kinds, seven);
    cr_expect_eq(seven[0] - five[0], 2 * 2, /* pixels and labels */
                 "%d copies in two steps", seven[0] - five[0]);
    cr_expect_eq(seven[1] - five[1], 2, "%d step blocks in two steps", seven[1] - five[1]);
}

#endif
