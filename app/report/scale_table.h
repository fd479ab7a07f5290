/* The table of duet scale: one line for each run, at most 80 columns wide, with remarks below. */
#ifndef REPORT_SCALE_TABLE_H
#define REPORT_SCALE_TABLE_H

#include <stdio.h>

#include "trace/record.h"

struct scale_line {
    const struct run_record *run;
    double speed_up;
    const char *bits; /* "first", "equal", "DIFFER" or "-" */
    double published; /* seconds that a text gives for this run; 0: none */
};

/* published 1: with a column for those seconds. */
void scale_table_head(FILE *file, int published);
void scale_table_line(FILE *file, const struct scale_line *line, int published);

/* Which runs had more devices than the machine has cores (or GPUs), where there are any. */
void scale_sharing(FILE *file, const struct scale_line *lines, int count, int cores);

/* For each device count the learning rate with the best test accuracy, where there are several. */
void scale_best_rates(FILE *file, const struct scale_line *lines, int count);

#endif
