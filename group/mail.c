/* Messages from one rank to one other. What is under way between two ranks is counted in pieces by
 * both of them, each for itself (allreduce/plans/windows.c, SEND); a message takes its pieces when
 * it is called, or, where it may come from anybody, when the first message has come. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/state.h"

static size_t pieces_of(const struct group *g, const struct group_call *call) {
    size_t piece = g->memory.sizes.mail / MAIL_PIECES / element_bytes(call->how.type);
    return call->count ? (call->count + piece - 1) / piece : 1;
}

/* The flag of `kind` that `writer` posts to this rank. */
static struct comm_flag *flag_from(const struct group *g, int kind, int writer) {
    return &g->memory.flags[g->rank][kind * g->n + writer];
}

/* Where the sender describes the message whose first piece is number `first`. */
static struct mail_head *head_of(const struct group *g, int sender, int receiver, uint64_t first) {
    return &g->memory.heads[sender][receiver * MAIL_PIECES + (int)(first % MAIL_PIECES)];
}

static int find_lane(struct runner **runner, struct group *g) {
    return *runner ? OK : runner_open(runner, g, 1);
}

static int plan_message(struct work *work) {
    struct window_request q = request_of(work->group, &work->call);
    size_t count = work->call.count;
    q.first = work->base % MAIL_PIECES;
    work->longest = window_longest(&q);
    work->parts = count > work->longest ? (count + work->longest - 1) / work->longest : 1;
    q.count = count - (work->parts - 1) * work->longest;
    CHECK(take_plan(work->group, &q, &work->last));
    if (work->parts == 1) return OK;
    q.count = work->longest;
    return take_plan(work->group, &q, &work->full);
}

static uint64_t claim(struct group *g, uint64_t *counter, const struct group_call *call) {
    pthread_mutex_lock(&g->mail_lock);
    uint64_t first = *counter;
    *counter += pieces_of(g, call);
    pthread_mutex_unlock(&g->mail_lock);
    return first;
}

int begin_message(struct work *work, struct runner **runner) {
    struct group *g = work->group;
    const struct group_call *call = &work->call;
    int peer = call->peer;
    struct runner **which = peer == ANY_SOURCE ? &g->anybody
                            : call->receive    ? &g->receives[peer]
                                               : &g->sends[peer];
    work->number = ++g->messages;
    CHECK(find_lane(which, g));
    *runner = *which;
    if (peer == ANY_SOURCE) return OK;
    work->base = claim(g, call->receive ? &g->received[peer] : &g->sent[peer], call);
    return plan_message(work);
}

/* ---- from anybody ---- */

/* A rank that has sent more than all receives so far have claimed; -1: none. */
static int claim_from_anybody(struct group *g, struct work *work) {
    int source = -1;
    pthread_mutex_lock(&g->mail_lock);
    for (int r = 0; r < g->n && source < 0; r++) {
        uint64_t sent = __atomic_load_n(&flag_from(g, PLAN_SENT, r)->epoch, __ATOMIC_ACQUIRE);
        if (r == g->rank || sent <= g->received[r]) continue;
        source = r;
        work->base = g->received[r];
        g->received[r] += pieces_of(g, &work->call);
    }
    pthread_mutex_unlock(&g->mail_lock);
    return source;
}

/* There is no one flag to sleep on: it looks at all of them, at first often. */
static int find_source(struct work *work) {
    struct group *g = work->group;
    struct comm *comm = g->job->comm;
    double limit = g->timeout_s > 0 ? g->timeout_s : comm_timeout_s(comm);
    int64_t start = now_ns(), pause = 2000;
    while ((work->source = claim_from_anybody(g, work)) < 0) {
        CHECK(comm_check(comm));
        if ((double)(now_ns() - start) * 1e-9 > limit) {
            int code = fail(ERR_TIMEOUT, "rank %d: recv #%llu from any rank: nothing came in %g s",
                            g->ranks[g->rank], (unsigned long long)work->number, limit);
            comm_abort(comm, code, error_message());
            return code;
        }
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
        if (pause < 200000) pause += pause / 4;
    }
    return OK;
}

/* The runner's thread builds the plans of its own, apart from those that the group keeps. */
static int run_from_anybody(struct runner *runner, struct work *work) {
    struct group_plan last = {0}, full = {0};
    CHECK(find_source(work));
    work->call.peer = work->source;
    struct window_request q = request_of(work->group, &work->call);
    size_t count = work->call.count;
    q.first = work->base % MAIL_PIECES;
    work->longest = window_longest(&q);
    work->parts = count > work->longest ? (count + work->longest - 1) / work->longest : 1;
    q.count = count - (work->parts - 1) * work->longest;
    CHECK(plan_build_window(&last.plan, &q));
    q.count = work->longest;
    int code = work->parts > 1 ? plan_build_window(&full.plan, &q) : OK;
    work->last = &last;
    work->full = work->parts > 1 ? &full : NULL;
    if (!code) code = run_message(runner, work);
    work->last = work->full = NULL;
    plan_free(&last.plan);
    plan_free(&full.plan);
    return code;
}

/* ---- running ---- */

static int send_head(struct runner *runner, struct work *work) {
    const struct group *g = work->group;
    int to = work->call.peer;
    CHECK(wait_on(runner, flag_from(g, PLAN_TAKEN, to), work->base + 1, to));
    *head_of(g, g->rank, to, work->base) =
        (struct mail_head){work->call.count, work->call.how.type, 0};
    return OK;
}

static int check_head(struct runner *runner, struct work *work) {
    const struct group *g = work->group;
    const struct group_call *call = &work->call;
    int from = call->peer;
    /* A piece that this rank reports as taken stands for all before it. So of two runners that
     * receive from one sender, one of them from anybody, the later message waits for the other. */
    CHECK(wait_on(runner, &g->memory.flags[from][PLAN_TAKEN * g->n + g->rank],
                  work->base + MAIL_PIECES, g->rank));
    CHECK(wait_on(runner, flag_from(g, PLAN_SENT, from), work->base + 1, from));
    const struct mail_head *head = head_of(g, from, g->rank, work->base);
    if (head->count == call->count && head->type == (uint32_t)call->how.type) return OK;
    int code =
        fail(ERR_FAILED,
             "rank %d: recv #%llu from rank %d: it sent %llu elements of %s, and %llu of %s are "
             "expected: give both tensors the same size and type",
             g->ranks[g->rank], (unsigned long long)work->number, g->ranks[from],
             (unsigned long long)head->count,
             head->type < ELEMENT_TYPES ? element_type_name((enum element_type)head->type) : "?",
             (unsigned long long)call->count, element_type_name(call->how.type));
    comm_abort(g->job->comm, code, error_message());
    return code;
}

int run_message(struct runner *runner, struct work *work) {
    if (work->call.peer == ANY_SOURCE) return run_from_anybody(runner, work);
    CHECK(work->call.receive ? check_head(runner, work) : send_head(runner, work));
    return run_parts(runner, work);
}
