/* The communicator: how one rank reaches the others.
 *
 * A rank is one process of a job. launch.h starts the ranks. The ranks share one piece of memory
 * (barrier, abort word, gather boxes). To share larger memory, the ranks pass the descriptor of a
 * memfd with comm_pass_descriptors and put flags (struct comm_flag) into that memory.
 *
 * Every wait has a deadline and polls the abort word, so no wait outlives a failed peer. The first
 * failure of a job is recorded once (comm_abort). The wait of every other rank then returns
 * ERR_PEER, and the launcher reports the first failure.
 *
 * Return codes: after ERR_TIMEOUT the deadline has passed, which aborts the job with this rank's
 * message. After ERR_PEER another rank has failed, died or left. Other codes have their usual
 * meaning. After any error but ERR_USAGE only comm_abort and comm_close may be called.
 *
 * Threads: comm_wait_flag, comm_post_flag, comm_distant_*, comm_check, comm_abort and the getters
 * may be called from any thread at any time. comm_pass_descriptors, comm_gather, comm_barrier and
 * the calls announced with comm_announce are collective: all ranks make them in the same order, and
 * each rank from one thread at a time. */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

#define COMM_BOX_BYTES 65536 /* bytes that each rank gathers at a time */

struct comm;
struct executor_kind;
struct announcer;   /* comm/announce.h */
struct network_ops; /* comm/network.h */

struct comm_options {
    double timeout_s; /* deadline of each wait; 0: 300 s */
    /* 1: without Duet's launcher the ranks find each other by RANK, WORLD_SIZE, MASTER_ADDR and
     * MASTER_PORT (comm/rendezvous.h). They also do so under `duet run` if a program between has
     * closed the inherited descriptor. */
    int meet;
    /* Moves bytes between machines if mpirun or srun started this process: network_by_mpi
     * (group/group.h), or NULL in builds without MPI. */
    const struct network_ops *by;
    /* If not NULL, this is rank `rank` of `world`, whatever the environment says. The ranks find
     * each other by this name, which must be unique on the machine, so a process can join several
     * jobs. */
    const char *name;
    int rank, world;
};

/* Joins the job that this process was started for. It reads RANK, WORLD_SIZE and the inherited
 * file descriptor from the environment and waits until all ranks have joined. NULL options are the
 * defaults. On failure *out is NULL. ERR_USAGE: this process was not started by the launcher.
 * ERR_MEMORY: the shared memory could not be mapped. In both cases the launcher does not know the
 * reason, so the process should print it. Without a launcher it should print every reason. */
int comm_open(struct comm **out, const struct comm_options *options);

/* Makes a rank of a simulated world, for a dry run (device_is_dry). In every collective its peers
 * contribute what it contributes itself; it gets no descriptors back, and no wait blocks. It has no
 * launcher and no abort word. ERR_MEMORY. */
int comm_imagine(struct comm **out, int rank, int world);
int comm_is_imagined(const struct comm *comm); /* 0 for NULL */

/* Takes comm_open's code. 1 if the launcher knows of the failure and prints it. */
int comm_open_was_reported(int code);

/* Leaves the job properly: from now on the peers do not treat this rank's end as a failure. It does
 * not wait. The process should exit next. A rank that exits with status 0 without this call has
 * failed. NULL is allowed. */
void comm_close(struct comm *comm);

int comm_rank(const struct comm *comm);
int comm_world_size(const struct comm *comm);

/* *wanted is 1 if mpirun or srun started this process as a rank on several machines, or
 * DUET_BACKEND is mpi. ERR_USAGE: DUET_BACKEND has another value, or `by` is NULL. */
int network_is_wanted(const struct network_ops *by, int *wanted);

/* 1: the ranks share no memory and communicate over a network (comm/network.h); 0 for NULL. */
int comm_is_spread(const struct comm *comm);
/* What an allreduce between them runs on (allreduce/executor.h); NULL: they share memory. */
const struct executor_kind *comm_executors(const struct comm *comm);
const char *comm_machine(const struct comm *comm, int rank); /* its name; "" if there is only one */

/* 1: no rank below this one is alive, so this rank reports a rank that is gone. */
int comm_speaks(const struct comm *comm);

