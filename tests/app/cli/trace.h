/* Checks a trace that the command wrote against the JSON of the same run. */
#ifndef TESTS_CLI_TRACE_H
#define TESTS_CLI_TRACE_H

#include <math.h>

#include "tests/app/cli/json.h"
#include "trace/record.h"

enum { TRACK_STEPS = 1, TRACK_COMPUTE, TRACK_COMM, TRACK_COPY, TRACK_HOST };

/* Some readers round a product, others truncate it; both must get the same, or slices that touch
 * would overlap, and Perfetto drops a slice that crosses the end of another. */
static inline int64_t ns_of(const struct json *event, const char *key) {
    double ns = json_double(event, key) * 1000;
    cr_expect_eq(llround(ns), (int64_t)ns, "%s: %.9f", key, ns);
    return llround(ns);
}

static inline int is_slice(const struct json *event, int pid, int tid) {
    return !strcmp(json_text(event, "ph"), "X") && json_int(event, "pid") == pid &&
           json_int(event, "tid") == tid;
}

static inline const struct json *first_event(const struct json *trace) {
    return json_at(trace, "traceEvents")->child;
}

/* The process with this name; fails the test if there is none or more than one. */
static inline int process_of(const struct json *trace, const char *title) {
    int pid = 0;
    for (const struct json *e = first_event(trace); e; e = e->next) {
        if (strcmp(json_text(e, "name"), "process_name") ||
            strcmp(json_text(e, "args/name"), title))
            continue;
        cr_assert_eq(pid, 0, "%s twice", title);
        pid = (int)json_int(e, "pid");
    }
    cr_assert_neq(pid, 0, "no %s", title);
    return pid;
}

static inline int processes(const struct json *trace) {
    int count = 0;
    for (const struct json *e = first_event(trace); e; e = e->next)
        count += !strcmp(json_text(e, "name"), "process_name");
    return count;
}

/* Checks that slices of one track lie next to or inside each other, in the order of their starts.
 * Returns their number. */
static inline int check_nesting(const struct json *trace, int pid, int tid) {
    int64_t end[8], before = 0;
    int depth = 0, count = 0;
    for (const struct json *e = first_event(trace); e; e = e->next) {
        if (!is_slice(e, pid, tid)) continue;
        int64_t start = ns_of(e, "ts"), stop = start + ns_of(e, "dur");
        cr_assert(start >= before && stop >= start, "%d.%d: %s at %ld ns", pid, tid,
                  json_text(e, "name"), (long)start);
        while (depth && end[depth - 1] <= start)
            depth--;
        cr_assert(depth == 0 || stop <= end[depth - 1], "%d.%d: %s at %ld ns crosses an end", pid,
                  tid, json_text(e, "name"), (long)start);
        cr_assert_lt(depth, 8);
        end[depth++] = stop;
        before = start;
        count++;
    }
    return count;
}

/* 1 if any slice has a CPU time: those of emulated devices have, those of GPUs have not. */
static inline int has_cpu_times(const struct json *trace) {
    for (const struct json *e = first_event(trace); e; e = e->next) {
        const struct json *args = json_find(e, "args");
        if (args && json_find(args, "cpu_ns")) return 1;
    }
    return 0;
}

/* Adds up the nanoseconds of a track's slices that wait, or that do not: those of one phase, or
 * (NULL) of all phases of training. Where a slice has a CPU time it counts, and on emulated devices
 * it has one exactly where it computes. */
static inline int64_t sum_slices(const struct json *trace, int pid, int tid, const char *phase,
                                 int waiting) {
    int64_t sum = 0;
    int emulated = has_cpu_times(trace);
    for (const struct json *e = first_event(trace); e; e = e->next) {
        if (!is_slice(e, pid, tid) || waiting != !strcmp(json_text(e, "cat"), "waiting")) continue;
        const char *its = json_text(e, "args/phase");
        if (phase ? strcmp(its, phase)
                  : !strcmp(its, "evaluate") || !strcmp(its, "proof") || !strcmp(its, "none"))
            continue;
        const struct json *cpu = json_find(json_at(e, "args"), "cpu_ns");
        cr_assert(!cpu || (cpu->integer > 0 && cpu->integer <= ns_of(e, "dur")),
                  "%s: %ld ns of %ld", json_text(e, "name"), (long)cpu->integer,
                  (long)ns_of(e, "dur"));
        cr_assert_eq(cpu != NULL, emulated && tid == TRACK_COMPUTE && !waiting, "%s",
                     json_text(e, "name"));
        sum += cpu ? cpu->integer : ns_of(e, "dur");
    }
    return sum;
}

static inline int works_on(const struct json *event, int pid, int tid) {
    return is_slice(event, pid, tid) && strcmp(json_text(event, "cat"), "waiting") != 0;
}

/* How long collectives ran while their device ran no kernel, by all pairs of slices. */
static inline int64_t sum_exposed(const struct json *trace, int pid) {
    int64_t ns = 0;
    for (const struct json *c = first_event(trace); c; c = c->next) {
        if (!works_on(c, pid, TRACK_COMM)) continue;
        int64_t from = ns_of(c, "ts"), to = from + ns_of(c, "dur");
        ns += to - from;
        for (const struct json *k = first_event(trace); k; k = k->next) {
            if (!works_on(k, pid, TRACK_COMPUTE)) continue;
            int64_t start = ns_of(k, "ts"), end = start + ns_of(k, "dur");
            if (start < to && end > from)
                ns -= (end < to ? end : to) - (start > from ? start : from);
        }
    }
    return ns;
}

