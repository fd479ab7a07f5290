/* What changed between two runs: see diff.h. */
#include "report/diff.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/step_times.h"

/* The run of B with the name of A's run i; of several of that name, the one at the same place among
 * them. NULL: there is none. */
static const struct results_run *namesake(const struct results *a, int i, const struct results *b) {
    const char *name = a->run[i].name;
    int before = 0;
    for (int k = 0; k < i; k++)
        before += !strcmp(a->run[k].name, name);
    for (int k = 0; k < b->count; k++)
        if (!strcmp(b->run[k].name, name) && !before--) return &b->run[k];
    return NULL;
}

int diff_pairs(const struct results *a, const struct results *b,
               struct diff_pair pairs[DIFF_PAIRS]) {
    int count = 0;
    if (a->count == 1 && b->count == 1) {
        *pairs = (struct diff_pair){&a->run[0], &b->run[0]};
        return 1;
    }
    for (int i = 0; i < a->count && count < DIFF_PAIRS; i++) {
        const struct results_run *other = namesake(a, i, b);
        if (other) pairs[count++] = (struct diff_pair){&a->run[i], other};
    }
    return count;
}

/* ---- what was asked ---- */

/* What a run has brought, or its place in the file. All other fields say how it was set up. */
static int is_result(const char *key) {
    static const char *const keys[] = {"name",
                                       "title",
                                       "does_not_fit",
                                       "data_seconds",
                                       "allreduce_choice",
                                       "spans_lost",
                                       "images",
                                       "training_seconds",
                                       "first_step_seconds",
                                       "losses",
                                       "seconds_per_epoch",
                                       "seconds_per_epoch_extrapolated",
                                       "accuracy",
                                       "valid_loss",
                                       "final_valid_loss",
                                       "images_per_second",
                                       "losses_not_finite",
                                       "epoch_seconds",
                                       "epoch_lr",
                                       "losses_not_finite_since_step",
                                       "per_device",
                                       "gathered_losses",
                                       "verdict",
                                       "bits",
                                       "device_0_excess",
                                       "speed_up",
                                       "published_seconds",
                                       "final_loss",
                                       "final_accuracy"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(keys[i], key)) return 1;
    return 0;
}

/* Writes a value as a user would. A list has its items one after another, as many as fit. */
static void value_text(const struct json *x, char text[DIFF_VALUE]) {
    char item[DIFF_VALUE];
    snprintf(text, DIFF_VALUE, "-");
    if (!x) return;
    if (x->kind == JSON_STRING) snprintf(text, DIFF_VALUE, "%s", x->string);
    if (x->kind == JSON_BOOLEAN) snprintf(text, DIFF_VALUE, "%s", x->integer ? "yes" : "no");
    if (x->kind == JSON_NUMBER) snprintf(text, DIFF_VALUE, "%.10g", x->number);
    if (x->kind != JSON_ARRAY) return;
    size_t used = 0;
    for (const struct json *i = x->child; i && used < DIFF_VALUE; i = i->next) {
        value_text(i, item);
        used += (size_t)snprintf(text + used, DIFF_VALUE - used, "%s%s", used ? "," : "", item);
    }
}

/* A list of objects is a result. */
static int is_setting(const struct json *x) {
    int has_objects = x->kind == JSON_ARRAY && x->child && x->child->kind == JSON_OBJECT;
    return x->kind != JSON_OBJECT && !has_objects && !is_result(x->key);
}

static int same_value(const struct json *a, const struct json *b) {
    if (!a || !b || a->kind != b->kind) return !a && !b;
    if (a->kind == JSON_STRING) return !strcmp(a->string, b->string);
    if (a->kind == JSON_BOOLEAN) return a->integer == b->integer;
    if (a->kind == JSON_NUMBER) return a->number == b->number && a->natural == b->natural;
    if (a->kind != JSON_ARRAY) return 1;
    const struct json *x = a->child, *y = b->child;
    for (; x && y; x = x->next, y = y->next)
        if (!same_value(x, y)) return 0;
    return !x && !y;
}

static int add(struct diff_setting *list, int count, const char *name, const struct json *a,
               const struct json *b) {
    if (count == DIFF_MOST) return count;
    snprintf(list[count].name, DIFF_NAME, "%s", name);
    value_text(a, list[count].a);
    value_text(b, list[count].b);
    return count + 1;
}

