/* The comparison as a table: see compare_table.h. One column for each run, one row for each
 * figure. */
#include "report/compare_table.h"

#include <inttypes.h>
#include <string.h>

#include "report/machine.h"
#include "report/table.h"
#include "report/text.h"

enum { RUNS = MODE_COUNT };

/* The runs that took place, in the order of the modes; the first is single's. In a narrow terminal
 * those that have room, and below them the next. */
struct columns {
    int count, width; /* width: of the table */
    const struct run_record *run[RUNS];
};

static struct columns columns_of(const struct run_record *run) {
    struct columns c = {0};
    for (int i = 0; i < RUNS; i++)
        if (run[i].devices) c.run[c.count++] = &run[i];
    return c;
}

/* The mean over all devices but device 0; 0 where there is none. */
static double mean_of_others(const struct run_record *r,
                             double (*value)(const struct device_record *)) {
    double sum = 0;
    for (int d = 1; d < r->devices; d++)
        sum += value(&r->device[d]);
    return r->devices > 1 ? sum / (r->devices - 1) : 0;
}

static double peak(const struct device_record *d) {
    return (double)d->memory.total_peak;
}
static double bytes_in(const struct device_record *d) {
    return (double)d->bytes_in;
}
static double bytes_out(const struct device_record *d) {
    return (double)d->bytes_out;
}

static void row_bytes(FILE *file, const char *name, const struct columns *c,
                      double (*value)(const struct device_record *), int rest, int each_step) {
    char text[RUNS][TABLE_CELL];
    for (int i = 0; i < c->count; i++) {
        const struct run_record *r = c->run[i];
        double bytes = rest ? mean_of_others(r, value) : value(&r->device[0]);
        if (rest && r->devices < 2)
            snprintf(text[i], sizeof text[i], "-");
        else
            format_bytes((uint64_t)((each_step ? record_per_step(r, bytes) : bytes) + 0.5), text[i],
                         sizeof text[i]);
    }
    table_row(file, c->width, name, text, c->count);
}

static double phase_ms(const struct run_record *r, const struct device_record *d, int phase) {
    return record_per_step(r, (double)d->phase_ns[phase]) * 1e-6;
}

/* Time beside the phases of the compute lane. In DDP the communication lane works beside it, hidden
 * as long as the compute lane is busy, and the compute lane may wait for it. In DP device 0's
 * thread waits for the other threads when its own share is done. */
static double hidden_ms(const struct run_record *r, const struct device_record *d, int none) {
    (void)none;
    return record_per_step(r, (double)(d->comm_ns - d->exposed_ns)) * 1e-6;
}

static double exposed_ms(const struct run_record *r, const struct device_record *d, int none) {
    (void)none;
    return record_per_step(r, (double)d->exposed_ns) * 1e-6;
}

static double copy_ms(const struct run_record *r, const struct device_record *d, int none) {
    (void)none;
    return record_per_step(r, (double)d->copy_ns) * 1e-6;
}

static double waiting_ms(const struct run_record *r, const struct device_record *d, int none) {
    (void)none;
    return record_per_step(r, (double)d->wait_ns) * 1e-6;
}

/* Emulated devices that share cores: the time in which a kernel of this device had none. */
static double no_core_ms(const struct run_record *r, const struct device_record *d, int none) {
    (void)none;
    return record_per_step(r, (double)d->no_core_ns) * 1e-6;
}

/* The rest of a step's wall time. */
static double idle_ms(const struct run_record *r, const struct device_record *d, int none) {
    (void)none;
    return record_per_step(r, record_idle_ns(r, (int)(d - r->device))) * 1e-6;
}

