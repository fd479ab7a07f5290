/* The list of launches of LeNet's step, from which tests/check_sass.py estimates its time
 * (helper_lenet_launches.c), is that of a real step: the same kernels with the same grids in the
 * same order, as `duet train` launches them on the emulated runtime, plain and in graphs. The sum
 * of the losses may come at any time, since in graphs it is a branch of its own. */
#include "tests/stand_ins/cuda_emulated.h"

#ifndef CUDA_EMULATION
ONLY_EMULATED(emulated_launches)
#else
#include "tests/cli/data.h"
#include "tests/cli/run.h"

struct launches {
    int count, sums;   /* sums: launches of loss_sum, which are not among text[] */
    char text[64][64]; /* "product<0,3> 226 x 128" */
};

static void add_launch(struct launches *all, const char *kernel, unsigned blocks,
                       unsigned threads) {
    if (!strcmp(kernel, "loss_sum") && blocks == 1 && threads == 256) {
        all->sums++;
        return;
    }
    cr_assert_lt(all->count, 64);
    snprintf(all->text[all->count++], 64, "%s %u x %u", kernel, blocks, threads);
}

/* What the helper prints: 16 characters that say what it is, the kernel, blocks, threads, ... */
static void listed(int batch, struct launches *all) {
    char command[PATH_MAX + 64], line[200], kernel[40];
    unsigned blocks, threads;
    snprintf(command, sizeof command, "%s/%s/tests/cuda/helper_lenet_launches %d", cli_root_path,
             BUILD_DIR, batch);
    FILE *from = popen(command, "r");
    cr_assert_not_null(from);
    for (*all = (struct launches){.count = 0}; fgets(line, sizeof line, from);)
        if (sscanf(line + 16, "%39s %u %u", kernel, &blocks, &threads) == 3)
            add_launch(all, kernel, blocks, threads);
    cr_assert_eq(pclose(from), 0);
}

/* A line of EMULATED_CUDA_TRACE: "...: product<0, 3> 226 x 128 (dependent)". 0: no kernel. */
static int kernel_of(const char *line, char kernel[40], unsigned *blocks, unsigned *threads) {
    const char *at = strstr(line, ": ");
    size_t used = 0;
    for (at += at ? 2 : 0; at && *at && used < 39; at++) {
        if (*at == ' ' && sscanf(at, " %u x %u", blocks, threads) == 2) {
            kernel[used] = 0;
            return 1;
        }
        if (*at != ' ') kernel[used++] = *at;
    }
    return 0;
}

/* Each step that was launched, from its batch to the optimizer. Returns how many there were. */
static int compare_steps(char *trace, const struct launches *want) {
    struct launches step = {.count = 0};
    char *line, kernel[40];
    unsigned blocks, threads;
    int steps = 0, inside = 0;
    while ((line = strsep(&trace, "\n"))) {
        if (!kernel_of(line, kernel, &blocks, &threads)) continue;
        if (!strcmp(kernel, "gather_samples")) step.count = 0, inside = 1;
        if (inside || !strcmp(kernel, "loss_sum")) add_launch(&step, kernel, blocks, threads);
        if (strcmp(kernel, "sgd")) continue;
        steps++;
        inside = 0; /* what follows may be a test batch */
        cr_assert_eq(step.count, want->count, "%d launches, not %d", step.count, want->count);
        for (int i = 0; i < step.count && i < want->count; i++)
            cr_assert_str_eq(step.text[i], want->text[i], "launch %d is %s, not %s", i,
                             step.text[i], want->text[i]);
    }
    cr_expect_geq(step.sums, steps * want->sums, "%d sums of losses", step.sums);
    return steps;
}

static void steps_of(int batch, int steps) {
    struct launches want;
    struct cli c;
    listed(batch, &want);
    cr_assert(want.count > 20 && want.sums == 1);
    cli_run(&c, "train --device cuda --data-dir d --model lenet --quiet --batch-size %d --steps %d",
            batch, steps);
    cr_assert_eq(c.status, 0, "%s", c.err);
    cr_expect_eq(compare_steps(c.err, &want), steps, "batches of %d", batch);
    cli_free(&c);
}

Test(emulated_launches, the_estimate_is_of_a_real_step, .timeout = 120, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    put_data(256, 4);
    setenv("EMULATED_CUDA_TRACE", "1", 1);
    steps_of(256, 1); /* the batch that is estimated */
    steps_of(9, 5);   /* the later ones are graphs */
}

static int count_of(const char *text, const char *words) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, words)); at++)
        count++;
    return count;
}

/* Two ranks that share a GPU add by one kernel of rank 0. Rank 1 says that its data is ready and
 * waits until they are added, which is one call of the driver, where there is such a call. */
Test(emulated_launches, a_post_and_the_wait_behind_it_are_one_call, .timeout = 120,
     .init = cli_folder_make, .fini = cli_folder_remove) {
    put_data(64, 4);
    setenv("EMULATED_CUDA_TRACE", "1", 1);
    for (int batch = 1; batch >= 0; batch--) {
        struct cli c;
        cli_run(&c,
                "train --device cuda --data-dir d --model mlp --mlp-hidden 8 --quiet --mode ddp "
                "--devices 2 --batch-size 16 --steps 2 --no-shuffle");
        int sums = count_of(c.err, ": sum_kernel ");
        cr_expect(c.status == 0 && sums >= 2, "%d, %d sums: %s", c.status, sums, c.err);
        cr_expect_eq(count_of(c.err, ": 2 flags in a call\n"), batch * sums);
        cr_expect_eq(count_of(c.err, ": wait value\n"), 2 * sums, "one of each rank");
        cli_free(&c);
        setenv("EMULATED_CUDA_FAULT", "driver:batch", 1);
    }
}
#endif
