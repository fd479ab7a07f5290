/* The text of `duet diff`: see diff_table.h. */
#include "report/diff_table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "report/text.h"

/* Columns: 80 in all. */
enum { NAME = 28, VALUE = 18, CHANGE = 16, CELL = 64 };

struct row {
    char name[CELL], a[CELL], b[CELL], change[CELL];
};

static void print_row(FILE *file, const struct row *row) {
    fprintf(file, "%-*.*s%*.*s%*.*s", NAME, NAME - 1, row->name, VALUE, VALUE - 1, row->a, VALUE,
            VALUE - 1, row->b);
    fprintf(file, *row->change ? "%*s\n" : "\n", CHANGE, row->change);
}

/* A title that is too long for its column has a line of its own. */
static void head(FILE *file, const char *title) {
    struct row row = {.a = "A", .b = "B", .change = "change"};
    if (strlen(title) < NAME)
        snprintf(row.name, CELL, "%.40s", title);
    else
        fprintf(file, "%s\n", title);
    print_row(file, &row);
    for (int i = 0; i < NAME + 2 * VALUE + CHANGE; i++)
        fputc('-', file);
    fputc('\n', file);
}

/* known 0: a "?" says that no spread is known that could judge it. */
static void percent(double a, double b, int known, char text[CELL]) {
    double more = 100 * (b - a) / a;
    if (a == b)
        snprintf(text, CELL, "equal");
    else if (a == 0)
        snprintf(text, CELL, "new");
    else
        snprintf(text, CELL, fabs(more) < 1e6 ? "%+.1f %%%s" : "%+.1e %%%s", more,
                 known ? "" : " ?");
}

/* ---- what was asked ---- */

static void print_settings(FILE *file, const struct diff_pair *pair, const struct results *a,
                           const struct results *b) {
    struct diff_setting list[DIFF_MOST];
    int n = diff_settings(pair, a, b, list);
    fprintf(file, "%s\n", n ? "what was asked, where it differs" : "what was asked: the same");
    for (int i = 0; i < n; i++) {
        struct row row;
        snprintf(row.name, CELL, "  %.40s", list[i].name);
        memcpy(row.a, list[i].a, CELL), memcpy(row.b, list[i].b, CELL);
        *row.change = 0;
        print_row(file, &row);
    }
}

/* ---- times ---- */

static void change_of(double a, double b, int known, int within, char text[CELL]) {
    if (within && a != b) {
        snprintf(text, CELL, "within spread");
        return;
    }
    percent(a, b, known, text);
}

static void print_time(FILE *file, const char *name, const struct diff_time *t) {
    struct row row;
    if (t->p50[0] == 0 && t->p50[1] == 0 && !(t->p90[0] > 0 || t->p90[1] > 0)) return;
    snprintf(row.name, CELL, "  %s", name);
    snprintf(row.a, CELL, t->known ? "%.3f (%.3f)" : "%.3f", t->p50[0] * 1e-6, t->p90[0] * 1e-6);
    snprintf(row.b, CELL, t->known ? "%.3f (%.3f)" : "%.3f", t->p50[1] * 1e-6, t->p90[1] * 1e-6);
    change_of(t->p50[0], t->p50[1], t->known, t->within_spread, row.change);
    print_row(file, &row);
}

static void print_phases(FILE *file, const struct run_record *a, const struct run_record *b,
                         const char *whose, int first, const int last[2]) {
    static const int beside[] = {DIFF_STEP, DIFF_COMM, DIFF_WAIT};
    fprintf(file, "ms a step on %s: p50 (p90)\n", whose);
    for (int p = PHASE_LOADER; p < PHASE_COUNT; p++) {
        struct diff_time t = diff_time(a, b, p, first, last);
        if (p != PHASE_EVALUATE && p != PHASE_PROOF) print_time(file, diff_time_name(p), &t);
    }
    for (int i = 0; i < 3; i++) {
        struct diff_time t = diff_time(a, b, beside[i], first, last);
        print_time(file, diff_time_name(beside[i]), &t);
    }
}

