/* The stated error of a modelled time: see trust.h. */
#include "clock/trust.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- kinds ---- */

const char *trust_kind_name(enum clock_kind kind) {
    static const char *const names[CLOCK_KINDS] = {
        "other",         "dense convolutions", "grouped convolutions", "depthwise convolutions",
        "concatenation", "transformer"};
    return names[kind];
}

const char *trust_way_name(enum clock_way way) {
    static const char *const names[CLOCK_WAYS] = {"single", "DP", "DDP", "FSDP"};
    return names[way];
}

struct seen {
    int operations, convs, grouped, depthwise, cats, attention;
    double flops, conv_flops;
};

static void see(struct seen *s, const struct scheduled *e) {
    const struct work *w = &e->work;
    int conv = w->of == WORK_CONV || w->of == WORK_CONV_1X1 || w->of == WORK_CONV_GROUPED;
    s->operations += w->eager;
    s->convs += conv;
    s->grouped += w->of == WORK_CONV_GROUPED;
    s->depthwise += w->of == WORK_CONV_GROUPED && w->group_width == 1;
    s->cats += w->concatenates;
    s->attention += !strncmp(e->facts.name, "attention", strlen("attention")) ||
                    !strcmp(e->facts.name, "softmax forward"); /* the softmax of attention scores */
    s->flops += w->flops;
    if (conv) s->conv_flops += w->flops;
}

enum clock_kind trust_kind(const struct program *programs, int count, int samples) {
    static const double LEAST_FLOPS = 1e8;
    enum { PART = 20 };
    struct seen s = {.operations = 0};
    int step = -1;
    for (int p = 0; p < count; p++)
        for (int i = 0; i < programs[p].count; i++) {
            const struct scheduled *e = &programs[p].list[i];
            if (e->kind != SCHEDULED_KERNEL || e->facts.phase != PHASE_FORWARD) continue;
            if (e->facts.device || e->facts.rank > 0) continue;
            if (step < 0) step = e->facts.step;
            if (e->facts.step == step) see(&s, e);
        }
    if (s.attention) return CLOCK_TRANSFORMER;
    if (s.convs && s.depthwise * PART >= s.convs) return CLOCK_DEPTHWISE;
    if (s.convs && s.grouped * PART >= s.convs) return CLOCK_GROUPED;
    if (s.cats && s.cats * PART >= s.operations) return CLOCK_CONCATENATION;
    return 2 * s.conv_flops >= s.flops && s.conv_flops >= LEAST_FLOPS * samples ? CLOCK_DENSE
                                                                                : CLOCK_OTHER;
}

/* ---- errors ---- */

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double trust_quantile(double *errors, int rows) {
    if (!rows) return 0;
    qsort(errors, (size_t)rows, sizeof *errors, by_size);
    int at = (int)ceil(0.93 * (rows + 1)) - 1;
    return errors[at < rows ? at : rows - 1];
}

/* `duet estimate --validate` makes this table of the rows held out; tests/app/clock/test_trust.c
 * compares the two. */
