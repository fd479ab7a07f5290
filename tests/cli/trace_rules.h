/* The rules of the Trace Event Format that viewers rely on, checked on a file that the command
 * wrote, without knowing how it was written:
 *
 *     - every event has ph, pid, tid and name; ph is X, M, C, s or f
 *     - every process and every track with slices has a name and a place, once
 *     - slices of one track lie beside or inside each other (check_nesting in trace.h)
 *     - an arrow is one s and one f of the same id, name and category, s not after f; each lies
 *       within a slice of its track, and f says that it binds to the slice around it
 *     - counters have numbers, the same series each time, in the order of time */
#ifndef TESTS_CLI_TRACE_RULES_H
#define TESTS_CLI_TRACE_RULES_H

#include "tests/cli/trace.h"

enum { MOST_TRACKS = 6 }; /* 0: of the process; then the enum of trace.h */

static inline int is_event(const struct json *e, const char *kind) {
    return !strcmp(json_text(e, "ph"), kind);
}

/* The events of a trace in an array, for checks that look at all pairs. */
struct events {
    const struct json **of;
    int count;
};

static inline struct events events_of(const struct json *trace, const char *kind) {
    struct events list = {calloc((size_t)json_at(trace, "traceEvents")->count + 1, sizeof *list.of),
                          0};
    for (const struct json *e = first_event(trace); e; e = e->next)
        if (is_event(e, kind)) list.of[list.count++] = e;
    return list;
}

/* How many "M" events of this name the track has; *value: the number or the text of the last. */
static inline int facts_of(const struct events *facts, int64_t pid, int64_t tid, const char *name,
                           const struct json **value) {
    int n = 0;
    for (int i = 0; i < facts->count; i++) {
        const struct json *e = facts->of[i];
        if (json_int(e, "pid") != pid || strcmp(json_text(e, "name"), name)) continue;
        if (tid >= 0 && json_int(e, "tid") != tid) continue;
        *value = json_at(e, "args")->child;
        n++;
    }
    return n;
}

static inline void check_names(const struct json *trace) {
    struct events facts = events_of(trace, "M");
    const struct json *value = NULL;
    char seen[400][MOST_TRACKS] = {{0}};
    for (const struct json *e = first_event(trace); e; e = e->next) {
        int64_t pid = json_int(e, "pid"), tid = json_int(e, "tid");
        cr_assert(strchr("XMCsf", *json_text(e, "ph")) && strlen(json_text(e, "ph")) == 1);
        cr_assert(pid >= 0 && pid < 400 && tid >= 0 && tid < MOST_TRACKS && *json_text(e, "name"));
        if (!is_event(e, "M")) {
            cr_assert_eq(json_at(e, "ts")->kind, JSON_NUMBER);
            cr_assert_geq(ns_of(e, "ts"), 0, "%s", json_text(e, "name"));
        }
        if (seen[pid][tid]++ || is_event(e, "M")) continue;
        cr_expect(facts_of(&facts, pid, -1, "process_name", &value) == 1 && *value->string);
        cr_expect(facts_of(&facts, pid, -1, "process_sort_index", &value) == 1 &&
                  value->integer == pid);
        if (is_event(e, "C")) continue;
        cr_expect(facts_of(&facts, pid, tid, "thread_name", &value) == 1 && *value->string,
                  "%ld.%ld has slices and no name", (long)pid, (long)tid);
        cr_expect(facts_of(&facts, pid, tid, "thread_sort_index", &value) == 1 &&
                  value->integer == tid);
    }
    free(facts.of);
}

/* The slice of the track that holds the time; NULL: none. */
static inline const struct json *slice_around(const struct events *slices, const struct json *e) {
    for (int i = 0; i < slices->count; i++) {
        const struct json *s = slices->of[i];
        int64_t start = ns_of(s, "ts");
        if (json_int(s, "pid") == json_int(e, "pid") && json_int(s, "tid") == json_int(e, "tid") &&
            start <= ns_of(e, "ts") && ns_of(e, "ts") < start + ns_of(s, "dur"))
            return s;
    }
    return NULL;
}

/* Checks all arrows. Returns how many of them begin and end in slices of this name. */
static inline int check_arrows(const struct json *trace, const char *name) {
    struct events slices = events_of(trace, "X"), from = events_of(trace, "s"),
                  to = events_of(trace, "f");
    int named = 0;
    cr_expect_eq(from.count, to.count);
    for (int i = 0; i < from.count; i++) {
        const struct json *s = from.of[i], *f = NULL;
        int ends = 0, starts = 0;
        for (int k = 0; k < to.count; k++)
            if (json_int(to.of[k], "id") == json_int(s, "id")) f = to.of[k], ends++;
        for (int k = 0; k < from.count; k++)
            starts += json_int(from.of[k], "id") == json_int(s, "id");
        cr_assert(ends == 1 && starts == 1, "id %ld", (long)json_int(s, "id"));
        cr_expect_str_eq(json_text(s, "name"), json_text(f, "name"));
        cr_expect_str_eq(json_text(s, "cat"), json_text(f, "cat"));
        cr_expect_str_eq(json_text(f, "bp"), "e");
        cr_expect_neq(json_int(s, "pid"), json_int(f, "pid"), "an arrow within a device");
        cr_expect_leq(ns_of(s, "ts"), ns_of(f, "ts"), "%s: against time", json_text(s, "name"));
        const struct json *out = slice_around(&slices, s), *in = slice_around(&slices, f);
        cr_assert(out && in, "%s, id %ld: an end lies in no slice", json_text(s, "name"),
                  (long)json_int(s, "id"));
        named += !strcmp(json_text(out, "name"), name) && !strcmp(json_text(in, "name"), name);
    }
    free(slices.of), free(from.of), free(to.of);
    return named;
}

/* Counters: one a device, what the ledger held. peak: the most that the record says of a device. */
static inline void check_counters(const struct json *trace, int pid, int64_t peak) {
    struct events counters = events_of(trace, "C");
    int64_t before = -1, most = 0;
    int series = -1, n = 0;
    for (int i = 0; i < counters.count; i++) {
        const struct json *e = counters.of[i], *args = json_at(e, "args");
        int64_t sum = 0;
        if (json_int(e, "pid") != pid) continue;
        cr_expect_str_eq(json_text(e, "name"), "memory");
        cr_expect_geq(ns_of(e, "ts"), before, "%d: counters go back in time", pid);
        cr_expect(series < 0 || args->count == series, "%d: other series", pid);
        for (const struct json *x = args->child; x; x = x->next) {
            cr_assert(x->is_integer && x->integer >= 0, "%s", x->key);
            sum += x->integer;
        }
        before = ns_of(e, "ts"), series = args->count, n++;
        if (sum > most) most = sum;
    }
    cr_expect(n > 1 && series > 2, "%d: %d samples of %d causes", pid, n, series);
    cr_expect_eq(most, peak, "%d: the counters come to %ld, the record to %ld", pid, (long)most,
                 (long)peak);
    free(counters.of);
}

/* All rules, and the counters of each device against the run's record. */
static inline void check_rules(const struct json *trace, const struct json *run, int first_pid) {
    check_names(trace);
    check_arrows(trace, "");
    int pid = first_pid;
    for (const struct json *x = json_at(run, "per_device")->child; x; x = x->next)
        check_counters(trace, pid++, json_int(x, "memory_peak"));
}

#endif
