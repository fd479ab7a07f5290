/* The event loop: see run.h.
 *
 * The heap has the due events: a thread continues, a stream checks its next entry, or a kernel, a
 * sum or transfers end. Whatever waits for an event or a thread is checked again when one of these
 * changes. */
#include "clock/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "clock/due.h"

struct thread {
    const struct program *program;
    int at, paid, sleeping; /* sleeping: an event of the heap wakes it */
};

struct queued {
    const struct scheduled *entry;
    int64_t from_ns; /* it cannot begin before this time */
};

struct lane_state {
    struct queued *queue; /* [count] owned, enough for everything that is ever issued */
    int first, count, room;
    int asked; /* entries below this index have an event for the time when they may begin */
    int running;
    int64_t start_ns, waiting_ns; /* start of the running entry; since when an entry waits, or -1 */
    double left, rate;            /* KERNEL: nanoseconds left at since_ns, and how fast they pass */
    int64_t since_ns;
    uint32_t change;
    int moving; /* transfers on their way, of a COPY or a GROUP */
};

struct rendezvous {
    uint64_t key;
    int arrived, stream[MAX_DEVICES];
};

enum { STREAMS = MAX_DEVICES * LANE_COUNT };

struct sim {
    const struct clock_config *c;
    struct span_log *spans;
    int64_t now;
    int changed, failed; /* something that others wait for changed; out of host memory */
    struct due_heap heap;
    struct thread thread[MOST_PROGRAMS];
    int threads, threads_of[MAX_DEVICES]; /* threads of each rank */
    int64_t lock_free_ns[MAX_DEVICES];    /* when each rank's interpreter lock is free */
    struct lane_state stream[STREAMS];
    int streams;
    uint64_t *issued, *reached, events; /* [events] number of the last record of each event */
    struct rendezvous meeting[64];
    struct transfers transfers;
    uint32_t transfers_change;
    int sharing; /* 1: an event will recompute the rates at this time */
};

static void push_at(struct sim *s, int64_t ns, enum due_kind kind, int of, uint32_t change) {
    due_push(&s->heap, (struct due){.ns = ns, .kind = kind, .of = of, .change = change});
}

/* ---- spans ---- */

static void add_span(struct sim *s, const struct scheduled *e, int64_t start, int waiting) {
    struct span span = e->facts;
    span.start_ns = start;
    span.end_ns = s->now;
    span.waiting = (uint8_t)waiting;
    if (waiting) {
        span.bytes = 0;
        snprintf(span.name, sizeof span.name, "wait");
    }
    span_add(s->spans, &span);
}

/* ---- streams ---- */

static const struct scheduled *head_of(const struct lane_state *l) {
    return l->first < l->count ? l->queue[l->first].entry : NULL;
}

/* Sums take some of the compute stream's time away while they move data. */
static double kernel_rate(const struct sim *s, int stream) {
    int lane = stream % LANE_COUNT;
    const struct lane_state *comm = &s->stream[stream - lane + LANE_COMM];
    const struct scheduled *e = head_of(comm);
    if (lane != LANE_COMPUTE || !comm->running || !e || e->kind != SCHEDULED_GROUP) return 1;
    return comm->moving ? 1 - s->c->machine->exposed : 1;
}

static void retime(struct sim *s, int stream) {
    struct lane_state *l = &s->stream[stream];
    const struct scheduled *e = head_of(l);
    if (!l->running || e->kind != SCHEDULED_KERNEL) return;
    l->left -= l->rate * (double)(s->now - l->since_ns);
    l->since_ns = s->now;
    l->rate = kernel_rate(s, stream);
    l->change++;
    if (l->rate > 0)
        push_at(s, s->now + (int64_t)ceil((l->left > 0 ? l->left : 0) / l->rate), DUE_END, stream,
                l->change);
}

/* The communication stream has begun, or ended, to move data. */
static void retime_beside(struct sim *s, int stream) {
    if (stream % LANE_COUNT == LANE_COMM) retime(s, stream - LANE_COMM + LANE_COMPUTE);
}

static void finish(struct sim *s, int stream) {
    struct lane_state *l = &s->stream[stream];
    add_span(s, head_of(l), l->start_ns, 0);
    l->first++;
    l->running = l->moving = 0;
    l->change++;
    s->changed = 1;
    retime_beside(s, stream);
}

static void begin_transfer(struct sim *s, int stream, const struct scheduled *e, int from, int to) {
    struct lane_state *l = &s->stream[stream];
    const struct machine *m = s->c->machine;
    struct transfer one = {.owner = stream, .bytes = cost_moved_bytes(s->c, e)};
    int of_host = from == SCHEDULED_HOST || to == SCHEDULED_HOST;
    if (from == to) /* within a device: read and written */
        one.own_rate = s->c->gpu->gbs * s->c->gpu->reached / 2;
    else
        net_way(&m->net, from, to, &one.way);
    if (of_host && s->c->pageable) one.own_rate = m->pageable_gbs;
    if (!l->moving++) retime_beside(s, stream);
    due_push(&s->heap, (struct due){.ns = s->now + (int64_t)ceil(one.way.us * 1e3),
                                    .kind = DUE_BEGIN,
                                    .of = stream,
                                    .transfer = one});
}

