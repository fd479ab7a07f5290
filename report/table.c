/* Plain text tables: see table.h. */
#include "report/table.h"

#include <string.h>

void table_row(FILE *file, const char *name, char (*values)[TABLE_CELL], int columns) {
    int over = (int)strlen(name) - TABLE_NAME; /* a long name takes room of the first value */
    fprintf(file, "%-*s", TABLE_NAME, name);
    for (int i = 0; i < columns; i++)
        fprintf(file, " %*s", i == 0 && over > 0 ? TABLE_VALUE - over : TABLE_VALUE, values[i]);
    fprintf(file, "\n");
}

void table_rule(FILE *file, int columns) {
    for (int i = 0; i < TABLE_NAME + columns * (TABLE_VALUE + 1); i++)
        fputc('-', file);
    fputc('\n', file);
}
