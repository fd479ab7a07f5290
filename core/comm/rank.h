/* Inside comm/: what a struct comm holds, and the wait that all its calls share. */
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
    int64_t timeout_ns;  /* of every single wait */
    int64_t warn_ns;     /* a wait this long is reported */
    int spin;            /* every rank has its own core, so a short spin beats a sleep */
    int64_t crowded;     /* other programs run on its core until then: waits do not yield: flag.c */
    int light;           /* 1: every rank runs fences that another one requests: flag.c */
    int socket;          /* to the launcher, or to rank 0 in a job without one */
    int host_pidfd;      /* then: readable once rank 0 has ended; -1: none */
    struct board *board; /* NULL: the peers are imagined (imagine.c) */
    uint64_t barriers, exchanges, gathers; /* how many of each this rank has begun */
    const char *gathers_for;               /* see comm_name_gathers */
    uint64_t looks;                        /* calls of comm_look_for_stop */
    struct announcer announcer;            /* of the collectives of all kinds */
    struct sharing sharing;
    struct network *network;        /* ranks on several machines: network.h; else NULL */
    const struct network_ops *by;   /* who moves their bytes */
    char (*machines)[MACHINE_NAME]; /* [world] of such ranks, by name; else NULL */
    struct meeting *meeting; /* of rank 0 in a job without a launcher: rendezvous.h; else NULL */
};

/* announce.c: this rank is about to begin the collective that `call` names. ERR_FAILED: a peer
 * has announced another one. */
int announce(struct comm *comm, const struct comm_call *call);
/* imagine.c: what every rank of an imagined world brings to a gather. */
void imagine_all(const struct comm *comm, const void *mine, size_t bytes, void *all);

/* A wait checks everything at least once in it, and shows that its rank is alive. */
static const int64_t SLICE_NS = 50 * 1000000;

/* whereabouts.c: shows others what this wait waits in, until comm_distant_end; asks; and warns once
 * comm->warn_ns have passed. missing: "rank 1", "ranks 1, 2" or "". */
void whereabouts_show(struct wait *wait, const char *where);
int whereabouts_waits(const struct comm *comm, int rank); /* 1: the rank shows a wait */
void whereabouts_warn(struct wait *wait, const char *where, const char *missing);

void wait_start(struct wait *wait, struct comm *comm, const struct comm_wait_reason *reason);

/* Called between two sleeps. OK: sleep for at most *slice_ns and look again. It fails when the job
 * is aborted, when a rank that is still missing has left, and when the deadline has passed (which
 * aborts the job). */
int wait_poll(struct wait *wait, int64_t *slice_ns);

/* The whole wait until `flag` has reached `epoch`, for comm_wait_flag and for the barrier. `wait`
 * has been started and says what is waited for. */
int wait_flag(struct comm *comm, struct comm_flag *flag, uint64_t epoch, struct wait *wait);

/* flag.c: from now on this process runs the fences that others request. 0: the kernel cannot. */
int comm_can_post_lightly(void);

/* cores.c: a thread of this rank waits. 1: rank `peer` was last seen on the same core, or nobody
 * knows where. */
int shares_core(struct comm *comm, int peer);

/* cores.c: a thread of this rank waits in vain for rank `peer` (-1: unknown). If the two share a
 * core although another one has fewer ranks, it moves there, but only now and then. */
void leave_shared_core(struct comm *comm, int peer);

/* failure.c: records in this rank's card what it was waiting in when the job failed. The first call
 * counts. */
void note_where(struct comm *comm, const char *where);

/* failure.c: fails with the job's first failure: ERR_PEER, or this rank's own code if it failed
 * first. OK if the job has not failed. `where`: what this rank was waiting in, "" if nothing. */
int failure_of_job(struct comm *comm, const char *where);

#endif
