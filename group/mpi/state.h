/* Inside group/mpi/: what a job holds of MPI, and ranks in a line, one communicator, with sums over
 * it in fold order:
 *
 *     rank 0   a0 a1 a2           a0 b0 c0 --fold--> s0           s0 s1 s2
 *     rank 1   b0 b1 b2   ---->   a1 b1 c1 --fold--> s1   ---->   s0 s1 s2
 *     rank 2   c0 c1 c2           a2 b2 c2 --fold--> s2           s0 s1 s2
 *            all_to_all of chunks                    all_gather
 *
 * A rank sends 2 (n-1)/n of its elements, as in a ring, and each element is added up by one rank in
 * the one order of base/fold.h: so the bits are those of one machine. What is short travels whole,
 * by one all_gather, and each rank adds up all of it. */
#ifndef GROUP_MPI_STATE_H
#define GROUP_MPI_STATE_H

#include <pthread.h>

#include "allreduce/element.h"
#include "comm/network.h"
#include "group/mpi/library.h"

/* The thread of the beats: beats.c. */
struct beats {
    pthread_t thread;
    int running, stop; /* stop: atomic */
    MPI_Request in[MAX_DEVICES], out[MAX_DEVICES];
    int sending[MAX_DEVICES]; /* 1: out[r] is under way */
    struct beat mine[MAX_DEVICES], theirs[MAX_DEVICES];
    int64_t heard[MAX_DEVICES]; /* when the last beat came */
};

struct network {
    struct mpi mpi;
    struct comm *comm;
    int initialized;       /* 1: this job has initialised MPI, and finalises it */
    MPI_Comm job, control; /* of the job's own collectives; of beats */
    struct beats beats;
};

/* What MPI says of a call that returned an error; OK where it returned none. */
int mpi_result(struct network *net, int result, const char *what);

/* Waits for a request that `result` has begun, within the wait's deadline. After an error it is
 * still under way, and the job has failed. */
int mpi_wait(struct network *net, int result, MPI_Request *request, struct wait *wait);

/* Collective, behind a collective that had a deadline: a communicator of the ranks that give
 * `member`, in the order of `key`. It stays until the end of MPI: to free it would be one more
 * collective. */
int mpi_split(struct network *net, int member, int key, MPI_Comm *out);

int beats_start(struct network *net);
void beats_stop(struct network *net); /* sends what is still to be told, and ends the thread */

struct line {
    struct network *net;
    MPI_Comm comm;
    int n, rank;
    void *scratch; /* grows; freed by line_close */
    size_t scratch_bytes;
};
int line_open(struct line *line, struct network *net, int member, int key, int n); /* mpi_split */
void line_close(struct line *line);

/* out = the sum over all ranks of (in * scale); `in` may be `out`. */
int line_sum(struct line *line, struct arithmetic how, double scale, const void *in, void *out,
             size_t count, struct wait *wait);

/* out = this rank's block of that sum, where rank r's block of `in` has sizes[r] elements. */
int line_sum_block(struct line *line, struct arithmetic how, double scale, const void *in,
                   void *out, const size_t *sizes, struct wait *wait);

int line_broadcast(struct line *line, void *data, size_t bytes, int root, struct wait *wait);

/* Blocks one behind the other as MPI wants them: bytes and where they begin. ERR_USAGE: 2 GiB or
 * more in all. */
struct blocks {
    int count[MAX_DEVICES], at[MAX_DEVICES];
};
int line_blocks(struct blocks *blocks, int n, const size_t *sizes, size_t element);

/* A group's: one for collectives and one for messages, so that a tag of the program's is never one
 * of Duet's. */
struct group_mpi {
    struct line calls, messages;
};

#endif
