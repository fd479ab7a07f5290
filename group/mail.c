/* Messages from one rank to one other: what a rank sends. What is under way between two ranks is
 * counted in pieces by both of them, each for itself (allreduce/plans/windows.c, SEND). The pieces
 * of a message that is sent are numbered when it is called. How messages come in: lane.c. */
#include "base/error.h"
#include "group/state.h"

uint64_t mail_pieces(const struct group *g, size_t count, enum element_type type) {
    size_t piece = g->memory.sizes.mail / MAIL_PIECES / element_bytes(type);
    return count ? (count + piece - 1) / piece : 1;
}

struct comm_flag *mail_flag(const struct group *g, int kind, int writer) {
    return &g->memory.flags[g->rank][kind * g->n + writer];
}

struct mail_head *mail_head_of(const struct group *g, int sender, int receiver, uint64_t first) {
    return &g->memory.heads[sender][receiver * MAIL_PIECES + (int)(first % MAIL_PIECES)];
}

/* work->base is set. */
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

static int begin_send(struct work *work, struct runner **runner) {
    struct group *g = work->group;
    const struct group_call *call = &work->call;
    int to = call->peer;
    if (!g->sends[to]) CHECK(runner_open(&g->sends[to], g, 1));
    *runner = g->sends[to];
    work->base = g->sent[to];
    g->sent[to] += mail_pieces(g, call->count, call->how.type);
    return plan_message(work);
}

/* A receive whose message will be the next one, as far as one knows now, has its plan ready. */
static int begin_receive(struct work *work, struct runner **runner) {
    struct group *g = work->group;
    const struct group_call *call = &work->call;
    int from = call->peer;
    CHECK(find_lane(runner, g, from, call->tag));
    if (from == ANY_SOURCE) return OK;
    pthread_mutex_lock(&g->mail_lock);
    if (!g->pending[from]) g->expected[from] = g->received[from];
    g->pending[from]++;
    work->base = g->expected[from];
    g->expected[from] += mail_pieces(g, call->count, call->how.type);
    pthread_mutex_unlock(&g->mail_lock);
    return plan_message(work);
}

int begin_message(struct work *work, struct runner **runner) {
    work->number = ++work->group->messages;
    return work->call.receive ? begin_receive(work, runner) : begin_send(work, runner);
}

static int send_message(struct runner *runner, struct work *work) {
    const struct group *g = work->group;
    const struct group_call *call = &work->call;
    CHECK(wait_on(runner, mail_flag(g, PLAN_TAKEN, call->peer), work->base + 1, call->peer));
    *mail_head_of(g, g->rank, call->peer, work->base) =
        (struct mail_head){call->count, call->how.type, call->tag};
    return run_parts(runner, work);
}

int run_message(struct runner *runner, struct work *work) {
    return work->call.receive ? receive_message(runner, work) : send_message(runner, work);
}