/* Both kernels of the loss are of its phase, on whichever device they run. */
static inline void check_loss(const struct json *trace, int pid) {
    for (const struct json *e = first_event(trace); e; e = e->next)
        if (works_on(e, pid, TRACK_COMPUTE) && strstr(json_text(e, "name"), "cross entropy") &&
            strcmp(json_text(e, "args/phase"), "evaluate") != 0)
            cr_expect_str_eq(json_text(e, "args/phase"), "loss", "%s", json_text(e, "name"));
}

/* Checks that every step has one slice, and that what was computed in the step lies inside. */
static inline void check_steps(const struct json *trace, int pid, int steps) {
    int64_t *from = calloc((size_t)steps, sizeof *from), *to = calloc((size_t)steps, sizeof *to);
    for (const struct json *e = first_event(trace); e; e = e->next) {
        int step;
        if (!is_slice(e, pid, TRACK_STEPS) || sscanf(json_text(e, "name"), "step %d", &step) != 1)
            continue;
        cr_assert(step >= 0 && step < steps && !to[step], "step %d of %d", step, steps);
        from[step] = ns_of(e, "ts"), to[step] = from[step] + ns_of(e, "dur");
    }
    for (int i = 0; i < steps; i++)
        cr_assert(to[i], "no step %d", i);
    for (const struct json *e = first_event(trace); e; e = e->next) {
        if (!is_slice(e, pid, TRACK_COMPUTE)) continue;
        const char *phase = json_text(e, "args/phase");
        if (!strcmp(phase, "evaluate") || !strcmp(phase, "none")) continue; /* between steps */
        cr_assert_str_neq(json_text(e, "name"), "copy to host",
                          "in %s: no step of training reads its device", phase);
        int64_t step = json_int(e, "args/step"), start = ns_of(e, "ts");
        cr_assert(start >= from[step] && start + ns_of(e, "dur") <= to[step], "%s of step %d",
                  json_text(e, "name"), (int)step);
    }
    free(from), free(to);
}

/* Checks one run of the trace against its record in JSON. `steps` of it are traced. */
static inline void check_traced_run(const struct json *trace, const char *title,
                                    const struct json *run, int steps) {
    const struct json *x = json_at(run, "per_device")->child;
    const char *kind = json_text(run, "device_kind");
    int ddp = !strcmp(json_text(run, "mode"), "ddp"), dp = !strcmp(json_text(run, "mode"), "dp");
    for (int d = 0; x; x = x->next, d++) {
        char name[64];
        snprintf(name, sizeof name, "%s: %s(%d)", title, kind, d);
        int pid = process_of(trace, name);
        cr_expect_gt(check_nesting(trace, pid, TRACK_STEPS), steps);
        cr_expect_gt(check_nesting(trace, pid, TRACK_COMPUTE), steps);
        int comm = check_nesting(trace, pid, TRACK_COMM),
            host = check_nesting(trace, pid, TRACK_HOST),
            copies = check_nesting(trace, pid, TRACK_COPY), loads = !dp || d == 0;
        cr_expect((comm > 0) == ddp && (host > 0) == loads && copies >= 0, "%s: %d, %d, %d", name,
                  comm, host, copies);
        check_steps(trace, pid, steps);
        for (const struct json *phase = json_at(x, "phase_ns")->child; phase; phase = phase->next)
            cr_expect_eq(sum_slices(trace, pid,
                                    strcmp(phase->key, "loader") ? TRACK_COMPUTE : TRACK_HOST,
                                    phase->key, 0),
                         phase->integer, "%s: %s", name, phase->key);
        cr_expect_eq(sum_slices(trace, pid, TRACK_COPY, "input", 0), json_int(x, "copy_ns"), "%s",
                     name);
        cr_expect_eq(sum_slices(trace, pid, TRACK_COMM, "allreduce", 0), json_int(x, "comm_ns"),
                     "%s", name);
        cr_expect_eq(sum_exposed(trace, pid), json_int(x, "comm_exposed_ns"), "%s", name);
        check_loss(trace, pid);
        cr_expect_eq(sum_slices(trace, pid, TRACK_COMPUTE, NULL, 1) +
                         sum_slices(trace, pid, TRACK_HOST, NULL, 1),
                     json_int(x, "wait_ns"), "%s", name);
    }
}

/* Checks that the earliest slice of the processes pid .. pid + count - 1 begins at 0. */
static inline void begins_at_zero(const struct json *trace, int pid, int count) {
    int64_t least = INT64_MAX;
    for (const struct json *e = first_event(trace); e; e = e->next) {
        int64_t its = json_int(e, "pid");
        if (strcmp(json_text(e, "ph"), "X") || its < pid || its >= pid + count) continue;
        if (ns_of(e, "ts") < least) least = ns_of(e, "ts");
    }
    cr_expect_eq(least, 0, "process %d", pid);
}

#endif
