/* Tables: rows of a name and a value for each column, made once and printed as text, with the
 * values right-aligned and no escape codes, or as HTML (page/html.h). */
#ifndef REPORT_TABLE_H
#define REPORT_TABLE_H

#include <stdio.h>

/* Columns on paper: of the row's name, and of each value. A row with three values has 80. */
enum { TABLE_NAME = 29, TABLE_VALUE = 16 };
enum { TABLE_COLUMNS = 6, TABLE_ROWS = 64 };
enum { TABLE_CELL = 32 }; /* bytes of a value's text, with its zero byte */

enum row_kind {
    ROW_VALUES,
    ROW_WHERE_ANY, /* as VALUES, but left out where each value is "-" */
    ROW_NOTE,      /* a rule, and below it the name alone; "": the rule */
    ROW_TITLE      /* the name alone, as a heading of the rows below it */
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

/* At most `width` columns wide: in a narrow terminal as many columns as fit, and the next ones
 * below them. If not even one fits, the name has its own lines, with the value below it. */
void table_print(FILE *file, int width, const struct table *table);

/* 1: the row is shown in a table of the columns first .. end - 1. */
int table_shows(const struct table_row *row, int first, int end);

#endif
