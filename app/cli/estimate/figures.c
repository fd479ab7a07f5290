/* Computes and prints the rows of `duet estimate --gpu`: see figures.h. */
#include "cli/estimate/figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "clock/trust.h"
#include "cli/estimate/ways.h"
#include "cli/options/run_options.h"
#include "report/text.h"
#include "train/estimate/as_pytorch.h"
#include "train/estimate/estimate.h"
#include "train/estimate/max_batch.h"

/* GPUs of all machines, which are identical. */
static int gpus_of(const struct modelled *m, const struct clock_config *clock) {
    return m->record->devices * (clock->nodes > 1 ? (int)clock->nodes : 1);
}

/* What PyTorch holds for the same training; NULL: unknown. */
static struct as_pytorch *held_in_pytorch(const struct run_config *config) {
    struct as_pytorch *held = calloc(1, sizeof *held);
    struct run_config c = *config;
    estimate_enlarge(&c, c.batch_size);
    if (held && !as_pytorch(&c, held)) return held;
    free(held);
    return NULL;
}

/* GPU 0's peak. -1: not known. */
static double peak_in_pytorch(const struct run_config *config) {
    struct as_pytorch *held = held_in_pytorch(config);
    double peak = held ? (double)held->device[0].total_peak : -1;
    free(held);
    return peak > 0 ? peak : -1;
}

static int is_mixed(const struct run_config *c) {
    return c->clock.precision == CLOCK_AMP;
}

static void show_mixed(const struct run_config *c, const struct modelled *m, int way) {
    struct text text = {""};
    char size[32];
    struct as_pytorch *held = held_in_pytorch(c);
    if (!held) return;
    text_add(&text, "%d %s, autocast, memory on GPU 0 at its peak:", m->record->devices,
             way_name(way));
    for (int i = 0; i < MEM_CAUSE_COUNT; i++)
        if (held->device[0].at_peak[i])
            text_add(&text, " %s %s,", mem_cause_name((enum mem_cause)i),
                     format_bytes(held->device[0].at_peak[i], size, sizeof size));
    text_add(&text,
             " activations include 2-byte copies of weights; weights stay float32, as do gradients "
             "and what allreduce moves: %s each",
             format_bytes(m->record->parameter_count * sizeof(float), size, sizeof size));
    text_wrap(stdout, text_width(stdout), 2, 4, text.words);
    free(held);
}

void figures_show_phases(const struct run_config *c, const struct modelled *m,
                         const struct clock_config *clock, int way, const struct clock_result *r) {
    struct text text = {""};
    text_add(&text, "%d %s, ms on GPU 0:", gpus_of(m, clock), way_name(way));
    for (int p = 1; p < PHASE_COUNT; p++) {
        if (r->phase_ns[p] < 1000) continue;
        double operations;
        const char *bound = modelled_bound(m, clock, r, (enum phase)p, &operations);
        text_add(&text, " %s %.2f (%s", phase_name((enum phase)p), (double)r->phase_ns[p] * 1e-6,
                 bound);
        if (c->details && operations > 0)
            text_add(&text, ", %.0f operation%s", operations, operations == 1 ? "" : "s");
        text_add(&text, "),");
    }
    if (r->comm_ns)
        text_add(&text, " %s %.2f, %.2f of it not hidden,",
                 way_mode(way) == MODE_FSDP ? "gathers and sums" : "allreduce",
                 (double)r->comm_ns * 1e-6, (double)r->comm_wait_ns * 1e-6);
    text_add(&text, " idle %.2f of %.2f", (double)(r->step_ns - r->busy_ns[0]) * 1e-6,
             (double)r->step_ns * 1e-6);
    text_wrap(stdout, text_width(stdout), 2, 4, text.words);
    if (is_mixed(c)) show_mixed(c, m, way);
}