static int add_fields(const struct json *a, const struct json *b, struct diff_setting *list) {
    int count = 0;
    for (const struct json *x = a->child; x; x = x->next) {
        const struct json *y = json_find(b, x->key);
        if (is_setting(x) && !same_value(x, y)) count = add(list, count, x->key, x, y);
    }
    for (const struct json *y = b->child; y; y = y->next)
        if (is_setting(y) && !json_find(a, y->key)) count = add(list, count, y->key, NULL, y);
    return count;
}

/* ---- flags ---- */

/* "--batch_size=64" and "--batch-size" give "--batch-size". */
static void flag_name(const char *word, char name[DIFF_NAME]) {
    snprintf(name, DIFF_NAME, "%.*s", (int)strcspn(word, "="), word);
    for (char *c = name; *c; c++)
        if (*c == '_') *c = '-';
}

/* Finds a flag on the command line. Returns 0 if it is not there; its value is then "-". */
static int flag_value(const struct results *r, const char *flag, char value[DIFF_VALUE]) {
    const struct json *words = json_find(r->root, "command_line");
    int found = 0;
    snprintf(value, DIFF_VALUE, "-");
    for (const struct json *w = words ? words->child : NULL; w; w = w->next) {
        char name[DIFF_NAME];
        if (w->kind != JSON_STRING || strncmp(w->string, "--", 2)) continue;
        flag_name(w->string, name);
        if (strcmp(name, flag)) continue;
        const char *equals = strchr(w->string, '=');
        int alone = !w->next || w->next->kind != JSON_STRING || !strncmp(w->next->string, "--", 2);
        snprintf(value, DIFF_VALUE, "%s", equals ? equals + 1 : alone ? "given" : w->next->string);
        found = 1; /* the last one counts */
    }
    return found;
}

/* 1 for a flag that has a field in the run, and for one that only says where results go. */
static int is_told_elsewhere(const char *flag, const struct json *run) {
    static const char *const outputs[] = {
        "--json",     "--csv",         "--trace", "--report",     "--pictures",    "--save",
        "--log-loss", "--tensorboard", "--quiet", "--checkpoint", "--log-interval"};
    char key[DIFF_NAME];
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        if (!strcmp(flag, outputs[i])) return 1;
    snprintf(key, sizeof key, "%.40s", flag + 2);
    for (char *c = key; *c; c++)
        if (*c == '-') *c = '_';
    return json_find(run, key) != NULL;
}

/* Flags of `from` that `other` has not, or has with another value. swapped: `from` is B, and flags
 * that both have are in the list already. */
static int add_flags(const struct results *from, const struct results *other, int swapped,
                     const struct json *run, struct diff_setting *list, int count) {
    const struct json *words = json_find(from->root, "command_line");
    for (const struct json *w = words ? words->child : NULL; w; w = w->next) {
        struct diff_setting s;
        if (w->kind != JSON_STRING || strncmp(w->string, "--", 2) || count == DIFF_MOST) continue;
        flag_name(w->string, s.name);
        flag_value(from, s.name, s.a);
        int both = flag_value(other, s.name, s.b), again = 0;
        for (int i = 0; i < count; i++)
            again |= !strcmp(list[i].name, s.name);
        if (again || (both && (swapped || !strcmp(s.a, s.b))) || is_told_elsewhere(s.name, run))
            continue;
        list[count] = s;
        if (swapped) memcpy(list[count].a, s.b, DIFF_VALUE), memcpy(list[count].b, s.a, DIFF_VALUE);
        count++;
    }
    return count;
}

int diff_settings(const struct diff_pair *pair, const struct results *a, const struct results *b,
                  struct diff_setting list[DIFF_MOST]) {
    int count = add_fields(pair->a->item, pair->b->item, list);
    count = add_flags(a, b, 0, pair->a->item, list, count);
    return add_flags(b, a, 1, pair->b->item, list, count);
}

/* ---- times ---- */

const char *diff_time_name(int what) {
    return what == DIFF_STEP   ? "whole step"
           : what == DIFF_COMM ? "allreduce, mean"
           : what == DIFF_WAIT ? "waiting, mean"
                               : phase_name((enum phase)what);
}

