/* Ranks on several machines, which share no memory. MPI moves their bytes (group/mpi/). This is the
 * interface between comm/ and that folder.
 *
 * Each rank then has its own board. About ten times per second a thread of the network sends this
 * rank's card to the others as a heartbeat, and writes their cards to this board. So waits check
 * cards, the abort word and ranks that have left as on one machine, at most a tenth of a second
 * late. A rank has failed if no heartbeat arrives during the job's timeout: its machine, its link
 * or its process has stopped. */
#ifndef COMM_NETWORK_H
#define COMM_NETWORK_H

#include "comm/rank.h"

struct network;
struct executor_kind; /* allreduce/executor.h */

/* gather is collective. While it waits, comm_distant_look(wait) may end it with an error. */
struct network_ops {
    /* Joins the world that mpirun or srun has started, sets comm->rank, comm->world and
     * comm->board, and starts the heartbeat thread. It returns once all ranks have joined, within
     * the job's timeout. After an error *out may be set; the caller then closes it. */
    int (*open)(struct network **out, struct comm *comm);
    int (*gather)(struct network *network, const void *mine, size_t bytes, void *all,
                  struct wait *wait);
    /* Tells the others that this rank leaves, or why the job has failed. Without a failure it then
     * waits until all have left. NULL is fine. */
    void (*close)(struct network *network);
    const struct executor_kind *executors; /* what an allreduce between the machines runs on */
};

/* Sets comm->network, comm->board and comm->machines. */
int network_open(struct comm *comm, const struct network_ops *by);
void network_close(struct comm *comm);

int network_barrier(struct comm *comm, const char *collective, const char *what);
int network_gather(struct comm *comm, const void *mine, size_t bytes, void *all);

/* Implements comm_look_for_stop. Signals from mpirun and Slurm reach no launcher. Each rank gets
 * its own signal, keeps it blocked (comm_keep_signals), and tells the others. */
int network_look_for_stop(struct comm *comm, int *stop);

/* ---- beats ---- */

struct beat {
    struct card card; /* since_ns: how long it has waited */
    struct abort_record failure;
};
void beat_of(const struct comm *comm, struct beat *beat);
void beat_came(struct comm *comm, int rank, struct beat *beat); /* `beat` is changed in place */

/* No heartbeat of `rank` has arrived for too long: the job has failed. */
void beat_missing(struct comm *comm, int rank, double seconds);

#endif
