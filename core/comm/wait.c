/* The checks that every wait with a deadline makes between two sleeps.
 *
 * A waiter must not outlive the failure of a peer, yet a peer that fails cannot wake the waiters
 * (it may be dead). So a waiter sleeps for one slice at most. After each slice it checks the abort
 * word, whether a rank that it waits for has left, and the clock. So it notices a failure at most
 * 50 ms late, and 20 checks per second cost nothing. Normally the post of the flag wakes it before
 * the end of its slice. */
#include <stdio.h>
#include <string.h>

#include "base/advice.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text/text.h"
#include "comm/rank.h"

enum { RANK_NAMES = 4 * MAX_DEVICES };             /* size of the list of ranks in a message */
static const int64_t MOST_CHARGED_NS = 1000000000; /* per poll; see struct wait */

void wait_start(struct wait *wait, struct comm *comm, const struct comm_wait_reason *reason) {
    *wait = (struct wait){.comm = comm, .reason = {.bucket = -1, .step = -1, .peer = -1}};
    if (reason) wait->reason = *reason;
    wait->last_poll = now_ns();
    wait->left = wait->all =
        wait->reason.timeout_s > 0 ? (int64_t)(wait->reason.timeout_s * 1e9) : comm->timeout_ns;
}

/* "allreduce bucket 3 step 118", "barrier (start of epoch)" */
static void describe_wait(const struct wait *wait, char *text, size_t size) {
    const struct comm_wait_reason *reason = &wait->reason;
    snprintf(text, size, "%s", reason->collective ? reason->collective : "wait");
    if (wait->what) text_append(text, size, " (%s)", wait->what);
    if (reason->bucket >= 0)
        text_append(text, size, " %s %d", comm_part(reason->collective), reason->bucket);
    if (reason->step >= 0) text_append(text, size, " step %ld", reason->step);
    if (reason->number) text_append(text, size, " #%llu", (unsigned long long)reason->number);
}

/* The ranks that have not done their part, one bit each; 0 also if they are not known. */
static uint64_t missing_ranks(const struct wait *wait) {
    const struct comm *comm = wait->comm;
    if (!wait->barrier) {
        int peer = wait->reason.peer;
        int known = wait->epoch && peer >= 0 && peer < comm->world;
        if (!known || __atomic_load_n(wait->epoch, __ATOMIC_ACQUIRE) >= wait->target) return 0;
        return 1ull << peer;
    }
    uint64_t missing = 0;
    for (int r = 0; r < comm->world; r++)
        if (__atomic_load_n(&comm->board->cards[r].barriers, __ATOMIC_ACQUIRE) < wait->target)
            missing |= 1ull << r;
    return missing;
}

static uint64_t ranks_that_left(const struct comm *comm) {
    uint64_t left = 0;
    for (int r = 0; r < comm->world; r++)
        if (__atomic_load_n(&comm->board->cards[r].left, __ATOMIC_ACQUIRE)) left |= 1ull << r;
    return left;
}

/* "1, 2"; on several machines "1 (on m0), 2 (on m1)" */
static void name_ranks(const struct comm *comm, uint64_t ranks, char *text, size_t size) {
    *text = 0;
    for (int r = 0; r < MAX_DEVICES; r++) {
        if (!(ranks >> r & 1)) continue;
        text_append(text, size, "%s%d", *text ? ", " : "", r);
        if (comm->machines) text_append(text, size, " (on %s)", comm->machines[r]);
    }
}

/* Makes this wait's failure that of the job, unless another was first. */
static int fail_job(struct wait *wait, int code, int blamed, const char *where, const char *text) {
    struct comm *comm = wait->comm;
    if (!board_abort(comm->board, blamed, code, text)) return failure_of_job(comm, where);
    return fail(code, "%s", text);
}

/* The other ranks that wait for nobody; they may be stopped. */
static uint64_t silent_ranks(const struct comm *comm) {
    uint64_t silent = 0, left = ranks_that_left(comm);
    for (int r = 0; r < comm->world; r++)
        if (r != comm->rank && !(left >> r & 1) && comm_is_silent(comm, r)) silent |= 1ull << r;
    return silent;
}

/* Do all of these ranks wait for somebody? */
static int all_wait(const struct comm *comm, uint64_t ranks) {
    for (int r = 0; r < comm->world; r++)
        if (ranks >> r & 1 && !whereabouts_waits(comm, r)) return 0;
    return 1;
}

/* A network does not say whose bytes are missing. Ranks that wait for nobody still work. */
static uint64_t ranks_on_their_way(const struct wait *wait, uint64_t left) {
    const struct comm *comm = wait->comm;
    uint64_t coming = 0;
    for (int r = 0; comm->network && r < comm->world; r++)
        if (wait->reason.among >> r & 1 && r != comm->rank && !(left >> r & 1) &&
            !whereabouts_waits(comm, r))
            coming |= 1ull << r;
    return coming;
}

/* For messages. */
static uint64_t who_is_awaited(const struct wait *wait) {
    return missing_ranks(wait) | ranks_on_their_way(wait, ranks_that_left(wait->comm));
}

/* A rank leaves when its bytes have been sent. If they have not arrived after two seconds, and all
 * other ranks wait, too, nothing more will. */