/* -1: not known. */
static double peak_with(const struct run_config *config, int batch, int pytorch) {
    struct run_config c = *config;
    struct modelled m;
    c.batch_size = batch;
    if (pytorch) return peak_in_pytorch(&c);
    int code = modelled_open(&m, &c);
    double peak = code ? -1 : (double)record_peak(m.record, 0, m.record->devices - 1);
    modelled_close(&m);
    return peak;
}

/* The largest global batch that fits the GPU's memory. Secants from the given batch on find it,
 * since memory is nearly linear in the batch; for Duet a search begins after two. pytorch: what
 * PyTorch holds with the given batch; 0: search for Duet instead. Returns 0: not even the smallest
 * fits; -1: not known. */
static int largest_batch(const struct run_config *config, int devices, double gib, double pytorch) {
    enum { GROUP = 16 }; /* emulated devices hold samples in groups */
    const int unit = (pytorch ? 1 : GROUP) * devices;
    struct run_config c = *config;
    struct max_batch found;
    if (!pytorch && is_mixed(config)) return -1;
    int last = (config->batch_size + unit - 1) / unit * unit;
    double before = pytorch ? pytorch : peak_with(config, last, 0);
    int guess = last > unit && before > gib * 0x1p30 ? last / 2 / unit * unit : 2 * last;
    for (int left = pytorch ? 8 : 2; left-- && (guess > unit ? guess : unit) != last;) {
        int batch = guess > unit ? guess : unit;
        double peak = peak_with(config, batch, pytorch != 0),
               each = (peak - before) / (batch - last);
        if (before < 0 || peak < 0 || !(each > 0)) return -1;
        double fits = batch + (gib * 0x1p30 - peak) / each;
        guess = fits < unit ? 0 : fits > LARGEST_BATCH ? LARGEST_BATCH : (int)fits / unit * unit;
        last = batch, before = peak;
    }
    if (guess == LARGEST_BATCH) return -1; /* --batch-size takes no more */
    if (pytorch) return guess;
    c.device_memory_count = 1;
    c.device_memory[0] = (uint64_t)(gib * 0x1p30);
    if (max_batch_find(&c, guess, &found)) return -1;
    return found.next ? found.batch : guess; /* next 0: the data set has no more samples */
}

double figures_gib(const struct run_config *c, const struct clock_config *clock) {
    return c->device_memory_count ? (double)c->device_memory[0] / 0x1p30 : clock->gpu->gib;
}

struct figures figures_of(const struct run_config *c, const struct modelled *m,
                          const struct clock_config *clock, int way, const struct clock_result *r,
                          double *single_rate) {
    double ms = (double)r->step_ns * 1e-6, gib = figures_gib(c, clock);
    int rows, passes = m->record->passes > 1 ? m->record->passes : 1;
    int gpus = gpus_of(m, clock), devices = m->record->devices, nodes = gpus / devices;
    struct figures f = {.way = way,
                        .devices = gpus,
                        .ms = ms,
                        .rate = (double)m->record->batch_size * nodes * passes / ms * 1e3,
                        .error = trust_error(clock, &rows),
                        .first = is_mixed(c) ? -1 : (double)record_peak(m->record, 0, 0),
                        .others = -1,
                        .pytorch = peak_in_pytorch(c),
                        .largest = largest_batch(c, devices, gib, 0)};
    f.largest_pytorch = largest_batch(c, devices, gib, f.pytorch);
    if (f.largest > 0) f.largest *= nodes;
    if (f.largest_pytorch > 0) f.largest_pytorch *= nodes;
    if (devices > 1 && f.first >= 0) f.others = (double)record_peak(m->record, 1, devices - 1);
    f.is_full = f.first > gib * 0x1p30;
    f.others_are_full = f.others > gib * 0x1p30;
    f.pytorch_is_full = f.pytorch > gib * 0x1p30;
    f.only_transfers = c->model.options.params > 0;
    const int runs = f.pytorch < 0 ? !f.is_full && !f.others_are_full : !f.pytorch_is_full;
    if (!runs) f.ms = 0;
    if (!runs || f.only_transfers) f.rate = f.error = 0;
    f.is_unmeasured = !rows && f.rate > 0;
    if (way == WAY_SINGLE) *single_rate = f.rate;
    if (*single_rate > 0) f.speed_up = f.rate / *single_rate;
    return f;
}

