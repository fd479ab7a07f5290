/* The JSON of `duet diff`: see diff_table.h. It has every figure, also those that are equal. */
#include <math.h>

#include "report/diff_table.h"

/* A file, and the names of its runs that belong to no pair. */
static void write_file(struct json_writer *w, const char *key, const struct results *r,
                       const struct results *other) {
    int alone = r->count > 1 || other->count > 1;
    json_object(w, key);
    json_string(w, "path", r->path);
    json_string(w, "command", r->command);
    json_string(w, "date", r->date);
    json_string(w, "host", r->host);
    json_string(w, "duet", r->version);
    json_array(w, "runs_alone");
    for (int i = 0; alone && i < r->count; i++)
        if (!results_find(other, r->run[i].name)) json_string(w, NULL, r->run[i].name);
    json_close(w);
    json_close(w);
}

static void write_settings(struct json_writer *w, const struct diff_pair *pair,
                           const struct results *a, const struct results *b) {
    struct diff_setting list[DIFF_MOST];
    int n = diff_settings(pair, a, b, list);
    json_array(w, "settings");
    for (int i = 0; i < n; i++) {
        json_object(w, NULL);
        json_string(w, "name", list[i].name);
        json_string(w, "a", list[i].a);
        json_string(w, "b", list[i].b);
        json_close(w);
    }
    json_close(w);
}

/* null: no spread is known. */
static void write_within(struct json_writer *w, int known, int within) {
    if (known)
        json_boolean(w, "within_spread", within);
    else
        json_null(w, "within_spread");
}

static void write_time(struct json_writer *w, const struct diff_time *t, const char *what,
                       int device) {
    static const char *const sides[] = {"a", "b"};
    json_object(w, NULL);
    json_integer(w, "device", device);
    json_string(w, "what", what);
    for (int i = 0; i < 2; i++) {
        json_object(w, sides[i]);
        json_number(w, "p50_ns", t->p50[i]);
        json_number(w, "p90_ns", t->p90[i]);
        json_number(w, "spread_ns", t->spread[i]);
        json_close(w);
    }
    write_within(w, t->known, t->within_spread);
    json_close(w);
}

/* Device by device, as many as both runs have. */
static void write_times(struct json_writer *w, const struct run_record *a,
                        const struct run_record *b) {
    int devices = a->devices < b->devices ? a->devices : b->devices;
    json_array(w, "times");
    for (int d = 0; a->timed && b->timed && d < devices; d++) {
        int one[2] = {d, d};
        for (int what = PHASE_LOADER; what < DIFF_TIMES; what++) {
            struct diff_time t = diff_time(a, b, what, d, one);
            if (t.p50[0] || t.p50[1] || t.p90[0] > 0 || t.p90[1] > 0)
                write_time(w, &t, diff_time_name(what), d);
        }
    }
    json_close(w);
}

static void write_count(struct json_writer *w, int device, const char *what, double a, double b) {
    if (a == 0 && b == 0) return;
    json_object(w, NULL);
    json_integer(w, "device", device);
    json_string(w, "what", what);
    json_number(w, "a", a);
    json_number(w, "b", b);
    json_close(w);
}

static void write_counts(struct json_writer *w, const struct run_record *a,
                         const struct run_record *b) {
    int devices = a->devices < b->devices ? a->devices : b->devices;
    json_array(w, "memory_at_peak");
    for (int d = 0; d < devices; d++) {
        const struct ledger *x = &a->device[d].memory, *y = &b->device[d].memory;
        for (int c = 0; c < MEM_CAUSE_COUNT; c++)
            write_count(w, d, mem_cause_name((enum mem_cause)c), (double)x->at_peak[c],
                        (double)y->at_peak[c]);
        write_count(w, d, "in all", (double)x->total_peak, (double)y->total_peak);
    }
    json_close(w);
    json_array(w, "bytes_a_step");
    for (int d = 0; d < devices; d++) {
        const struct device_record *x = &a->device[d], *y = &b->device[d];
        write_count(w, d, "in", record_per_step(a, (double)x->bytes_in),
                    record_per_step(b, (double)y->bytes_in));
        write_count(w, d, "out", record_per_step(a, (double)x->bytes_out),
                    record_per_step(b, (double)y->bytes_out));
    }
    json_close(w);
}

static void write_losses(struct json_writer *w, const struct run_record *a,
                         const struct run_record *b) {
    struct diff_losses l = diff_losses(a, b);
    json_object(w, "losses");
    json_integer(w, "compared", l.compared);
    json_boolean(w, "equal", l.compared && l.first < 0);
    if (l.first < 0)
        json_null(w, "first_difference_at_step");
    else
        json_integer(w, "first_difference_at_step", l.first);
    json_number(w, "a", l.first < 0 ? NAN : l.a);
    json_number(w, "b", l.first < 0 ? NAN : l.b);
    json_number(w, "largest_relative_difference", l.compared ? l.worst : NAN);
    json_close(w);
}

static void write_speed(struct json_writer *w, const struct run_record *a,
                        const struct run_record *b) {
    struct diff_speed s = diff_speed(a, b);
    int measured = !a->computed && !b->computed;
    json_object(w, "images_per_second");
    json_number(w, "a", measured ? s.rate[0] : NAN);
    json_number(w, "b", measured ? s.rate[1] : NAN);
    write_within(w, measured && s.known, s.within_spread);
    json_close(w);
}

static void write_pair(struct json_writer *w, const struct diff_pair *pair,
                       const struct results *fa, const struct results *fb) {
    const struct run_record *a = &pair->a->record, *b = &pair->b->record;
    json_object(w, NULL);
    json_string(w, "a", pair->a->name);
    json_string(w, "b", pair->b->name);
    json_boolean(w, "fits_in_a", pair->a->fits);
    json_boolean(w, "fits_in_b", pair->b->fits);
    write_settings(w, pair, fa, fb);
    if (pair->a->fits && pair->b->fits) {
        write_speed(w, a, b);
        write_times(w, a, b);
        write_counts(w, a, b);
        write_losses(w, a, b);
    }
    json_close(w);
}

void diff_write(struct json_writer *w, const struct results *a, const struct results *b) {
    struct diff_pair pairs[DIFF_PAIRS];
    int count = diff_pairs(a, b, pairs);
    write_file(w, "a", a, b);
    write_file(w, "b", b, a);
    json_array(w, "pairs");
    for (int i = 0; i < count; i++)
        write_pair(w, &pairs[i], a, b);
    json_close(w);
}
