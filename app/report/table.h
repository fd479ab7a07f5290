/* A table has rows with a name and a value for each column. It is made once and printed as text,
 * with right-aligned values and no escape codes, or as HTML (page/html.h). */
#ifndef REPORT_TABLE_H
#define REPORT_TABLE_H

#include <stdio.h>

/* Character columns of the row's name, and of each value. A row with three values has 80. */
enum { TABLE_NAME = 29, TABLE_VALUE = 16 };
enum { TABLE_COLUMNS = 6, TABLE_ROWS = 64 };
enum { TABLE_CELL = 32 }; /* bytes of a value, with its final zero */

enum row_kind {
    ROW_VALUES,
    ROW_WHERE_ANY, /* as VALUES, but left out if every value is "-" */
    ROW_NOTE,      /* a rule, and below it only the name; "": only the rule */
    ROW_TITLE      /* only the name, as a heading of the rows below it */
};

struct table_row {
    enum row_kind kind;
    char name[64], cell[TABLE_COLUMNS][TABLE_CELL];
};

struct table {
    int columns, rows;
    int name_width, value_width; /* 0: TABLE_NAME, TABLE_VALUE */
    char head[TABLE_COLUMNS][TABLE_CELL];
    struct table_row row[TABLE_ROWS];
};

/* Adds a row whose values the caller writes. The pointer is valid until the next call. */
struct table_row *table_add(struct table *table, enum row_kind kind, const char *name);

/* Prints at most `width` columns. In a narrow terminal it prints as many columns as fit, and the
 * next ones below them. If not even one fits, the value is below the name. */
void table_print(FILE *file, int width, const struct table *table);

/* Returns 1 if the row is shown in a table of the columns first .. end - 1. */
int table_shows(const struct table_row *row, int first, int end);

#endif