/* ---- collectives: small and slow, for set-up and for once a step ---- */

/* A rank may bring one file descriptor of memory, which stays the caller's; fd -1: none. fds: world
 * entries, -1 where a rank brought none; every other entry (that of this rank too) is a new
 * descriptor of that memory, which the caller must close. NULL: none are opened. If comm_is_spread
 * there are none. */
int comm_pass_descriptors(struct comm *comm, int fd, int *fds);

/* The purpose of the next gathers, for messages: "new_group"; NULL: none. */
void comm_name_gathers(struct comm *comm, const char *what);

/* All-gather through the shared memory, cheap enough for every step (losses, hits, statistics): it
 * costs one barrier for each COMM_BOX_BYTES. Any number of bytes,
 * the same on every rank. all: world * bytes, in rank order; `mine` may be this rank's part of
 * it. */
int comm_gather(struct comm *comm, const void *mine, size_t bytes, void *all);

/* Returns OK once every rank has called it. `what` names it in error texts: "start of epoch". */
int comm_barrier(struct comm *comm, const char *what);

/* Says whether the launcher was asked to stop the job (launch.stoppable). All ranks get the same
 * answer at their k-th call, and 1 ever after the first 1. Rank 0 does not wait for the others. The
 * first call tells the launcher that this job can be stopped. If comm_is_spread, any rank may get
 * SIGINT or SIGTERM, all ranks wait for each other, and comm_stop_signal is the signal. */
int comm_look_for_stop(struct comm *comm, int *stop);
int comm_stop_signal(const struct comm *comm);

/* Blocks both signals with SIG_BLOCK, before comm_open starts threads, or unblocks them. */
void comm_keep_signals(int how);

/* ---- do all ranks make the same calls? ---- */

/* Every collective is announced to the peers before it begins. Those above announce themselves;
 * other folders call comm_announce. Announcing does not wait, so usually the later rank finds that
 * a peer has announced a different call. A world of one rank announces nothing. ERR_FAILED:
 * "Detected mismatch between collectives on ranks. Rank 1 is running collective: ..." with both
 * calls, which also becomes the failure of the job. */
struct comm_call {
    const char *collective;  /* "ALLREDUCE" */
    int bucket;              /* the bucket of an allreduce, or the unit in fsdp/; -1: none */
    long step;               /* -1: none */
    size_t count, offset;    /* elements, and their offset in the shared buffer; 0: none */
    const char *what;        /* the algorithm, or the purpose of a barrier; NULL: none */
    struct announcer *group; /* the process group that also counts this call; NULL: none */
};
int comm_announce(struct comm *comm, const struct comm_call *call);
/* What `bucket` counts, for messages: "bucket" or "unit". `collective` may be NULL. */
const char *comm_part(const char *collective);

/* ---- flags: small and fast, what the allreduce executors are made of ---- */

/* A flag is in memory that both processes map. It starts as zero and is aligned to 128 bytes (a
 * cache line and the one that the processor fetches with it). `epoch` has one writer and never
 * decreases. `sleepers` belongs to comm/flag.c. */
struct comm_flag {
    uint64_t epoch;
    uint32_t sleepers;
    uint32_t pad[29];
};

/* What a wait is for, so that its error message can say it. The message leaves out members that are
 * NULL or negative. */
struct comm_wait_reason {
    const char *collective; /* "allreduce" */
    int bucket;
    long step;
    /* The rank that should post the flag. If that rank has left the job, the wait ends at once
     * instead of at its deadline. */
    int peer;
    uint64_t among;   /* over a network, if the peer is unknown: a bit for each candidate */
    uint64_t number;  /* the call's number in its process group; 0: none */
    double timeout_s; /* deadline of this wait; 0: that of comm_open */
    /* How long the thread yields its core and checks again before it sleeps; it should exceed the
     * time of a sleep and a wake-up. 0: it sleeps after a few microseconds. */
    int64_t spin_ns;
    /* The waiting thread calls it each time before it sleeps. An error ends the wait. May be
     * NULL. */
    int (*look)(void *context);
    void *context;
};

/* Returns OK once flag->epoch >= epoch. The poster's writes before the post are then visible. Spins
 * for a few microseconds if every rank has its own core, then sleeps. reason may be NULL.
 * ERR_TIMEOUT: "rank 1: allreduce bucket 3 step 118: no word from rank 2 after 300 s". */