/* "device 0 | mean of the others" in ms, by `value` of the phase; `always`: also rows of dashes. */
static void row_ms(FILE *file, const char *name, const struct columns *c, int phase, int always,
                   double (*value)(const struct run_record *, const struct device_record *, int)) {
    char text[RUNS][TABLE_CELL], indented[64];
    int any = always;
    for (int i = 0; i < c->count; i++) {
        const struct run_record *r = c->run[i];
        double first = value(r, &r->device[0], phase), rest = 0;
        for (int d = 1; d < r->devices; d++)
            rest += value(r, &r->device[d], phase) / (r->devices - 1);
        any |= first > 0 || rest > 0;
        if (first <= 0 && rest <= 0)
            snprintf(text[i], sizeof text[i], "-");
        else if (r->devices < 2)
            snprintf(text[i], sizeof text[i], "%.2f", first);
        /* In DP waiting is measured on device 0 alone; that of the others is part of their idle
         * time. */
        else if (value == waiting_ms && r->mode == MODE_DP)
            snprintf(text[i], sizeof text[i], "%.2f | -", first);
        else
            snprintf(text[i], sizeof text[i], "%.2f | %.2f", first, rest);
    }
    snprintf(indented, sizeof indented, "  %s", name);
    if (any) table_row(file, c->width, indented, text, c->count);
}

/* A row whose value for each run `r` is printed with a format. */
#define ROW(name, ...)                                      \
    do {                                                    \
        char text[RUNS][TABLE_CELL];                        \
        for (int i = 0; i < c->count; i++) {                \
            const struct run_record *r = c->run[i];         \
            snprintf(text[i], sizeof text[i], __VA_ARGS__); \
        }                                                   \
        table_row(file, c->width, name, text, c->count);    \
    } while (0)

static void accuracy_row(FILE *file, const struct columns *c) {
    char text[RUNS][TABLE_CELL];
    int any = 0;
    for (int i = 0; i < c->count; i++) {
        double accuracy = record_last_accuracy(c->run[i]);
        if (accuracy < 0)
            snprintf(text[i], sizeof text[i], "-");
        else
            snprintf(text[i], sizeof text[i], "%.4f", accuracy), any = 1;
    }
    if (any) table_row(file, c->width, "test accuracy", text, c->count);
}

/* "speed-up over single, 2 cores": one that is measured on devices which share cores never stands
 * without them. */
static void name_speed_up(const struct columns *all, char name[64]) {
    int used = snprintf(name, 64, "speed-up over %s", mode_title(all->run[0]->mode));
    for (int i = 0; i < all->count; i++) {
        const struct run_record *r = all->run[i];
        int shared = record_shared(r);
        if (!shared || r->devices <= shared) continue;
        snprintf(name + used, 64 - (size_t)used, ", %d %s%s", shared, r->gpus ? "GPU" : "core",
                 shared > 1 ? "s" : "");
        return;
    }
}

static void valid_loss_row(FILE *file, const struct columns *c) {
    char text[RUNS][TABLE_CELL];
    int any = 0;
    for (int i = 0; i < c->count; i++) {
        double loss = record_last_valid_loss(c->run[i]);
        if (record_last_accuracy(c->run[i]) < 0)
            snprintf(text[i], sizeof text[i], "-");
        else
            snprintf(text[i], sizeof text[i], "%.9g", loss), any = 1;
    }
    if (any) table_row(file, c->width, "valid_loss", text, c->count);
}

/* first: the images/s of the first run of all. */
static void some_columns(FILE *file, const struct columns *c, const char *over, double first) {
    char head[RUNS][TABLE_CELL];
    int extrapolated = 0;
    for (int i = 0; i < c->count; i++) {
        snprintf(head[i], sizeof head[i], c->run[i]->mode ? "%s x %d" : "%s",
                 mode_title(c->run[i]->mode), c->run[i]->devices);
        extrapolated |= record_extrapolated(c->run[i]);
    }
    table_row(file, c->width, "", head, c->count);
    table_rule(file, c->width, c->count);
    ROW(*c->run[0]->modelled ? "seconds per epoch, modelled"
        : extrapolated       ? "seconds per epoch, extrapolated"
                             : "seconds per epoch",
        "%.*f", seconds_digits(record_seconds_per_epoch(r)), record_seconds_per_epoch(r));
    ROW("images/s", "%.*f", rate_digits(record_images_per_second(r)), record_images_per_second(r));
    ROW(over, "%.2f", first > 0 ? record_images_per_second(r) / first : 0);
    accuracy_row(file, c);
    valid_loss_row(file, c);
    ROW("last loss", "%.9g", r->steps ? r->losses[r->steps - 1] : 0);
    row_bytes(file, "peak memory, device 0", c, peak, 0, 0);
    row_bytes(file, "peak memory, other devices", c, peak, 1, 0);
    row_bytes(file, "bytes per step: into device 0", c, bytes_in, 0, 1);
    row_bytes(file, "  out of device 0", c, bytes_out, 0, 1);
    row_bytes(file, "  into each other device", c, bytes_in, 1, 1);
    row_bytes(file, "  out of each other device", c, bytes_out, 1, 1);
    table_rule(file, c->width, c->count);
    text_wrap(file, c->width, 0, 2,
              *c->run[0]->modelled ? "modelled ms per step: device 0 | mean of the others"
                                   : "ms per step: device 0 | mean of the others");
    for (int p = PHASE_LOADER; p < PHASE_COUNT; p++)
        if (p != PHASE_EVALUATE && p != PHASE_ALLREDUCE)
            row_ms(file, phase_name(p), c, p, 0, phase_ms);
    row_ms(file, "copy of the next batch", c, 0, 1, copy_ms);
    row_ms(file, "allreduce, hidden", c, 0, 1, hidden_ms);
    row_ms(file, "allreduce, exposed", c, 0, 1, exposed_ms);
    row_ms(file, "waiting for the others", c, 0, 1, waiting_ms);
    row_ms(file, "waiting for a CPU core", c, 0, 1, no_core_ms);
    row_ms(file, "idle", c, 0, 1, idle_ms);
}

