/* Prints the profile of one run as text: see profile_table.h. */
#include "report/profile_table.h"

#include <math.h>
#include <string.h>

#include "report/text.h"
#include "report/values.h"

enum { NAME = 26, VALUE = 13 };
static const double SAME = 0.01; /* devices that differ by less than this share a column */

/* ---- which devices share a column ---- */

struct group {
    int first, last;
};

static int close_to(double a, double b) {
    return fabs(a - b) <= SAME * fmax(a, b);
}

static int same(const struct device_record *a, const struct device_record *b) {
    for (int c = 0; c < MEM_CAUSE_COUNT; c++)
        if (!close_to((double)a->memory.at_peak[c], (double)b->memory.at_peak[c])) return 0;
    return close_to((double)a->bytes_in, (double)b->bytes_in) &&
           close_to((double)a->bytes_out, (double)b->bytes_out) &&
           close_to((double)a->kernels, (double)b->kernels);
}

static int groups_of(const struct run_record *r, struct group group[MAX_DEVICES]) {
    int n = 0;
    for (int d = 0; d < r->devices; d++) {
        if (n && same(&r->device[group[n - 1].first], &r->device[d]))
            group[n - 1].last = d;
        else
            group[n++] = (struct group){d, d};
    }
    return n;
}

/* ---- rows ---- */

/* The inputs of a table. */
struct profile {
    struct table *table;
    const struct run_record *run;
    int details;
    const struct group *group; /* the devices of each column */
};

/* Writes a value as printed. */
typedef void print_value(double value, char cell[TABLE_CELL]);

static void row(const struct profile *t, int indent, const char *name, enum value value, int key,
                print_value *print) {
    char indented[64];
    snprintf(indented, sizeof indented, "%*s%s", indent, "", name);
    struct table_row *row = table_add(t->table, ROW_VALUES, indented);
    for (int i = 0; i < t->table->columns; i++) {
        double mean = mean_value(t->run, t->group[i].first, t->group[i].last + 1, value, key);
        if (mean != 0 || !indent)
            print(mean, row->cell[i]);
        else
            strcpy(row->cell[i], "-");
    }
}

/* The row of a part; left out if no device has it. */
static void part(const struct profile *t, const char *name, enum value value, int key,
                 print_value *print) {
    if (any_value(t->run, value, key)) row(t, 2, name, value, key, print);
}

static void print_bytes(double bytes, char cell[TABLE_CELL]) {
    bytes_words(bytes, cell);
}
static void print_ms(double ns, char cell[TABLE_CELL]) {
    snprintf(cell, TABLE_CELL, "%.3f", ns * 1e-6);
}
static void print_share(double share, char cell[TABLE_CELL]) {
    snprintf(cell, TABLE_CELL, "%.0f %%", 100 * share);
}
static void print_count(double count, char cell[TABLE_CELL]) {
    snprintf(cell, TABLE_CELL, "%.4g", count);
}

/* ---- the table ---- */

static int is_of_training(int phase) {
    return phase != PHASE_NONE && !phase_is_of_host(phase) && phase != PHASE_EVALUATE &&
           phase != PHASE_PROOF;
}

static void memory_rows(const struct profile *t) {
    row(t, 0, "memory at its peak", VALUE_PEAK, MEM_CAUSE_COUNT, print_bytes);
    for (int c = 0; c < MEM_CAUSE_COUNT; c++)
        part(t, mem_cause_name(c), VALUE_PEAK, c, print_bytes);
}

static void byte_rows(const struct profile *t) {
    row(t, 0, "bytes in per step", VALUE_IN, 0, print_bytes);
    row(t, 0, "bytes out per step", VALUE_OUT, 0, print_bytes);
    if (!t->details) return;
    table_add(t->table, ROW_TITLE, "moved by its streams");
    for (int p = 0; p < PHASE_COUNT; p++)
        if (is_of_training(p)) part(t, phase_name(p), VALUE_MOVED, p, print_bytes);
}

/* In DP waiting is measured on device 0 only; the other devices' waiting is part of their idle
 * time. */
static void time_rows(const struct profile *t) {
    row(t, 0, "busy ms per step", VALUE_BUSY, 0, print_ms);
    for (int p = 0; p < PHASE_COUNT; p++)
        if (is_of_training(p)) part(t, phase_name(p), VALUE_PHASE, p, print_ms);
    part(t, "(loader)", VALUE_PHASE, PHASE_LOADER, print_ms);
    part(t, "(waiting for the others)", VALUE_WAIT, 0, print_ms);
    part(t, "(waiting for a CPU core)", VALUE_NO_CORE, 0, print_ms);
    row(t, 2, "(idle)", VALUE_IDLE, 0, print_ms);
    part(t, "(copy of the next batch)", VALUE_COPY, 0, print_ms);
    part(t, "(allreduce, hidden)", VALUE_HIDDEN, 0, print_ms);
    part(t, "(allreduce, exposed)", VALUE_EXPOSED, 0, print_ms);
    row(t, 0, "busy share of a step", VALUE_BUSY_SHARE, 0, print_share);
    if (t->details) row(t, 0, "kernels per step", VALUE_KERNELS, 0, print_count);
}

