/* The runs of a file of --json as comma-separated values, for spreadsheets: a row for each device
 * of each run, a column for each field that has one value. Columns have the names of docs/json.md
 * without "runs[]." and "per_device[].": `images_per_second`, `phase_median_ns.forward`. Lists have
 * no column. */
#ifndef REPORT_RESULTS_CSV_H
#define REPORT_RESULTS_CSV_H

#include <stdio.h>

#include "base/text/json.h"

/* Writes the runs of `root`, what json_parse made of such a file. Texts with a comma, a quote or a
 * newline are quoted as RFC 4180 says; null is an empty cell. ERR_MEMORY; failures to write are
 * left to the file. */
int results_csv(FILE *file, const struct json *root);

#endif
