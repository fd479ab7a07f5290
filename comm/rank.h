/* Inside comm/: what a struct comm holds, and the wait that all its calls share. */
#ifndef COMM_RANK_H
#define COMM_RANK_H

#include "comm/board.h"

#include <pthread.h>

/* The thread that watches the peers, watch.c. */
struct watch {
    pthread_t thread;
    bool running;
    int stop_fd;             /* an eventfd; -1: none */
    int pidfds[MAX_DEVICES]; /* by rank; -1: itself, ended, or the kernel does not offer pidfds */
};

struct comm {
    int rank, world;
    int64_t timeout_ns;
    bool spin;  /* every rank has a core of its own: a short spin beats a sleep */
    int socket; /* to the launcher */
    struct board *board;
    uint64_t barriers, exchanges, gathers; /* begun by this rank */
    struct watch watch;
};

/* Opens a pidfd of every peer. Called between rendezvous and first barrier. */
int watch_start(struct comm *comm);
void watch_stop(struct comm *comm); /* also when half started */

/* One wait. Between two sleeps wait_poll says whether to go on; it fails for an abort, for a
 * missing peer that has left, and for the deadline (which aborts the job). What is waited for:
 * `begun` >= 0, that begun[counter] of all ranks reaches target; else that *word does, which
 * `reason.peer` is to write. The deadline counts waiting, not wall time: between two polls at
 * most a second is charged, so that a job stopped by Ctrl-Z and continued an hour later goes on. */
struct wait {
    struct comm *comm;
    struct comm_wait_reason reason;
    const char *what; /* put in parentheses behind the collective; may be NULL */
    int counter;
    const uint64_t *word;
    uint64_t target;
    int64_t last, left; /* ns */
};

void wait_start(struct wait *wait, struct comm *comm, const struct comm_wait_reason *reason);

/* OK: sleep for *slice_ns at most and look again. */
int wait_poll(struct wait *wait, int64_t *slice_ns);

/* The whole wait for a flag, on behalf of comm_wait_flag and the barrier; `wait` is started and
 * says what is waited for. */
int wait_flag(struct comm *comm, struct comm_flag *flag, uint64_t epoch, struct wait *wait);

/* ERR_PEER (or this rank's own code) with the job's first failure; `where` may be "". */
int failure_of_job(struct comm *comm, const char *where);

/* Notes in this rank's slot what it was waiting in, once. */
void note_where(struct comm *comm, const char *where);

#endif