/* All ranks have arrived, so they leave together. */
static void meet(struct sim *s, int stream, const struct scheduled *e) {
    struct rendezvous *r = NULL;
    for (int i = 0; i < 64 && !r; i++)
        if (s->meeting[i].arrived && s->meeting[i].key == e->key) r = &s->meeting[i];
    for (int i = 0; i < 64 && !r; i++)
        if (!s->meeting[i].arrived) r = &s->meeting[i];
    s->failed |= !r;
    if (!r) return;
    r->key = e->key;
    r->stream[r->arrived++] = stream;
    if (r->arrived < e->ranks) return;
    int64_t ns = cost_sum(s->c, e->ranks, e->bytes, (enum scheduled_collective)e->collective);
    if (cost_leaves_out(s->c, e)) ns = 0;
    for (int i = 0; i < r->arrived; i++) {
        struct lane_state *l = &s->stream[r->stream[i]];
        l->moving = 1;
        retime_beside(s, r->stream[i]);
        push_at(s, s->now + ns, DUE_END, r->stream[i], l->change);
    }
    r->arrived = 0;
}

/* All moves of a group begin at once. */
static void begin_group(struct sim *s, int stream, const struct scheduled *e) {
    for (int i = 1; i <= e->parts; i++)
        begin_transfer(s, stream, &e[i], e[i].from, e[i].to);
    if (!e->parts) finish(s, stream);
}

static void begin(struct sim *s, int stream, const struct scheduled *e) {
    struct lane_state *l = &s->stream[stream];
    l->running = 1;
    l->start_ns = l->since_ns = s->now;
    l->moving = 0;
    l->left = e->kind == SCHEDULED_KERNEL ? (double)cost_kernel_ns(s->c, e) : 0;
    l->rate = 1;
    if (e->kind == SCHEDULED_KERNEL)
        retime(s, stream);
    else if (e->kind == SCHEDULED_COPY)
        begin_transfer(s, stream, e, e->from, e->to);
    else if (e->collective)
        meet(s, stream, e);
    else
        begin_group(s, stream, e);
}

/* Runs whatever may run now; waits and records take no time. */
static void look(struct sim *s, int stream) {
    struct lane_state *l = &s->stream[stream];
    while (!l->running && l->first < l->count) {
        const struct queued *q = &l->queue[l->first];
        const struct scheduled *e = q->entry;
        if (q->from_ns > s->now) {
            if (l->asked <= l->first) push_at(s, q->from_ns, DUE_STREAM, stream, 0);
            l->asked = l->first + 1;
            return;
        }
        if (e->kind == SCHEDULED_WAIT && s->reached[e->key] < e->value) {
            if (l->waiting_ns < 0) l->waiting_ns = s->now;
            return;
        }
        if (e->kind == SCHEDULED_WAIT && l->waiting_ns >= 0 && l->waiting_ns < s->now)
            add_span(s, e, l->waiting_ns, 1);
        l->waiting_ns = -1;
        if (e->kind == SCHEDULED_RECORD) {
            s->reached[e->key] = e->value;
            s->changed = 1;
        }
        if (e->kind == SCHEDULED_WAIT || e->kind == SCHEDULED_RECORD)
            l->first++;
        else
            begin(s, stream, e);
    }
}

static void enqueue(struct sim *s, const struct scheduled *e) {
    struct lane_state *l = &s->stream[scheduled_stream(e)];
    l->queue[l->count++] = (struct queued){e, s->now + cost_start_ns(s->c, e)};
    look(s, scheduled_stream(e));
}

/* ---- threads ---- */

/* 1: the thread must wait for others before it can continue with the entry. */
static int is_held(const struct sim *s, const struct scheduled *e) {
    const struct lane_state *l = &s->stream[scheduled_stream(e)];
    switch (e->kind) {
    case SCHEDULED_WAIT: return s->issued[e->key] < e->value;
    case SCHEDULED_HOST_WAIT: return s->reached[e->key] < e->value;
    case SCHEDULED_HOST_SYNC: return l->first < l->count;
    default: return 0;
    }
}

/* The host's part of an entry. 1: it takes time, and the thread continues after it. */
static int pays(struct sim *s, int t, const struct scheduled *e) {
    struct thread *thread = &s->thread[t];
    int rank = thread->program->rank;
    int64_t ns = thread->paid ? 0 : cost_issue_ns(s->c, e), from = s->now;
    if (ns == 0) return 0;
    if (s->threads_of[rank] > 1 && cost_holds_lock(s->c, e)) {
        if (s->lock_free_ns[rank] > from) from = s->lock_free_ns[rank];
        s->lock_free_ns[rank] = from + ns;
    }
    thread->paid = thread->sleeping = 1;
    push_at(s, from + ns, DUE_THREAD, t, 0);
    return 1;
}

