/* Plain text tables: a name column and value columns, right-aligned, no escape codes. */
#ifndef REPORT_TABLE_H
#define REPORT_TABLE_H

#include <stdio.h>

/* Columns on paper: of the row's name, and of each value. With three values a row has 80. */
enum { TABLE_NAME = 29, TABLE_VALUE = 16 };
enum { TABLE_CELL = 32 }; /* bytes of a value's text, its end included */

/* How many values fit into a row of a table that is `width` columns wide; at least 1. */
int table_columns(int width);

/* Prints one row: `columns` values under each other's columns, right-aligned. Where it is wider
 * than `width`, the name has lines of its own, and each value one below it. */
void table_row(FILE *file, int width, const char *name, char (*values)[TABLE_CELL], int columns);
/* Prints a line of dashes as wide as such a row. */
void table_rule(FILE *file, int width, int columns);

#endif
