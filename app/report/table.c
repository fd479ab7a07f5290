/* Tables as text: see table.h. */
#include "report/table.h"

#include <string.h>

#include "report/text.h"

struct table_row *table_add(struct table *t, enum row_kind kind, const char *name) {
    struct table_row *row = &t->row[t->rows < TABLE_ROWS - 1 ? t->rows++ : TABLE_ROWS - 1];
    memset(row, 0, sizeof *row);
    row->kind = kind;
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

int table_shows(const struct table_row *row, int first, int end) {
    for (int i = first; i < end && row->kind == ROW_WHERE_ANY; i++)
        if (strcmp(row->cell[i], "-") != 0) return 1;
    return row->kind != ROW_WHERE_ANY;
}

static int wide(int columns) {
    return TABLE_NAME + columns * (TABLE_VALUE + 1);
}

static void print_row(FILE *file, int width, const char *name, const char (*cell)[TABLE_CELL],
                      int columns) {
    int indent = (int)strspn(name, " ");
    int over = (int)strlen(name) - TABLE_NAME; /* a long name takes room of the first value */
    if (wide(columns) <= width) {
        fprintf(file, "%-*s", TABLE_NAME, name);
        for (int i = 0; i < columns; i++)
            fprintf(file, " %*s", i == 0 && over > 0 ? TABLE_VALUE - over : TABLE_VALUE, cell[i]);
        fprintf(file, "\n");
        return;
    }
    if (name[indent]) text_wrap(file, width, indent, indent + 2, name + indent);
    for (int i = 0; i < columns; i++)
        fprintf(file, "%*s\n", width, cell[i]);
}

static void print_rule(FILE *file, int width, int columns) {
    for (int i = 0; i < wide(columns) && i < width; i++)
        fputc('-', file);
    fputc('\n', file);
}

void table_print(FILE *file, int width, const struct table *t) {
    int fit = (width - TABLE_NAME) / (TABLE_VALUE + 1);
    if (fit < 1) fit = 1;
    for (int first = 0; first < t->columns; first += fit) {
        int end = first + fit < t->columns ? first + fit : t->columns;
        if (first) fputc('\n', file);
        print_row(file, width, "", t->head + first, end - first);
        for (int i = 0; i < t->rows; i++) {
            const struct table_row *row = &t->row[i];
            if (row->kind == ROW_NOTE) print_rule(file, width, end - first);
            if (row->kind == ROW_NOTE && *row->name)
                text_wrap(file, width, 0, 2, row->name);
            else if (row->kind != ROW_NOTE && table_shows(row, first, end))
                print_row(file, width, row->name, row->cell + first, end - first);
        }
    }
}
