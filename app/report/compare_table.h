/* The comparison as a table: single, DP and DDP in columns. Every figure is measured. Times and
 * bytes are means over the run's steps. */
#ifndef REPORT_COMPARE_TABLE_H
#define REPORT_COMPARE_TABLE_H

#include <stdio.h>

#include "report/table.h"
#include "trace/record.h"

/* Prints the table, `width` columns wide (report/text.h). In a narrow terminal the runs are below
 * each other. run[MODE_COUNT] is indexed by mode; a mode that was left out has 0 devices. */
void compare_table(FILE *file, int width, const struct run_record *run);

/* Adds the results of the runs, one per column: samples/s, with `speed_up` also relative to the
 * first run, test accuracy, losses, and memory at the peak. */
void result_rows(struct table *table, const struct run_record *const *run, int speed_up);

/* Prints in which runs the machine was busy (report/machine.h), if in any. run[MODE_COUNT] is
 * indexed by mode. */
void busy_line(FILE *file, const struct run_record *run);

/* Prints how each mode splits the batch, and the optimizer: "batch: single: 256 x 1, DP: 128 x 2,
 * DDP: 128 x 2 = global 256", and below it "sgd, learning rate 0.2; 2 virtual devices, 0 duplicates
 * an epoch". run[MODE_COUNT] is indexed by mode. */
void batch_line(FILE *file, const struct run_record *run);

/* Prints the algorithm of DDP's allreduce and the reason for it, then the sizes of its buckets.
 * Prints nothing if no algorithm was chosen. */
void allreduce_lines(FILE *file, const struct run_record *ddp);

/* Prints the title of the run and the line of the chapter's program: "test acc: 0.84, 2.8 sec/epoch
 * on [cpu(0), cpu(1)]". */
void chapter_line(FILE *file, const struct run_record *run);

#endif