static uint64_t ranks_gone(const struct wait *wait, uint64_t left) {
    const int64_t on_its_way_ns = 2000000000;
    if (!left) return 0;
    if (wait->reason.among && wait->all - wait->left > on_its_way_ns &&
        !ranks_on_their_way(wait, left))
        return left & wait->reason.among;
    return left & missing_ranks(wait);
}

static int is_many(uint64_t ranks) {
    return (ranks & (ranks - 1)) != 0;
}

/* Why `missing` have not arrived, and what to do. The state of each rank follows it. */
static const char *explain(const struct comm *comm, uint64_t missing) {
    if (!missing)
        return "a rank or the launcher may be stopped: see their output, or " ADVICE_TIMEOUT;
    return !silent_ranks(comm) && all_wait(comm, missing)
               ? "all wait: all ranks must make the same calls in the same order"
               : "it may be stopped or far behind: see its output, or " ADVICE_TIMEOUT;
}

static int deadline_passed(struct wait *wait, const char *where) {
    char ranks[RANK_NAMES], text[BOARD_TEXT];
    uint64_t missing = who_is_awaited(wait);
    double seconds = (double)wait->all * 1e-9;
    const char *why = explain(wait->comm, missing);
    name_ranks(wait->comm, missing, ranks, sizeof ranks);
    if (missing)
        snprintf(text, sizeof text, "rank %d: %s: no word from rank%s %s after %g s: %s",
                 wait->comm->rank, where, is_many(missing) ? "s" : "", ranks, seconds, why);
    else
        snprintf(text, sizeof text, "rank %d: %s: nothing arrived within %g s: %s",
                 wait->comm->rank, where, seconds, why);
    size_t used = strlen(text);
    comm_whereabouts(wait->comm, text + used, sizeof text - used);
    return fail_job(wait, ERR_TIMEOUT, wait->comm->rank, where, text);
}

/* In a long wait, warns the user. */
static void tell_of_long_wait(struct wait *wait, const char *where) {
    char ranks[RANK_NAMES], missing[RANK_NAMES + 8] = "";
    uint64_t absent = who_is_awaited(wait);
    name_ranks(wait->comm, absent, ranks, sizeof ranks);
    if (absent) snprintf(missing, sizeof missing, "rank%s %s", is_many(absent) ? "s" : "", ranks);
    whereabouts_warn(wait, where, missing);
}

static int peer_left(struct wait *wait, const char *where, uint64_t gone) {
    char text[BOARD_TEXT];
    int first = __builtin_ctzll(gone);
    snprintf(text, sizeof text, "rank %d: %s: rank %d has left: all ranks must make the same calls",
             wait->comm->rank, where, first);
    return fail_job(wait, ERR_PEER, first, where, text);
}

int wait_poll(struct wait *wait, int64_t *slice_ns) {
    struct comm *comm = wait->comm;
    char where[BOARD_WHERE];
    board_beat(comm->board, comm->rank);
    /* Read first who has left, then who is missing: a rank leaves after its last post, so one that
     * has left and is still missing will never post. */
    uint64_t left = ranks_that_left(comm), gone = ranks_gone(wait, left);
    int64_t now = now_ns(), passed = now - wait->last_poll;
    wait->left -= passed < MOST_CHARGED_NS ? passed : MOST_CHARGED_NS;
    wait->last_poll = now;
    *slice_ns = wait->left < SLICE_NS ? wait->left : SLICE_NS;
    int is_long = wait->all - wait->left >= SLICE_NS;
    if (is_long) look_for_deaths(comm);
    int goes_on = !board_aborted(comm->board) && !gone && wait->left > 0;
    if (!goes_on || is_long) {
        describe_wait(wait, where, sizeof where);
        whereabouts_show(wait, where);
    }
    if (goes_on && is_long) tell_of_long_wait(wait, where);
    if (goes_on) return wait->reason.look ? wait->reason.look(wait->reason.context) : OK;
    if (board_aborted(comm->board)) return failure_of_job(comm, where);
    return gone ? peer_left(wait, where, gone) : deadline_passed(wait, where);
}

int comm_check_call(struct comm *comm, const struct comm_wait_reason *reason) {
    struct wait call;
    char where[BOARD_WHERE];
    if (!comm_is_aborted(comm)) return comm_check(comm);
    wait_start(&call, comm, reason);
    describe_wait(&call, where, sizeof where);
    whereabouts_show(&call, where);
    return failure_of_job(comm, where);
}

/* ---- distant waits ---- */

/* If only the caller can see what is missing, a poll sees a flag that is always missing. */
void comm_distant_begin(struct comm *comm, struct wait *wait,
                        const struct comm_wait_reason *reason) {
    static const uint64_t never_posted = 0;
    wait_start(wait, comm, reason);
    wait->epoch = &never_posted;
    wait->target = 1;
}

int comm_distant_look(struct wait *wait) {
    int64_t slice_ns;
    return wait_poll(wait, &slice_ns);
}

int comm_distant_late(struct comm *comm, const struct comm_wait_reason *reason, const char *what) {
    struct wait wait;
    comm_distant_begin(comm, &wait, reason);
    wait.what = what;
    wait.left = 0;
    return comm_distant_look(&wait);
}

double comm_timeout_s(const struct comm *comm) {
    return (double)comm->timeout_ns * 1e-9;
}
