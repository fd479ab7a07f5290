/* The profile of one run as text: see profile_table.h. */
#include "report/profile_table.h"

#include <stdlib.h>
#include <string.h>

static const char *bytes_text(double bytes, char text[32]) {
    return format_bytes((uint64_t)(bytes + 0.5), text, 32);
}

/* ---- memory ---- */

static int any_memory(const struct run_record *r, int cause) {
    for (int d = 0; d < r->devices; d++)
        if (r->device[d].memory.peak[cause]) return 1;
    return 0;
}

static void memory_row(FILE *file, const struct run_record *r, int d, const char *what,
                       const uint64_t *bytes, uint64_t total) {
    char text[32];
    fprintf(file, "%3d  %-5s %11s", d, what, bytes_text((double)total, text));
    for (int c = 0; c < MEM_CAUSE_COUNT; c++)
        if (any_memory(r, c))
            fprintf(file, " %15s", bytes[c] ? bytes_text((double)bytes[c], text) : "-");
    fprintf(file, "\n");
}

static void memory_table(FILE *file, const struct run_record *r) {
    fprintf(file, "dev  memory      total");
    for (int c = 0; c < MEM_CAUSE_COUNT; c++)
        if (any_memory(r, c)) fprintf(file, " %15s", mem_cause_name(c));
    fprintf(file, "\n");
    for (int d = 0; d < r->devices; d++) {
        const struct ledger *m = &r->device[d].memory;
        memory_row(file, r, d, "now", m->now, m->total);
        memory_row(file, r, d, "peak", m->at_peak, m->total_peak);
    }
    if (r->mode != MODE_DDP) return;
    fprintf(file, "gradients lie in DDP's buckets, once; PyTorch holds them twice unless "
                  "gradient_as_bucket_view is set\n");
}

/* ---- bytes and time ---- */

static int any_phase(const struct run_record *r, int phase) {
    if (phase == PHASE_NONE || phase == PHASE_EVALUATE || phase == PHASE_PROOF ||
        phase == PHASE_ALLREDUCE)
        return 0;
    for (int d = 0; d < r->devices; d++)
        if (r->device[d].phase_ns[phase]) return 1;
    return 0;
}

/* A column is as wide as its heading and as a time needs. */
static int time_width(int phase) {
    enum { WIDTH_OF_TIME = 8 };
    int heading = (int)strlen(phase_name(phase));
    return heading > WIDTH_OF_TIME ? heading : WIDTH_OF_TIME;
}

static void time_table(FILE *file, const struct run_record *r) {
    char text[32];
    int ddp = r->mode == MODE_DDP, waits = r->devices > 1;
    fprintf(file, "dev    bytes in   bytes out  busy ms");
    for (int p = 0; p < PHASE_COUNT; p++)
        if (any_phase(r, p)) fprintf(file, " %*s", time_width(p), phase_name(p));
    fprintf(file, "%s%s\n", waits ? "  waiting" : "", ddp ? "  allreduce (beside)" : "");
    for (int d = 0; d < r->devices; d++) {
        const struct device_record *x = &r->device[d];
        fprintf(file, "%3d %11s", d, bytes_text(record_per_step(r, (double)x->bytes_in), text));
        fprintf(file, " %11s %8.2f", bytes_text(record_per_step(r, (double)x->bytes_out), text),
                record_per_step(r, (double)x->busy_ns) * 1e-6);
        for (int p = 0; p < PHASE_COUNT; p++)
            if (any_phase(r, p))
                fprintf(file, " %*.3f", time_width(p),
                        record_per_step(r, (double)x->phase_ns[p]) * 1e-6);
        if (waits && !ddp && d > 0) /* asleep until device 0 needs it: not measured */
            fprintf(file, " %8s", "-");
        else if (waits)
            fprintf(file, " %8.2f", record_per_step(r, (double)x->wait_ns) * 1e-6);
        if (ddp) fprintf(file, "  %8.2f", record_per_step(r, (double)x->comm_ns) * 1e-6);
        fprintf(file, "\n");
    }
}

/* The four stages of a batch (data/prepare.h). In DP device 0 takes in the batches of all; in DDP
 * each rank its own, and rank 0's are shown. */
