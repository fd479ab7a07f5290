/* Plain text tables: a name column and value columns, right-aligned, no escape codes. */
#ifndef REPORT_TABLE_H
#define REPORT_TABLE_H

#include <stdio.h>

#include "trace/record.h"

enum { TABLE_NAME = 30, TABLE_VALUE = 16 };

void table_row(FILE *file, const char *name, char (*values)[32]); /* three values */
void table_rule(FILE *file, int columns);

/* "cpu devices", "cuda devices", "cuda devices (4 devices share 1 GPU)": GPUs and emulated
 * devices never look alike. */
void device_words(FILE *file, const struct run_record *run);

#endif
