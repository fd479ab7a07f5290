/* Tables: rows of a name and a value for each column, made once and printed as text, with the
 * values right-aligned and no escape codes, or as HTML (page/html.h). */
#ifndef REPORT_TABLE_H
#define REPORT_TABLE_H

#include <stdio.h>

/* Columns on paper: of the row's name, and of each value. With three values a row has 80. */
enum { TABLE_NAME = 29, TABLE_VALUE = 16 };
enum { TABLE_COLUMNS = 6, TABLE_ROWS = 64 };
enum { TABLE_CELL = 32 }; /* bytes of a value's text, its end included */

enum row_kind {
    ROW_VALUES,
    ROW_WHERE_ANY, /* as VALUES, but left out where each value is "-" */
    ROW_NOTE,      /* a rule, and below it the name alone; "": the rule */
    ROW_TITLE      /* the name alone, of the rows below it */
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

/* Adds a row without values, which the caller writes. It is there until the next call. */
struct table_row *table_add(struct table *table, enum row_kind kind, const char *name);

/* At most `width` columns wide: in a narrow terminal the columns that have room, and below them the
 * next. Where not even one has, the name has its own lines, and the value is below it. */
void table_print(FILE *file, int width, const struct table *table);

/* 1: the row is shown in a table of the columns first .. end - 1. */
int table_shows(const struct table_row *row, int first, int end);

#endif
