/* What a recorded step of `duet train` is on the emulated runtime: one graph, without a copy, with
 * dependent launches where the GPU takes them. (The bits, and the losses beside --device cpu:
 * tests/cuda/test_train.c; what a GPU refuses: tests/cuda/test_train_fail.c.) */
#include "tests/stand_ins/cuda_emulated.h"

#ifndef CUDA_EMULATION
ONLY_EMULATED(emulated_train)
#else
#include "tests/app/cli/data.h"
#include "tests/app/cli/run.h"

/* How many items of these kinds the GPU was given in a run of so many steps. */
static void count_items(int steps, const char *const kinds[3], int count[3]) {
    struct cli c;
    cli_run(&c,
            "train --mode single --device cuda --data-dir d --quiet --model mlp --mlp-hidden 9 "
            "--batch-size 4 --steps %d --log-loss l",
            steps);
    cr_assert_eq(c.status, 0, "%s", c.err);
    for (int i = 0; i < 3; i++) {
        count[i] = 0;
        for (const char *at = c.err; (at = strstr(at, kinds[i])); at++)
            count[i]++;
    }
    cli_free(&c);
}

/* Of 16 batches. Neither 5 nor 7 is a power of two, so both runs read the logs equally often. The
 * launch of a graph waits for the one before: there is a wait for each. */
CliTest(emulated_train, a_step_is_one_graph_and_brings_no_copy, 60) {
    static const char *const kinds[3] = {": copy\n", ": wait\n", "write_value"};
    int five[3], seven[3];
    put_data(64, 4);
    setenv("EMULATED_CUDA_TRACE", "1", 1);
    count_items(5, kinds, five);
    count_items(7, kinds, seven);
    cr_expect_eq(seven[0] - five[0], 0, "%d copies in two steps", seven[0] - five[0]);
    cr_expect_eq(seven[1] - five[1], 2, "%d graphs in two steps", seven[1] - five[1]);
    cr_expect_eq(seven[2] - five[2], 2, "%d step blocks in two steps", seven[2] - five[2]);
}

/* Recordings begin with step 2 or 3. Where they may not hold dependent launches, the steps before
 * them do; and where nothing may, nothing does. The losses are the same to the bit. */
CliTest(emulated_train, dependent_launches_where_the_gpu_takes_them, 60) {
    static const char *const ways[][2] = {{"DUET_DEPENDENT_LAUNCH", "1"},
                                          {"EMULATED_CUDA_FAULT", "dependent:recorded"},
                                          {"EMULATED_CUDA_FAULT", "dependent:plain"},
                                          {"EMULATED_CAPABILITY", "80"},
                                          {"DUET_DEPENDENT_LAUNCH", "0"}};
    static const char *const kinds[3] = {" (dependent)\n", ": wait\n", "write_value"};
    int all = 0;
    put_data(64, 4);
    setenv("EMULATED_CUDA_TRACE", "1", 1);
    for (int i = 0; i < 5; i++) {
        int count[3];
        setenv(ways[i][0], ways[i][1], 1);
        count_items(5, kinds, count);
        cr_expect_gt(count[1], 0, "%s=%s: no graph", ways[i][0], ways[i][1]);
        if (i == 0)
            all = count[0];
        else
            cr_expect(i == 1 ? count[0] > 0 && count[0] < all : count[0] == 0,
                      "%s=%s: %d of %d kernels", ways[i][0], ways[i][1], count[0], all);
        cr_expect(cli_same_file("l", i ? "l0" : "l"), "%s=%s: other losses", ways[i][0],
                  ways[i][1]);
        if (i == 0) cr_assert_eq(system("cp l l0"), 0);
        unsetenv(ways[i][0]);
    }
    cr_expect_gt(all, 50, "%d kernels in five steps", all);
}
#endif