void compare_table(FILE *file, int width, const struct run_record *run) {
    const struct columns all = columns_of(run);
    double first = record_images_per_second(all.run[0]); /* single, where it fits */
    char over[64];
    name_speed_up(&all, over);
    for (int i = 0, n = table_columns(width); i < all.count; i += n) {
        struct columns some = {.width = width};
        while (some.count < n && i + some.count < all.count) {
            some.run[some.count] = all.run[i + some.count];
            some.count++;
        }
        if (i) fprintf(file, "\n");
        some_columns(file, &some, over, first);
    }
}

void busy_line(FILE *file, const struct run_record *run) {
    const struct columns c = columns_of(run);
    struct text text = {.used = 0};
    int count = 0;
    for (int i = 0; i < c.count; i++)
        count += add_busy(&text, count, mode_title(c.run[i]->mode), c.run[i]);
    if (!count) return;
    text_add(&text, ", so do not trust these speed-ups");
    text_wrap(file, text_width(file), 0, 2, text.words);
}

void batch_line(FILE *file, const struct run_record *run) {
    const struct columns c = columns_of(run);
    const struct run_record *first = c.run[0];
    struct text batch = {.used = 0}, text = {.used = 0};
    for (int i = 0; i < c.count; i++) {
        const struct run_record *r = c.run[i];
        char share[32];
        share_words(r->batch_size, r->devices, !r->virtual_devices && r->mode == MODE_DP, share);
        text_add(&batch, "%s%s: %s x %d", i ? ", " : "batch: ", mode_title(r->mode), share,
                 r->devices);
    }
    text_add(&batch, " = global %d", first->batch_size);
    text_wrap(file, text_width(file), 0, 2, batch.words);
    if (first->passes > 1) text_add(&text, "%d batches an update; ", first->passes);
    text_add(&text, "%s, learning rate %g", first->optimizer, first->lr);
    if (first->virtual_devices)
        text_add(&text, "; %d virtual devices, %d duplicates per epoch", first->virtual_devices,
                 first->duplicates);
    else
        text_add(&text, "; virtual devices off");
    text_wrap(file, text_width(file), 2, 4, text.words);
}

void allreduce_lines(FILE *file, const struct run_record *ddp) {
    struct text how = {.used = 0}, buckets = {.used = 0};
    if (!*ddp->choice) return;
    text_add(&how, "allreduce: %s", ddp->choice);
    text_add(&buckets, "buckets of");
    for (int b = 0; b < ddp->bucket_count; b++)
        text_add(&buckets, "%s %" PRId64, b ? "," : "", ddp->bucket_bytes[b]);
    text_add(&buckets, " bytes");
    text_wrap(file, text_width(file), 0, 2, how.words);
    text_wrap(file, text_width(file), 0, 2, buckets.words);
}

void chapter_line(FILE *file, const struct run_record *r) {
    double accuracy = record_last_accuracy(r), seconds = record_seconds_per_epoch(r);
    struct text text = {.used = 0};
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
