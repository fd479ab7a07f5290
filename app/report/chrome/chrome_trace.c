/* Writes Chrome trace events: see chrome_trace.h. A slice is an "X" event with a start and a
 * duration; the names of processes and tracks are "M" events. Slices on one track must be disjoint
 * or nested, so steps and phases have a track of their own. */
#include "report/chrome/chrome_trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/text.h"

/* Process ids, which viewers show: 100, 101, ... for the devices of the first run, 200, ... for
 * those of the second. */
enum { RUN_PROCESSES = 100 };
_Static_assert(MAX_DEVICES <= RUN_PROCESSES, "two runs would share process ids");
/* Thread ids: TRACK_STEPS, and TRACK_LANES + lane. Perfetto takes a thread whose id is that of its
 * process for the main thread, so no id is. */
enum track { TRACK_STEPS = 1, TRACK_LANES };

struct writer {
    struct json_writer json;
    const struct trace_run *run;
    int first_process; /* id of the run's device 0 */
    int process;       /* id of the device being written */
    int64_t zero_ns;   /* when the run's first span began */
};

/* ---- events, one after another ---- */

/* Writes a slice up to its args, to which the caller adds; close_event ends it. */
static void open_slice(struct writer *w, int track, const char *name, const char *category,
                       int64_t start_ns, int64_t end_ns) {
    json_slice(&w->json, w->process, track, name, category, start_ns - w->zero_ns,
               end_ns - w->zero_ns);
}

static void close_event(struct writer *w) {
    json_close(&w->json);
    json_close(&w->json);
}

/* An event "M": the name of a process, which has no track, or of a thread. */
static void write_name(struct writer *w, const char *what, int track, const char *name) {
    fputc('\n', w->json.file);
    json_object(&w->json, NULL);
    json_string(&w->json, "ph", "M");
    json_integer(&w->json, "pid", w->process);
    json_integer(&w->json, "tid", track);
    json_string(&w->json, "name", what);
    json_object(&w->json, "args");
    json_string(&w->json, "name", name);
    close_event(w);
}

/* ---- a span ---- */

static const char *const lane_titles[LANE_COUNT] = {"compute", "communication", "copy", "host"};

/* "cpu(1)", "cpu(0), cpu(2), host": an end of a copy. */
static void write_end(struct writer *w, const char *key, uint64_t devices, int host) {
    char text[1024] = "";
    for (int d = 0; d < MAX_DEVICES; d++)
        if (devices >> d & 1)
            text_append(text, sizeof text, "%s%s(%d)", *text ? ", " : "", w->run->run->kind, d);
    if (host) text_append(text, sizeof text, "%shost", *text ? ", " : "");
    if (*text) json_string(&w->json, key, text);
}

static void write_span(struct writer *w, const struct span *s) {
    open_slice(w, TRACK_LANES + s->lane, s->name, s->waiting ? "waiting" : phase_name(s->phase),
               s->start_ns, s->end_ns);
    json_integer(&w->json, "step", s->step);
    json_string(&w->json, "phase", phase_name(s->phase));
    if (s->cpu_ns) json_integer(&w->json, "cpu_ns", s->cpu_ns);
    if (s->bytes) json_natural(&w->json, "bytes", s->bytes);
    write_end(w, "source", s->sources, s->ends_kind & SPAN_FROM_HOST);
    write_end(w, "destination", s->destinations, s->ends_kind & SPAN_TO_HOST);
    if (s->flops > 0) json_number(&w->json, "flops", s->flops);
    close_event(w);
}

/* ---- steps and phases, from the spans of a compute lane in their order ---- */

/* The step that a span belongs to; -1 for evaluation and reading logs, between two steps. */
static int step_of(const struct span *s) {
    return s->phase == PHASE_EVALUATE || s->phase == PHASE_NONE ? -1 : s->step;
}

/* The number of spans from spans[0] on that belong to the same step, and with of_phase also to the
 * same phase. */
static size_t run_length(const struct span *const *spans, size_t count, int of_phase) {
    size_t n = 1;
    while (n < count && step_of(spans[n]) == step_of(spans[0]) &&
           (!of_phase || spans[n]->phase == spans[0]->phase))
        n++;
    return n;
}

static void write_stretch(struct writer *w, const struct span *const *spans, size_t count,
                          const char *name) {
    open_slice(w, TRACK_STEPS, name, "steps", spans[0]->start_ns, spans[count - 1]->end_ns);
    close_event(w);
}

