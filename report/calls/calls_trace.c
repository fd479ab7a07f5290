/* A job's calls as a timeline: see calls.h. A rank is a device of a run, a call a span of its
 * communication lane, and below that lie its waits. */
#include <stdlib.h>

#include "base/error.h"
#include "report/calls/calls.h"
#include "report/chrome/chrome_trace.h"

static void add_call(struct run_record *run, int rank, const struct traced_group *g,
                     const struct traced_call *c) {
    uint64_t all = g->ranks < 64 ? ((uint64_t)1 << g->ranks) - 1 : UINT64_MAX;
    struct span span = {.start_ns = c->start_ns,
                        .end_ns = c->end_ns,
                        .bytes = c->bytes,
                        .step = c->message ? -1 : (int32_t)c->number,
                        .rank = (int16_t)rank,
                        .device = (int16_t)rank,
                        .lane = LANE_COMM};
    if (!c->message) {
        span.sources = span.destinations = all;
        span.ends_kind = SPAN_COLLECTIVE;
    }
    snprintf(span.name, sizeof span.name, "%s", c->name);
    span_add(&run->kept, &span);
    if (c->waited_ns <= 0) return;
    struct span wait = {.start_ns = c->start_ns,
                        .end_ns = c->start_ns + c->waited_ns,
                        .step = span.step,
                        .rank = span.rank,
                        .device = span.device,
                        .lane = LANE_HOST,
                        .waiting = 1};
    snprintf(wait.name, sizeof wait.name, "wait for rank %d", c->last);
    span_add(&run->kept, &wait);
}

static int make_run(struct run_record **out, const struct traced_group *g) {
    CHECK(record_new(out));
    struct run_record *run = *out;
    span_log_init(&run->kept, 1);
    snprintf(run->kind, sizeof run->kind, "rank");
    run->devices = g->ranks;
    for (int r = 0; r < g->ranks; r++) {
        const struct traced_rank *rank = &g->rank[r];
        for (size_t i = 0; i < rank->count; i++)
            add_call(run, r, g, &rank->calls[i]);
        if (rank->collectives && rank->calls[rank->collectives - 1].number > (uint64_t)run->steps)
            run->steps = (int)rank->calls[rank->collectives - 1].number;
    }
    run->first_step = 1; /* calls count from 1 */
    run->spans_lost = (int64_t)run->kept.dropped;
    return OK;
}

int calls_write_trace(const struct traced_job *job, struct atomic_file *file, const char *path) {
    struct trace_run *runs = calloc((size_t)job->groups + 1, sizeof *runs);
    struct run_record **made = calloc((size_t)job->groups + 1, sizeof *made);
    int code = runs && made ? OK : fail(ERR_MEMORY, "%s: no host memory", path);
    for (int i = 0; !code && i < job->groups; i++) {
        code = make_run(&made[i], &job->group[i]);
        runs[i] = (struct trace_run){.title = job->group[i].name, .run = made[i]};
    }
    int count = job->groups;
    if (!code && job->remote.workers) runs[count++] = remote_timeline(&job->remote);
    if (!code) code = chrome_trace_write(file, path, runs, count);
    for (int i = 0; made && i < job->groups; i++)
        record_delete(made[i]);
    free(made);
    free(runs);
    return code;
}
