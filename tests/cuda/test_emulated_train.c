/* `duet train --mode single --device cuda`, the command itself on an emulated runtime, against
 * --device cpu: the same numbers, except for the order of sums. Streams are late and the host
 * cannot reach device memory, so a missing wait or a pointer followed on the wrong side shows. (The
 * modes compared with each other: tests/cuda/test_train.c.) */
#include "tests/stand_ins/cuda_emulated.h"

#ifndef CUDA_EMULATION
ONLY_EMULATED(emulated_train)
#else
#include "tests/app/cli/data.h"
#include "tests/app/cli/run.h"

/* Reads the third column of a loss file; returns the number of steps. */
static int losses_of(const char *path, double loss[16]) {
    char *text = cli_read(path, NULL), *rest = text, *line;
    int count = 0;
    cr_assert_not_null(text);
    while ((line = strsep(&rest, "\n")) && count < 16)
        count += sscanf(line, "%*d,%*d,%lf", &loss[count]) == 1;
    free(text);
    return count;
}

/* The terms of a product are added in another order, so a loss is off by some roundings of 2^-24,
 * which grow a little with each update. A wrong gradient is off by a hundred times as much after
 * one step. */
static const double RELATIVE = 1e-5;

static void as_on_the_cpu(const char *options, int steps) {
    double cpu[16], cuda[16];
    cli_well("train --mode single --device cpu --data-dir d --quiet --seed 3 %s --steps %d "
             "--log-loss cpu.csv",
             options, steps);
    setenv("EMULATED_CUDA_LATE_US", "200", 1);
    setenv("EMULATED_CUDA_GUARD", "1", 1);
    cli_well("train --mode single --device cuda --data-dir d --quiet --seed 3 %s --steps %d "
             "--log-loss cuda.csv",
             options, steps);
    cr_assert_eq(losses_of("cpu.csv", cpu), steps);
    cr_assert_eq(losses_of("cuda.csv", cuda), steps);
    for (int i = 0; i < steps; i++)
        cr_expect(fabs(cuda[i] - cpu[i]) <= RELATIVE * fabs(cpu[i]),
                  "%s: step %d: loss %.9g, on the cpu %.9g", options, i, cuda[i], cpu[i]);
    cr_expect_gt(fabs(cpu[0] - cpu[steps - 1]), 100 * RELATIVE, "nothing was learned");
}

Test(emulated_train, lenet_has_the_losses_of_the_cpu, .timeout = 240, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    put_data(64, 4);
    as_on_the_cpu("--model lenet --batch-size 8 --lr 0.05", 5);
}

Test(emulated_train, convnet_has_the_losses_of_the_cpu, .timeout = 240, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    put_data(64, 4);
    as_on_the_cpu("--model convnet --batch-size 4 --lr 0.02", 3);
}

Test(emulated_train, an_mlp_with_momentum_and_dropout_too, .timeout = 240, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    put_data(64, 4);
    as_on_the_cpu("--model mlp --mlp-hidden 33,20 --momentum 0.9 --weight-decay "
                  "0.001 --batch-size 12 --lr 0.05",
                  8);
}

Test(emulated_train, adam_and_adadelta_too, .timeout = 240, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    put_data(64, 4);
    as_on_the_cpu("--model mlp --mlp-hidden 33,20 --optimizer adam --lr 0.0005 --batch-size 12", 8);
    as_on_the_cpu("--model mlp --mlp-hidden 33,20 --optimizer adadelta --lr 0.1 --weight-decay "
                  "0.001 --batch-size 12",
                  8);
}

Test(emulated_train, adamw_too, .timeout = 240, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    put_data(24, 4);
    as_on_the_cpu("--model mlp --mlp-hidden 20 --batch-size 12 --optimizer adamw --lr 0.0005 "
                  "--weight-decay 0.1",
                  8);
}

Test(emulated_train, a_users_program_too, .timeout = 240, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    put_data(48, 4);
    cli_be_program("examples/my_model", "mynet");
    as_on_the_cpu("--dropout 0 --batch-size 12 --lr 0.05", 4);
}

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
Test(emulated_train, a_step_is_one_graph_and_brings_no_copy, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
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
Test(emulated_train, dependent_launches_where_the_gpu_takes_them, .timeout = 60,
     .init = cli_folder_make, .fini = cli_folder_remove) {
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

Test(emulated_train, what_a_gpu_may_refuse_is_one_line, .timeout = 240, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    static const struct {
        const char *fault, *says;
        int status;
    } cases[] = {{"driver:none", "device cuda: |no NVIDIA driver|--device cpu", 2},
                 {"driver:old", "device cuda: |the driver is for CUDA 11.4|newer driver", 2},
                 {"malloc:1", "out of memory on device 0|--device-memory", 1},
                 {"launch:30", "cudaErrorIllegalAddress|CUDA_LAUNCH_BLOCKING=1 names", 1}};
    put_data(64, 4);
    for (int i = 0; i < 4; i++) {
        setenv("EMULATED_CUDA_FAULT", cases[i].fault, 1);
        cli_fails(
            cases[i].status, cases[i].says,
            "train --mode single --device cuda --data-dir d --model mlp --steps 8 --batch-size 8");
    }
}
#endif
