/* Messages from one rank to another arrive in one row, whatever their tags are. Both ranks count
 * its pieces, each for itself (group/plans/mailbox.c). Receives of one tag form a queue, and the
 * queues of one sender take turns at the row:
 *
 *     row of rank 2:   tag 0 | tag 5 | tag 0 | ...
 *
 *     queue (2, tag 5)  takes the first message into a stash, and the second one for itself
 *     queue (2, tag 0)  finds its message in the stash
 *
 * So no queue waits for another to receive first, and a message without a receive delays no other
 * message. A receive from any rank looks at all rows. If two receives match a message, the one that
 * names its sender gets it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/state.h"

void free_receives(struct group *g) {
    while (g->receives) {
        struct runner *next = g->receives->next;
        runner_close(g->receives);
        g->receives = next;
    }
    while (g->stash) {
        struct stashed *next = g->stash->next;
        free(g->stash->data);
        free(g->stash);
        g->stash = next;
    }
}

/* ---- the stash; mailbox_lock is held ---- */

static int wants(const struct group_call *call, int source, int tag) {
    return call->tag == tag && (call->peer == source || call->peer == ANY_SOURCE);
}

static struct stashed *unstash(struct group *g, const struct group_call *call) {
    for (struct stashed **s = &g->stash; *s; s = &(*s)->next) {
        struct stashed *found = *s;
        if (!wants(call, found->source, found->head.tag)) continue;
        *s = found->next;
        return found;
    }
    return NULL;
}

static void put_last(struct group *g, struct stashed *message) {
    struct stashed **s = &g->stash;
    while (*s)
        s = &(*s)->next;
    *s = message;
}

/* ---- a message of a row ---- */

int judge_message(struct work *work, const struct mailbox_head *head, int from) {
    const struct group *g = work->group;
    const struct group_call *call = &work->call;
    if (head->count == call->count && head->type == (uint32_t)call->how.type) return OK;
    int code =
        fail(ERR_FAILED,
             "rank %d: recv #%llu from rank %d: it sent %llu elements of %s, and %llu of %s are "
             "expected: give both tensors the same size and type",
             g->ranks[g->rank], (unsigned long long)work->number, g->ranks[from],
             (unsigned long long)head->count,
             head->type < ELEMENT_TYPES ? dtype_name((enum dtype)head->type) : "?",
             (unsigned long long)call->count, dtype_name(call->how.type));
    comm_abort(g->job->comm, code, error_message());
    return code;
}

/* Takes the message that begins at piece `base` of the row of `from` to `output`, by separate
 * plans: those of the group are for one thread. */
static int take(struct runner *runner, const struct work *work, const struct mailbox_head *head,
                int from, uint64_t base, void *output) {
    struct group_plan last = {0}, full = {0};
    struct work part = {.group = work->group, .call = work->call, .base = base, .last = &last};
    part.call.peer = from;
    part.call.count = head->count;
    part.call.how.type = (enum dtype)head->type;
    part.call.output = output;
    struct window_request q = request_of(part.group, &part.call);
    q.first = base % MAILBOX_PIECES;
    part.longest = window_longest(&q);
    part.parts = head->count > part.longest ? (head->count + part.longest - 1) / part.longest : 1;
    q.count = head->count - (part.parts - 1) * part.longest;
    CHECK(plan_build_window(&last.plan, &q));
    q.count = part.longest;
    int code = part.parts > 1 ? plan_build_window(&full.plan, &q) : OK;
    part.full = part.parts > 1 ? &full : NULL;
    if (!code) code = run_parts(runner, &part);
    plan_free(&last.plan);
    plan_free(&full.plan);
    return code;
}

static int take_for_others(struct runner *runner, struct work *work,
                           const struct mailbox_head *head, int from, uint64_t base) {
    struct group *g = work->group;
    struct stashed *message = calloc(1, sizeof *message);
    size_t bytes = head->count * dtype_bytes((enum dtype)head->type);
    if (message)
        *message = (struct stashed){.head = *head, .source = from, .data = malloc(bytes + 1)};
    int code = message && message->data
                   ? take(runner, work, head, from, base, message->data)
                   : fail(ERR_MEMORY,
                          "rank %d: a message of %zu bytes from rank %d, tag %d, that "
                          "nobody receives yet: out of host memory: free some",
                          g->ranks[g->rank], bytes, g->ranks[from], head->tag);
    if (code) {
        if (message) free(message->data);
        free(message);
        return code;
    }
    pthread_mutex_lock(&g->mailbox_lock);
    put_last(g, message);
    pthread_mutex_unlock(&g->mailbox_lock);
    return OK;
}