static void print_times(FILE *file, const struct run_record *a, const struct run_record *b) {
    int zero[2] = {0, 0}, last[2] = {a->devices - 1, b->devices - 1};
    if (a->computed || b->computed) return;
    if (!a->timed || !b->timed) {
        fprintf(file, "times by phase: %s; compare, profile and train --trace measure them\n",
                a->timed   ? "in A alone"
                : b->timed ? "in B alone"
                           : "in neither");
        return;
    }
    print_phases(file, a, b, "device 0", 0, zero);
    if (last[0] && last[1]) print_phases(file, a, b, "the other devices, their mean", 1, last);
}

static void print_speed(FILE *file, const struct run_record *a, const struct run_record *b) {
    struct row row = {.name = "images/s"};
    struct diff_speed s = diff_speed(a, b);
    if (a->computed || b->computed) return;
    snprintf(row.a, CELL, "%.*f", rate_digits(s.rate[0]), s.rate[0]);
    snprintf(row.b, CELL, "%.*f", rate_digits(s.rate[1]), s.rate[1]);
    change_of(s.rate[0], s.rate[1], s.known, s.within_spread, row.change);
    print_row(file, &row);
}

/* ---- memory and bytes ---- */

typedef double count_of(const struct run_record *run, int device, int what);

static double memory_of(const struct run_record *r, int device, int cause) {
    const struct ledger *m = &r->device[device].memory;
    return (double)(cause == MEM_CAUSE_COUNT ? m->total_peak : m->at_peak[cause]);
}

static double bytes_of(const struct run_record *r, int device, int out) {
    const struct device_record *d = &r->device[device];
    return record_per_step(r, (double)(out ? d->bytes_out : d->bytes_in));
}

static int same_counts(const struct run_record *a, const struct run_record *b, count_of *of,
                       int kinds) {
    if (a->devices != b->devices) return 0;
    for (int d = 0; d < a->devices; d++)
        for (int k = 0; k < kinds; k++)
            if (of(a, d, k) != of(b, d, k)) return 0;
    return 1;
}

static double mean_of_others(const struct run_record *r, count_of *of, int what) {
    double sum = 0;
    for (int d = 1; d < r->devices; d++)
        sum += of(r, d, what);
    return sum / (r->devices - 1);
}

static void print_bytes(FILE *file, const char *name, double a, double b) {
    struct row row;
    char text[32];
    if (a == b) return;
    snprintf(row.name, CELL, "  %s", name);
    snprintf(row.a, CELL, "%s", bytes_words(a, text));
    snprintf(row.b, CELL, "%s", bytes_words(b, text));
    snprintf(row.change, CELL, "%s", signed_bytes(b - a, text));
    print_row(file, &row);
}

/* What differs, with a title above it if anything does. others 1: of the mean of all devices but
 * device 0. */
static void print_part(FILE *file, const struct run_record *a, const struct run_record *b,
                       const char *title, count_of *of, const char *const *names, int kinds,
                       int others) {
    int printed = 0;
    for (int k = 0; k < kinds; k++) {
        double x = others ? mean_of_others(a, of, k) : of(a, 0, k),
               y = others ? mean_of_others(b, of, k) : of(b, 0, k);
        if (x != y && !printed++)
            fprintf(file, "%s, %s\n", title, others ? "the other devices, their mean" : "device 0");
        print_bytes(file, names[k], x, y);
    }
}

static void print_counts(FILE *file, const struct run_record *a, const struct run_record *b,
                         const char *title, count_of *of, const char *const *names, int kinds) {
    if (same_counts(a, b, of, kinds)) {
        fprintf(file, "%s: the same on every device\n", title);
        return;
    }
    print_part(file, a, b, title, of, names, kinds, 0);
    if (a->devices > 1 && b->devices > 1) print_part(file, a, b, title, of, names, kinds, 1);
}

static void print_memory(FILE *file, const struct run_record *a, const struct run_record *b) {
    const char *names[MEM_CAUSE_COUNT + 1] = {[MEM_CAUSE_COUNT] = "in all"};
    for (int c = 0; c < MEM_CAUSE_COUNT; c++)
        names[c] = mem_cause_name((enum mem_cause)c);
    print_counts(file, a, b, "memory at its peak", memory_of, names, MEM_CAUSE_COUNT + 1);
}

static void print_traffic(FILE *file, const struct run_record *a, const struct run_record *b) {
    static const char *const names[] = {"in", "out"};
    print_counts(file, a, b, "bytes a step over links", bytes_of, names, 2);
}

