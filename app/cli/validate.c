/* duet estimate --validate prints published measurements, the clock's predictions and those of two
 * simple rules:
 *
 *     N0   perfect scaling: the measured time of one GPU
 *     N1   the measured time of one GPU, times the slow-down at as many GPUs of the fitted model
 *          of the same family and machine that is nearest in time (of another family if there is
 *          none); for mixed precision on one GPU: half of the clock's time for float32
 *
 * Rows for fitting and held-out rows are counted separately. The held-out rows also determine the
 * expected error of a time (clock/trust.h), with and without a measured time of one GPU. Each row
 * is checked against the error that rows of other models or machines give. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "clock/trust.h"
#include "cli/estimate/modelled.h"
#include "train/validation.h"

enum { SCORES = 5, MOST_ROWS = 600 };

/* Counts over a group of rows. */
static const struct {
    const char *name, *roles;
    int mixed; /* 1: only mixed precision */
} scored[SCORES] = {{"fitted", "f", 0},
                    {"held out", "th", 0},
                    {"the ten headline rows of these", "h", 0},
                    {"held out, only mixed precision", "th", 1},
                    {"held out until the model was fixed", "b", 0}};

/* A held-out row, its GPU, and its cell in the table of stated errors. */
struct held_out {
    const struct series *series;
    const char *gpu;
    struct trust_cell cell;
    double error; /* absolute error in percent */
};
struct held_outs {
    struct series *all; /* all published series */
    struct held_out row[MOST_ROWS];
    int count;
    struct { /* runs that may be needed again: of a first point, of another */
        const struct series_point *point;
        struct modelled m;
    } run[2];
};

struct score {
    int rows, within[3];         /* rows within the error of the clock, N0, N1 */
    double sum[3], clock_sum[3]; /* clock_sum, clock_within: the clock's, on the same rows */
    int with[3], clock_within[3];
};

static double percent(double modelled, double measured) {
    return 100 * (modelled - measured) / measured;
}

/* The point with that many GPUs; NULL: there is none. */
static const struct series_point *at_gpus(const struct series *s, int gpus) {
    for (int i = 0; i < SERIES_POINTS && s->point[i].ms > 0; i++)
        if (s->point[i].gpus == gpus) return &s->point[i];
    return NULL;
}

/* What N1 says; 0: no fitted model has a number at so many GPUs. */
static double nearest_says(const struct series *all, const struct series *s,
                           const struct series_point *p) {
    const struct series_point *own = at_gpus(s, 1), *one, *many;
    double best = INFINITY, says = 0;
    /* the slow-down depends on the batch size */
    if (!own || p->batch != s->point[0].batch) return 0;
    enum { FAMILY = 3 }; /* characters: "res", "vgg" */
    for (const struct series *other = all; *other->table; other++) {
        if (strcmp(other->table, s->table) || strcmp(other->machine, s->machine) ||
            other->way != s->way || other == s || other->precision != s->precision)
            continue;
        one = at_gpus(other, 1), many = at_gpus(other, p->gpus);
        if (!one || !many || one->role == 't' || many->role != 'f') continue;
        double far = fabs(log(one->ms / own->ms));
        if (strncmp(other->model, s->model, FAMILY)) far += 10;
        if (far >= best) continue;
        best = far;
        says = own->ms * many->ms / one->ms;
    }
    return says;
}

static void count(struct score *score, const double *error, const int *has) {
    score->rows++;
    for (int i = 0; i < 3; i++) {
        if (!has[i]) continue;
        score->with[i]++;
        score->within[i] += fabs(error[i]) <= 10;
        score->sum[i] += fabs(error[i]);
        score->clock_within[i] += fabs(error[0]) <= 10;
        score->clock_sum[i] += fabs(error[0]);
    }
}

/* Runs the workload of a point, unless it was the last one of its kind, and sets the clock. */
static int run_point(struct held_outs *all, const struct series *s, const struct series_point *p,
                     struct clock_config *clock, const struct modelled **m) {
    int i = p != &s->point[0];
    *m = &all->run[i].m;
    validation_clock(s, p, clock);
    if (all->run[i].point == p) return OK;
    modelled_close(&all->run[i].m);
    all->run[i].point = NULL;
    CHECK(validation_open(&all->run[i].m, s, p, clock));
    all->run[i].point = p;
    return OK;
}

