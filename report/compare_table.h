/* The comparison as a table: single, DP and DDP side by side. */
#ifndef REPORT_COMPARE_TABLE_H
#define REPORT_COMPARE_TABLE_H

#include <stdio.h>

#include "trace/record.h"

/* run[0] is the single run, run[1] DP, run[2] DDP. All numbers are measured; times are means
 * over the run's steps. */
void compare_table(FILE *file, const struct run_record *run);

/* The batch in words: "batch: global 256 = 128 per device x 2; learning rate 0.2". */
void batch_line(FILE *file, const struct run_record *run);

/* The chapter's own line: "test acc: 0.84, 2.8 sec/epoch on [cpu(0), cpu(1)]". */
void chapter_line(FILE *file, const struct run_record *run);

#endif