/* ---- losses ---- */

static void print_losses(FILE *file, int width, const struct diff_pair *pair) {
    const struct run_record *a = &pair->a->record, *b = &pair->b->record;
    struct diff_losses l = diff_losses(a, b);
    struct text text = {.used = 0};
    if (a->computed || b->computed) return;
    if (!l.compared)
        text_add(&text, "losses: no step is in both runs");
    else if (l.first < 0)
        text_add(&text, "losses: equal in all digits at the %d step%s that both runs have",
                 l.compared, l.compared > 1 ? "s" : "");
    else
        text_add(&text,
                 "losses: first differ at step %d: %.9g and %.9g; the largest relative difference "
                 "over %d steps is %.2g",
                 l.first, l.a, l.b, l.compared, l.worst);
    text_wrap(file, width, 0, 2, text.words);
    double x = record_last_accuracy(a), y = record_last_accuracy(b);
    if (x >= 0 && y >= 0)
        fprintf(file, "test accuracy at the end: %.4f and %.4f%s\n", x, y, x == y ? ": equal" : "");
    x = record_last_valid_loss(a), y = record_last_valid_loss(b);
    if (!isnan(x) && !isnan(y))
        fprintf(file, "valid_loss at the end: %.9g and %.9g%s\n", x, y, x == y ? ": equal" : "");
    const char *va = results_text(pair->a->item, "verdict/verdict"),
               *vb = results_text(pair->b->item, "verdict/verdict");
    if (*va && *vb) fprintf(file, "verdict against single: %s and %s\n", va, vb);
}

/* ---- all of it ---- */

static void print_file(FILE *file, int width, const char *letter, const struct results *r) {
    struct text text = {.used = 0};
    text_add(&text, "%s  %s: duet %s, %s, on %s, Duet %s", letter, r->path, r->command, r->date,
             r->host, r->version);
    text_wrap(file, width, 0, 3, text.words);
}

static void print_pair(FILE *file, int width, const struct diff_pair *pair,
                       const struct results *fa, const struct results *fb) {
    const struct run_record *a = &pair->a->record, *b = &pair->b->record;
    char title[80];
    int same = !strcmp(pair->a->title, pair->b->title);
    snprintf(title, sizeof title, same ? "%.38s" : "%.38s | %.38s", pair->a->title, pair->b->title);
    fprintf(file, "\n");
    if (!pair->a->fits || !pair->b->fits) {
        fprintf(file, "%s: does not fit in %s\n", title,
                pair->a->fits   ? "B"
                : pair->b->fits ? "A"
                                : "A and B");
        return;
    }
    head(file, title);
    print_settings(file, pair, fa, fb);
    print_speed(file, a, b);
    print_times(file, a, b);
    print_memory(file, a, b);
    print_traffic(file, a, b);
    print_losses(file, width, pair);
}

/* The runs of `r` that belong to no pair. */
static void print_alone(FILE *file, int width, const char *letter, const struct results *r,
                        const struct results *other) {
    struct text text = {.used = 0};
    if (r->count == 1 && other->count == 1) return;
    for (int i = 0; i < r->count; i++)
        if (!results_find(other, r->run[i].name))
            text_add(&text, "%s %s", text.used ? "," : "", r->run[i].title);
    if (!text.used) return;
    fprintf(file, "\n");
    char words[sizeof text.words];
    memcpy(words, text.words, sizeof words);
    text = (struct text){.used = 0};
    text_add(&text, "in %s alone:%s", letter, words);
    text_wrap(file, width, 0, 2, text.words);
}

void diff_print(FILE *file, int width, const struct results *a, const struct results *b) {
    struct diff_pair pairs[DIFF_PAIRS];
    int count = diff_pairs(a, b, pairs);
    print_file(file, width, "A", a);
    print_file(file, width, "B", b);
    for (int i = 0; i < count; i++)
        print_pair(file, width, &pairs[i], a, b);
    print_alone(file, width, "A", a, b);
    print_alone(file, width, "B", b, a);
    fprintf(file, "\n");
    text_wrap(
        file, width, 0, 2,
        "within spread: the medians differ by no more than the steps of both runs vary, so it "
        "may be chance; ?: one figure each, so that no spread is known");
    fflush(file);
}