static const struct {
    struct trust_cell cell; /* kind, way, mixed, informed, many */
    int rows;
    double percent;
} cells[] = {
    {{CLOCK_DENSE, CLOCK_SINGLE, 0, 1, TRUST_ANY}, 32, 9.7},
    {{CLOCK_DENSE, CLOCK_SINGLE, 0, 0, TRUST_ANY}, 27, 38.7},
    {{CLOCK_DENSE, CLOCK_DP, 0, 1, TRUST_ANY}, 119, 13.4},
    {{CLOCK_DENSE, CLOCK_DDP, 0, 1, 0}, 36, 7.4},
    {{CLOCK_DENSE, CLOCK_DDP, 0, 1, 1}, 41, 12.7},
    {{CLOCK_DENSE, CLOCK_DDP, 0, 0, 0}, 18, 10.9},
    {{CLOCK_DENSE, CLOCK_DDP, 0, 0, 1}, 9, 12.7},
    {{CLOCK_DENSE, CLOCK_SINGLE, 1, 1, TRUST_ANY}, 7, 9.6},
    {{CLOCK_DENSE, CLOCK_SINGLE, 1, 0, TRUST_ANY}, 3, 15.7},
    {{CLOCK_DENSE, CLOCK_DDP, 1, 1, 0}, 15, 6.6},
    {{CLOCK_DENSE, CLOCK_DDP, 1, 1, 1}, 12, 15.7},
    {{CLOCK_DENSE, CLOCK_DDP, 1, 0, TRUST_ANY}, 2, 17.5},
    {{CLOCK_GROUPED, CLOCK_SINGLE, 0, 1, TRUST_ANY}, 1, 9.4},
    {{CLOCK_GROUPED, CLOCK_SINGLE, 0, 0, TRUST_ANY}, 2, 10.4},
    {{CLOCK_GROUPED, CLOCK_DP, 0, 1, TRUST_ANY}, 6, 7.4},
    {{CLOCK_GROUPED, CLOCK_DDP, 0, 1, 0}, 8, 3.8},
    {{CLOCK_GROUPED, CLOCK_DDP, 0, 1, 1}, 10, 6.1},
    {{CLOCK_GROUPED, CLOCK_DDP, 0, 0, TRUST_ANY}, 2, 9.4},
    {{CLOCK_GROUPED, CLOCK_SINGLE, 1, 1, TRUST_ANY}, 1, 21.2},
    {{CLOCK_GROUPED, CLOCK_SINGLE, 1, 0, TRUST_ANY}, 2, 21.2},
    {{CLOCK_GROUPED, CLOCK_DDP, 1, 1, TRUST_ANY}, 2, 21.2},
    {{CLOCK_GROUPED, CLOCK_DDP, 1, 0, TRUST_ANY}, 2, 21.2},
    {{CLOCK_DEPTHWISE, CLOCK_SINGLE, 0, 0, TRUST_ANY}, 2, 22.3},
    {{CLOCK_DEPTHWISE, CLOCK_DDP, 0, 1, TRUST_ANY}, 3, 22.3},
    {{CLOCK_DEPTHWISE, CLOCK_DDP, 0, 0, TRUST_ANY}, 3, 22.3},
    {{CLOCK_DEPTHWISE, CLOCK_SINGLE, 1, 1, TRUST_ANY}, 2, 26.0},
    {{CLOCK_DEPTHWISE, CLOCK_SINGLE, 1, 0, TRUST_ANY}, 2, 26.0},
    {{CLOCK_DEPTHWISE, CLOCK_DDP, 1, 1, TRUST_ANY}, 3, 26.0},
    {{CLOCK_DEPTHWISE, CLOCK_DDP, 1, 0, TRUST_ANY}, 3, 26.0},
    {{CLOCK_CONCATENATION, CLOCK_SINGLE, 0, 1, TRUST_ANY}, 1, 18.1},
    {{CLOCK_CONCATENATION, CLOCK_SINGLE, 0, 0, TRUST_ANY}, 1, 18.1},
    {{CLOCK_CONCATENATION, CLOCK_DP, 0, 1, TRUST_ANY}, 6, 18.1},
    {{CLOCK_CONCATENATION, CLOCK_SINGLE, 1, 1, TRUST_ANY}, 1, 12.8},
    {{CLOCK_TRANSFORMER, CLOCK_SINGLE, 0, 0, TRUST_ANY}, 31, 37.3},
    {{CLOCK_TRANSFORMER, CLOCK_DP, 0, 1, TRUST_ANY}, 5, 3.3},
    {{CLOCK_TRANSFORMER, CLOCK_DP, 0, 0, TRUST_ANY}, 5, 34.2},
    {{CLOCK_TRANSFORMER, CLOCK_DDP, 0, 1, TRUST_ANY}, 19, 7.6},
    {{CLOCK_TRANSFORMER, CLOCK_DDP, 0, 0, TRUST_ANY}, 19, 40.7},
    {{CLOCK_TRANSFORMER, CLOCK_SINGLE, 1, 0, TRUST_ANY}, 23, 26.9},
    {{CLOCK_TRANSFORMER, CLOCK_DDP, 1, 1, TRUST_ANY}, 4, 25.1},
    {{CLOCK_TRANSFORMER, CLOCK_DDP, 1, 0, TRUST_ANY}, 4, 25.1},
    {{CLOCK_TRANSFORMER, CLOCK_FSDP, 1, 0, TRUST_ANY}, 4, 42.3},
};

int trust_is_calibrated(const struct clock_config *c) {
    return c->machine->fitted && !strcmp(c->machine->gpu, c->gpu->name);
}

static int is_informed(const struct clock_config *c) {
    int given = c->given > 0, words = c->kind == CLOCK_TRANSFORMER,
        calibrated = trust_is_calibrated(c);
    if (c->way == CLOCK_SINGLE) return calibrated && !words;
    if (c->way == CLOCK_DP) return calibrated && (given || !words);
    return given || (calibrated && !words);
}

struct trust_cell trust_cell_of(const struct clock_config *c) {
    return (struct trust_cell){.kind = c->kind,
                               .way = c->way,
                               .mixed = c->precision == CLOCK_AMP,
                               .informed = is_informed(c),
                               .many = c->devices * fmax(c->nodes, 1) > TRUST_FEW_GPUS};
}

int trust_same(const struct trust_cell *a, const struct trust_cell *b) {
    return a->kind == b->kind && a->way == b->way && a->mixed == b->mixed &&
           a->informed == b->informed &&
           (a->many == b->many || a->many == TRUST_ANY || b->many == TRUST_ANY);
}

double trust_error(const struct clock_config *c, int *rows) {
    struct trust_cell cell = trust_cell_of(c);
    *rows = 1;
    if (c->machine->error > 0) return c->machine->error;
    if (c->given > 0 && c->way == CLOCK_SINGLE) return 0;
    /* An error that holds with less information also holds with more. */
    for (; cell.informed >= 0; cell.informed--)
        for (int i = 0; i < (int)(sizeof cells / sizeof *cells); i++)
            if (trust_same(&cells[i].cell, &cell)) {
                *rows = cells[i].rows;
                return cells[i].percent;
            }
    *rows = 0;
    return TRUST_UNMEASURED;
}