/* *half: N1's prediction for mixed precision; 0: the row has another precision. */
static int model_point(struct held_outs *all, const struct series *s, const struct series_point *p,
                       struct clock_config *clock, struct clock_result *result, double *half) {
    const struct modelled *m;
    *half = 0;
    CHECK(run_point(all, s, p, clock, &m));
    if (clock->precision == CLOCK_AMP && p->gpus == 1) {
        clock->precision = CLOCK_AS_PYTORCH;
        CHECK(modelled_time(m, clock, result, NULL));
        *half = 0.5e-6 * (double)result->step_ns;
        clock->precision = CLOCK_AMP;
    }
    return modelled_time(m, clock, result, NULL);
}

/* The factor on kernels that gives the series' time on one GPU. */
static int fit_given(struct held_outs *all, const struct series *s, struct clock_config *clock) {
    const struct modelled *m;
    CHECK(run_point(all, s, &s->point[0], clock, &m));
    return modelled_give(m, clock, s->point[0].ms);
}

static void hold_out(struct held_outs *all, const struct series *s, const struct clock_config *c,
                     const struct clock_result *result, const struct series_point *p) {
    double error = percent((double)result->step_ns * 1e-6, p->ms);
    if (all->count == MOST_ROWS) return;
    all->row[all->count++] = (struct held_out){s, c->gpu->name, trust_cell_of(c), fabs(error)};
}

/* 1: an earlier series of the table has the same time of one GPU. */
static int is_repeated(const struct series *all, const struct series *s) {
    for (const struct series *before = all; before != s; before++)
        if (!strcmp(before->table, s->table) && !strcmp(before->model, s->model) &&
            before->point[0].ms == s->point[0].ms)
            return 1;
    return 0;
}

/* Counts a row a second time. If its series gives the time of one GPU, the clock now ignores it,
 * except for convolutions under autocast, which may not have been in channels_last. Otherwise rows
 * of several GPUs are modelled from the time of one, as with --measured. */
static int hold_out_again(const struct series *s, const struct series_point *p,
                          struct clock_config clock, struct clock_result *result,
                          struct held_outs *all) {
    double half;
    if (s->point[0].role == 'g') {
        if (p->role == 'f' || (p->role == 'g' && is_repeated(all->all, s))) return OK;
        if (clock.precision == CLOCK_AMP && clock.kind != CLOCK_TRANSFORMER) return OK;
        clock.given = 0;
    } else {
        if (p->role == 'f' || s->point[0].gpus > 1 || p->gpus == 1) return OK;
        int code = fit_given(all, s, &clock);
        if (code) return code == ERR_USAGE ? OK : code; /* the host alone takes longer */
    }
    CHECK(model_point(all, s, p, &clock, result, &half));
    hold_out(all, s, &clock, result, p);
    return OK;
}

static int show_point(const struct hardware *h, const struct series *s,
                      const struct series_point *p, int commands, struct score *scores,
                      struct held_outs *all) {
    struct clock_config clock = {.given = 0};
    struct clock_result result = {.step = 0};
    struct text text = {""};
    double half;
    CHECK(hardware_find_machine(h, "--validate", s->machine, &clock.machine));
    CHECK(hardware_find_gpu(h, "--validate", clock.machine->gpu, &clock.gpu));
    if (s->point[0].role == 'g') CHECK(fit_given(all, s, &clock));
    CHECK(model_point(all, s, p, &clock, &result, &half));
    double ms = (double)result.step_ns * 1e-6,
           near = half > 0 ? half : nearest_says(all->all, s, p);
    const struct series_point *alone = at_gpus(s, 1);
    /* the batch per GPU may shrink */
    double one = alone ? alone->ms * p->batch / s->point[0].batch : 0;
    if (strchr("thb", p->role)) hold_out(all, s, &clock, &result, p);
    CHECK(hold_out_again(s, p, clock, &result, all));
    double error[3] = {percent(ms, p->ms), percent(one, p->ms), percent(near, p->ms)};
    int has[3] = {1, alone && p->gpus > 1, near > 0 && (p->gpus > 1 || half > 0)};
    char null[2][16] = {"-", "-"};
    for (int i = 0; i < 2; i++)
        if (has[i + 1]) snprintf(null[i], sizeof null[i], "%+.1f", error[i + 1]);
    printf("%-3s %-16s %-15s %3d  %c %9.2f %9.2f %+6.1f %6s %6s%s\n", s->table, s->machine,
           s->model, p->gpus, p->role, p->ms, ms, error[0], null[0], null[1],
           fabs(error[0]) > 10 ? "  miss" : "");
    validation_command(s, p, clock.machine, &text);
    if (commands) printf("    %s\n", text.words);
    fflush(stdout); /* each row takes seconds */
    for (int i = 0; i < SCORES; i++)
        if (strchr(scored[i].roles, p->role) && (!scored[i].mixed || s->precision == CLOCK_AMP))
            count(&scores[i], error, has);
    return OK;
}

