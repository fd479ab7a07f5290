/* Records where each rank waits, so that a long wait can name the missing ranks.
 *
 * A rank that has waited for 50 ms, or whose wait fails, writes the call and its start into its
 * card on the board, and clears the start at the end of the wait. After ten seconds, or after
 * DUET_WARN_AFTER seconds, it prints a warning with the calls of all ranks; only the first rank to
 * get there prints it. At the deadline the same text is part of the error. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/program_name.h"
#include "base/text/text.h"
#include "comm/rank.h"

static const int64_t AGAIN_NS = 60 * (int64_t)1000000000;

/* If several threads of a rank wait, the first one shows its wait. */
void whereabouts_show(struct wait *wait, const char *where) {
    struct card *card = &wait->comm->board->cards[wait->comm->rank];
    if (wait->shown || __atomic_exchange_n(&card->shows, 1, __ATOMIC_ACQ_REL)) return;
    wait->shown = 1;
    for (size_t i = 0; i < sizeof card->waits_in; i++) {
        __atomic_store_n(&card->waits_in[i], where[i], __ATOMIC_RELAXED);
        if (!where[i]) break;
    }
    __atomic_store_n(&card->since_ns, now_ns() - (wait->all - wait->left), __ATOMIC_RELEASE);
}

/* After a failure the card keeps the wait, for the launcher's report. */
void comm_distant_end(struct wait *wait) {
    if (!wait->shown || comm_is_aborted(wait->comm)) return;
    struct card *card = &wait->comm->board->cards[wait->comm->rank];
    wait->shown = 0;
    __atomic_store_n(&card->since_ns, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&card->shows, 0, __ATOMIC_RELEASE);
}

/* A waiting rank says so in each slice of its wait (wait.c). */
int comm_is_silent(const struct comm *comm, int rank) {
    const int64_t silent_ns = 6 * SLICE_NS;
    return now_ns() - __atomic_load_n(&comm->board->cards[rank].beat_ns, __ATOMIC_RELAXED) >
           silent_ns;
}

int whereabouts_waits(const struct comm *comm, int rank) {
    return __atomic_load_n(&comm->board->cards[rank].since_ns, __ATOMIC_ACQUIRE) &&
           !comm_is_silent(comm, rank);
}

/* "; rank 1 has waited 12 s in barrier (end)", "; rank 2 waits for nobody" */
static void describe_rank(const struct comm *comm, int rank, char *text, size_t size) {
    const struct card *card = &comm->board->cards[rank];
    char where[BOARD_WHERE];
    int64_t since = __atomic_load_n(&card->since_ns, __ATOMIC_ACQUIRE);
    for (size_t i = 0; i < sizeof where; i++)
        where[i] = __atomic_load_n(&card->waits_in[i], __ATOMIC_RELAXED);
    where[sizeof where - 1] = 0;
    if (__atomic_load_n(&card->left, __ATOMIC_ACQUIRE))
        text_append(text, size, "; rank %d has left", rank);
    else if (!since || comm_is_silent(comm, rank))
        text_append(text, size, "; rank %d waits for nobody", rank);
    else
        text_append(text, size, "; rank %d has waited %.0f s in %s", rank,
                    (double)(now_ns() - since) * 1e-9, where);
}

void comm_whereabouts(const struct comm *comm, char *text, size_t size) {
    *text = 0;
    for (int r = 0; r < comm->world; r++)
        if (r != comm->rank) describe_rank(comm, r, text, size);
}

void whereabouts_warn(struct wait *wait, const char *where, const char *missing) {
    char others[BOARD_TEXT];
    uint64_t *warned = &wait->comm->board->warned_ns, before, now = (uint64_t)now_ns();
    if (wait->warned || wait->all - wait->left < wait->comm->warn_ns) return;
    wait->warned = 1;
    before = __atomic_load_n(warned, __ATOMIC_ACQUIRE);
    if (before && now - before < (uint64_t)AGAIN_NS) return;
    if (!__atomic_compare_exchange_n(warned, &before, now, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return;
    comm_whereabouts(wait->comm, others, sizeof others);
    fprintf(stderr, "%s: warning: rank %d: %s: for %.0f s no word from %s%s\n", program_name(),
            wait->comm->rank, where, (double)wait->comm->warn_ns * 1e-9,
            *missing ? missing : "others", others);
}
