/* Messages from one rank to one other: what a rank sends. What is under way between two ranks is
 * counted in pieces by both of them, each for itself (group/plans/mail.c). The pieces
 * of a message that is sent are numbered when it is called. How messages come in: tags.c. */
#include "base/error.h"
#include "group/state.h"

static struct kept_message *kept_of(struct group *g, const struct group_call *call, size_t first) {
    size_t kind = call->count * 37 + (size_t)call->peer * 13 + (size_t)call->how.type * 5;
    return &g->kept[(kind * 8 + first * 2 + (call->receive != 0)) % KEPT_MESSAGES];
}

static int is_kept(const struct kept_message *kept, const struct group_call *call, size_t first) {
    return kept->plan && kept->count == call->count && kept->peer == call->peer &&
           kept->receive == call->receive && kept->type == call->how.type && kept->first == first;
}

static void keep(struct kept_message *kept, const struct work *work, size_t first) {
    const struct group_call *call = &work->call;
    if (kept->plan) kept->plan->users--;
    work->last->users++;
    *kept = (struct kept_message){.count = call->count,
                                  .first = first,
                                  .peer = call->peer,
                                  .receive = call->receive,
                                  .type = call->how.type,
                                  .plan = work->last};
}

/* work->base is set. */
static int plan_message(struct work *work) {
    struct group *g = work->group;
    size_t count = work->call.count, first = work->base % MAILBOX_PIECES;
    struct kept_message *kept = kept_of(g, &work->call, first);
    work->parts = 1;
    if (is_kept(kept, &work->call, first)) {
        work->last = kept->plan;
        work->last->users++;
        return OK;
    }
    struct window_request q = request_of(g, &work->call);
    q.first = first;
    work->longest = window_longest(&q);
    if (count > work->longest) work->parts = (count + work->longest - 1) / work->longest;
    q.count = count - (work->parts - 1) * work->longest;
    CHECK(take_plan(g, &q, &work->last));
    if (work->last->plan.epochs == 1 && work->parts == 1) keep(kept, work, first);
    if (work->parts == 1) return OK;
    q.count = work->longest;
    return take_plan(g, &q, &work->full);
}

static int begin_send(struct work *work, struct runner **runner) {
    struct group *g = work->group;
    const struct group_call *call = &work->call;
    int to = call->peer;
    if (!g->sends[to]) CHECK(runner_open(&g->sends[to], g, RUNS_SENDS));
    *runner = g->sends[to];
    work->base = g->sent[to];
    g->sent[to] += mailbox_pieces(g, call->count, call->how.type);
    return plan_message(work);
}

/* A receive whose message will be the next one, as far as one knows now, has its plan ready. */
static int begin_receive(struct work *work, struct runner **runner) {
    struct group *g = work->group;
    const struct group_call *call = &work->call;
    int from = call->peer;
    CHECK(find_tag_queue(runner, g, from, call->tag));
    if (from == ANY_SOURCE) return OK;
    lock_mailbox(g);
    if (!g->pending[from]) g->expected[from] = g->received[from];
    g->pending[from]++;
    work->base = g->expected[from];
    g->expected[from] += mailbox_pieces(g, call->count, call->how.type);
    unlock_mailbox(g);
    return plan_message(work);
}

static int run_message(struct runner *runner, struct work *work) {
    return work->call.receive ? receive_message(runner, work) : run_parts(runner, work);
}

int begin_message(struct work *work, struct runner **runner) {
    work->number = ++work->group->messages;
    work->run = run_message;
    return work->call.receive ? begin_receive(work, runner) : begin_send(work, runner);
}
