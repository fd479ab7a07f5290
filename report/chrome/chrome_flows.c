/* Arrows in a trace, from the slice of who sends to the slice of who receives: pairs of flow events
 * "s" and "f" with the same id. Each of the two lies within its slice, to which viewers attach it.
 *
 *     collective    every device has a slice of it. From a device that is read to one that gets
 *                   what it gave: from the start of the one's slice, when its data may be read,
 *                   to the end of the other's.
 *     copy, sum     one device executes it. What it reads was made by the last kernel that the
 *                   other device ended before: from the end of that to the copy. What it writes
 *                   is used by the first one that the other device begins behind it: from the copy
 *                   to that.
 *
 * Host memory has no slices, so copies from and to it have no arrows. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "report/chrome/chrome_writer.h"

enum { MOST_ARROWS = 4000 }; /* devices^2 times steps: what viewers still draw quickly */

int steps_with_flows(const struct run_record *run) {
    int pairs = run->devices * (run->devices - 1), kept = run->steps;
    if (kept > TRACE_STEPS) kept = TRACE_STEPS;
    int most = pairs ? MOST_ARROWS / pairs + 1 : kept;
    return most < kept ? most : kept;
}

/* ---- one arrow ---- */

static void write_end(struct writer *w, const char *kind, const struct span *at, int64_t ns,
                      const char *name) {
    w->process = w->first_process + at->device;
    open_event(w, kind, TRACK_LANES + at->lane, name);
    json_string(&w->json, "cat", "transfer");
    json_integer(&w->json, "id", w->arrows);
    write_time(w, "ts", ns - w->zero_ns);
    if (*kind == 'f') json_string(&w->json, "bp", "e"); /* attach to the slice around it */
    json_close(&w->json);
}

/* From from_ns within slice `from` to to_ns within slice `to`. Not where a slice has no length, nor
 * against time, which clocks of GPUs could show. */
static void write_arrow(struct writer *w, const struct span *from, int64_t from_ns,
                        const struct span *to, int64_t to_ns, const char *name) {
    if (from->start_ns == from->end_ns || to->start_ns == to->end_ns || from_ns > to_ns) return;
    w->arrows++;
    write_end(w, "s", from, from_ns, name);
    write_end(w, "f", to, to_ns, name);
}

/* ---- which slices belong together ---- */

/* The first span of the run's order that is not before (device, compute lane, start_ns). */
static size_t find_compute(const struct writer *w, int device, int64_t start_ns) {
    size_t low = 0, high = w->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct span *s = w->spans[middle];
        int before = s->device != device       ? s->device < device
                     : s->lane != LANE_COMPUTE ? 0
                                               : s->start_ns < start_ns;
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int is_work_of(const struct writer *w, size_t i, int device) {
    return i < w->count && w->spans[i]->device == device && w->spans[i]->lane == LANE_COMPUTE;
}

static const struct span *last_before(const struct writer *w, int device, int64_t ns) {
    for (size_t i = find_compute(w, device, ns); i > 0 && is_work_of(w, i - 1, device); i--)
        if (!w->spans[i - 1]->waiting && w->spans[i - 1]->end_ns <= ns) return w->spans[i - 1];
    return NULL;
}

static const struct span *first_behind(const struct writer *w, int device, int64_t ns) {
    size_t i = find_compute(w, device, ns);
    while (is_work_of(w, i, device) && w->spans[i]->waiting)
        i++;
    return is_work_of(w, i, device) ? w->spans[i] : NULL;
}

/* What one device executes alone. */
static void write_one_sided(struct writer *w, const struct span *s) {
    for (int d = 0; d < w->run->run->devices; d++) {
        uint64_t bit = (uint64_t)1 << d;
        if (d == s->device) continue;
        const struct span *made = s->sources & bit ? last_before(w, d, s->start_ns) : NULL;
        const struct span *used = s->destinations & bit ? first_behind(w, d, s->end_ns) : NULL;
        if (made) write_arrow(w, made, made->end_ns - 1, s, s->start_ns, s->name);
        if (used) write_arrow(w, s, s->end_ns - 1, used, used->start_ns, s->name);
    }
}

/* ---- collectives ---- */

/* Orders the slices of collectives by step and name, then by device and start: the k-th of each
 * device are one call. */
static int compare_calls(const void *left, const void *right) {
    const struct span *a = *(const struct span *const *)left,
                      *b = *(const struct span *const *)right;
    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    int order = strcmp(a->name, b->name);
    if (order) return order;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    return a->start_ns < b->start_ns ? -1 : a->start_ns > b->start_ns;
}

/* The arrows of one call; of[d]: the slice of device d, or NULL. */
static void write_call(struct writer *w, const struct span *const *of) {
    for (int to = 0; to < MAX_DEVICES; to++) {
        for (int from = 0; of[to] && from < MAX_DEVICES; from++) {
            if (from == to || !of[from]) continue;
            int moves = of[to]->sources >> from & 1 || of[from]->destinations >> to & 1;
            if (moves)
                write_arrow(w, of[from], of[from]->start_ns, of[to], of[to]->end_ns - 1,
                            of[to]->name);
        }
    }
}

/* calls[0 .. count): one name in one step. */
static void write_calls(struct writer *w, const struct span *const *calls, size_t count) {
    size_t begin[MAX_DEVICES + 1], n = 0; /* where the slices of each device begin */
    for (size_t i = 0; i < count; i++)
        if (n < MAX_DEVICES && (i == 0 || calls[i]->device != calls[i - 1]->device)) begin[n++] = i;
    begin[n] = count;
    for (size_t k = 0, any = 1; any; k++) {
        const struct span *of[MAX_DEVICES] = {NULL};
        any = 0;
        for (size_t d = 0; d < n; d++) {
            if (begin[d] + k >= begin[d + 1]) continue;
            const struct span *s = calls[begin[d] + k];
            of[s->device] = s;
            any = 1;
        }
        write_call(w, of);
    }
}

int write_flows(struct writer *w) {
    const struct run_record *run = w->run->run;
    int end = run->first_step + steps_with_flows(run);
    const struct span **calls = malloc((w->count + 1) * sizeof *calls);
    size_t count = 0;
    if (!calls) return fail(ERR_MEMORY, "trace: no host memory for %zu spans", w->count);
    for (size_t i = 0; i < w->count; i++) {
        const struct span *s = w->spans[i];
        if (s->step >= end || s->device < 0 || s->device >= MAX_DEVICES) continue;
        if (s->ends_kind & SPAN_COLLECTIVE)
            calls[count++] = s;
        else if (s->sources | s->destinations)
            write_one_sided(w, s);
    }
    qsort(calls, count, sizeof *calls, compare_calls);
    for (size_t i = 0, n; i < count; i += n) {
        for (n = 1; i + n < count && calls[i + n]->step == calls[i]->step &&
                    !strcmp(calls[i + n]->name, calls[i]->name);)
            n++;
        write_calls(w, calls + i, n);
    }
    free(calls);
    return OK;
}
