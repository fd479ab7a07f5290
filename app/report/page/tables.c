/* Writes the tables of a page, with the numbers of its pictures. */

#include <string.h>

#include "report/compare_table.h"
#include "report/page/html.h"
#include "report/profile_table.h"
#include "report/text.h"

/* ---- at the top: each run in a column ---- */

_Static_assert((int)PAGE_RUNS <= (int)TABLE_COLUMNS, "a column for each run");

void summary_table(FILE *file, const struct page *page) {
    const struct run_record *run[TABLE_COLUMNS];
    struct table table = {0}, *t = &table;
    for (int i = 0; i < page->count; i++)
        if (page->run[i].run) {
            snprintf(t->head[t->columns], TABLE_CELL, "%s", page->run[i].title);
            run[t->columns++] = page->run[i].run;
        }
    struct table_row *devices = table_add(t, ROW_VALUES, "devices"),
                     *time = table_add(t, ROW_WHERE_ANY, "median step");
    for (int i = 0; i < t->columns; i++) {
        snprintf(devices->cell[i], TABLE_CELL, "%d", run[i]->devices);
        strcpy(time->cell[i], "-");
        if (run[i]->device[0].step_median_ns)
            time_words((double)run[i]->device[0].step_median_ns, time->cell[i]);
    }
    result_rows(t, run, t->columns > 1 && run[0]->mode == MODE_SINGLE);
    put_table(file, "The runs", t, TABLE_OPEN);
}

/* ---- below the pictures: each device in a column ---- */

void device_tables(FILE *file, const struct page *page) {
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = page->run[i].run;
        char label[80];
        int next = 0;
        if (!r) continue;
        snprintf(label, sizeof label, "%s: figures for each device", page->run[i].title);
        do {
            struct table table;
            next = profile_columns(&table, r, 0, next, TABLE_COLUMNS);
            put_table(file, label, &table, TABLE_FOLDED);
        } while (next);
        struct table machines;
        machine_rows(&machines, r);
        snprintf(label, sizeof label, "%s: each machine, per step", page->run[i].title);
        if (machines.rows) put_table(file, label, &machines, TABLE_OPEN);
    }
}
