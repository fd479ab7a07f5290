/* Messages from one rank to one other: what a rank sends. What is under way between two ranks is
 * counted in pieces by both of them, each for itself (group/plans/mailbox.c). The pieces
 * of a message that is sent are numbered when it is called. How messages come in: tags.c. */
#include "base/error.h"
#include "group/mpi/mpi.h"

static int begin_send(struct work *work, struct runner **runner) {
    struct group *g = work->group;
    const struct group_call *call = &work->call;
    int to = call->peer;
    if (!g->sends[to]) CHECK(runner_open(&g->sends[to], g, RUNS_SENDS));
    *runner = g->sends[to];
    if (g->mpi) return OK;
    work->base = g->sent[to];
    g->sent[to] += mailbox_pieces(g, call->count, call->how.type);
    return plan_parts(work);
}

static int begin_receive(struct work *work, struct runner **runner) {
    struct group *g = work->group;
    int from = work->call.peer;
    CHECK(find_tag_queue(runner, g, from, work->call.tag));
    if (from == ANY_SOURCE || g->mpi) return OK;
    pthread_mutex_lock(&g->mailbox_lock);
    g->pending[from]++;
    pthread_mutex_unlock(&g->mailbox_lock);
    return OK;
}

static int run_message(struct runner *runner, struct work *work) {
    return work->call.receive ? receive_message(runner, work) : run_parts(runner, work);
}

int begin_message(struct work *work, struct runner **runner) {
    work->number = ++work->group->messages;
    work->run = work->group->mpi ? group_by_mpi->message : run_message;
    return work->call.receive ? begin_receive(work, runner) : begin_send(work, runner);
}
