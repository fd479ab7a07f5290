/* monitored_barrier: all ranks report to rank 0, which waits until the deadline and then names the
 * ranks that are missing. */
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text/text.h"
#include "group/mpi/mpi.h"

static struct comm_flag *reported(const struct group *g, int rank) {
    return &g->memory.flags[0][PLAN_READY * g->n + rank];
}

static int has_come(const struct group *g, int rank, uint64_t epoch) {
    return __atomic_load_n(&reported(g, rank)->epoch, __ATOMIC_ACQUIRE) >= epoch;
}

static int late(struct group *g, uint64_t epoch, double timeout_s, int all) {
    char ranks[4 * MAX_DEVICES] = "", others[ERROR_BYTES / 2];
    int missing = 0;
    for (int r = 1; r < g->n && (all || !missing); r++)
        if (!has_come(g, r, epoch))
            text_append(ranks, sizeof ranks, missing++ ? ", %d" : "%d", g->ranks[r]);
    if (!missing) return OK; /* they have just arrived */
    comm_whereabouts(g->job->comm, others, sizeof others);
    int code =
        fail(ERR_TIMEOUT, "[Rank %d]: Rank%s %s failed to pass monitoredBarrier #%llu in %.0f ms%s",
             g->ranks[0], missing > 1 ? "s" : "", ranks, (unsigned long long)g->announcer.number,
             timeout_s * 1e3, others);
    comm_abort(g->job->comm, code, error_message());
    return code;
}

/* The deadline of the wait that other ranks see is a little later than the barrier's, which has its
 * own message. */
static const double LATER_S = 2;

static struct comm_wait_reason reason_of(const struct group *g, int rank, double timeout_s) {
    return (struct comm_wait_reason){.collective = g->names.monitored,
                                     .bucket = -1,
                                     .step = -1,
                                     .peer = g->mpi ? -1 : g->ranks[rank],
                                     .number = g->announcer.number,
                                     .timeout_s = timeout_s};
}

/* Another rank gives rank 0 a second more to say who is missing, unless rank 0 itself is silent. */
static int no_word(struct group *g, double timeout_s, int64_t deadline) {
    const struct comm_wait_reason told = reason_of(g, 0, timeout_s);
    int64_t past = now_ns() - deadline;
    int silent = past >= 100000000 && comm_is_silent(g->job->comm, g->ranks[0]);
    return past >= 1000000000 || silent ? comm_distant_late(g->job->comm, &told, NULL) : OK;
}

/* Waits for the flag of `rank`. If rank 0 must name all late ranks, the first one does not fail the
 * job. */
static int wait_for(struct group *g, struct comm_flag *flag, int rank, uint64_t epoch,
                    int64_t deadline, double timeout_s, int all) {
    const struct comm_wait_reason reason = reason_of(g, rank, timeout_s + LATER_S);
    struct wait wait;
    int code = OK;
    comm_distant_begin(g->job->comm, &wait, &reason);
    wait.epoch = &flag->epoch;
    wait.target = epoch;
    while (!code && __atomic_load_n(&flag->epoch, __ATOMIC_ACQUIRE) < epoch) {
        code = g->mpi ? group_by_mpi->take_signals(g, &wait) : OK;
        if (!code) code = comm_distant_look(&wait);
        if (!code) code = look_for_deadlock(g, g->names.monitored, g->announcer.number, rank);
        if (!code && now_ns() >= deadline)
            code = g->rank ? no_word(g, timeout_s, deadline) : late(g, epoch, timeout_s, all);
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    comm_distant_end(&wait);
    return code;
}

/* A flag of rank `to`. */
static int post(struct group *g, int to, struct comm_flag *flag, uint64_t epoch) {
    if (g->mpi) return group_by_mpi->signal(g, to, epoch);
    comm_post_flag(flag, epoch);
    return OK;
}

static int wait_for_all(struct group *g, uint64_t epoch, double timeout_s, int all) {
    int64_t deadline = deadline_after(timeout_s);
    for (int r = 1; r < g->n; r++)
        CHECK(wait_for(g, reported(g, r), r, epoch, deadline, timeout_s, all));
    for (int r = 1; r < g->n; r++)
        CHECK(post(g, r, &g->memory.flags[r][PLAN_DONE * g->n], epoch));
    return OK;
}

static int report(struct group *g, uint64_t epoch, double timeout_s) {
    CHECK(post(g, 0, reported(g, g->rank), epoch));
    return wait_for(g, &g->memory.flags[g->rank][PLAN_DONE * g->n], 0, epoch,
                    deadline_after(timeout_s), timeout_s, 0);
}

static int meet(struct group *g, double timeout_s, int all) {
    struct comm_call told = {
        .collective = "MONITORED_BARRIER", .bucket = -1, .step = -1, .what = NULL};
    wait_for_runner(g->collectives); /* pending collectives run first */
    CHECK(announcer_announce(&g->announcer, &told));
    uint64_t epoch = ++g->base;
    return g->rank == 0 ? wait_for_all(g, epoch, timeout_s, all) : report(g, epoch, timeout_s);
}

int group_monitored_barrier(struct group *g, double timeout_s, int all) {
    double limit = timeout_s > 0      ? timeout_s
                   : g->timeout_s > 0 ? g->timeout_s
                                      : comm_timeout_s(g->job->comm);
    CHECK(enter_group(g, "monitored_barrier"));
    __atomic_store_n(&g->waits, 1, __ATOMIC_RELEASE);
    int code = g->n > 1 ? meet(g, limit, all) : OK;
    __atomic_store_n(&g->waits, 0, __ATOMIC_RELEASE);
    leave_group(g);
    return code;
}
