/* Begins a call. All ranks make their calls in the same order, so a call takes what it needs from
 * the group at once: its plans, its number, the base of its epochs, its half of scratch. So it may
 * run later, in another thread. */
#include <stdlib.h>

#include "base/error.h"
#include "group/mpi/mpi.h"

/* ---- one thread at a time ---- */

static int is_entered(struct group *g) {
    return !__atomic_exchange_n(&g->used, 1, __ATOMIC_ACQUIRE);
}

static int in_use(const struct group *g, const char *what) {
    return fail(ERR_USAGE,
                "rank %d: %s: another thread is inside a call of this group: one thread at a time "
                "may use it",
                g->ranks[g->rank], what);
}

int enter_group(struct group *g, const char *what) {
    return is_entered(g) ? OK : in_use(g, what);
}

void leave_group(struct group *g) {
    __atomic_store_n(&g->used, 0, __ATOMIC_RELEASE);
}

/* ---- issuing ---- */

static uint64_t epochs_of(const struct work *work) {
    uint64_t full = work->full ? work->full->plan.epochs : 0;
    return (work->parts - 1) * full + work->last->plan.epochs + (work->claims ? UNEVEN_EPOCHS : 0);
}

static int announce(struct work *work) {
    struct group *g = work->group;
    char what[TOLD_TEXT];
    struct comm_call told;
    tell(&work->call, &told, what);
    work->number = g->announcer.number + 1;
    return g->n > 1 ? announcer_announce(&g->announcer, &told) : (g->announcer.number++, OK);
}

/* Over several machines MPI does it. */
static int begin_spread(struct work *work) {
    work->run = is_uneven(&work->call) ? run_uneven : group_by_mpi->run;
    if (is_uneven(&work->call)) CHECK(plan_uneven(work));
    return announce(work);
}

static int begin_collective(struct work *work, struct runner **runner) {
    struct group *g = work->group;
    *runner = g->collectives;
    if (g->mpi) return begin_spread(work);
    if (work->brief || is_eager(g, &work->call)) return begin_eager(work);
    work->run = is_uneven(&work->call) ? run_uneven : run_parts;
    CHECK(is_uneven(&work->call) ? plan_uneven(work) : plan_parts(work));
    CHECK(announce(work));
    work->base = g->base;
    work->calls = g->calls;
    g->base += epochs_of(work);
    /* An empty call advances no epochs, and only calls that may use scratch are counted. */
    if (work->call.what == COLLECTIVE_ALL_REDUCE && work->call.count) g->calls += work->parts;
    return OK;
}

/* ---- beginning a message ---- */

/* The pieces of a message are numbered when the send is called. */
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
    int from = work->call.peer, tag = work->call.tag;
    struct runner *queue = g->receives;
    while (queue && (queue->source != from || queue->tag != tag))
        queue = queue->next;
    if (!queue) {
        CHECK(runner_open(&queue, g, RUNS_RECEIVES));
        queue->source = from;
        queue->tag = tag;
        queue->next = g->receives;
        g->receives = queue;
    }
    *runner = queue;
    if (from == ANY_SOURCE || g->mpi) return OK;
    pthread_mutex_lock(&g->mailbox_lock);
    g->pending[from]++;
    pthread_mutex_unlock(&g->mailbox_lock);
    return OK;
}

static int run_message(struct runner *runner, struct work *work) {
    return work->call.receive ? receive_message(runner, work) : run_parts(runner, work);
}

static int begin_message(struct work *work, struct runner **runner) {
    work->number = ++work->group->messages;
    work->run = work->group->mpi ? group_by_mpi->run : run_message;
    return work->call.receive ? begin_receive(work, runner) : begin_send(work, runner);
}

/* ---- the call ---- */

static int check_call(const struct group *g, const struct group_call *call) {
    int me = g->ranks[g->rank];
    if (call->what == COLLECTIVE_SEND && (call->peer < (call->receive ? ANY_SOURCE : 0) ||
                                          call->peer >= g->n || call->peer == g->rank))
        return fail(ERR_USAGE, "rank %d: %s rank %d: give another rank of 0 to %d", me,
                    call->receive ? "recv from" : "send to", call->peer, g->n - 1);
    if (call->what == COLLECTIVE_SEND && call->tag < 0)
        return fail(ERR_USAGE, "rank %d: %s: Tag must be nonnegative, not %d", me,
                    call->receive ? "recv" : "send", call->tag);
    if (is_uneven(call) && call->what != COLLECTIVE_ALL_TO_ALL &&
        call->what != COLLECTIVE_ALL_GATHER && call->what != COLLECTIVE_GATHER &&
        call->what != COLLECTIVE_SCATTER && call->what != COLLECTIVE_REDUCE_SCATTER)
        return fail(ERR_USAGE, "rank %d: %s: all its blocks have the same length: give no sizes",
                    me, window_name(call->what));
    if (call->root < 0 || call->root >= g->n)
        return fail(ERR_USAGE, "rank %d: %s: root %d: give 0 to %d", me, window_name(call->what),
                    call->root, g->n - 1);
    if (call->average && (!dtype_is_float(call->how.type) || call->how.op != ELEMENT_SUM))
        return fail(ERR_USAGE,
                    "rank %d: %s: average of %s: only floats have one: take the sum and divide it",
                    me, window_name(call->what), dtype_name(call->how.type));
    return OK;
}

/* The work of a call that is waited for is the group's own, so that nothing is allocated. Only
 * fields that not every caller sets are set here: an eager call has no time for more. */
static struct work *new_work(struct group *g, const struct group_call *call, int waited) {
    struct work *work = waited ? &g->here : malloc(sizeof *work);
    if (!work) return NULL;
    work->group = g;
    work->call = *call;
    work->full = work->last = NULL;
    work->brief = NULL;
    work->claims = NULL;
    work->sizes = NULL;
    work->source = call->receive ? call->peer : -1;
    return work;
}

/* For work that has ended or was never begun. */
static void release_work(struct work *work) {
    if (work->full) work->full->users--;
    if (work->last) work->last->users--;
    release_eager(work->brief);
    free(work->claims);
    if (work != &work->group->here) free(work);
}

/* kept: of an eager call that was made before, else NULL. */
static int begin(struct group *g, const struct group_call *call, struct eager_call *kept,
                 struct work **out) {
    struct runner *runner = NULL;
    struct work *work = new_work(g, call, !out);
    if (!work) return fail(ERR_MEMORY, "process group: out of host memory: free some");
    work->brief = kept;
    int code = call->what == COLLECTIVE_SEND ? begin_message(work, &runner)
                                             : begin_collective(work, &runner);
    if (!code) code = run_on(runner, work, !out);
    /* the peers make the same call and would wait */
    if (code && code != ERR_USAGE) comm_abort(g->job->comm, code, error_message());
    if (code || !out)
        release_work(work);
    else
        *out = work;
    return code;
}

int group_run(struct group *g, const struct group_call *call, struct work **out) {
    if (out) *out = NULL;
    if (!is_entered(g)) return in_use(g, window_name(call->what));
    struct eager_call *kept = kept_eager(g, call);
    int code = kept ? OK : check_call(g, call); /* a kept call was checked when it was made */
    if (!code) code = begin(g, call, kept, out);
    leave_group(g);
    return code;
}

void work_free(struct work *work) {
    if (!work) return;
    work_wait(work);
    release_work(work);
}
