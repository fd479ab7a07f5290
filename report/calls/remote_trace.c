/* Remote calls as a timeline: see remote.h. A worker is a process of the trace. A call is a slice
 * at its caller and one at its callee, in which its queue and then its work lie; arrows lead there
 * and back. What a function calls lies in its slice. Calls at the same time have rows of their own.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "report/calls/remote.h"
#include "report/chrome/chrome_writer.h"

enum { ROWS = 64, DEPTH = 64 };

/* One end of a call. */
struct slice {
    const struct remote_call *call;
    int worker, served, row; /* row -1: all were taken */
    int64_t start, end;
};

static int by_start(const void *left, const void *right) {
    const struct slice *a = left, *b = right;
    if (a->worker != b->worker) return a->worker - b->worker;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    return a->end > b->end ? -1 : a->end < b->end;
}

struct row {
    const struct slice *open[DEPTH]; /* slices that lie in each other */
    int depth;
};

/* Into `row`: where nothing is open, or in the slice of the function that makes the call. */
static int fits(struct row *row, const struct slice *s) {
    while (row->depth && row->open[row->depth - 1]->end <= s->start)
        row->depth--;
    if (!row->depth) return 1;
    const struct slice *top = row->open[row->depth - 1];
    return row->depth < DEPTH && !s->served && top->served && s->call->within == top->call->id &&
           s->end <= top->end;
}

static void find_rows(struct slice *slices, size_t count) {
    struct row rows[ROWS];
    for (size_t i = 0; i < count; i++) {
        struct slice *s = &slices[i];
        if (!i || s->worker != slices[i - 1].worker) memset(rows, 0, sizeof rows);
        s->row = -1;
        /* in the function's slice first, then wherever there is room */
        for (int inside = 1; inside >= 0 && s->row < 0; inside--)
            for (int r = 0; r < ROWS && s->row < 0; r++)
                if (fits(&rows[r], s) && (rows[r].depth > 0) == inside) s->row = r;
        if (s->row >= 0) rows[s->row].open[rows[s->row].depth++] = s;
    }
}

/* ---- events ---- */

static void write_slice(struct writer *w, const struct remote_job *job, const struct slice *s) {
    const struct remote_call *c = s->call;
    char name[2 * REMOTE_NAME];
    snprintf(name, sizeof name, "%s %s %s", job->function[c->function], s->served ? "for" : "at",
             job->worker[s->served ? c->from : c->to]);
    open_slice(w, TRACK_LANES + s->row, name, s->served ? "run" : "called", s->start, s->end);
    json_natural(&w->json, "bytes", c->bytes);
    if (c->failed) json_boolean(&w->json, "failed", 1);
    close_event(w);
    if (!s->served || c->began <= c->came) return;
    open_slice(w, TRACK_LANES + s->row, "queue", "waiting", c->came, c->began);
    close_event(w);
}

static void write_end(struct writer *w, const struct slice *s, const char *kind, int64_t ns,
                      const char *name) {
    w->process = w->first_process + s->worker;
    open_event(w, kind, TRACK_LANES + s->row, name);
    json_string(&w->json, "cat", "transfer");
    json_integer(&w->json, "id", w->arrows);
    write_time(w, "ts", ns - w->zero_ns);
    if (*kind == 'f') json_string(&w->json, "bp", "e"); /* attach to the slice around it */
    close_object(w);
}

/* There, and back unless the caller gave up before. */
static void write_arrows(struct writer *w, const struct slice *caller, const struct slice *callee) {
    const struct remote_call *c = caller->call;
    if (caller->row < 0 || callee->row < 0 || c->came < c->begun) return;
    w->arrows++;
    write_end(w, caller, "s", c->begun, "there");
    write_end(w, callee, "f", c->came, "there");
    if (c->ended <= c->done) return;
    w->arrows++;
    write_end(w, callee, "s", c->done > c->came ? c->done - 1 : c->came, "back");
    write_end(w, caller, "f", c->ended - 1, "back");
}

static void write_worker(struct writer *w, const struct remote_job *job, const struct slice *slices,
                         size_t count) {
    char name[REMOTE_NAME + 8];
    int last = -1;
    snprintf(name, sizeof name, "rpc: %s", job->worker[slices->worker]);
    w->process = w->first_process + slices->worker;
    write_name(w, "process_name", 0, name);
    write_place(w, "process_sort_index", 0, w->process);
    for (size_t i = 0; i < count; i++) {
        if (slices[i].row > last) {
            last = slices[i].row;
            snprintf(name, sizeof name, "calls %d", last + 1);
            write_name(w, "thread_name", TRACK_LANES + last, name);
            write_place(w, "thread_sort_index", TRACK_LANES + last, last);
        }
        if (slices[i].row >= 0) write_slice(w, job, &slices[i]);
    }
}

static int by_call(const void *left, const void *right) {
    const struct slice *a = left, *b = right;
    if (a->call != b->call) return a->call < b->call ? -1 : 1;
    return a->served - b->served;
}

static void write_all(struct writer *w, const struct remote_job *job, struct slice *slices,
                      size_t count) {
    for (size_t i = 0, n; i < count; i += n) {
        for (n = 1; i + n < count && slices[i + n].worker == slices[i].worker;)
            n++;
        write_worker(w, job, &slices[i], n);
    }
    qsort(slices, count, sizeof *slices, by_call);
    for (size_t i = 1; i < count; i++)
        if (slices[i].call == slices[i - 1].call) write_arrows(w, &slices[i - 1], &slices[i]);
}

static int write_run(struct writer *w, const void *of) {
    const struct remote_job *job = of;
    struct slice *slices = malloc((2 * job->count + 1) * sizeof *slices);
    size_t count = 0;
    if (!slices) return fail(ERR_MEMORY, "trace: no host memory for %zu calls", job->count);
    for (size_t i = 0; i < job->count; i++) {
        const struct remote_call *c = &job->call[i];
        if (c->has_caller) slices[count++] = (struct slice){c, c->from, 0, -1, c->begun, c->ended};
        if (c->has_callee) slices[count++] = (struct slice){c, c->to, 1, -1, c->came, c->done};
    }
    if (count) qsort(slices, count, sizeof *slices, by_start);
    find_rows(slices, count);
    w->zero_ns = job->first_ns;
    write_all(w, job, slices, count);
    free(slices);
    return OK;
}

struct trace_run remote_timeline(const struct remote_job *job) {
    return (struct trace_run){.title = "rpc", .write = write_run, .of = job};
}
