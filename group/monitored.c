/* monitored_barrier: all ranks report to rank 0, which waits for all of them to the end of the time
 * and then names those that did not come. */
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/state.h"

static int has_come(const struct group *g, int rank, uint64_t epoch) {
    const struct comm_flag *flag = &g->memory.flags[0][PLAN_READY * g->n + rank];
    return __atomic_load_n(&flag->epoch, __ATOMIC_ACQUIRE) >= epoch;
}

static int late(struct group *g, uint64_t epoch, double timeout_s, int all) {
    char ranks[4 * MAX_DEVICES] = "";
    size_t used = 0;
    int missing = 0;
    for (int r = 1; r < g->n && (all || !missing); r++)
        if (!has_come(g, r, epoch))
            used += (size_t)snprintf(ranks + used, sizeof ranks - used, missing++ ? ", %d" : "%d",
                                     g->ranks[r]);
    if (!missing) return OK; /* they have come in this moment */
    int code =
        fail(ERR_TIMEOUT, "[Rank %d]: Rank%s %s failed to pass monitoredBarrier #%llu in %.0f ms",
             g->ranks[0], missing > 1 ? "s" : "", ranks, (unsigned long long)g->announcer.number,
             timeout_s * 1e3);
    comm_abort(g->job->comm, code, error_message());
    return code;
}

/* Rank 0: a wait with a deadline of its own, which does not fail the job at the first one. */
static int wait_for_all(struct group *g, uint64_t epoch, double timeout_s, int all) {
    int64_t deadline = deadline_after(timeout_s);
    for (int r = 1; r < g->n; r++) {
        while (!has_come(g, r, epoch)) {
            CHECK(comm_check(g->job->comm));
            if (now_ns() >= deadline) CHECK(late(g, epoch, timeout_s, all));
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        }
    }
    for (int r = 1; r < g->n; r++)
        comm_post_flag(&g->memory.flags[r][PLAN_DONE * g->n], epoch);
    return OK;
}

/* The others give rank 0 a second more, so that it is the one to say who is missing; but not where
 * it is silent itself. */
static int report(struct group *g, uint64_t epoch, double timeout_s) {
    const struct comm_flag *done = &g->memory.flags[g->rank][PLAN_DONE * g->n];
    struct comm *comm = g->job->comm;
    int64_t silent_by = deadline_after(timeout_s + 0.1), latest = deadline_after(timeout_s + 1);
    comm_post_flag(&g->memory.flags[0][PLAN_READY * g->n + g->rank], epoch);
    while (__atomic_load_n(&done->epoch, __ATOMIC_ACQUIRE) < epoch) {
        int64_t now = now_ns();
        CHECK(comm_check(comm));
        if (now >= latest || (now >= silent_by && comm_is_silent(comm, g->ranks[0]))) {
            struct comm_wait_reason reason = {.collective = "monitored_barrier",
                                              .bucket = -1,
                                              .step = -1,
                                              .peer = g->ranks[0],
                                              .number = g->announcer.number,
                                              .timeout_s = timeout_s};
            return comm_distant_late(comm, &reason, NULL);
        }
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return OK;
}

static int meet(struct group *g, double timeout_s, int all) {
    struct comm_call told = {
        .collective = "MONITORED_BARRIER", .bucket = -1, .step = -1, .what = NULL};
    wait_for_runner(g->collectives); /* collectives under way come first */
    CHECK(announcer_announce(&g->announcer, &told));
    uint64_t epoch = ++g->base;
    return g->rank == 0 ? wait_for_all(g, epoch, timeout_s, all) : report(g, epoch, timeout_s);
}

int group_monitored_barrier(struct group *g, double timeout_s, int all) {
    double limit = timeout_s > 0      ? timeout_s
                   : g->timeout_s > 0 ? g->timeout_s
                                      : comm_timeout_s(g->job->comm);
    CHECK(enter_group(g, "monitored_barrier"));
    int code = g->n > 1 ? meet(g, limit, all) : OK;
    leave_group(g);
    return code;
}