static void write_steps(struct writer *w, const struct span *const *spans, size_t count) {
    for (size_t i = 0, n; i < count; i += n) {
        char name[32];
        n = run_length(spans + i, count - i, 0);
        snprintf(name, sizeof name, "step %d", step_of(spans[i]));
        if (step_of(spans[i]) >= 0) write_stretch(w, spans + i, n, name);
        for (size_t k = 0, m; k < n; k += m) {
            const struct span *const *first = spans + i + k;
            m = run_length(first, n - k, 1);
            if (first[0]->phase != PHASE_NONE)
                write_stretch(w, first, m, phase_name(first[0]->phase));
        }
    }
}

/* ---- one device, one run ---- */

static void write_device(struct writer *w, const struct span *const *spans, size_t count) {
    char name[256];
    int lane = -1;
    snprintf(name, sizeof name, "%s: %s(%d)", w->run->title, w->run->run->kind, spans[0]->device);
    write_name(w, "process_name", 0, name);
    for (size_t i = 0; i < count; i++) {
        if (spans[i]->lane == LANE_COMPUTE && lane < 0) {
            size_t n = 1;
            while (i + n < count && spans[i + n]->lane == LANE_COMPUTE)
                n++;
            write_name(w, "thread_name", TRACK_STEPS, "steps and phases");
            write_steps(w, spans + i, n);
        }
        if (spans[i]->lane != lane) {
            lane = spans[i]->lane;
            write_name(w, "thread_name", TRACK_LANES + lane, lane_titles[lane]);
        }
        write_span(w, spans[i]);
    }
}

/* Orders spans by device, lane and start. If two start together, the longer one comes first, so
 * that the other is inside it. */
static int compare_spans(const void *left, const void *right) {
    const struct span *a = *(const struct span *const *)left,
                      *b = *(const struct span *const *)right;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    if (a->start_ns != b->start_ns) return a->start_ns < b->start_ns ? -1 : 1;
    int a_takes_none = a->end_ns == a->start_ns, b_takes_none = b->end_ns == b->start_ns;
    if (a_takes_none != b_takes_none) return a_takes_none ? -1 : 1;
    if (a->end_ns != b->end_ns) return a->end_ns > b->end_ns ? -1 : 1;
    return a < b ? -1 : a > b;
}

static int write_run(struct writer *w) {
    const struct span_log *kept = &w->run->run->kept;
    const struct span **spans = malloc((kept->count + 1) * sizeof *spans);
    if (!spans) return fail(ERR_MEMORY, "trace: out of host memory for %zu spans", kept->count);
    w->zero_ns = INT64_MAX;
    for (size_t i = 0; i < kept->count; i++) {
        spans[i] = &kept->spans[i];
        if (spans[i]->start_ns < w->zero_ns) w->zero_ns = spans[i]->start_ns;
    }
    qsort(spans, kept->count, sizeof *spans, compare_spans);
    for (size_t i = 0, n; i < kept->count; i += n) {
        for (n = 1; i + n < kept->count && spans[i + n]->device == spans[i]->device;)
            n++;
        w->process = w->first_process + spans[i]->device;
        write_device(w, spans + i, n);
    }
    free(spans);
    return OK;
}

/* Says what the runs were, for those who find the file later. Perfetto shows it under "Info and
 * stats". */
static void write_facts(struct json_writer *w, const struct trace_run *runs, int count) {
    json_object(w, "otherData");
    for (int i = 0; i < count; i++) {
        const struct run_record *r = runs[i].run;
        char text[256], lost[64] = "";
        int kept = r->steps < TRACE_STEPS ? r->steps : TRACE_STEPS;
        if (r->spans_lost)
            snprintf(lost, sizeof lost, "; %" PRId64 " spans lost because memory ran out",
                     r->spans_lost);
        snprintf(text, sizeof text, "%s on %s, %s, %s x %d, global batch %d, %d of %d steps%s",
                 r->model, r->dataset, r->optimizer, r->kind, r->devices, r->batch_size, kept,
                 r->steps, lost);
        json_string(w, runs[i].title, text);
    }
    json_close(w);
}

int chrome_trace_write(struct atomic_file *file, const char *path, const struct trace_run *runs,
                       int count) {
    struct writer w = {0};
    if (!file->file) return OK;
    json_start(&w.json, file->file);
    json_object(&w.json, NULL);
    json_string(&w.json, "displayTimeUnit", "ms");
    write_facts(&w.json, runs, count);
    json_array(&w.json, "traceEvents");
    for (int i = 0; i < count; i++) {
        w.run = &runs[i];
        w.first_process = (i + 1) * RUN_PROCESSES;
        CHECK(write_run(&w));
    }
    json_close(&w.json);
    json_close(&w.json);
    CHECK(json_finish(&w.json, path));
    return atomic_commit(file);
}
