/* Plain text tables: see table.h. */
#include "report/table.h"

#include <string.h>

#include "report/text.h"

int table_columns(int width) {
    int columns = (width - TABLE_NAME) / (TABLE_VALUE + 1);
    return columns > 0 ? columns : 1;
}

static int wide(int columns) {
    return TABLE_NAME + columns * (TABLE_VALUE + 1);
}

void table_row(FILE *file, int width, const char *name, char (*values)[TABLE_CELL], int columns) {
    int indent = (int)strspn(name, " ");
    int over = (int)strlen(name) - TABLE_NAME; /* a long name takes room of the first value */
    if (wide(columns) <= width) {
        fprintf(file, "%-*s", TABLE_NAME, name);
        for (int i = 0; i < columns; i++)
            fprintf(file, " %*s", i == 0 && over > 0 ? TABLE_VALUE - over : TABLE_VALUE, values[i]);
        fprintf(file, "\n");
        return;
    }
    if (name[indent]) text_wrap(file, width, indent, indent + 2, name + indent);
    for (int i = 0; i < columns; i++)
        fprintf(file, "%*s\n", width, values[i]);
}

void table_rule(FILE *file, int width, int columns) {
    for (int i = 0; i < wide(columns) && i < width; i++)
        fputc('-', file);
    fputc('\n', file);
}
