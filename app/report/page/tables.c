/* The tables of a page: the numbers of its pictures. */
#include "report/page/tables.h"

#include <inttypes.h>
#include <string.h>

#include "report/compare_table.h"
#include "report/page/html.h"
#include "report/pictures/times.h"
#include "report/text.h"
#include "report/values.h"

/* Of devices first .. end - 1, which have one row. */
static void put_head(FILE *file, const struct page *page, int i, int first, int end) {
    fprintf(file, "<tr><th scope=\"row\">");
    html_text(file, page->run[i].title);
    fprintf(file, end > first + 1 ? "</th><td>%d to %d</td>" : "</th><td>%d</td>", first, end - 1);
}

static void put_bytes(FILE *file, uint64_t bytes) {
    char words[32];
    fprintf(file, "<td>%s</td>", bytes ? format_bytes(bytes, words, sizeof words) : "\xe2\x80\x93");
}

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
                     *steps = table_add(t, ROW_VALUES, "steps"),
                     *time = table_add(t, ROW_WHERE_ANY, "time of a step");
    for (int i = 0; i < t->columns; i++) {
        snprintf(devices->cell[i], TABLE_CELL, "%d", run[i]->devices);
        snprintf(steps->cell[i], TABLE_CELL, "%d", run[i]->steps);
        if (run[i]->steps)
            time_words(record_per_step(run[i], run[i]->training_seconds * 1e9), time->cell[i]);
        else
            strcpy(time->cell[i], "-");
    }
    result_rows(t, run, 0);
    put_table(file, "The runs", t);
}

/* ---- below the pictures: each device in a row ---- */

/* From how many devices on the tables are kept short: neighbours with equal numbers share a row. */
enum { MOST_ROWS_EACH = 32 };

/* The end of the devices from d on that held the same as d. */
static int end_of_same_memory(const struct run_record *r, int d) {
    const struct ledger *a = &r->device[d].memory;
    int end = d + 1;
    for (; r->devices > MOST_ROWS_EACH && end < r->devices; end++) {
        const struct ledger *b = &r->device[end].memory;
        if (a->capacity != b->capacity || a->total_peak != b->total_peak ||
            memcmp(a->at_peak, b->at_peak, sizeof a->at_peak) != 0)
            break;
    }
    return end;
}

static void memory_row(FILE *file, const struct page *page, int i, int d, int end) {
    const struct ledger *m = &page->run[i].run->device[d].memory;
    put_head(file, page, i, d, end);
    put_bytes(file, m->capacity);
    put_bytes(file, m->total_peak);
    for (int c = 0; c < MEM_CAUSE_COUNT; c++)
        put_bytes(file, m->at_peak[c]);
    fprintf(file, "</tr>\n");
}

void memory_table(FILE *file, const struct page *page) {
    char head[400] = "run|device|limit|peak";
    for (int c = 0; c < MEM_CAUSE_COUNT; c++)
        snprintf(head + strlen(head), sizeof head - strlen(head), "|%s",
                 mem_cause_name((enum mem_cause)c));
    open_table(file, "memory at the peak, by cause", head);
    for (int i = 0; i < page->count; i++)
        for (int d = 0, end; page->run[i].run && d < page->run[i].run->devices; d = end) {
            end = end_of_same_memory(page->run[i].run, d);
            memory_row(file, page, i, d, end);
        }
    close_table(file);
}

static void put_ms(FILE *file, const struct run_record *r, int d, enum value value, int phase) {
    double each = device_value(r, d, value, phase) * 1e-6;
    fprintf(file, each > 0 ? "<td>%.3f</td>" : "<td>\xe2\x80\x93</td>", each);
}

static int any_time(const struct page *page, int phase) {
    for (int i = 0; i < page->count; i++)
        for (int d = 0; page->run[i].run && d < page->run[i].run->devices; d++)
            if (time_part(page->run[i].run, d, phase) > 0) return 1;
    return 0;
}

void phase_table(FILE *file, const struct page *page) {
    char head[400] = "run|device";
    for (int k = 0; k < PHASE_COUNT; k++)
        if (any_time(page, k))
            snprintf(head + strlen(head), sizeof head - strlen(head), "|%s", time_name(k));
    strcat(head, "|waiting|waiting for a core|allreduce, all|allreduce, exposed|copies, beside");
    open_table(file, "milliseconds per step", head);
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = page->run[i].run;
        for (int d = 0; r && r->timed && r->steps && d < r->devices; d++) {
            put_head(file, page, i, d, d + 1);
            for (int k = 0; k < PHASE_COUNT; k++)
                if (any_time(page, k)) put_ms(file, r, d, VALUE_PHASE, k);
            static const enum value beside[] = {VALUE_WAIT, VALUE_NO_CORE, VALUE_COMM,
                                                VALUE_EXPOSED, VALUE_COPY};
            for (int k = 0; k < 5; k++)
                put_ms(file, r, d, beside[k], 0);
            fprintf(file, "</tr>\n");
        }
    }
    close_table(file);
}

static const char *link_words(int end, char text[16]) {
    snprintf(text, 16, end == LINK_HOST ? "host" : "device %d", end);
    return text;
}

/* The end of the links from `a` that begin with the one to `b` and move as much as that. */
static int end_of_equal(const struct run_record *r, int a, int b) {
    int end = b + 1;
    if (r->devices <= MOST_ROWS_EACH || b == LINK_HOST) return end;
    while (end < r->devices && end != a && r->traffic->bytes[a][end] == r->traffic->bytes[a][b])
        end++;
    return end;
}

static void traffic_row(FILE *file, const struct page *page, int i, int a, int b) {
    const struct run_record *r = page->run[i].run;
    int end = end_of_equal(r, a, b);
    char from[16], to[16], words[32];
    double bytes = (double)r->traffic->bytes[a][b];
    fprintf(file, "<tr><th scope=\"row\">");
    html_text(file, page->run[i].title);
    fprintf(file, "</th><td>%s</td><td>", link_words(a, from));
    if (end > b + 1)
        fprintf(file, "each of devices %d to %d", b, end - 1);
    else
        fprintf(file, "%s", link_words(b, to));
    fprintf(file, "</td><td>");
    html_text(file, bytes_words(record_per_step(r, bytes), words));
    fprintf(file, "</td></tr>\n");
}

void traffic_table(FILE *file, const struct page *page) {
    open_table(file, "bytes per step over each link", "run|from|to|bytes per step");
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = page->run[i].run;
        for (int a = 0; r && r->traffic && a < LINK_COUNT; a++)
            for (int b = 0, next = 0; b < LINK_COUNT; b++) {
                if (!r->traffic->bytes[a][b] || a == b) continue;
                if (b < next) continue;
                traffic_row(file, page, i, a, b);
                next = end_of_equal(r, a, b);
            }
    }
    close_table(file);
}
