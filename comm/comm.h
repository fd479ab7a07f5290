/* The communicator: what one rank knows of the others.
 *
 * A rank is one process of a job; launch.h starts it and is the server of its rendezvous. Ranks
 * share one memory segment (barrier, abort word, gather boxes) and each holds one socket to the
 * launcher (blobs and file descriptors). Larger memory is shared by the ranks themselves: they
 * pass the file descriptor of a memfd with comm_exchange and put comm_flags into it.
 *
 * Every wait here has a deadline and polls the abort word, so none outlives a failed peer. The
 * first failure of a job is written down once (comm_abort); every other rank then gets ERR_PEER
 * from whatever it waits in, and the launcher reports the one that was first.
 *
 * Return codes: OK; ERR_TIMEOUT the deadline passed (the job is aborted by that, with this
 * rank's text); ERR_PEER another rank failed, died or left; ERR_FAILED / ERR_USAGE / ERR_MEMORY
 * as usual. After any error but ERR_USAGE the communicator is only good for comm_abort and
 * comm_close.
 *
 * Threads: comm_wait_flag, comm_post_flag, comm_distant_..., comm_check, comm_abort and the
 * getters from any thread at any time. comm_exchange, comm_gather and comm_barrier are
 * collective: all ranks call the same ones in the same order, each rank from one thread at a
 * time. */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COMM_BLOB_BYTES 65536 /* the most one rank brings to comm_exchange or comm_gather */

struct comm;

struct comm_options {
    double timeout_s; /* deadline of every single wait; 0: 300 s */
};

/* Joins the job this process was started for: reads RANK, WORLD_SIZE and the two inherited file
 * descriptors from the environment, meets all other ranks (returns once all are here) and starts
 * the thread that watches them. options NULL: defaults. On failure *out is NULL.
 * ERR_USAGE: this process was not started by the launcher. */
int comm_open(struct comm **out, const struct comm_options *options);

/* Leaves the job in good order: peers do not take this rank's end for a failure any more. Waits for
 * nobody. The process exits after it; one that exits with status 0 without it is a failure. */
void comm_close(struct comm *comm);

int comm_rank(const struct comm *comm);
int comm_world_size(const struct comm *comm);

/* ---- collectives, small and slow ---- */

/* All-gather through the launcher, for set-up: each rank brings `bytes` (the same on every rank, at
 * most COMM_BLOB_BYTES) and, where fd >= 0, one file descriptor, which stays the caller's.
 * all: world * bytes, in rank order. fds: world entries, each an own duplicate that the caller must
 * close (also that of its own rank), -1 where a rank brought none; NULL drops them. */
int comm_exchange(struct comm *comm, const void *mine, size_t bytes, int fd, void *all, int *fds);

/* All-gather through the shared segment, for every step (losses, hits, statistics): no launcher,
 * one barrier. Same shapes as comm_exchange; `mine` may lie inside `all`. */
int comm_gather(struct comm *comm, const void *mine, size_t bytes, void *all);

/* Returns OK once every rank has called it. `what` names it in errors, as "start of epoch". */
int comm_barrier(struct comm *comm, const char *what);

/* ---- flags, small and fast: what the allreduce executors are made of ---- */

/* Lies in memory that both processes map, zeroed, at a multiple of 128 bytes (a cache line and its
 * neighbour). `epoch` has one writer and only grows; `sleepers` belongs to comm/flag.c. */
struct comm_flag {
    uint64_t epoch;
    uint32_t sleepers;
    uint32_t pad[29];
};

/* What a wait is for, so that its error can say it. NULL, or negative: unknown, left out. */
struct comm_wait_reason {
    const char *collective; /* "allreduce" */
    int bucket;
    long step;
    /* the rank that is to post the flag; also tells a peer that has left from a slow one */
    int peer;
};

/* Returns OK once flag->epoch >= epoch; what the poster wrote before its post is then visible.
 * Spins a few microseconds if every rank has a core, then sleeps. reason may be NULL.
 * ERR_TIMEOUT: "rank 1: allreduce bucket 3 step 118: no word from rank 2 after 300 s: ...". */
int comm_wait_flag(struct comm *comm, struct comm_flag *flag, uint64_t epoch,
                   const struct comm_wait_reason *reason);

/* Publishes all this thread wrote so far and wakes who sleeps on the flag (a system call only if
 * somebody does). epoch must not be below the flag's present one. Cannot fail. */
void comm_post_flag(struct comm_flag *flag, uint64_t epoch);

/* A wait that a GPU does for this rank. Nobody sleeps here for it: the rank looks after it, now
 * and then, for as long as the word of `reason.peer` is missing, and learns what comm_wait_flag
 * would have ended with. */
struct comm_distant_wait {
    struct comm_wait_reason reason;
    int64_t last, left; /* of comm/wait.c */
};
void comm_distant_begin(struct comm *comm, struct comm_distant_wait *wait,
                        const struct comm_wait_reason *reason);
/* OK: still within the deadline */
int comm_distant_look(struct comm *comm, struct comm_distant_wait *wait);

/* The same for a wait that kept the deadline by itself, comm_timeout_s, and has passed it:
 * ERR_TIMEOUT as from comm_wait_flag (or ERR_PEER, if the job had failed before). `what`, if not
 * NULL, is put in parentheses behind the collective. */
int comm_distant_late(struct comm *comm, const struct comm_wait_reason *reason, const char *what);
double comm_timeout_s(const struct comm *comm);

/* ---- the abort word ---- */

/* Ends the job: the first caller of all ranks wins and its code and text become the job's error,
 * which peers find in their waits and the launcher prints ("rank 2: " is put in front). A rank
 * that fails calls comm_abort(comm, code, error_message()), closes, and exits with
 * error_exit_status(code) without printing: with ERR_PEER, or later than another, it changes
 * nothing. NULL comm: nothing. */
void comm_abort(struct comm *comm, int code, const char *text);

/* OK, or once the job is aborted ERR_PEER with the first failure's text (in the rank that failed
 * first: its own code). For long work between waits. */
int comm_check(struct comm *comm);

#ifdef __cplusplus
}
#endif
#endif