int profile_columns(struct table *table, const struct run_record *r, int details, int first,
                    int most) {
    struct group group[MAX_DEVICES];
    int count = groups_of(r, group), left = count - first;
    struct profile t = {table, r, details, group + first};
    *table = (struct table){
        .columns = left < most ? left : most, .name_width = NAME, .value_width = VALUE};
    for (int i = 0; i < table->columns; i++)
        snprintf(table->head[i], TABLE_CELL,
                 t.group[i].first == t.group[i].last ? "device %d" : "devices %d-%d",
                 t.group[i].first, t.group[i].last);
    memory_rows(&t);
    byte_rows(&t);
    int known = !r->computed || strcmp(r->model, "described") != 0; /* if 0, kernels are unknown */
    if (r->computed && details && known)
        row(&t, 0, "kernels per step", VALUE_KERNELS, 0, print_count);
    if (!r->computed) time_rows(&t);
    return left > most ? first + most : 0;
}

/* ---- machines ---- */

void machine_rows(struct table *table, const struct run_record *r) {
    enum { IN, OUT, WITHIN, BUSY };
    static const char *const heads[] = {"from others", "to others", "within", "busy ms"};
    *table = (struct table){.columns = 4, .name_width = 22, .value_width = VALUE};
    for (int i = 0; i < table->columns; i++)
        snprintf(table->head[i], TABLE_CELL, "%s", heads[i]);
    for (int m = 0; m < r->machine_count && r->traffic; m++) {
        double sum[4] = {0};
        int devices = 0, first = 0;
        char name[64];
        while (strcmp(r->machines[first], r->machines[m]))
            first++;
        if (first < m) continue; /* the machine already has a row */
        for (int d = 0; d < r->devices; d++) {
            int here = !strcmp(r->machines[d], r->machines[m]);
            devices += here;
            sum[BUSY] += here * device_value(r, d, VALUE_BUSY, 0);
            for (int from = 0; from < r->devices; from++) {
                int from_here = !strcmp(r->machines[from], r->machines[m]);
                if (!here && !from_here) continue;
                sum[!here ? OUT : from_here ? WITHIN : IN] += (double)r->traffic->bytes[from][d];
            }
        }
        snprintf(name, sizeof name, "%.40s: %d device%s", r->machines[m], devices,
                 devices > 1 ? "s" : "");
        struct table_row *row = table_add(table, ROW_VALUES, name);
        for (int i = IN; i <= WITHIN; i++)
            print_bytes(record_per_step(r, sum[i]), row->cell[i]);
        print_ms(sum[BUSY] / devices, row->cell[BUSY]);
    }
}

static void tables(FILE *file, int width, const struct run_record *r, int details) {
    int fit = (width - NAME) / (VALUE + 1), next = 0;
    fit = fit < 1 ? 1 : fit > TABLE_COLUMNS ? TABLE_COLUMNS : fit;
    do {
        struct table table;
        if (next) fprintf(file, "\n");
        next = profile_columns(&table, r, details, next, fit);
        table_print(file, width, &table);
    } while (next);
    struct table machines;
    machine_rows(&machines, r);
    if (!machines.rows) return;
    fprintf(file, "\neach machine, per step: bytes over links; busy: the mean of its devices\n");
    table_print(file, width, &machines);
}

/* ---- below the table ---- */

/* The four stages of a batch (data/prepare.h). In DP device 0 takes in all batches; in DDP each
 * rank takes its own, and rank 0's are shown. */
static void loader_line(FILE *file, int width, const struct run_record *r) {
    const struct device_record *d = &r->device[0];
    struct text text = {.words = ""};
    text_add(&text, "data: loaded in %.2f s, once", r->data_seconds);
    text_add(&text,
             "; ms per step: host %.3f, %s %.3f, device %.3f (%.3f of it while kernels run), "
             "waiting %.3f",
             record_per_step(r, (double)d->host_ns) * 1e-6, r->pinned ? "pinned" : "not pinned",
             record_per_step(r, (double)d->pinned_ns) * 1e-6,
             record_per_step(r, (double)(d->copy_ns + d->phase_ns[PHASE_INPUT])) * 1e-6,
             record_per_step(r, (double)d->copy_ns) * 1e-6,
             record_per_step(r, (double)d->phase_ns[PHASE_LOADER]) * 1e-6);
    text_wrap(file, width, 0, 2, text.words);
}

void profile_table(FILE *file, int width, const char *title, const struct run_record *run,
                   int details) {
    struct text text = {""};
    int shared = record_shared(run);
    text_add(&text, "%s: %d device%s", title, run->devices, run->devices > 1 ? "s" : "");
    if (shared && !run->computed)
        text_add(&text, " on %d %s%s", shared, run->gpus ? "GPU" : "core", shared > 1 ? "s" : "");
    text_add(&text, ", global batch %d", run->batch_size);
    if (run->passes > 1) text_add(&text, " x %d batches per step", run->passes);
    if (run->computed)
        text_add(&text, ", computed");
    else
        text_add(&text, ", %d step%s", run->steps, run->steps == 1 ? "" : "s");
    if (!run->computed && run->device[0].step_median_ns)
        text_add(&text, ", median %.2f ms", (double)run->device[0].step_median_ns * 1e-6);
    if (*run->modelled) text_add(&text, ", all times modelled: %s", run->modelled);
    text_wrap(file, width, 0, 2, text.words);
    tables(file, width, run, details);
    if (details && !run->computed && !*run->modelled) loader_line(file, width, run);
}
