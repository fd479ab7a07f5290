/* See retime.h. */
#include "train/estimate/retime.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "train/estimate/estimate.h"
#include "train/estimate/modelled.h"
#include "train/estimate/need.h"
#include "train/session.h"

_Static_assert(sizeof((struct run_record *)0)->modelled == CLOCK_MARK, "a mark fits the record");

/* The number of machines that the run's devices are on. */
static int nodes_of(const struct run_config *config) {
    return run_devices(config) < 2 || !config->clock.nodes ? 1 : config->clock.nodes;
}

int retime_fits(const struct run_config *config, const struct machine *m) {
    int devices = run_devices(config), nodes = nodes_of(config);
    if (nodes > 1 && !*m->network.name)
        return fail(ERR_USAGE,
                    "--nodes: %d: no network joins machines like %s: give a --machine "
                    "for which duet devices --gpus names one",
                    nodes, m->name);
    if (devices % nodes)
        return fail(ERR_USAGE, "--nodes: %d: --devices %d is not a multiple of it: give one", nodes,
                    devices);
    if (devices > nodes * m->gpus)
        return fail(ERR_USAGE, "--devices: %d: machine %s has %d GPUs: give at most %d%s", devices,
                    m->name, m->gpus, nodes * m->gpus,
                    nodes == 1 && *m->network.name ? ", or --nodes" : "");
    return OK;
}

void retime_one_node(struct run_config *c, struct clock_config *clock) {
    int nodes = nodes_of(c);
    clock->nodes = nodes;
    c->devices /= nodes;
    c->batch_size /= nodes;
    if (c->virtual_devices > 0) c->virtual_devices /= nodes;
}

int retime_check(const struct run_config *config) {
    struct run_config copy = *config;
    struct clock_config clock;
    struct hardware *hardware;
    if (!strcmp(config->device, "cuda"))
        return fail(ERR_USAGE, "--gpu: %s: the times of --device cuda are measured: leave one out",
                    config->clock.gpu);
    CHECK(estimate_prepare(&copy));
    int code = clock_choose(&config->clock, &hardware, &clock);
    if (!code) code = retime_fits(config, clock.machine);
    hardware_free(hardware);
    return code;
}

/* ---- the times of a device ---- */

/* The times of all steps of the run, from those of one step in *one. */
static void set_times(struct device_record *to, const struct device_record *one, int steps,
                      int64_t step_ns) {
    for (int p = 0; p < PHASE_COUNT; p++)
        to->phase_ns[p] = one->phase_ns[p] * steps;
    to->step_median_ns = step_ns;
    to->busy_ns = one->busy_ns * steps;
    to->comm_ns = one->comm_ns * steps;
    to->exposed_ns = one->exposed_ns * steps;
    to->copy_ns = one->copy_ns * steps;
    to->wait_ns = one->wait_ns * steps;
    to->step_spread_ns = to->no_core_ns = to->host_ns = to->pinned_ns = to->clock_error_ns = 0;
}

/* m: the run against the clock, of one of several equal machines. */
static int set_devices(struct run_record *r, const struct run_record *m,
                       const struct span_log *spans, const struct clock_result *result) {
    struct device_record *one = calloc((size_t)r->devices, sizeof *one);
    if (!one) return fail(ERR_MEMORY, "modelled times: out of host memory");
    for (size_t i = 0; i < spans->count; i++)
        if (spans->spans[i].step == result->step)
            measure_add_span(&one[spans->spans[i].device], &spans->spans[i]);
    for (int d = 0; d < m->devices; d++)
        one[d].exposed_ns = measure_exposed(spans, spans, d, result->step);
    for (int d = 0; d < r->devices; d++)
        if (r->timed) set_times(&r->device[d], &one[d % m->devices], r->steps, result->step_ns);
    free(one);
    return OK;
}

/* ---- the record ---- */

static void set_epochs(struct run_record *r, double step_seconds) {
    int done = 0, in_epoch = r->steps_per_epoch ? r->first_step % r->steps_per_epoch : 0;
    for (int e = 0; e < r->epoch_count; e++, in_epoch = 0) {
        int steps = r->steps_per_epoch - in_epoch;
        if (steps > r->steps - done) steps = r->steps - done;
        r->epoch_seconds[e] = steps * step_seconds;
        done += steps;
    }
    r->training_seconds = r->steps * step_seconds;
    r->first_step_seconds = r->data_seconds = NAN;
}

/* The record's spans are sorted by device. Steps that the run did not make are left out. */
static void keep_spans(struct run_record *r, const struct run_record *m,
                       const struct span_log *spans) {
    struct span_log kept;
    span_log_init(&kept, 1);
    for (int d = 0; d < r->devices; d++)
        for (size_t i = 0; i < spans->count; i++) {
            struct span s = spans->spans[i];
            if (s.device != d % m->devices || s.step < 0 || s.step >= r->steps) continue;
            s.device = d;
            s.step += r->first_step;
            span_add(&kept, &s);
        }
    span_log_free(&r->kept);
    r->spans_lost = (int64_t)kept.dropped;
    r->kept = kept;
}

int retime_put(struct run_record *r, const struct modelled *m, struct clock_config *clock,
               int keeps) {
    struct span_log spans;
    struct clock_result result;
    span_log_init(&spans, 1);
    int code = modelled_time(m, clock, &result, &spans);
    if (!code) code = set_devices(r, m->record, &spans, &result);
    if (!code) {
        set_epochs(r, (double)result.step_ns * 1e-9);
        clock_mark(clock, r->devices, r->modelled);
        if (keeps) keep_spans(r, m->record, &spans);
    }
    span_log_free(&spans);
    return code;
}

/* Names like those that ranks on several machines report. */
static int name_machines(struct run_record *r, const struct machine *m, int nodes) {
    free(r->machines); /* the list is empty */
    r->machines = calloc((size_t)r->devices, sizeof *r->machines);
    for (int d = 0; r->machines && d < r->devices; d++, r->machine_count++)
        if (asprintf(&r->machines[d], "%s %d", m->name, d / (r->devices / nodes)) < 0) break;
    return r->machine_count == r->devices ? OK : fail(ERR_MEMORY, "run record: out of host memory");
}

int retime_record(const struct run_config *config, struct run_record *record) {
    struct clock_config clock;
    struct hardware *hardware = NULL;
    struct modelled m = {.record = NULL};
    struct run_config outline;
    int can;
    int code = need_outline(config, &outline, &can);
    if (!code && !can) code = ERR_USAGE; /* estimate_prepare has given the reason */
    if (!code) code = clock_choose(&config->clock, &hardware, &clock);
    if (!code) {
        if (outline.mode == MODE_SINGLE) outline.virtual_devices = VIRTUAL_OFF;
        retime_one_node(&outline, &clock);
        code = modelled_open(&m, &outline);
        if (!code) code = retime_put(record, &m, &clock, record->kept.count > 0);
        if (!code && clock.nodes > 1) code = name_machines(record, clock.machine, (int)clock.nodes);
    }
    modelled_close(&m);
    hardware_free(hardware);
    return code;
}
