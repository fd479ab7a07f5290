/* See scale_nodes.h. One node runs its schedule against the event loop, since all nodes are alike;
 * its sums take as long as those of all nodes (clock/cost.c), and the last node comes late:
 *
 *     T(nodes) = T of the event loop + spread * sqrt(2 ln nodes) * T
 *
 * which is how far the slowest of so many draws from a normal distribution lies from their mean. */
#include "cli/estimate/scale_nodes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/text/parse.h"
#include "cli/results/results.h"
#include "clock/choice.h"
#include "report/text.h"
#include "train/estimate/modelled.h"
#include "train/estimate/need.h"

/* Some 40 equal nodes of 8 H100 agree to 0.3 % on ResNet-50 (deeplearning-benchmark at aa5addb). */
static const double SPREAD = 0.003;
enum { MOST_GPUS = 1 << 20 };

int nodes_asked(const struct run_config *run, const char *devices, struct node_counts *counts,
                int *asked) {
    struct clock_choice choice;
    *asked = 0;
    if (!*run->clock.gpu || !devices) return OK;
    CHECK(parse_int_list("--devices", devices, 1, MOST_GPUS, counts->gpus, NODES_MOST,
                         &counts->count));
    int code = clock_choose(&choice, &run->clock);
    for (int i = 0; !code && i < counts->count; i++)
        *asked |= counts->gpus[i] > choice.machine[0]->gpus;
    clock_choice_free(&choice);
    return code;
}

/* ---- one row ---- */

struct node_row {
    int64_t gpus;
    double nodes, ms, sums_ms, late_ms;
    struct {
        char name[28];
        double late_ms;
    } worst;           /* the call that is hidden least */
    const char *how;   /* algorithm and protocol of the largest sum; "": there is none */
    double efficiency; /* of the samples a second of as many single GPUs */
    uint64_t largest;  /* bytes */
};

static void add_late(struct node_row *row, const char *name, double ms) {
    row->late_ms += ms;
    if (ms <= row->worst.late_ms) return;
    row->worst.late_ms = ms;
    snprintf(row->worst.name, sizeof row->worst.name, "%s", name);
}

/* Buckets whose sums last longer than backward, and what no kernel runs beside: the buffers of rank
 * 0, which NCCL sends around a ring. */
static void find_late(const struct span_log *spans, int32_t step, struct node_row *row) {
    int64_t backward = 0;
    for (size_t i = 0; i < spans->count; i++) {
        const struct span *s = &spans->spans[i];
        int counts = s->step == step && !s->device && !s->waiting && s->lane == LANE_COMPUTE;
        if (counts && s->phase == PHASE_BACKWARD && s->end_ns > backward) backward = s->end_ns;
    }
    for (size_t i = 0; i < spans->count; i++) {
        const struct span *s = &spans->spans[i];
        if (s->step != step || s->device || s->waiting) continue;
        if (s->lane == LANE_COMPUTE && s->phase == PHASE_REPLICATE)
            add_late(row, "buffers", (double)(s->end_ns - s->start_ns) * 1e-6);
        if (s->lane != LANE_COMM) continue;
        int64_t from = s->start_ns > backward ? s->start_ns : backward;
        row->sums_ms += (double)(s->end_ns - s->start_ns) * 1e-6;
        if (s->bytes > row->largest) row->largest = s->bytes;
        if (s->end_ns > from) add_late(row, s->name, (double)(s->end_ns - from) * 1e-6);
    }
}

static int run_row(const struct modelled *m, struct clock_config *clock, struct node_row *row) {
    struct span_log spans;
    struct clock_result *result = calloc(1, sizeof *result);
    if (!result) return fail(ERR_MEMORY, "scale: no host memory");
    span_log_init(&spans, 1);
    clock->nodes = row->nodes;
    int code = modelled_time(m, clock, result, &spans);
    if (!code) {
        double late = row->nodes > 1 ? SPREAD * sqrt(2 * log(row->nodes)) : 0;
        row->ms = (double)result->step_ns * 1e-6 * (1 + late);
        find_late(&spans, result->step, row);
        row->how = row->gpus > 1 ? cost_sum(clock, clock->devices, row->largest, 1).how : "";
    }
    span_log_free(&spans);
    free(result);
    return code;
}

static int open_run(struct modelled *m, const struct run_config *run, int batch, int devices) {
    struct run_config c = *run, outline;
    int can;
    c.mode = devices > 1 ? MODE_DDP : MODE_SINGLE;
    c.devices = devices;
    c.batch_size = batch * devices;
    c.virtual_devices = VIRTUAL_DEFAULT;
    c.dry = 1;
    *c.clock.gpu = 0;
    CHECK(need_outline(&c, &outline, &can));
    if (!can) return fail(ERR_USAGE, "%s", error_message());
    CHECK(run_config_check(&outline));
    return modelled_open(m, &outline);
}

/* ---- the table ---- */

static int check_count(const struct machine *m, int64_t gpus) {
    if (gpus <= m->gpus) return OK;
    if (!*m->network.name)
        return fail(ERR_USAGE,
                    "--devices: %lld: machine %s has %d GPUs and no network: give at most that, or "
                    "a machine with one, as dgx1",
                    (long long)gpus, m->name, m->gpus);
    if (gpus % m->gpus)
        return fail(ERR_USAGE, "--devices: %lld: nodes of machine %s have %d GPUs: give a multiple",
                    (long long)gpus, m->name, m->gpus);
    return OK;
}

