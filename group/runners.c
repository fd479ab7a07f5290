/* Who runs a call. A call that the caller waits for runs in the caller, which costs nothing, unless
 * calls of the same runner are still under way before it. A call that it does not wait for runs in
 * the runner's thread, which starts with the first such call.
 *
 * There is a runner for the collectives, one for the messages to each rank and one for those from
 * each. So two ranks may begin to send each other long messages, and neither waits for the other to
 * receive first. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/system_error.h"
#include "base/thread.h"
#include "group/state.h"

/* Two ranks that answer each other must not fall asleep in turns: a wake-up takes some 10 us, in
 * which the other one would fall asleep, too. */
static const int64_t CALLER_SPIN_NS = 100000;

/* A wait that goes on for long: has a peer called something else? */
static int look_at_peers(void *context) {
    const struct runner *runner = context;
    return announcer_look_back(&runner->group->announcer, runner->now->number);
}

/* A slot was shown by another call. */
static int slot_differs(void *context, int peer) {
    const struct runner *runner = context;
    const struct group *g = runner->group;
    CHECK(look_at_peers(context));
    int code = fail(ERR_FAILED, "rank %d: %s #%llu: rank %d has made other calls before it",
                    g->ranks[g->rank], window_name(runner->now->call.what),
                    (unsigned long long)runner->now->number, g->ranks[peer]);
    comm_abort(g->job->comm, code, error_message());
    return code;
}

/* What messages call this call. */
static struct comm_wait_reason reason_of(struct runner *runner, int peer) {
    const struct group *g = runner->group;
    const struct work *work = runner->now;
    struct comm_wait_reason reason = {
        .collective = work->call.receive ? "recv" : allreduce_algorithm_name(work->call.what),
        .bucket = -1,
        .step = -1,
        .peer = g->ranks[peer],
        .number = work->number,
        .timeout_s = g->timeout_s,
        .spin_ns = runner->in_caller ? CALLER_SPIN_NS : 0,
        .message = work->call.what == WINDOW_SEND,
        .look = work->brief ? look_at_peers : NULL,
        .context = runner};
    if (work->call.what == ALLREDUCE_AUTO) reason.collective = "all_reduce";
    return reason;
}

int wait_on(struct runner *runner, struct comm_flag *flag, uint64_t epoch, int peer) {
    if (__atomic_load_n(&flag->epoch, __ATOMIC_ACQUIRE) >= epoch) return OK;
    struct comm_wait_reason reason = reason_of(runner, peer);
    return comm_wait_flag(runner->group->job->comm, flag, epoch, &reason);
}

int check_job(struct runner *runner) {
    struct comm *comm = runner->group->job->comm;
    if (!comm_is_aborted(comm)) return OK;
    struct comm_wait_reason reason = reason_of(runner, runner->group->rank);
    return comm_check_call(comm, &reason);
}

static int wait_for_plan(void *context, struct comm_flag *flag, uint64_t epoch,
                         const struct comm_wait_reason *reason) {
    return wait_on(context, flag, epoch, reason->peer);
}

int runner_open(struct runner **out, struct group *g, enum runner_kind kind) {
    struct runner *runner = *out = calloc(1, sizeof *runner);
    if (!runner) return fail(ERR_MEMORY, "process group: no host memory: free some");
    runner->group = g;
    runner->ranks.all = (struct executor_ranks){.n = g->n,
                                                .rank = g->rank,
                                                .comm = g->job->comm,
                                                .half = g->memory.sizes.half / sizeof(float)};
    for (int r = 0; r < g->n; r++) {
        runner->ranks.flags[r] = g->memory.flags[r];
        runner->ranks.all.scratch[r] =
            kind == RUNS_COLLECTIVES ? g->memory.scratch[r] : g->memory.mail[r];
    }
    runner->kind = kind;
    runner->part = (struct executor_call){.data = g->memory.window, .bucket = -1, .step = -1};
    if (kind == RUNS_SENDS) runner->ranks.taken = &runner->taken;
    runner->ranks.wait = wait_for_plan;
    runner->ranks.wait_context = runner;
    runner->slots = runner->ranks;
    runner->slots.differs = slot_differs;
    runner->slots.all.half = g->memory.slot_stride / sizeof(float);
    for (int r = 0; r < g->n; r++)
        runner->slots.all.scratch[r] = g->memory.slots[r];
    pthread_mutex_init(&runner->lock, NULL);
    pthread_cond_init(&runner->changed, NULL);
    return OK;
}