static void run_thread(struct sim *s, int t) {
    struct thread *thread = &s->thread[t];
    const struct program *p = thread->program;
    while (!thread->sleeping && thread->at < p->count) {
        const struct scheduled *e = &p->list[thread->at];
        if (is_held(s, e) || pays(s, t, e)) return;
        thread->paid = 0;
        thread->at += 1 + e->parts;
        if (e->kind == SCHEDULED_HOST_WAIT || e->kind == SCHEDULED_HOST_SYNC) continue;
        if (e->kind == SCHEDULED_RECORD) {
            s->issued[e->key] = e->value;
            s->changed = 1;
        }
        enqueue(s, e);
    }
}

/* ---- the loop ---- */

/* Transfers have begun or ended, and more may do so at this same time. */
static void share_soon(struct sim *s) {
    s->transfers_change++;
    if (!s->sharing) push_at(s, s->now, DUE_SHARE, 0, 0);
    s->sharing = 1;
}

static void handle(struct sim *s, const struct due *d) {
    int owner;
    int64_t next;
    s->now = d->ns;
    switch (d->kind) {
    case DUE_THREAD: s->thread[d->of].sleeping = 0, run_thread(s, d->of); break;
    case DUE_STREAM: look(s, d->of); break;
    case DUE_END:
        if (d->change == s->stream[d->of].change) finish(s, d->of);
        break;
    case DUE_BEGIN:
        s->failed |= !transfers_begin(&s->transfers, s->now, &d->transfer);
        share_soon(s);
        break;
    case DUE_TRANSFERS:
        if (d->change != s->transfers_change) return;
        while ((owner = transfers_end_one(&s->transfers, s->now)) >= 0) {
            struct lane_state *l = &s->stream[owner];
            if (!--l->moving) finish(s, owner);
        }
        share_soon(s);
        break;
    case DUE_SHARE:
        s->sharing = 0;
        transfers_share(&s->transfers, s->now);
        next = transfers_next_ns(&s->transfers);
        if (next != INT64_MAX) push_at(s, next, DUE_TRANSFERS, 0, s->transfers_change);
        break;
    }
}

static void wake(struct sim *s) {
    while (s->changed && !s->failed && !s->heap.failed) {
        s->changed = 0;
        for (int i = 0; i < s->streams; i++)
            look(s, i);
        for (int t = 0; t < s->threads; t++)
            run_thread(s, t);
    }
}

static int stopped(const struct sim *s) {
    const char *who = NULL;
    for (int t = 0; t < s->threads; t++)
        if (s->thread[t].at < s->thread[t].program->count)
            who = s->thread[t].program->list[s->thread[t].at].facts.name;
    for (int i = 0; i < s->streams; i++)
        if (head_of(&s->stream[i])) who = head_of(&s->stream[i])->facts.name;
    return who ? fail(ERR_FAILED, "modelled clock: deadlock: %s waits forever", who) : OK;
}

static int prepare(struct sim *s, const struct program *programs, int count) {
    uint64_t keys = 1;
    s->threads = count;
    for (int t = 0; t < count; t++) {
        s->thread[t].program = &programs[t];
        s->threads_of[programs[t].rank]++;
        for (int i = 0; i < programs[t].count; i++) {
            const struct scheduled *e = &programs[t].list[i];
            if (e->kind != SCHEDULED_GROUP && e->key >= keys) keys = e->key + 1;
            if (e->facts.device >= s->streams / LANE_COUNT)
                s->streams = (e->facts.device + 1) * LANE_COUNT;
            s->stream[scheduled_stream(e)].room++;
        }
    }
    s->issued = calloc(keys, sizeof *s->issued);
    s->reached = calloc(keys, sizeof *s->reached);
    int full = !s->issued || !s->reached;
    for (int i = 0; i < s->streams; i++) {
        struct lane_state *l = &s->stream[i];
        l->waiting_ns = -1;
        if (l->room) full |= !(l->queue = calloc((size_t)l->room, sizeof *l->queue));
    }
    return full ? fail(ERR_MEMORY, "clock: out of host memory") : OK;
}

int clock_run(const struct clock_config *config, const struct program *programs, int count,
              struct span_log *spans) {
    struct sim *s = calloc(1, sizeof *s);
    if (!s) return fail(ERR_MEMORY, "clock: out of host memory");
    s->c = config;
    s->spans = spans;
    s->transfers.net = &config->machine->net;
    s->transfers.faster = config->machine->links * config->what_if.by[IF_LINK];
    int code = prepare(s, programs, count);
    s->changed = 1;
    if (!code) wake(s);
    while (!code && !s->failed && s->heap.count) {
        struct due d = due_pop(&s->heap);
        handle(s, &d);
        wake(s);
    }
    if (!code)
        code = s->failed || s->heap.failed ? fail(ERR_MEMORY, "clock: out of host memory")
                                           : stopped(s);
    for (int i = 0; i < s->streams; i++)
        free(s->stream[i].queue);
    transfers_free(&s->transfers);
    free(s->issued);
    free(s->reached);
    free(s->heap.list);
    free(s);
    return code;
}