static void show_score(const char *what, const struct score *s) {
    printf("%s: %d row%s, clock: %d within 10 %%, mean error %.1f %%\n", what, s->rows,
           s->rows == 1 ? "" : "s", s->within[0], s->rows ? s->sum[0] / s->rows : 0);
    for (int i = 1; i < 3; i++)
        if (s->with[i])
            printf("  N%d applies to %d of them: %d within 10 %%, mean error %.1f %%; the clock on "
                   "these: %d, %.1f %%; skill %.2f\n",
                   i - 1, s->with[i], s->within[i], s->sum[i] / s->with[i], s->clock_within[i],
                   s->clock_sum[i] / s->with[i], 1 - s->clock_sum[i] / s->sum[i]);
}

/* What is left out when a row is checked: its twins, which are all rows of its model on that kind
 * of GPU, with any number of GPUs and from any source; or all rows of its machine. */
enum leave { LEAVE_TWINS, LEAVE_MACHINE, LEAVES };

static int is_left_out(const struct held_out *row, const struct held_out *tried, enum leave leave) {
    if (!tried) return 0;
    const struct series *a = row->series, *b = tried->series;
    return leave == LEAVE_MACHINE ? !strcmp(a->machine, b->machine)
                                  : !strcmp(a->model, b->model) && !strcmp(row->gpu, tried->gpu);
}

/* The error that the rows of a cell yield. Many GPUs count separately from few if both have some
 * rows. If there are only a few rows, those of other modes count, too, except sharded data
 * parallel, whose transfers differ. More knowledge never yields a larger error. */
static double stated(const struct held_outs *all, const struct trust_cell *cell,
                     const struct held_out *tried, enum leave leave, int *rows) {
    enum { FEW = 5, SOME = 8 };
    double own[MOST_ROWS], same[MOST_ROWS], kind[MOST_ROWS], percent, largest;
    struct trust_cell less = *cell, any = *cell;
    int of_own = 0, of_same = 0, of_kind = 0, of_less = 0;
    less.informed = 0, any.many = TRUST_ANY;
    for (int i = 0; i < all->count; i++) {
        const struct held_out *row = &all->row[i];
        const struct trust_cell *c = &row->cell;
        if (c->kind != cell->kind || c->mixed != cell->mixed || is_left_out(row, tried, leave))
            continue;
        if ((c->way == CLOCK_FSDP) != (cell->way == CLOCK_FSDP)) continue;
        kind[of_kind++] = row->error;
        if (trust_same(c, &any)) same[of_same++] = row->error;
        if (c->many == cell->many && trust_same(c, cell)) own[of_own++] = row->error;
    }
    double below = cell->informed ? stated(all, &less, tried, leave, &of_less) : TRUST_UNMEASURED;
    *rows = of_same;
    if (!of_same) return below;
    largest = same[0];
    for (int i = 1; i < of_same; i++)
        largest = fmax(largest, same[i]);
    if (of_own >= SOME && of_same - of_own >= SOME)
        percent = trust_quantile(own, *rows = of_own);
    else
        percent = of_same < FEW ? fmax(largest, trust_quantile(kind, of_kind))
                                : trust_quantile(same, of_same);
    return of_less ? fmin(percent, below) : percent;
}