int comm_wait_flag(struct comm *comm, struct comm_flag *flag, uint64_t epoch,
                   const struct comm_wait_reason *reason);

/* Publishes everything that this thread has written so far and wakes all sleepers on the flag. It
 * makes a system call only if somebody sleeps. epoch must not be below the flag's current one. It
 * cannot fail. */
void comm_post_flag(struct comm_flag *flag, uint64_t epoch);

/* ---- distant waits: a GPU waits, or no single flag exists; the host keeps the deadline ---- */

/* A kernel that waits for a peer's flag cannot read the abort word of the job. So until reason.peer
 * has done its part, the host calls comm_distant_look now and then, without sleeping, and gets the
 * error that would have ended comm_wait_flag. A peer of -1 means any rank. Meanwhile the other
 * ranks can report that this rank waits. comm_distant_end ends the wait; call it before the struct
 * is used again. */
struct wait {
    struct comm *comm;
    struct comm_wait_reason reason;
    const char *what; /* printed in parentheses after the collective's name; may be NULL */
    /* A wait has one of two kinds. With barrier 1 it lasts until every rank has begun barrier
     * `target`. With barrier 0 it lasts until *epoch, which rank reason.peer posts, has reached
     * `target` (a flag). After comm_distant_begin both may be set if this process can read the
     * missing flag, since a peer may post it and leave between two looks. Otherwise the caller
     * looks, and the peer cannot have left. */
    int barrier;
    const uint64_t *epoch;
    uint64_t target;
    /* The deadline counts time spent waiting, not wall time: at most one second is charged between
     * two polls, so a job survives an hour of Ctrl-Z. */
    int64_t last_poll; /* in ns, from now_ns() */
    int64_t left, all; /* ns until the deadline, now and at the start */
    int shown, warned; /* whereabouts.c: 1: the card shows this wait; 1: it has warned */
};
void comm_distant_begin(struct comm *comm, struct wait *wait,
                        const struct comm_wait_reason *reason);

/* OK within the deadline, otherwise ERR_TIMEOUT or ERR_PEER. */
int comm_distant_look(struct wait *wait);
void comm_distant_end(struct wait *wait); /* ends any wait; a zeroed struct is fine */

/* For a wait that itself watched the deadline of comm_timeout_s and has passed it. Returns
 * ERR_TIMEOUT as comm_wait_flag would, or ERR_PEER if the job had failed before. `what`, if not
 * NULL, is printed in parentheses after the collective's name. */
int comm_distant_late(struct comm *comm, const struct comm_wait_reason *reason, const char *what);
double comm_timeout_s(const struct comm *comm);

/* Writes where the other ranks wait, for the caller's error message: "; rank 1 has waited 12 s in
 * barrier (end); rank 2 waits for nobody". */
void comm_whereabouts(const struct comm *comm, char *text, size_t bytes);

/* 1 if another rank of the job has not polled in a wait for 300 ms. Waits poll every 50 ms, so that
 * rank waits for nothing now: it computes or is stopped. */
int comm_is_silent(const struct comm *comm, int rank);

/* ---- the abort word ---- */

/* Ends the job. The first call on any rank wins: its code and text become the job's error. The
 * peers get this error from their waits, and the launcher prints it, after "rank 2: " if the job
 * has several ranks. A rank that fails calls comm_abort(comm, code, error_message()) and
 * comm_close, then exits with error_exit_status(code) and prints nothing. The call has no effect
 * with OK, with ERR_PEER, with comm NULL, or after another failure. */
void comm_abort(struct comm *comm, int code, const char *text);

/* For long work between waits. Returns OK while the job runs. After an abort it returns ERR_PEER
 * with the first failure's message; the rank that failed first gets its own code. */
int comm_check(struct comm *comm);

/* comm_check before a call begins. The message names the call, like the message of a wait. */
int comm_check_call(struct comm *comm, const struct comm_wait_reason *reason);

/* 1 once the job is aborted. It costs one load. Unlike comm_check it is no sign of life. */
int comm_is_aborted(const struct comm *comm);

#endif
