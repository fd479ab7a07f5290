/* The comparison as a table: see compare_table.h. Columns are runs, rows are what a reader asks. */
#include "report/compare_table.h"

#include "report/table.h"

enum { RUNS = 3 };

static double per_step(double total, const struct run_record *r) {
    return r->steps ? total / r->steps : 0;
}

/* Mean over the devices but the first; 0 where there is none. */
static double others(const struct run_record *r, double (*value)(const struct device_record *)) {
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

static void row_bytes(FILE *file, const char *name, const struct run_record *run,
                      double (*value)(const struct device_record *), int rest, int each_step) {
    char text[RUNS][32];
    for (int i = 0; i < RUNS; i++) {
        const struct run_record *r = &run[i];
        double bytes = rest ? others(r, value) : value(&r->device[0]);
        if (rest && r->devices < 2)
            snprintf(text[i], sizeof text[i], "-");
        else
            format_bytes((uint64_t)((each_step ? per_step(bytes, r) : bytes) + 0.5), text[i],
                         sizeof text[i]);
    }
    table_row(file, name, text);
}

static void row_phase(FILE *file, const struct run_record *run, int phase) {
    char text[RUNS][32], name[64];
    int any = 0;
    for (int i = 0; i < RUNS; i++) {
        const struct run_record *r = &run[i];
        double first = per_step((double)r->device[0].phase_ns[phase], r) * 1e-6, rest = 0;
        for (int d = 1; d < r->devices; d++)
            rest += per_step((double)r->device[d].phase_ns[phase], r) * 1e-6 / (r->devices - 1);
        any |= first > 0 || rest > 0;
        if (first <= 0 && rest <= 0)
            snprintf(text[i], sizeof text[i], "-");
        else if (r->devices < 2)
            snprintf(text[i], sizeof text[i], "%.2f", first);
        else
            snprintf(text[i], sizeof text[i], "%.2f | %.2f", first, rest);
    }
    snprintf(name, sizeof name, "  %s", phase_name(phase));
    if (any) table_row(file, name, text);
}

/* What is no phase of the compute lane: DDP's communication beside it, and waiting for it; in DP
 * device 0's thread, done with its own share, waiting for the other threads. */
static double comm_ms(const struct run_record *r, const struct device_record *d) {
    return per_step((double)d->comm_ns, r) * 1e-6;
}

static double waiting_ms(const struct run_record *r, const struct device_record *d) {
    return per_step((double)d->wait_ns, r) * 1e-6;
}

/* What of a step's wall time is left: in DP the other devices, asleep until device 0 needs them. */
static double idle_ms(const struct run_record *r, const struct device_record *d) {
    double used = (double)(d->busy_ns + d->wait_ns + d->phase_ns[PHASE_PROOF]);
    double left = per_step(r->training_seconds * 1e9 - used, r) * 1e-6;
    return left > 0 ? left : 0;
}

static void row_lane(FILE *file, const char *name, const struct run_record *run,
                     double (*value)(const struct run_record *, const struct device_record *)) {
    char text[RUNS][32];
    for (int i = 0; i < RUNS; i++) {
        const struct run_record *r = &run[i];
        double first = 0, rest = 0;
        for (int d = 0; d < r->devices; d++) {
            double ms = value(r, &r->device[d]);
            if (d == 0)
                first = ms;
            else
                rest += ms / (r->devices - 1);
        }
        if (first <= 0 && rest <= 0)
            snprintf(text[i], sizeof text[i], "-");
        else if (r->devices < 2)
            snprintf(text[i], sizeof text[i], "%.2f", first);
        /* the others' waiting is not measured: part of idle */
        else if (value == waiting_ms && r->mode == MODE_DP)
            snprintf(text[i], sizeof text[i], "%.2f | -", first);
        else
            snprintf(text[i], sizeof text[i], "%.2f | %.2f", first, rest);
    }
    table_row(file, name, text);
}

#define ROW(name, ...)                                      \
    do {                                                    \
        char text[RUNS][32];                                \
        for (int i = 0; i < RUNS; i++) {                    \
            const struct run_record *r = &run[i];           \
            snprintf(text[i], sizeof text[i], __VA_ARGS__); \
        }                                                   \
        table_row(file, name, text);                        \
    } while (0)

static void accuracy_row(FILE *file, const struct run_record *run) {
    char text[RUNS][32];
    for (int i = 0; i < RUNS; i++) {
        double accuracy = record_last_accuracy(&run[i]);
        if (accuracy < 0)
            snprintf(text[i], sizeof text[i], "-");
        else
            snprintf(text[i], sizeof text[i], "%.4f", accuracy);
    }
    table_row(file, "test accuracy", text);
}

void compare_table(FILE *file, const struct run_record *run) {
    double single = record_images_per_second(&run[0]);
    char head[RUNS][32] = {"single"};
    snprintf(head[1], sizeof head[1], "DP x %d", run[1].devices);
    snprintf(head[2], sizeof head[2], "DDP x %d", run[2].devices);
    table_row(file, "", head);
    table_rule(file, RUNS);
    int extrapolated = record_extrapolated(&run[0]) || record_extrapolated(&run[1]) ||
                       record_extrapolated(&run[2]);
    ROW(extrapolated ? "seconds an epoch, extrapolated" : "seconds an epoch", "%.2f",
        record_seconds_per_epoch(r));
    ROW("images/s", "%.0f", record_images_per_second(r));
    ROW("speed-up over single", "%.2f", single > 0 ? record_images_per_second(r) / single : 0);
    accuracy_row(file, run);
    ROW("last loss", "%.9g", r->steps ? r->losses[r->steps - 1] : 0);
    row_bytes(file, "peak memory, device 0", run, peak, 0, 0);
    row_bytes(file, "peak memory, each other", run, peak, 1, 0);
    row_bytes(file, "bytes into device 0, a step", run, bytes_in, 0, 1);
    row_bytes(file, "bytes out of device 0", run, bytes_out, 0, 1);
    row_bytes(file, "bytes into each other", run, bytes_in, 1, 1);
    row_bytes(file, "bytes out of each other", run, bytes_out, 1, 1);
    table_rule(file, RUNS);
    fprintf(file, "ms a step: device 0 | mean of the others\n");
    for (int p = PHASE_INPUT; p < PHASE_COUNT; p++)
        if (p != PHASE_EVALUATE && p != PHASE_ALLREDUCE) row_phase(file, run, p);
    row_lane(file, "  allreduce, beside backward", run, comm_ms);
    row_lane(file, "  waiting for the others", run, waiting_ms);
    row_lane(file, "  idle", run, idle_ms);
}

void batch_line(FILE *file, const struct run_record *run) {
    for (int i = 0; i < RUNS; i++) {
        const struct run_record *r = &run[i];
        fprintf(file, "%s%s: %g x %d", i ? ", " : "batch: ",
                mode_title(r->mode),
                (double)r->batch_size / r->devices, r->devices);
    }
    fprintf(file, " = global %d; %s, learning rate %g", run[0].batch_size, run[0].optimizer,
            run[0].lr);
    if (run[0].virtual_devices)
        fprintf(file, "; %d virtual devices, %d duplicates an epoch\n", run[0].virtual_devices,
                run[0].duplicates);
    else
        fprintf(file, "; virtual devices off\n");
}

void chapter_line(FILE *file, const struct run_record *r) {
    double accuracy = record_last_accuracy(r);
    if (accuracy >= 0) fprintf(file, "test acc: %.2f, ", accuracy);
    fprintf(file, "%.1f sec/epoch on [", record_seconds_per_epoch(r));
    for (int d = 0; d < r->devices; d++)
        fprintf(file, "%s%s(%d)", d ? ", " : "", r->kind, d);
    fprintf(file, "]");
    if (record_extrapolated(r))
        fprintf(file, ", extrapolated from %d steps (an epoch has %d)", r->steps,
                r->steps_per_epoch);
    fprintf(file, "\n");
}
