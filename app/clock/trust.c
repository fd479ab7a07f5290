/* The stated error of a modelled time: see trust.h. */
#include "clock/trust.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- kinds ---- */

const char *trust_kind_name(enum clock_kind kind) {
    static const char *const names[CLOCK_KINDS] = {
        "other",         "dense convolutions", "grouped convolutions",
        "concatenation", "transformer",        "mixed precision"};
    return names[kind];
}

const char *trust_way_name(enum clock_way way) {
    static const char *const names[CLOCK_WAYS] = {"single", "DP", "DDP", "FSDP"};
    return names[way];
}

struct seen {
    int operations, convs, grouped, cats, attention;
    double flops, conv_flops;
};

static void see(struct seen *s, const struct scheduled *e) {
    const struct work *w = &e->work;
    int conv = w->of == WORK_CONV || w->of == WORK_CONV_1X1 || w->of == WORK_CONV_GROUPED;
    s->operations += w->eager;
    s->convs += conv;
    s->grouped += w->of == WORK_CONV_GROUPED;
    s->cats += w->concatenates;
    s->attention += !strncmp(e->facts.name, "attention", strlen("attention")) ||
                    !strcmp(e->facts.name, "softmax forward"); /* of scores */
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
    int at = (int)ceil(0.9 * (rows + 1)) - 1;
    return errors[at < rows ? at : rows - 1];
}

/* `duet estimate --validate` makes this table of the rows held out; tests/app/clock/test_trust.c
 * compares the two. given: the time of one GPU was. */
static const struct cell {
    enum clock_kind kind;
    enum clock_way way;
    int calibrated, given, rows;
    double percent;
} cells[] = {
    {CLOCK_DENSE, CLOCK_SINGLE, 1, 0, 27, 8.6},
    {CLOCK_DENSE, CLOCK_SINGLE, 0, 0, 27, 32.4},
    {CLOCK_DENSE, CLOCK_DP, 1, 0, 53, 10.1},
    {CLOCK_DENSE, CLOCK_DP, 1, 1, 57, 12.6},
    {CLOCK_DENSE, CLOCK_DDP, 1, 0, 21, 8.7},
    {CLOCK_DENSE, CLOCK_DDP, 0, 0, 27, 11.8},
    {CLOCK_DENSE, CLOCK_DDP, 1, 1, 25, 13.2},
    {CLOCK_DENSE, CLOCK_DDP, 0, 1, 27, 5.2},
    {CLOCK_GROUPED, CLOCK_SINGLE, 1, 0, 1, 74.4},
    {CLOCK_GROUPED, CLOCK_SINGLE, 0, 0, 2, 74.4},
    {CLOCK_GROUPED, CLOCK_DP, 1, 0, 3, 74.4},
    {CLOCK_GROUPED, CLOCK_DP, 1, 1, 3, 8.3},
    {CLOCK_GROUPED, CLOCK_DDP, 1, 0, 8, 5.8},
    {CLOCK_GROUPED, CLOCK_DDP, 0, 0, 2, 74.4},
    {CLOCK_GROUPED, CLOCK_DDP, 1, 1, 8, 6.1},
    {CLOCK_GROUPED, CLOCK_DDP, 0, 1, 2, 8.3},
    {CLOCK_CONCATENATION, CLOCK_SINGLE, 1, 0, 1, 18.1},
    {CLOCK_CONCATENATION, CLOCK_SINGLE, 0, 0, 1, 18.1},
    {CLOCK_CONCATENATION, CLOCK_DP, 1, 0, 6, 18.1},
    {CLOCK_TRANSFORMER, CLOCK_SINGLE, 0, 0, 21, 14.3},
    {CLOCK_TRANSFORMER, CLOCK_DP, 1, 1, 5, 3.3},
    {CLOCK_TRANSFORMER, CLOCK_DDP, 1, 1, 19, 4.3},
    {CLOCK_MIXED, CLOCK_SINGLE, 1, 0, 9, 12.8},
    {CLOCK_MIXED, CLOCK_SINGLE, 0, 0, 26, 23.6},
    {CLOCK_MIXED, CLOCK_DDP, 0, 0, 4, 20.7},
    {CLOCK_MIXED, CLOCK_DDP, 1, 1, 8, 10.9},
    {CLOCK_MIXED, CLOCK_DDP, 0, 1, 25, 13.1},
    {CLOCK_MIXED, CLOCK_FSDP, 0, 0, 4, 42.3},
};

int trust_is_calibrated(const struct clock_config *c) {
    return c->machine->fitted && !strcmp(c->machine->gpu, c->gpu->name);
}

double trust_error(const struct clock_config *c, int *rows) {
    int calibrated = trust_is_calibrated(c), single = c->way == CLOCK_SINGLE;
    *rows = 1;
    if (c->machine->error > 0) return c->machine->error;
    if (c->given > 0 && single && c->given_error >= 0) return c->given_error;
    for (int i = 0; i < (int)(sizeof cells / sizeof *cells); i++)
        if (cells[i].kind == c->kind && cells[i].way == c->way &&
            cells[i].calibrated == calibrated && cells[i].given == (c->given > 0 && !single)) {
            *rows = cells[i].rows;
            return cells[i].percent;
        }
    *rows = 0;
    return TRUST_UNMEASURED;
}
