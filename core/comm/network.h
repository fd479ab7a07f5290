/* Ranks on several machines, which share no memory. MPI moves their bytes (group/mpi/); this is
 * what comm/ asks of it, and what it tells it.
 *
 * Each rank then has a board of its own. A thread of the network sends the others some ten times a
 * second what stands in this rank's card, a beat, and writes theirs into the cards of this board.
 * So waits look at cards, at the abort word and at who has left as they do on one machine, only a
 * tenth of a second late. A rank of which no beat comes for as long as the job's timeout has
 * failed: its machine, its link or its process has stopped. */
#ifndef COMM_NETWORK_H
#define COMM_NETWORK_H

#include "comm/rank.h"

struct network;

/* All but open and close are collective, and end by comm_distant_look(wait) with an error. */
struct network_ops {
    /* Joins the world that mpirun or srun has started; sets comm->rank and comm->world. The rest of
     * the job is open when it returns, within the job's timeout. */
    int (*open)(struct network **out, struct comm *comm);
    int (*start)(struct network *network); /* the thread of the beats; comm->board is there */
    int (*barrier)(struct network *network, struct wait *wait);
    int (*gather)(struct network *network, const void *mine, size_t bytes, void *all,
                  struct wait *wait);
    int (*broadcast)(struct network *network, void *data, size_t bytes, struct wait *wait);
    /* Tells the others that this rank leaves, or why the job has failed. In good order it then
     * waits until all have left. NULL is fine. */
    void (*close)(struct network *network);
};
extern const struct network_ops *const network_by_mpi; /* NULL: built without MPI */

/* Sets comm->network, comm->board and comm->machines. */
int network_open(struct comm *comm);
void network_close(struct comm *comm);

int network_barrier(struct comm *comm, const char *collective, const char *what);
int network_gather(struct comm *comm, const void *mine, size_t bytes, void *all, struct wait *wait);

/* ---- beats ---- */

struct beat {
    struct card card; /* since_ns: for how long it has waited */
    struct abort_record failure;
};
void beat_of(const struct comm *comm, struct beat *beat);
void beat_came(struct comm *comm, int rank, struct beat *beat); /* changes it */

/* No beat of `rank` has come for so long: the job has failed. */
void beat_missing(struct comm *comm, int rank, double seconds);

#endif
