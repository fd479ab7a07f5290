/* Chooses the thread that runs a call. A synchronous call runs in the caller's thread, which costs
 * nothing, unless earlier calls of the same runner still run. An asynchronous call runs in the
 * thread of the runner's worker (base/worker.h), which starts with the first such call. If the
 * caller waits for the call before that thread has woken up, the caller runs it after all.
 *
 * A group has a runner for the collectives, one for the messages to each rank, and one for each
 * queue of incoming messages (tags.c). So two ranks may send each other long messages, and neither
 * waits for the other to receive first. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/typed.h"
#include "group/state.h"

/* Two ranks that answer each other must not fall asleep in turns: a wake-up takes some 10 us, in
 * which the other one would fall asleep, too. */
static const int64_t CALLER_SPIN_NS = 100000;

/* After a long wait: checks whether a peer made another call. Calls that are not eager have checked
 * at their start. */
static int look_at_peers(void *context) {
    const struct runner *runner = context;
    struct group *g = runner->group;
    const struct work *work = runner->now;
    if (runner->kind == RUNS_COLLECTIVES)
        CHECK(look_for_deadlock(g, g->names.collectives[work->call.what], work->number,
                                runner->peer));
    return work->brief ? announcer_look_back(&g->announcer, work->number) : OK;
}

/* A slot was shown by another call. */
static int slot_differs(void *context, int peer) {
    const struct runner *runner = context;
    const struct group *g = runner->group;
    CHECK(look_at_peers(context));
    CHECK(comm_check(g->job->comm)); /* fails if the peer has already named both calls */
    int code = fail(ERR_FAILED, "rank %d: %s #%llu: rank %d has made other calls before it",
                    g->ranks[g->rank], window_name(runner->now->call.what),
                    (unsigned long long)runner->now->number, g->ranks[peer]);
    comm_abort(g->job->comm, code, error_message());
    return code;
}

/* The name of this call in messages. */
static struct comm_wait_reason reason_of(struct runner *runner, int peer) {
    const struct group *g = runner->group;
    const struct work *work = runner->now;
    return (struct comm_wait_reason){
        .collective = work->call.receive ? g->names.recv : g->names.collectives[work->call.what],
        .bucket = -1,
        .step = -1,
        .peer = g->ranks[peer],
        .number = work->number,
        .timeout_s = g->timeout_s,
        .spin_ns = work->task.by_waiter ? CALLER_SPIN_NS : 0,
        .look = look_at_peers,
        .context = runner};
}

int wait_on(struct runner *runner, struct comm_flag *flag, uint64_t epoch, int peer) {
    if (__atomic_load_n(&flag->epoch, __ATOMIC_ACQUIRE) >= epoch) return OK;
    struct comm_wait_reason reason = reason_of(runner, peer);
    runner->peer = peer;
    return comm_wait_flag(runner->group->job->comm, flag, epoch, &reason);
}

struct comm_wait_reason runner_reason(struct runner *runner) {
    struct comm_wait_reason reason = reason_of(runner, runner->group->rank);
    const struct group *g = runner->group;
    const struct group_call *call = &runner->now->call;
    runner->peer = g->rank;
    reason.peer = -1;
    for (int r = 0; r < g->n; r++)
        if (call->what != COLLECTIVE_SEND || call->peer == ANY_SOURCE || call->peer == r)
            reason.among |= 1ull << g->ranks[r];
    return reason;
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
    if (!runner) return fail(ERR_MEMORY, "process group: out of host memory: free some");
    runner->group = g;
    runner->ranks.all = (struct executor_ranks){.n = g->n,
                                                .rank = g->rank,
                                                .comm = g->job->comm,
                                                .half = g->memory.sizes.half / sizeof(float)};
    for (int r = 0; r < g->n; r++) {
        runner->ranks.flags[r] = g->memory.flags[r];
        runner->ranks.all.scratch[r] =
            kind == RUNS_COLLECTIVES ? g->memory.scratch[r] : g->memory.mailbox[r];
    }
    runner->kind = kind;
    runner->part = (struct executor_call){.data = g->memory.window, .bucket = -1, .step = -1};
    if (kind == RUNS_SENDS) runner->ranks.taken = &runner->taken;
    runner->ranks.move = typed_move;
    runner->ranks.wait = wait_for_plan;
    runner->ranks.wait_context = runner;
    runner->slots = runner->ranks;
    runner->slots.differs = slot_differs;
    runner->slots.all.half = g->memory.slot_stride / sizeof(float);
    for (int r = 0; r < g->n; r++)
        runner->slots.all.scratch[r] = g->memory.slots[r];
    return OK;
}

static int run_work(void *argument) {
    struct work *work = argument;
    const struct group_call *call = &work->call;
    struct call_trace *trace = work->group->trace;
    int64_t start_ns = trace ? now_ns() : 0;
    work->runner->now = work;
    int code = work->run(work->runner, work);
    if (trace)
        call_trace_add(trace, call->receive ? "recv" : call_name(call->what),
                       call->count * dtype_bytes(call->how.type), start_ns, now_ns());
    return code;
}

/* Only the thread that makes calls of the group gives a runner its worker, so no lock is needed. */
static int start_worker(struct runner *runner) {
    if (runner->worker) return OK;
    CHECK(worker_new(&runner->worker, 1));
    int code = worker_start(runner->worker, 1, "process group: a thread for running calls");
    if (!code) return OK;
    worker_free(runner->worker, WORKER_NEVER);
    runner->worker = NULL;
    return code;
}

int run_on(struct runner *runner, struct work *work, int wait) {
    work->runner = runner;
    work->task.run = run_work;
    work->task.context = work;
    if (!wait) {
        CHECK(start_worker(runner));
        worker_give(runner->worker, &work->task);
        return OK;
    }
    work->task.by_waiter = 1;
    __atomic_store_n(&runner->group->waits, runner->kind == RUNS_COLLECTIVES, __ATOMIC_RELEASE);
    int code = runner->worker ? OK : run_work(work);
    if (runner->worker) {
        worker_run(runner->worker, &work->task);
        code = task_end(&work->task);
    }
    __atomic_store_n(&runner->group->waits, 0, __ATOMIC_RELEASE);
    return code;
}

static int nothing(void *context) {
    (void)context;
    return OK;
}

void wait_for_runner(struct runner *runner) {
    struct task last = {.run = nothing};
    if (runner->worker) worker_run(runner->worker, &last);
}

void runner_close(struct runner *runner) {
    if (!runner) return;
    worker_free(runner->worker, WORKER_NEVER);
    free(runner);
}

/* ---- works ---- */

int work_wait(struct work *work) {
    worker_help(work->runner->worker, &work->task);
    return task_end(&work->task);
}

int work_done(struct work *work) {
    return worker_has_ended(work->runner->worker, &work->task);
}

int work_source(const struct work *work) {
    return work->source;
}
