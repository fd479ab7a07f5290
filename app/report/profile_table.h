/* The profile of one run: where memory, bytes and time go, device by device, and the extra load of
 * device 0. All of it comes from ledgers and spans. If the record is estimated
 * (run_record.computed), the title says so and the table has no times.
 *
 *                               device 0   devices 1-7
 *     memory at its peak        2.55 MiB      1.85 MiB
 *       params                   795 KiB       795 KiB
 *     ...
 *     ms a step, busy               1.09          0.24
 *
 * Neighbouring devices whose memory, bytes and kernels agree to SAME share a column with their
 * means. Devices that do not fit the width go into their own table below. */
#ifndef REPORT_PROFILE_TABLE_H
#define REPORT_PROFILE_TABLE_H

#include <stdio.h>

#include "report/table.h"
#include "trace/record.h"

/* Fills a table with the columns of a run from number `first` on, at most `most` (TABLE_COLUMNS).
 * Returns the number of the first column that is left; 0: none is. */
int profile_columns(struct table *table, const struct run_record *run, int details, int first,
                    int most);

/* For a run over several machines, a row for each: bytes per step from and to other machines, bytes
 * between its own devices, and the busiest device. 0 rows: the run is on one machine. */
void machine_rows(struct table *table, const struct run_record *run);

/* Prints one run in at most `width` columns (text.h): for each device memory by cause at its peak;
 * per step, the bytes over links, the time by phase and the busy share. With `details` also memory
 * now, bytes by phase and kernels, and below the stages of the data. */
void profile_table(FILE *file, int width, const char *title, const struct run_record *run,
                   int details);

#endif
