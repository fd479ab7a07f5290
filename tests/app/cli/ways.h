/* The ways to train one command line: mode, devices, algorithm. Each must end with the files of
 * single, byte by byte. test_same_bits.c goes them on emulated devices, cuda/test_train.c on
 * GPUs. */
#ifndef TESTS_CLI_WAYS_H
#define TESTS_CLI_WAYS_H

#include <math.h>

#include "tests/app/cli/of_mode.h"
#include "tests/app/cli/run.h"

typedef const char *const way;

#define SMALL_BUCKETS " --bucket-cap-mb 0.0001"
#define SHARDED " --dp-reduce sharded --output-device "
static way ALL[] = {"single --no-pin-memory",
                    "dp --devices 1",
                    "dp --devices 2",
                    "dp --devices 2 --loss-in-forward",
                    "dp --devices 2 --loss-in-forward" SHARDED "1",
                    "dp --devices 4",
                    "dp --devices 4 --loss-in-forward --workers 0 --no-pin-memory",
                    "dp --devices 4" SHARDED "2",
                    "ddp --devices 1",
                    "ddp --devices 2 --allreduce fused",
                    "ddp --devices 2 --allreduce ring --no-overlap" SMALL_BUCKETS,
                    "ddp --devices 2 --allreduce tree" SMALL_BUCKETS,
                    "ddp --devices 4" SMALL_BUCKETS,
                    "ddp --devices 4 --allreduce naive --workers 3 --no-pin-memory",
                    "ddp --devices 4 --allreduce oneshot" SMALL_BUCKETS,
                    "ddp --devices 4 --allreduce direct",
                    "fsdp --devices 2 --shard optimizer",
                    "fsdp --devices 4 --units 0.0001",
                    NULL},
           SOME[] = {"dp --devices 2",
                     "dp --devices 4 --loss-in-forward",
                     "ddp --devices 2 --allreduce ring",
                     "ddp --devices 4" SMALL_BUCKETS,
                     "fsdp --devices 4 --shard gradients",
                     NULL},
           TWO[] = {"dp --devices 2", "ddp --devices 2", NULL},
           FOUR[] = {"dp --devices 4", "ddp --devices 4 --allreduce direct", NULL},
           DP[] = {"dp --devices 2",
                   "dp --devices 2 --loss-in-forward" SHARDED "1",
                   "dp --devices 4 --loss-in-forward",
                   "dp --devices 4 --output-device 3",
                   "dp --devices 4" SHARDED "2",
                   "ddp --devices 4",
                   NULL},
           DDP[] = {"ddp --devices 2", "ddp --devices 4 --allreduce direct", NULL},
           EIGHT[] = {"dp --devices 2",
                      "dp --devices 8",
                      "ddp --devices 2 --allreduce tree",
                      "ddp --devices 4",
                      "ddp --devices 8 --allreduce direct",
                      "fsdp --devices 8 --units 0.001",
                      NULL},
           SHARDS[] = {"fsdp --devices 1",
                       "fsdp --devices 2 --units 0.001 --prefetch 0",
                       "fsdp --devices 2 --units 0.01 --prefetch 3 --reshard-after-forward off",
                       "fsdp --devices 4 --shard optimizer",
                       "fsdp --devices 4 --shard gradients",
                       "fsdp --devices 4",
                       NULL},
           ODD[] = {"fsdp --devices 5 --prefetch 3", "fsdp --devices 5 --shard gradients", NULL};

/* Trains in a way with those of these options that it takes, and writes TO and TO.csv. */
static inline void train(const char *mode, const char *options, const char *to) {
    cli_well("train --mode %s %s --quiet --log-loss %s.csv --save %s", mode, of_mode(mode, options),
             to, to);
}

/* Each way ends with the files "one.csv" and "one". */
static inline void all_as_one(way *ways, const char *options) {
    for (; *ways; ways++) {
        train(*ways, options, "two");
        cr_expect(cli_same_file("one.csv", "two.csv"), "%s: losses differ: %s", *ways, options);
        cr_expect(cli_same_file("one", "two"), "%s: weights differ: %s", *ways, options);
    }
}

/* Reads the third column of a file of losses; returns the number of steps. */
static inline int losses_of(const char *path, double *loss, int most) {
    char *text = cli_read(path, NULL), *rest = text, *line;
    int count = 0;
    while ((line = strsep(&rest, "\n")) && count < most)
        count += sscanf(line, "%*d,%*d,%lf", &loss[count]) == 1;
    free(text);
    return count;
}

/* Two files whose losses, up to eight, are equal except for a relative error; returns how many. */
static inline int near_losses(const char *a, const char *b, double relative) {
    double x[8], y[8];
    int steps = losses_of(a, x, 8);
    cr_assert(steps == losses_of(b, y, 8) && steps > 1);
    for (int i = 0; i < steps; i++)
        cr_expect(fabs(x[i] - y[i]) <= relative * fabs(x[i]),
                  "step %d: loss %.9g in %s, %.9g in %s", i, x[i], a, y[i], b);
    return steps;
}

#endif