static void loader_line(FILE *file, const struct run_record *r) {
    const struct device_record *d = &r->device[0];
    fprintf(file, "data: disk %.2f s, once", r->data_seconds);
    if (r->data_on_device) {
        fprintf(file, "; the data set lies on the device, which makes the batches\n");
        return;
    }
    fprintf(file, "; ms a step: host %.3f, %s %.3f, device %.3f",
            record_per_step(r, (double)d->host_ns) * 1e-6, r->pinned ? "pinned" : "not pinned",
            record_per_step(r, (double)d->pinned_ns) * 1e-6,
            record_per_step(r, (double)(d->copy_ns + d->phase_ns[PHASE_INPUT])) * 1e-6);
    fprintf(file, " (%.3f of it beside the kernels); waited for %.3f\n",
            record_per_step(r, (double)d->copy_ns) * 1e-6,
            record_per_step(r, (double)d->phase_ns[PHASE_LOADER]) * 1e-6);
}

/* ---- device 0's excess ---- */

static double over_the_others(const struct run_record *r,
                              double (*value)(const struct device_record *, int), int key) {
    double rest = 0;
    for (int d = 1; d < r->devices; d++)
        rest += value(&r->device[d], key) / (r->devices - 1);
    return value(&r->device[0], key) - rest;
}

static double memory_of(const struct device_record *d, int cause) {
    return (double)d->memory.at_peak[cause];
}
static double traffic_of(const struct device_record *d, int out) {
    return (double)(out ? d->bytes_out : d->bytes_in);
}
static double phase_of(const struct device_record *d, int phase) {
    return (double)d->phase_ns[phase];
}

static int larger_first(const void *a, const void *b) {
    double x = ((const struct excess *)a)->amount, y = ((const struct excess *)b)->amount;
    return x < y ? 1 : x > y ? -1 : 0;
}

int profile_excess(const struct run_record *r, enum excess_kind kind, struct excess *out) {
    int n = 0;
    if (r->devices < 2) return 0;
    for (int c = 0; kind == EXCESS_MEMORY && c < MEM_CAUSE_COUNT; c++)
        out[n++] = (struct excess){kind, mem_cause_name(c), over_the_others(r, memory_of, c)};
    for (int k = 0; kind == EXCESS_TRAFFIC && k < 2; k++)
        out[n++] = (struct excess){kind, k ? "bytes out" : "bytes in",
                                   record_per_step(r, over_the_others(r, traffic_of, k))};
    for (int p = PHASE_INPUT; kind == EXCESS_TIME && p < PHASE_COUNT; p++)
        if (p != PHASE_EVALUATE && p != PHASE_PROOF)
            out[n++] = (struct excess){kind, phase_name(p),
                                       record_per_step(r, over_the_others(r, phase_of, p))};
    qsort(out, (size_t)n, sizeof *out, larger_first);
    while (n && out[n - 1].amount <= 0)
        n--;
    return n;
}

/* The amount as it is printed: "+1.5 MiB", "+0.012". Returns 0 if it is rounded to zero. */
static int excess_text(const struct excess *e, char text[40]) {
    char bytes[32];
    if (e->kind == EXCESS_TIME)
        snprintf(text, 40, "+%.3f", e->amount * 1e-6);
    else
        snprintf(text, 40, "+%s", bytes_text(e->amount, bytes));
    return strcmp(text, "+0.000") && strcmp(text, "+0 B");
}

static void excess_lines(FILE *file, const struct run_record *r) {
    static const char *const heads[] = {"memory at peak", "link bytes a step", "ms a step"};
    struct excess list[EXCESS_MAX];
    char text[40];
    fprintf(file, "device 0 over the mean of the others, largest first:\n");
    for (int kind = EXCESS_MEMORY; kind <= EXCESS_TIME; kind++) {
        int n = profile_excess(r, kind, list);
        fprintf(file, "  %-18s", heads[kind]);
        while (n && !excess_text(&list[n - 1], text))
            n--;
        for (int i = 0; i < n; i++) {
            excess_text(&list[i], text);
            fprintf(file, "%s %s %s", i ? "," : "", list[i].name, text);
        }
        fprintf(file, "%s\n", n ? "" : " nothing");
    }
}

void profile_table(FILE *file, const char *title, const struct run_record *run) {
    char passes[40] = "";
    if (run->passes > 1) snprintf(passes, sizeof passes, " x %d batches a step", run->passes);
    fprintf(file, "%s: %d device%s, global batch %d%s, mean of %d steps, %.0f images/s\n", title,
            run->devices, run->devices > 1 ? "s" : "", run->batch_size, passes, run->steps,
            record_images_per_second(run));
    memory_table(file, run);
    time_table(file, run);
    loader_line(file, run);
    excess_lines(file, run);
}