static int run(struct runner *runner, struct work *work) {
    if (work->call.what == WINDOW_SEND) return run_message(runner, work);
    if (work->brief) return run_short(runner, work);
    return work->claims ? run_uneven(runner, work) : run_parts(runner, work);
}

/* Runs one work; the lock is held before and after, not meanwhile. */
static void run_now(struct runner *runner, struct work *work, int in_caller) {
    runner->now = work;
    runner->in_caller = in_caller;
    pthread_mutex_unlock(&runner->lock);
    int code = run(runner, work);
    pthread_mutex_lock(&runner->lock);
    work->code = code;
    if (code) work->text = strdup(error_message());
    work->ended = 1;
    runner->now = NULL;
    pthread_cond_broadcast(&runner->changed);
}

static void *runner_main(void *argument) {
    struct runner *runner = argument;
    pthread_mutex_lock(&runner->lock);
    for (;;) {
        while (!runner->first && !runner->stop)
            pthread_cond_wait(&runner->changed, &runner->lock);
        if (!runner->first) break;
        struct work *work = runner->first;
        runner->first = work->next;
        run_now(runner, work, 0);
    }
    pthread_mutex_unlock(&runner->lock);
    return NULL;
}

static int start_thread(struct runner *runner) {
    struct group *g = runner->group;
    if (runner->kind == RUNS_RECEIVES && !g->lane_threads) g->lane_threads = 1;
    int error = thread_start(&runner->thread, runner_main, runner);
    if (error) return fail_system(error, "process group: a thread for calls under way");
    runner->threaded = 1;
    return OK;
}

static int queue(struct runner *runner, struct work *work) {
    if (!runner->threaded) CHECK(start_thread(runner));
    work->next = NULL;
    if (runner->first)
        runner->last_queued->next = work;
    else
        runner->first = work;
    runner->last_queued = work;
    pthread_cond_broadcast(&runner->changed);
    return OK;
}

int run_on(struct runner *runner, struct work *work, int wait) {
    int code = OK;
    work->runner = runner;
    pthread_mutex_lock(&runner->lock);
    if (wait && !runner->first && !runner->now)
        run_now(runner, work, 1);
    else
        code = queue(runner, work);
    while (wait && !code && !work->ended)
        pthread_cond_wait(&runner->changed, &runner->lock);
    pthread_mutex_unlock(&runner->lock);
    return code;
}

/* Only the thread that makes calls of the group gives a runner its thread, so no lock is needed. */
int run_at_once(struct runner *runner, struct work *work) {
    work->runner = runner;
    runner->now = work;
    runner->in_caller = 1;
    int code = run(runner, work);
    runner->now = NULL;
    return code;
}

void runner_close(struct runner *runner) {
    if (!runner) return;
    pthread_mutex_lock(&runner->lock);
    runner->stop = 1;
    pthread_cond_broadcast(&runner->changed);
    pthread_mutex_unlock(&runner->lock);
    if (runner->threaded) pthread_join(runner->thread, NULL);
    pthread_cond_destroy(&runner->changed);
    pthread_mutex_destroy(&runner->lock);
    free(runner);
}

/* ---- works ---- */

int work_wait(struct work *work) {
    struct runner *runner = work->runner;
    pthread_mutex_lock(&runner->lock);
    while (!work->ended)
        pthread_cond_wait(&runner->changed, &runner->lock);
    pthread_mutex_unlock(&runner->lock);
    return work->code ? fail(work->code, "%s", work->text ? work->text : "no host memory") : OK;
}

int work_done(struct work *work) {
    pthread_mutex_lock(&work->runner->lock);
    int ended = work->ended;
    pthread_mutex_unlock(&work->runner->lock);
    return ended;
}

int work_source(const struct work *work) {
    return work->source;
}

void release_plans(struct work *work) {
    if (work->full) work->full->users--;
    if (work->last) work->last->users--;
    release_short(work->brief);
}

void work_free(struct work *work) {
    if (!work) return;
    if (work->runner) work_wait(work);
    release_plans(work);
    free(work->claims);
    free(work->text);
    free(work);
}
