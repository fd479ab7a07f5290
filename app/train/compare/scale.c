/* Runs a training on several numbers of devices: see scale.h. */
#include "train/compare/scale.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fold.h"

/* ---- the plan ---- */

/* The number of virtual devices with which all counts of the list give the same bits: the largest
 * count, if the others fit it. Otherwise each run has as many as it has devices. */
static int common_virtual_devices(const struct scale_config *c) {
    int largest = 1;
    for (int i = 0; i < c->device_counts; i++)
        if (c->devices[i] > largest) largest = c->devices[i];
    for (int i = 0; i < c->device_counts; i++)
        if (largest % c->devices[i] || !fold_fits(largest, c->devices[i])) return VIRTUAL_DEFAULT;
    return largest;
}

static int plan_row(struct scale_row *row, const struct scale_config *c, int devices, double lr) {
    struct run_config one = c->run;
    const int each = c->run.batch_per_device;
    one.devices = devices;
    if (each) one.batch_size = each * devices;
    one.update.lr = lr;
    if (!each && one.virtual_devices == VIRTUAL_DEFAULT)
        one.virtual_devices = common_virtual_devices(c);
    one.hashes = one.quiet = 1;
    snprintf(row->name, sizeof row->name, "%d_devices_lr_%g", devices, lr);
    snprintf(row->title, sizeof row->title, "%d device%s, lr %g", devices, devices > 1 ? "s" : "",
             lr);
    CHECK(run_config_of_several(&one, &c->run, row->name));
    row->config = one;
    return OK;
}

/* The first row that does the same work as row i. */
static int first_like(const struct scale *s, int i) {
    const struct run_config *a = &s->rows[i].config;
    for (int k = 0; k < i; k++) {
        const struct run_config *b = &s->rows[k].config;
        if (a->batch_size == b->batch_size && a->update.lr == b->update.lr) return k;
    }
    return i;
}

int scale_plan(struct scale *s, const struct scale_config *c) {
    s->config = *c;
    s->rows = calloc((size_t)(c->device_counts * c->rates), sizeof *s->rows);
    if (!s->rows) return fail(ERR_MEMORY, "scale: out of host memory");
    for (int i = 0; i < c->device_counts; i++)
        for (int j = 0; j < c->rates; j++) {
            struct scale_row *row = &s->rows[s->count];
            CHECK(plan_row(row, c, c->devices[i], c->lr[j]));
            row->first = first_like(s, s->count++);
            row->bits = SCALE_BITS_ALONE;
            if (row != &s->rows[row->first]) s->rows[row->first].bits = SCALE_BITS_FIRST;
            CHECK(run_config_check(&row->config));
        }
    return OK;
}

/* ---- the runs ---- */

static void judge(struct scale *s, int i) {
    struct scale_row *row = &s->rows[i];
    const struct scale_row *first = &s->rows[row->first];
    int decided = verdict_judge(&first->run, &row->run, &row->verdict);
    if (decided && row->verdict.kind == VERDICT_DIFFERENT)
        row->bits = SCALE_BITS_DIFFERENT;
    else if (row->first != i)
        row->bits =
            decided && row->verdict.not_finite_at < 0 ? SCALE_BITS_EQUAL : SCALE_BITS_NOT_PROMISED;
    /* row i % rates is the run with the first device count and the same learning rate */
    double before = record_samples_per_second(&s->rows[i % s->config.rates].run);
    row->speed_up = before > 0 ? record_samples_per_second(&row->run) / before : 0;
}

static int conclude(const struct scale *s, struct job_result *result) {
    char words[VERDICT_WORDS];
    for (int i = 0; i < s->count; i++) {
        const struct scale_row *row = &s->rows[i];
        const struct verdict *v = &row->verdict;
        if (row->bits != SCALE_BITS_DIFFERENT) continue;
        result->exit_status = error_exit_status(ERR_CHECK);
        return fail(ERR_CHECK,
                    "scale: %d devices and %d did not train the same model: %s: look closer with "
                    "duet compare",
                    row->config.devices, s->rows[row->first].config.devices,
                    verdict_difference(v, &row->run, words));
    }
    return OK;
}

int scale_run(struct scale *s, void (*done)(void *context, const struct scale *s, int row),
              void *context, struct job_result *result) {
    memset(result, 0, sizeof *result);
    for (int i = 0; i < s->count; i++) {
        struct scale_row *row = &s->rows[i];
        /* All rows use the kind of device that `auto` found; another gives other bits. */
        if (i)
            snprintf(row->config.device, sizeof row->config.device, "%s", s->rows[0].run.kind);
        else
            CHECK(job_try_first(&row->config, result));
        CHECK(job_run_titled(row->title, &row->config, &row->run, result));
        judge(s, i);
        done(context, s, i);
    }
    return conclude(s, result);
}

void scale_free(struct scale *s) {
    for (int i = 0; s->rows && i < s->count; i++)
        record_free(&s->rows[i].run);
    free(s->rows);
    memset(s, 0, sizeof *s);
}