/* This work has its turn at the row of `from`: it reads the first message. *taken 1: it kept it. */
static int take_first(struct runner *runner, struct work *work, int from, int *taken) {
    struct group *g = work->group;
    uint64_t base = g->received[from]; /* changed only by the work whose turn it is */
    struct host_slot *slot = mailbox_slot(g, from, base);
    CHECK(wait_on(runner, (struct comm_flag *)slot, base + 1, from));
    const struct mailbox_head head = {slot->signature, (uint32_t)slot->more,
                                      (int32_t)(slot->more >> 32)};
    *taken = wants(&work->call, from, head.tag);
    int code = *taken ? judge_message(work, &head, from)
                      : take_for_others(runner, work, &head, from, base);
    if (*taken && !code) code = take(runner, work, &head, from, base, work->call.output);
    if (*taken) work->source = from;
    pthread_mutex_lock(&g->mailbox_lock);
    g->received[from] = base + mailbox_pieces(g, head.count, (enum dtype)head.type);
    pthread_mutex_unlock(&g->mailbox_lock);
    return code;
}

/* ---- whose turn it is ---- */

static int has_come(const struct group *g, int from) {
    uint64_t next = g->received[from];
    return __atomic_load_n(&mailbox_slot(g, from, next)->epoch, __ATOMIC_ACQUIRE) > next;
}

/* A row that this work may read now, -1: none; or a message of the stash. */
static int find_row(struct group *g, const struct group_call *call, struct stashed **stashed) {
    int row = -1;
    pthread_mutex_lock(&g->mailbox_lock);
    *stashed = unstash(g, call);
    for (int r = 0; r < g->n && row < 0 && !*stashed; r++) {
        if (r == g->rank || g->taking[r]) continue;
        if (call->peer == ANY_SOURCE ? has_come(g, r) && !g->pending[r] : call->peer == r) row = r;
    }
    if (row >= 0) g->taking[row] = 1;
    pthread_mutex_unlock(&g->mailbox_lock);
    return row;
}

static void leave_row(struct group *g, int row) {
    pthread_mutex_lock(&g->mailbox_lock);
    g->taking[row] = 0;
    pthread_mutex_unlock(&g->mailbox_lock);
}

static int copy_stashed(struct work *work, struct stashed *message) {
    int code = judge_message(work, &message->head, message->source);
    size_t bytes = message->head.count * dtype_bytes(work->call.how.type);
    if (!code && bytes) memcpy(work->call.output, message->data, bytes);
    work->source = message->source;
    free(message->data);
    free(message);
    return code;
}

static int nothing_came(const struct work *work, double limit) {
    const struct group *g = work->group;
    char from[32] = "any rank", others[ERROR_BYTES / 2];
    if (work->call.peer != ANY_SOURCE)
        snprintf(from, sizeof from, "rank %d", g->ranks[work->call.peer]);
    comm_whereabouts(g->job->comm, others, sizeof others);
    int code = fail(ERR_TIMEOUT, "rank %d: %s #%llu from %s: nothing arrived within %g s%s",
                    g->ranks[g->rank], g->names.recv, (unsigned long long)work->number, from, limit,
                    others);
    comm_abort(g->job->comm, code, error_message());
    return code;
}

/* Waits until this work has a row or a message of the stash. There is no single flag to sleep on,
 * so it polls, at first often. */
static int wait_for_row(struct work *work, int *row, struct stashed **stashed) {
    struct group *g = work->group;
    struct comm *comm = g->job->comm;
    double limit = g->timeout_s > 0 ? g->timeout_s : comm_timeout_s(comm);
    const struct comm_wait_reason reason = {.collective = g->names.recv,
                                            .bucket = -1,
                                            .step = -1,
                                            .peer = -1,
                                            .number = work->number,
                                            .timeout_s = limit + 1};
    struct wait wait = {0};
    int64_t start = 0, pause = 2000;
    int code = OK;
    while (!code && (*row = find_row(g, &work->call, stashed)) < 0 && !*stashed) {
        if (!start) {
            comm_distant_begin(comm, &wait, &reason);
            start = now_ns();
        }
        code = comm_distant_look(&wait);
        if (!code && (double)(now_ns() - start) * 1e-9 > limit) code = nothing_came(work, limit);
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
        if (pause < 200000) pause += pause / 4;
    }
    comm_distant_end(&wait);
    return code;
}

static int receive(struct runner *runner, struct work *work) {
    for (int taken = 0, row; !taken;) {
        struct stashed *stashed;
        CHECK(wait_for_row(work, &row, &stashed));
        if (stashed) return copy_stashed(work, stashed);
        int code = take_first(runner, work, row, &taken);
        leave_row(work->group, row);
        if (code) return code;
    }
    return OK;
}

int receive_message(struct runner *runner, struct work *work) {
    struct group *g = work->group;
    int from = work->call.peer, code = receive(runner, work);
    if (from == ANY_SOURCE) return code;
    pthread_mutex_lock(&g->mailbox_lock);
    g->pending[from]--;
    pthread_mutex_unlock(&g->mailbox_lock);
    return code;
}
