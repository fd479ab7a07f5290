/* Internal to comm/: the members of struct comm, and the wait that all calls on it share. */
#ifndef COMM_RANK_H
#define COMM_RANK_H

#include "comm/board.h"

/* How often this rank has waited for one that was last seen on its core: cores.c. Several threads
 * touch it; it need not be exact. */
struct sharing {
    uint32_t waits;
    int64_t moved_at; /* on the clock of base/clock.h */
};

enum { MACHINE_NAME = 64 };

struct comm {
    int rank, world;
    int64_t timeout_ns;  /* deadline of each wait */
    int64_t warn_ns;     /* a wait this long is reported */
    int spin;            /* every rank has its own core, so spinning briefly beats sleeping */
    int64_t crowded;     /* until then other programs use its core and waits do not yield */
    int alone;           /* 1: no launcher watches the ranks, so they watch each other */
    int64_t watched_ns;  /* when a thread of this rank last did so; atomic */
    struct board *board; /* NULL: the peers are imagined (imagine.c) */
    int board_fd;        /* on rank 0 of a job without a launcher; else -1 */
    uint64_t barriers, gathers; /* how many of each this rank has begun */
    const char *gathers_for;    /* see comm_name_gathers */
    uint64_t looks;             /* calls of comm_look_for_stop */
    struct announcer announcer; /* for collectives of all kinds */
    struct sharing sharing;
    struct network *network;        /* ranks on several machines: network.h; else NULL */
    const struct network_ops *by;   /* the functions that move bytes between machines */
    char (*machines)[MACHINE_NAME]; /* [world] the machine of each rank; else NULL */
};

/* announce.c: this rank is about to begin the collective that `call` names. ERR_FAILED: a peer
 * has announced another one. */
int announce(struct comm *comm, const struct comm_call *call);
/* barrier.c: a barrier that is not announced. The texts are for messages. */
int pass_barrier(struct comm *comm, const char *collective, const char *what);
/* imagine.c: fills in what every rank of a simulated world contributes to a gather. */
void imagine_all(const struct comm *comm, const void *mine, size_t bytes, void *all);

/* In each slice of this length a wait checks everything once and shows that its rank is alive. */
static const int64_t SLICE_NS = 50 * 1000000;

/* whereabouts.c: the first shows the peers where this rank waits, until comm_distant_end. The last
 * warns after comm->warn_ns. `missing` is "rank 1", "ranks 1, 2" or "". */
void whereabouts_show(struct wait *wait, const char *where);
int whereabouts_waits(const struct comm *comm, int rank); /* 1: that rank shows a wait */
void whereabouts_warn(struct wait *wait, const char *where, const char *missing);

void wait_start(struct wait *wait, struct comm *comm, const struct comm_wait_reason *reason);

/* Called between two sleeps. After OK the caller sleeps for at most *slice_ns and looks again. It
 * fails when the job is aborted, when a missing rank has left, and when the deadline has passed
 * (which aborts the job). */
int wait_poll(struct wait *wait, int64_t *slice_ns);

/* Waits until `flag` has reached `epoch`, for comm_wait_flag and for the barrier. The caller has
 * started `wait`, which names what is awaited. */
int wait_flag(struct comm *comm, struct comm_flag *flag, uint64_t epoch, struct wait *wait);

/* cores.c: a thread calls it while it waits for rank `peer` (-1: unknown). If the two share a core
 * although another one has fewer ranks, the thread moves there, but only now and then. */
void leave_shared_core(struct comm *comm, int peer);

/* failure.c: once in a slice, without a launcher: has the process of a rank ended? */
void look_for_deaths(struct comm *comm);

/* failure.c: fails with the job's first failure: ERR_PEER, or this rank's own code if it failed
 * first. OK if the job has not failed. `where`: where this rank was waiting, or "". */
int failure_of_job(struct comm *comm, const char *where);

#endif
