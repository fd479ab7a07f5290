/* Prints the comparison as a table: see compare_table.h. Each run is a column, each figure a
 * row. */
#include "report/compare_table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "report/machine.h"
#include "report/text.h"
#include "report/values.h"

enum { RUNS = MODE_COUNT };
_Static_assert((int)RUNS <= (int)TABLE_COLUMNS, "a column for each run");

/* The runs that took place, in the order of the modes; the first is that of single. */
struct columns {
    int count;
    const struct run_record *run[RUNS];
};

static struct columns columns_of(const struct run_record *run) {
    struct columns c = {0};
    for (int i = 0; i < RUNS; i++)
        if (run[i].devices) c.run[c.count++] = &run[i];
    return c;
}

/* ---- rows of runs side by side ---- */

/* A row whose value for each run `r` is printed with a format. */
#define ROW(name, ...)                                                \
    do {                                                              \
        struct table_row *row = table_add(t, ROW_VALUES, name);       \
        for (int i = 0; i < t->columns; i++) {                        \
            const struct run_record *r = run[i];                      \
            snprintf(row->cell[i], sizeof row->cell[i], __VA_ARGS__); \
        }                                                             \
    } while (0)

/* `others`: the mean of all devices but device 0. */
static void bytes_row(struct table *t, const char *name, const struct run_record *const *run,
                      enum value value, int others) {
    struct table_row *row = table_add(t, ROW_VALUES, name);
    for (int i = 0; i < t->columns; i++) {
        if (others && run[i]->devices < 2)
            strcpy(row->cell[i], "-");
        else
            bytes_words(others ? others_value(run[i], value, MEM_CAUSE_COUNT)
                               : device_value(run[i], 0, value, MEM_CAUSE_COUNT),
                        row->cell[i]);
    }
}

/* "device 0 | mean of the others" in ms. */
static void ms_row(struct table *t, enum row_kind kind, const char *name,
                   const struct run_record *const *run, enum value value, int phase) {
    char indented[64];
    snprintf(indented, sizeof indented, "  %s", name);
    struct table_row *row = table_add(t, kind, indented);
    for (int i = 0; i < t->columns; i++) {
        char *text = row->cell[i];
        double first = device_value(run[i], 0, value, phase) * 1e-6,
               rest = others_value(run[i], value, phase) * 1e-6;
        int digits = fmax(first, rest) < 999.99 ? 2 : 0; /* both must fit TABLE_VALUE columns */
        if (first <= 0 && rest <= 0)
            strcpy(text, "-");
        else if (run[i]->devices < 2)
            snprintf(text, TABLE_CELL, "%.2f", first);
        /* In DP waiting is measured on device 0 only; the other devices' waiting is part of their
         * idle time. */
        else if (value == VALUE_WAIT && run[i]->mode == MODE_DP)
            snprintf(text, TABLE_CELL, "%.2f | -", first);
        else
            snprintf(text, TABLE_CELL, "%.*f | %.*f", digits, first, digits, rest);
    }
}

static void test_rows(struct table *t, const struct run_record *const *run) {
    struct table_row *accuracy = table_add(t, ROW_WHERE_ANY, "test accuracy"),
                     *loss = table_add(t, ROW_WHERE_ANY, "valid_loss");
    for (int i = 0; i < t->columns; i++) {
        double of = record_last_accuracy(run[i]);
        snprintf(accuracy->cell[i], TABLE_CELL, of < 0 ? "-" : "%.4f", of);
        snprintf(loss->cell[i], TABLE_CELL, of < 0 ? "-" : "%.9g", record_last_valid_loss(run[i]));
    }
}

/* "speed-up over single, 2 cores": a speed-up measured on devices that share cores always names
 * them. */
static void speed_up_row(struct table *t, const struct run_record *const *run) {
    char name[64];
    double first = record_samples_per_second(run[0]); /* single, if it fits */
    int used = snprintf(name, sizeof name, "speed-up over %s", mode_title(run[0]->mode));
    for (int i = 0, shared = 0; i < t->columns && !shared; i++) {
        shared = record_shared(run[i]);
        if (shared)
            snprintf(name + used, sizeof name - (size_t)used, ", %d %s%s", shared,
                     run[i]->gpus ? "GPU" : "core", shared > 1 ? "s" : "");
    }
    ROW(name, "%.2f", first > 0 ? record_samples_per_second(r) / first : 0);
}

void result_rows(struct table *t, const struct run_record *const *run, int speed_up) {
    ROW("samples/s", "%.*f", rate_digits(record_samples_per_second(r)),
        record_samples_per_second(r));
    /* the first step is slow, which matters among few */
    if (speed_up && run[0]->steps < 5 && !*run[0]->modelled)
        table_add(t, ROW_TITLE, "speed-up: give at least 5 steps");
    else if (speed_up)
        speed_up_row(t, run);
    test_rows(t, run);
    if (!run[0]->computed) ROW("last loss", "%.9g", r->steps ? r->losses[r->steps - 1] : 0);
    bytes_row(t, "peak memory, device 0", run, VALUE_PEAK, 0);
    bytes_row(t, "peak memory, other devices", run, VALUE_PEAK, 1);
}

