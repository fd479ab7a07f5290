/* The profile of one run: memory, bytes and time of each device, and the extra load of device 0.
 * All numbers are from ledgers and spans. If the record is estimated (run_record.computed), the
 * title says so and the table has no times.
 *
 *                               device 0   devices 1-7
 *     memory at its peak        2.55 MiB      1.85 MiB
 *       params                   795 KiB       795 KiB
 *     ...
 *     ms a step, busy               1.09          0.24
 *
 * Neighbouring devices whose memory, bytes and kernels agree within SAME share a column with their
 * means. Devices that do not fit the width are in a second table below. */
#ifndef REPORT_PROFILE_TABLE_H
#define REPORT_PROFILE_TABLE_H

#include <stdio.h>

#include "report/table.h"
#include "trace/record.h"

/* Fills a table with the columns of a run from number `first` on, at most `most` (TABLE_COLUMNS).
 * Returns the number of the next column, or 0 if none is left. */
int profile_columns(struct table *table, const struct run_record *run, int details, int first,
                    int most);

/* Adds a row for each machine of a run: bytes per step from and to other machines, bytes between
 * its own devices, and the busiest device. Adds no row if the run is on one machine. */
void machine_rows(struct table *table, const struct run_record *run);

/* Prints one run in at most `width` columns (text.h). For each device it shows memory by cause at
 * its peak and, per step, the bytes over links, the time by phase and the busy share. `details`
 * adds bytes by phase and kernels, and the stages of the data. */
void profile_table(FILE *file, int width, const char *title, const struct run_record *run,
                   int details);

#endif
