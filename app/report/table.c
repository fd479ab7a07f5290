/* Prints tables as text: see table.h. */
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

/* How a table is laid out: the widths of a name and of a value, and of the paper. */
struct layout {
    int name, value, width;
};

static int wide(const struct layout *l, int columns) {
    return l->name + columns * (l->value + 1);
}

static void print_row(FILE *file, const struct layout *l, const char *name,
                      const char (*cell)[TABLE_CELL], int columns) {
    int indent = (int)strspn(name, " ");
    int over = (int)strlen(name) - l->name; /* a long name extends into the first value's column */
    if (wide(l, columns) <= l->width) {
        fprintf(file, "%-*s", l->name, name);
        for (int i = 0; i < columns; i++)
            fprintf(file, " %*s", i == 0 && over > 0 ? l->value - over : l->value, cell[i]);
        fprintf(file, "\n");
        return;
    }
    if (name[indent]) text_wrap(file, l->width, indent, indent + 2, name + indent);
    for (int i = 0; i < columns; i++)
        fprintf(file, "%*s\n", l->width, cell[i]);
}

static void print_rule(FILE *file, const struct layout *l, int columns) {
    for (int i = 0; i < wide(l, columns) && i < l->width; i++)
        fputc('-', file);
    fputc('\n', file);
}

void table_print(FILE *file, int width, const struct table *t) {
    const struct layout layout = {t->name_width ? t->name_width : TABLE_NAME,
                                  t->value_width ? t->value_width : TABLE_VALUE, width};
    int fit = (width - layout.name) / (layout.value + 1);
    if (fit < 1) fit = 1;
    for (int first = 0; first < t->columns; first += fit) {
        int end = first + fit < t->columns ? first + fit : t->columns;
        if (first) fputc('\n', file);
        print_row(file, &layout, "", t->head + first, end - first);
        for (int i = 0; i < t->rows; i++) {
            const struct table_row *row = &t->row[i];
            int is_name = row->kind == ROW_NOTE || row->kind == ROW_TITLE;
            if (row->kind == ROW_NOTE) print_rule(file, &layout, end - first);
            if (is_name && *row->name)
                text_wrap(file, width, 0, 2, row->name);
            else if (!is_name && table_shows(row, first, end))
                print_row(file, &layout, row->name, row->cell + first, end - first);
        }
    }
}