/* samples: of one GPU in a step */
static void print_row(const struct node_row *r, int samples) {
    char hidden[64] = "-";
    if (r->late_ms > 0)
        snprintf(hidden, sizeof hidden, "%.2f: %s %.2f", r->late_ms, r->worst.name,
                 r->worst.late_ms);
    printf("%7lld %6.0f %9.2f %11.0f %5.1f %% %8.2f  %-13s %s\n", (long long)r->gpus, r->nodes,
           r->ms, (double)samples * (double)r->gpus / r->ms * 1e3, 100 * r->efficiency, r->sums_ms,
           *r->how ? r->how : "-", hidden);
    fflush(stdout);
}

static void print_head(const struct run_config *run, int batch, const struct clock_config *clock) {
    struct text text = {.used = 0};
    char changes[CLOCK_MARK] = "";
    int calibrated;
    double error = clock_error(clock, &calibrated);
    clock_add_what_if(&clock->what_if, changes, sizeof changes);
    text_add(&text,
             "modelled: %s, %s%s%s: %s as DDP, %d samples a GPU, host pytorch%s: times of the "
             "modelled clock (docs/clock.md), +-%.0f %% within a node%s",
             clock->gpu->name, clock->machine->name,
             *clock->machine->network.name ? ", nodes joined by " : "",
             clock->machine->network.name, run->model.name, batch, changes, error,
             calibrated ? ", +-25 % beyond 64 GPUs" : "; not calibrated for this GPU here");
    text_wrap(stdout, text_width(stdout), 0, 2, text.words);
    printf("%7s %6s %9s %11s %7s %8s  %-13s %s\n", "GPUs", "nodes", "ms a step", "samples/s",
           "effic.", "sums, ms", "algorithm", "not hidden, ms");
}

static int write_rows(struct atomic_file *file, const struct clock_config *clock,
                      const struct node_row *rows, int count, int batch) {
    struct json_writer w;
    char mark[CLOCK_MARK];
    if (!file->file) return OK;
    clock_mark(clock, clock->machine->gpus, mark);
    CHECK(results_start(&w, file->file, "scale"));
    json_string(&w, "modelled", mark);
    json_integer(&w, "batch_per_device", batch);
    json_array(&w, "nodes");
    for (int i = 0; i < count; i++) {
        json_object(&w, NULL);
        json_integer(&w, "gpus", rows[i].gpus);
        json_number(&w, "nodes", rows[i].nodes);
        json_number(&w, "ms_a_step", rows[i].ms);
        json_number(&w, "efficiency", rows[i].efficiency);
        json_number(&w, "sums_ms", rows[i].sums_ms);
        json_number(&w, "not_hidden_ms", rows[i].late_ms);
        json_string(&w, "least_hidden", rows[i].worst.name);
        json_string(&w, "algorithm", rows[i].how);
        json_close(&w);
    }
    json_close(&w);
    return results_end(&w, file);
}

static int show_rows(const struct run_config *run, int batch, const struct node_counts *counts,
                     struct clock_config *clock, struct node_row *rows) {
    struct modelled m = {.record = NULL};
    struct node_row one = {.gpus = 1, .nodes = 1};
    int open = 1, code = open_run(&m, run, batch, 1);
    if (!code) code = run_row(&m, clock, &one);
    if (!code) print_head(run, batch, clock);
    for (int i = 0; !code && i < counts->count; i++) {
        int64_t n = counts->gpus[i], node = clock->machine->gpus, here = n < node ? n : node;
        rows[i] = (struct node_row){.gpus = n, .nodes = (double)((n + node - 1) / node)};
        if (here != open) {
            modelled_close(&m);
            code = open_run(&m, run, batch, open = (int)here);
        }
        if (!code) code = run_row(&m, clock, &rows[i]);
        rows[i].efficiency = code ? 0 : one.ms / rows[i].ms;
        if (!code) print_row(&rows[i], batch * run->update.passes);
    }
    modelled_close(&m);
    return code;
}

int nodes_show(const struct run_config *run, int batch, const struct node_counts *counts) {
    struct clock_choice choice;
    struct node_row rows[NODES_MOST];
    struct atomic_file json = {0};
    int code = clock_choose(&choice, &run->clock);
    struct clock_config clock = {.given = 0};
    if (!code && (choice.gpus > 1 || choice.machines > 1))
        code = fail(ERR_USAGE, "--gpu, --machine: a table has one GPU in one machine: give one");
    if (!code && choice.host == CLOCK_DUET)
        code = fail(ERR_USAGE, "--host: duet: its allreduce is for one machine, and nodes are "
                               "joined by NCCL's: leave it out");
    if (!code && run->mode != MODE_DDP)
        code = fail(ERR_USAGE, "--mode: %s: one process cannot drive several nodes: give ddp",
                    mode_name(run->mode));
    for (int i = 0; !code && i < counts->count; i++)
        code = check_count(choice.machine[0], counts->gpus[i]);
    if (!code && *run->files.json) code = atomic_open(&json, run->files.json);
    if (!code) {
        clock = clock_chosen(&choice, 0, 0);
        code = show_rows(run, batch, counts, &clock, rows);
    }
    if (!code) code = write_rows(&json, &clock, rows, counts->count, batch);
    atomic_abandon(&json);
    clock_choice_free(&choice);
    return code;
}