static char *gib_words(double bytes, char text[16]) {
    double gib = bytes / 0x1p30;
    if (bytes < 0) return strcpy(text, "-");
    snprintf(text, 16, "%.*f", gib < 0.1 ? 3 : 2, gib);
    return text;
}

void figures_print(const struct figures *f) {
    char ms[16], rate[16], speed[16], error[16], first[16], others[16], pytorch[16], largest[16],
        largest_pytorch[16];
    snprintf(ms, sizeof ms, f->ms > 0 ? "%.2f" : "-", f->ms);
    snprintf(rate, sizeof rate, f->rate > 0 ? "%.*f" : "-", rate_digits(f->rate), f->rate);
    snprintf(error, sizeof error,
             f->rate <= 0   ? "-"
             : f->error > 0 ? "%.0f %%"
                            : "given",
             f->error);
    snprintf(speed, sizeof speed, f->speed_up > 0 ? "%.2fx" : "-", f->speed_up);
    snprintf(largest, sizeof largest, f->largest < 0 ? "-" : "%d", f->largest);
    snprintf(largest_pytorch, sizeof largest_pytorch, f->largest_pytorch < 0 ? "-" : "%d",
             f->largest_pytorch);
    printf("%3d %-12s%8s %5s%8s %6s %6s%s%6s%s%6s %6s%s%6s\n", f->devices, way_brief(f->way), ms,
           error, rate, speed, gib_words(f->first, first), f->is_full ? "!" : " ",
           gib_words(f->others, others), f->others_are_full ? "!" : " ", largest,
           gib_words(f->pytorch, pytorch), f->pytorch_is_full ? "!" : " ", largest_pytorch);
}

void figures_write(struct json_writer *w, const struct figures *f,
                   const struct clock_config *clock) {
    json_object(w, NULL);
    json_string(w, "gpu", clock->gpu->name);
    json_string(w, "machine", clock->machine->name);
    json_string(w, "precision", clock_precision_name(clock->precision));
    json_string(w, "name", way_key(f->way));
    json_integer(w, "devices", f->devices);
    json_number(w, "ms_a_step", f->ms > 0 ? f->ms : NAN);
    json_number(w, "expected_error_percent", f->rate > 0 ? f->error : NAN);
    json_number(w, "samples_per_second", f->rate > 0 ? f->rate : NAN);
    json_number(w, "speed_up", f->speed_up > 0 ? f->speed_up : NAN);
    json_number(w, "memory_peak", f->first >= 0 ? fmax(f->first, f->others) : NAN);
    json_number(w, "memory_peak_device_0", f->first >= 0 ? f->first : NAN);
    json_number(w, "memory_peak_others", f->others >= 0 ? f->others : NAN);
    json_number(w, "memory_peak_device_0_pytorch", f->pytorch >= 0 ? f->pytorch : NAN);
    json_number(w, "largest_batch", f->largest >= 0 ? f->largest : NAN);
    json_number(w, "largest_batch_pytorch", f->largest_pytorch >= 0 ? f->largest_pytorch : NAN);
    json_close(w);
}

void figures_head(int only_transfers) {
    printf("%-14s%10s %5s%8s %6s %13s%7s %7s%6s\n", "GPUs",
           only_transfers ? "transfers," : "ms per", "", "samples", "speed-", "Duet, GiB ", "max",
           "PyTorch", "max");
    printf("%-16s%8s %5s%8s %6s %6s %6s %6s %6s %6s\n", "", only_transfers ? "ms" : "step", "error",
           "/second", "up", "GPU 0", "others", "batch", "GPU 0", "batch");
}