typedef double time_of(const struct run_record *run, int device, int what);

static double median_of(const struct run_record *r, int device, int what) {
    const struct device_record *d = &r->device[device];
    if (what == DIFF_COMM) return record_per_step(r, (double)d->comm_ns);
    if (what == DIFF_WAIT) return record_per_step(r, (double)d->wait_ns);
    return (double)(what == DIFF_STEP ? d->step_median_ns : d->phase_median_ns[what]);
}
static double p90_of(const struct run_record *r, int device, int what) {
    const struct device_record *d = &r->device[device];
    if (what > DIFF_STEP) return NAN;
    return (double)(what == DIFF_STEP ? d->step_p90_ns : d->phase_p90_ns[what]);
}
static double spread_of(const struct run_record *r, int device, int what) {
    const struct device_record *d = &r->device[device];
    if (what > DIFF_STEP) return NAN;
    return (double)(what == DIFF_STEP ? d->step_spread_ns : d->phase_spread_ns[what]);
}

static double mean_over(const struct run_record *r, int first, int last, int what, time_of *of) {
    double sum = 0;
    for (int d = first; d <= last; d++)
        sum += of(r, d, what);
    return sum / (last - first + 1);
}

/* Differences of independent values spread by the root of the sum of their squares. */
static int is_within(const double value[2], const double spread[2]) {
    return fabs(value[1] - value[0]) <= hypot(spread[0], spread[1]);
}

struct diff_time diff_time(const struct run_record *a, const struct run_record *b, int what,
                           int first, const int last[2]) {
    const struct run_record *runs[] = {a, b};
    struct diff_time t = {.known = what <= DIFF_STEP};
    for (int i = 0; i < 2; i++) {
        t.p50[i] = mean_over(runs[i], first, last[i], what, median_of);
        t.p90[i] = mean_over(runs[i], first, last[i], what, p90_of);
        t.spread[i] = mean_over(runs[i], first, last[i], what, spread_of);
    }
    t.within_spread = t.known && is_within(t.p50, t.spread);
    return t;
}

/* The spread of a run's epochs, as a part of their median; 0 with fewer than three whole ones. */
static double epoch_spread(const struct run_record *r) {
    enum { MOST = 1000, ENOUGH = 3 };
    int64_t ns[MOST], median, spread;
    int n = r->epoch_count - (record_extrapolated(r) ? 1 : 0);
    if (n < ENOUGH) return 0;
    if (n > MOST) n = MOST;
    for (int k = 0; k < n; k++)
        ns[k] = (int64_t)(r->epoch_seconds[k] * 1e9);
    median_and_spread(ns, n, &median, &spread);
    return median ? (double)spread / (double)median : 0;
}

static double step_spread(const struct run_record *r) {
    const struct device_record *d = &r->device[0];
    return d->step_median_ns ? (double)d->step_spread_ns / (double)d->step_median_ns : 0;
}

struct diff_speed diff_speed(const struct run_record *a, const struct run_record *b) {
    const struct run_record *runs[] = {a, b};
    struct diff_speed s = {.known = 1};
    for (int i = 0; i < 2; i++) {
        double spread = a->timed && b->timed ? step_spread(runs[i]) : epoch_spread(runs[i]);
        s.rate[i] = record_images_per_second(runs[i]);
        s.spread[i] = spread * s.rate[i];
        s.known &= spread > 0;
    }
    s.within_spread = s.known && is_within(s.rate, s.spread);
    return s;
}

/* ---- losses ---- */

struct diff_losses diff_losses(const struct run_record *a, const struct run_record *b) {
    struct diff_losses l = {.first = -1};
    int from = a->first_step > b->first_step ? a->first_step : b->first_step;
    for (int step = from; a->losses && b->losses; step++) {
        int i = step - a->first_step, k = step - b->first_step;
        if (i >= a->steps || k >= b->steps) break;
        double x = a->losses[i], y = b->losses[k];
        l.compared++;
        if (x == y || (isnan(x) && isnan(y))) continue;
        double apart = fabs(x - y) / fmax(fabs(x), fabs(y));
        if (!(apart <= l.worst)) l.worst = apart;
        if (l.first >= 0) continue;
        l.first = step, l.a = x, l.b = y;
    }
    return l;
}
