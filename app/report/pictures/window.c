/* Chooses the window of a timeline: see window.h. */
#include "report/pictures/window.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { WARM_UP = 2 };

static int is_of_step(const struct span *s) {
    return s->step >= 0 && s->phase != PHASE_NONE && s->phase != PHASE_EVALUATE;
}

/* The copy of a step's batch, and on the modelled clock the wait for it, begin in the step
 * before. */
static int is_early(const struct run_record *run, const struct span *s) {
    return s->lane == LANE_COPY || (s->waiting && *run->modelled);
}

/* On device 0's compute lane, which says when a step begins. */
static int begins_step(const struct run_record *run, const struct span *s) {
    return is_of_step(s) && !s->device && s->lane == LANE_COMPUTE && !is_early(run, s);
}

int has_steps(const struct run_record *run) {
    for (size_t i = 0; i < run->kept.count; i++)
        if (begins_step(run, &run->kept.spans[i])) return 1;
    return 0;
}

/* ---- which steps ---- */

/* When each of the kept steps began on device 0; 0: not seen. */
struct starts {
    int first, count;
    int64_t *ns; /* [count + 1]; the last is the end of the window */
};

static int find_starts(const struct run_record *run, struct starts *starts) {
    const struct span_log *log = &run->kept;
    int first = INT_MAX, last = -1;
    for (size_t i = 0; i < log->count; i++) {
        const struct span *s = &log->spans[i];
        if (!begins_step(run, s)) continue;
        if (s->step < first) first = s->step;
        if (s->step > last) last = s->step;
    }
    *starts = (struct starts){first, last < 0 ? 0 : last - first + 1, NULL};
    starts->ns = calloc((size_t)starts->count + 1, sizeof *starts->ns);
    if (!starts->ns) return fail(ERR_MEMORY, "report: out of host memory");
    for (size_t i = 0; i < log->count; i++) {
        const struct span *s = &log->spans[i];
        if (!begins_step(run, s)) continue;
        int64_t *start = &starts->ns[s->step - first], *end = &starts->ns[starts->count];
        if (!*start || s->start_ns < *start) *start = s->start_ns;
        if (s->end_ns > *end) *end = s->end_ns;
    }
    return OK;
}

/* The index of the step whose time is nearest to the median. */
static int choose(const struct run_record *run, const struct starts *starts) {
    int best = starts->count > WARM_UP + 1 ? WARM_UP : 0;
    int64_t least = INT64_MAX;
    for (int i = best; i < starts->count; i++) {
        if (!starts->ns[i] || !starts->ns[i + 1]) continue;
        int64_t off = llabs(starts->ns[i + 1] - starts->ns[i] - run->device[0].step_median_ns);
        if (off < least) least = off, best = i;
    }
    return best;
}

/* ---- the spans of a window ---- */

enum window_row window_row_of(const struct span *s) {
    return s->lane == LANE_COMM ? ROW_COMM : s->lane == LANE_COPY ? ROW_COPY : ROW_COMPUTE;
}

size_t window_joined(const struct span *const *spans, size_t count, double least_gap) {
    size_t n = 1;
    int64_t end = spans[0]->end_ns;
    while (n < count && spans[n]->device == spans[0]->device &&
           window_row_of(spans[n]) == window_row_of(spans[0]) &&
           spans[n]->phase == spans[0]->phase && spans[n]->waiting == spans[0]->waiting &&
           (double)(spans[n]->start_ns - end) <= least_gap &&
           /* buckets are drawn one by one */
           (spans[n]->lane != LANE_COMM || !strcmp(spans[n]->name, spans[0]->name))) {
        if (spans[n]->end_ns > end) end = spans[n]->end_ns;
        n++;
    }
    return n;
}

static int in_place_order(const void *left, const void *right) {
    const struct span *a = *(const struct span *const *)left,
                      *b = *(const struct span *const *)right;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    int x = window_row_of(a), y = window_row_of(b);
    if (x != y) return x < y ? -1 : 1;
    return a->start_ns < b->start_ns ? -1 : a->start_ns > b->start_ns;
}

/* Takes the kept spans of a step, in order, and the copies meanwhile. */
static int take_spans(struct window *w, const struct run_record *run, int step) {
    const struct span_log *log = &run->kept;
    w->spans = malloc((log->count + 1) * sizeof *w->spans);
    if (!w->spans) return fail(ERR_MEMORY, "report: out of host memory");
    w->step = step;
    w->start_ns = INT64_MAX;
    int64_t before = 0; /* the end of the previous step */
    for (size_t i = 0; i < log->count; i++) {
        const struct span *s = &log->spans[i];
        if (!is_of_step(s) || is_early(run, s)) continue;
        if (s->step == step - 1 && s->end_ns > before) before = s->end_ns;
        if (s->step != step) continue;
        if (s->start_ns < w->start_ns) w->start_ns = s->start_ns;
        if (s->end_ns > w->end_ns) w->end_ns = s->end_ns;
    }
    if (*run->modelled && before) w->start_ns = before;
    for (size_t i = 0; i < log->count; i++) {
        const struct span *s = &log->spans[i];
        if (!is_of_step(s) || (s->lane != LANE_COPY && s->step != step)) continue;
        if (s->device < 0 || s->device >= run->devices || s->end_ns < s->start_ns) continue;
        if (s->end_ns <= w->start_ns || s->start_ns >= w->end_ns) continue;
        w->spans[w->count++] = s;
        w->has_row[window_row_of(s)] = 1;
    }
    qsort(w->spans, w->count, sizeof *w->spans, in_place_order);
    if (!w->count) w->start_ns = 0;
    return OK;
}

int window_open(struct window *window, const struct run_record *run) {
    struct starts starts;
    memset(window, 0, sizeof *window);
    CHECK(find_starts(run, &starts));
    int i = choose(run, &starts);
    int code = starts.count ? take_spans(window, run, starts.first + i) : OK;
    if (starts.count) window->step_ns = starts.ns[i + 1] - starts.ns[i];
    free(starts.ns);
    return code;
}

void window_free(struct window *window) {
    free(window->spans);
    memset(window, 0, sizeof *window);
}