static void show_cell(const struct held_outs *all, struct trust_cell cell) {
    static const char *const gpus[] = {"2-", "2-4", "5-"};
    double percent[2];
    int rows[2];
    for (cell.many = 0; cell.many < 2; cell.many++)
        percent[cell.many] = stated(all, &cell, NULL, LEAVE_TWINS, &rows[cell.many]);
    int one = percent[0] == percent[1] && rows[0] == rows[1];
    for (int i = 0; i < 2 - one && rows[i]; i++)
        printf("  %-22s  %-4s  %-6s  %-4s  %-3s  %4d  %5.1f %%\n", trust_kind_name(cell.kind),
               cell.mixed ? "amp" : "-", trust_way_name(cell.way),
               cell.way == CLOCK_SINGLE ? "1" : gpus[one ? 0 : i + 1], cell.informed ? "yes" : "no",
               rows[i], percent[i]);
}

/* Prints the table of clock/trust.c, and how good it is when each row is judged by the others. */
static void show_trust(const struct held_outs *all) {
    static const char *const left[LEAVES] = {"rows of its model on that GPU",
                                             "rows of its machine"};
    double widths[MOST_ROWS];
    printf("\nerror to expect, by rows held out: nine of ten are below it. known: the machine is\n"
           "calibrated, or the time of one GPU is given\n"
           "  %-22s  %-4s  %-6s  %-4s  %-3s  %4s\n",
           "model", "amp", "mode", "GPUs", "known", "rows");
    for (int i = 0; i < CLOCK_KINDS * 2 * CLOCK_WAYS * 2; i++)
        show_cell(all, (struct trust_cell){.kind = (enum clock_kind)(i / 4 / CLOCK_WAYS),
                                           .mixed = i / 2 / CLOCK_WAYS % 2,
                                           .way = (enum clock_way)(i / 2 % CLOCK_WAYS),
                                           .informed = !(i % 2)});
    printf("of %d held-out times, so many are within the error stated without", all->count);
    for (enum leave leave = 0; leave < LEAVES; leave++) {
        int within = 0, rows;
        for (int i = all->count - 1; i >= 0; i--) {
            widths[i] = stated(all, &all->row[i].cell, &all->row[i], leave, &rows);
            within += all->row[i].error <= widths[i];
        }
        trust_quantile(widths, all->count); /* sorts `widths` */
        printf("%s\n  %-30s%d (%.1f %%), median error +-%.0f %%", leave ? ";" : "", left[leave],
               within, 100.0 * within / (all->count ? all->count : 1),
               all->count ? widths[all->count / 2] : 0);
    }
    printf("\n");
}

static int show_all(const struct hardware *h, int commands) {
    struct score scores[SCORES] = {{.rows = 0}};
    struct held_outs *all = calloc(1, sizeof *all);
    int code = all ? series_read(&all->all) : fail(ERR_MEMORY, "validate: out of host memory");
    printf("modelled times and published ones: ms a step; f fit, t held out, h the ten\n"
           "headlines of these, g given, b held out until the model was fixed; errors in %%\n"
           "%-3s %-16s %-15s %3s %2s %9s %9s %6s %6s %6s\n",
           "", "machine", "model", "GPU", "", "measured", "modelled", "error", "N0", "N1");
    for (const struct series *s = code ? NULL : all->all; !code && *s->table; s++)
        for (int k = 0; !code && k < SERIES_POINTS && s->point[k].ms > 0; k++)
            code = show_point(h, s, &s->point[k], commands, scores, all);
    printf("\n");
    for (int i = 0; i < SCORES; i++)
        show_score(scored[i].name, &scores[i]);
    if (!code) show_trust(all);
    for (int i = 0; all && i < 2; i++)
        modelled_close(&all->run[i].m);
    if (all) free(all->all);
    free(all);
    return code;
}

int modelled_validate(int commands) {
    struct hardware *h;
    CHECK(hardware_open(&h, NULL));
    int code = show_all(h, commands);
    hardware_free(h);
    return code;
}