static void time_rows(struct table *t, const struct run_record *const *run) {
    table_add(t, ROW_NOTE,
              *run[0]->modelled ? "modelled ms per step: device 0 | mean of the others"
                                : "ms per step: device 0 | mean of the others");
    for (int p = PHASE_LOADER; p < PHASE_COUNT; p++)
        if (p != PHASE_EVALUATE && p != PHASE_ALLREDUCE)
            ms_row(t, ROW_WHERE_ANY, phase_name(p), run, VALUE_PHASE, p);
    ms_row(t, ROW_VALUES, "copy of the next batch", run, VALUE_COPY, 0);
    int shards = run[t->columns - 1]->mode == MODE_FSDP;
    ms_row(t, ROW_VALUES, shards ? "collectives, hidden" : "allreduce, hidden", run, VALUE_HIDDEN,
           0);
    ms_row(t, ROW_VALUES, shards ? "collectives, exposed" : "allreduce, exposed", run,
           VALUE_EXPOSED, 0);
    ms_row(t, ROW_VALUES, "waiting for the others", run, VALUE_WAIT, 0);
    if (!*run[0]->modelled) ms_row(t, ROW_VALUES, "waiting for a CPU core", run, VALUE_NO_CORE, 0);
    ms_row(t, ROW_VALUES, "idle", run, VALUE_IDLE, 0);
}

void compare_table(FILE *file, int width, const struct run_record *records) {
    const struct columns c = columns_of(records);
    const struct run_record *const *run = c.run;
    struct table table = {.columns = c.count}, *t = &table;
    int extrapolated = 0;
    for (int i = 0; i < c.count; i++) {
        snprintf(t->head[i], TABLE_CELL, run[i]->mode ? "%s x %d" : "%s", mode_title(run[i]->mode),
                 run[i]->devices);
        extrapolated |= record_extrapolated(run[i]);
    }
    table_add(t, ROW_NOTE, "");
    ROW(*run[0]->modelled ? "seconds per epoch, modelled"
        : extrapolated    ? "seconds per epoch, extrapolated"
                          : "seconds per epoch",
        "%.*f", seconds_digits(record_seconds_per_epoch(r)), record_seconds_per_epoch(r));
    result_rows(t, run, 1);
    bytes_row(t, "bytes per step: into device 0", run, VALUE_IN, 0);
    bytes_row(t, "  out of device 0", run, VALUE_OUT, 0);
    bytes_row(t, "  into every other device", run, VALUE_IN, 1);
    bytes_row(t, "  out of every other device", run, VALUE_OUT, 1);
    time_rows(t, run);
    table_print(file, width, t);
}

void busy_line(FILE *file, const struct run_record *run) {
    const struct columns c = columns_of(run);
    struct text text = {""};
    int count = 0;
    for (int i = 0; i < c.count; i++)
        count += add_busy(&text, count, mode_title(c.run[i]->mode), c.run[i]);
    if (!count) return;
    text_add(&text, ", so do not trust these times");
    text_wrap(file, text_width(file), 0, 2, text.words);
}

void batch_line(FILE *file, const struct run_record *run) {
    const struct columns c = columns_of(run);
    const struct run_record *first = c.run[0];
    struct text batch = {""}, text = {""};
    for (int i = 0; i < c.count; i++) {
        const struct run_record *r = c.run[i];
        char share[32];
        share_words(r->batch_size, r->devices, !r->virtual_devices && r->mode == MODE_DP, share);
        text_add(&batch, "%s%s: %s x %d", i ? ", " : "batch: ", mode_title(r->mode), share,
                 r->devices);
    }
    text_add(&batch, " = global %d", first->batch_size);
    text_wrap(file, text_width(file), 0, 2, batch.words);
    if (first->passes > 1) text_add(&text, "%d batches per update; ", first->passes);
    text_add(&text, "%s, learning rate %g", first->optimizer, first->lr);
    if (first->virtual_devices)
        text_add(&text, "; %d virtual devices, %d duplicates per epoch", first->virtual_devices,
                 first->duplicates);
    else
        text_add(&text, "; virtual devices off");
    text_wrap(file, text_width(file), 2, 4, text.words);
}

void allreduce_lines(FILE *file, const struct run_record *ddp) {
    struct text buckets = {""};
    if (!*ddp->choice) return;
    text_add(&buckets, "buckets of");
    for (int b = 0; b < ddp->bucket_count; b++)
        text_add(&buckets, "%s %" PRId64, b ? "," : "", ddp->bucket_bytes[b]);
    text_add(&buckets, " bytes");
    if (!*ddp->modelled) text_say(file, text_width(file), 0, 2, "allreduce: %s", ddp->choice);
    text_wrap(file, text_width(file), 0, 2, buckets.words);
}

void chapter_line(FILE *file, const struct run_record *r) {
    double accuracy = record_last_accuracy(r), seconds = record_seconds_per_epoch(r);
    struct text text = {""};
    text_add(&text, "%-6s ", mode_title(r->mode));
    if (accuracy >= 0) text_add(&text, "test acc: %.2f, ", accuracy);
    text_add(&text, "%.*f sec/epoch on [", seconds_digits(seconds), seconds);
    for (int d = 0; d < r->devices; d++)
        text_add(&text, "%s%s(%d)", d ? ", " : "", r->kind, d);
    text_add(&text, "]");
    if (*r->modelled) text_add(&text, ", modelled: %s", r->modelled);
    if (record_extrapolated(r))
        text_add(&text, ", extrapolated from %d steps of %d per epoch", r->steps,
                 r->steps_per_epoch);
    text_wrap(file, text_width(file), 0, 7, text.words);
}
