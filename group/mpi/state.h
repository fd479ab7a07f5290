/* Inside group/mpi/: a job's MPI state, and a line, which is a communicator with sums in fold
 * order:
 *
 *     rank 0   a0 a1 a2           a0 b0 c0 --fold--> s0           s0 s1 s2
 *     rank 1   b0 b1 b2   ---->   a1 b1 c1 --fold--> s1   ---->   s0 s1 s2
 *     rank 2   c0 c1 c2           a2 b2 c2 --fold--> s2           s0 s1 s2
 *            all_to_all of chunks                    all_gather
 *
 * Each rank sends 2 (n-1)/n of its elements, as in a ring. One rank adds all terms of an element in
 * the order of base/fold.h, so the bits are those of one machine. Short tensors are sent whole with
 * one all_gather, and each rank adds all of them. */
#ifndef GROUP_MPI_STATE_H
#define GROUP_MPI_STATE_H

#include <pthread.h>

#include "allreduce/element.h"
#include "base/worker.h"
#include "comm/network.h"
#include "group/mpi/library.h"

extern const struct executor_kind mpi_executors; /* executor.c */

/* The heartbeat thread: beats.c. */
struct beats {
    pthread_t thread;
    int running, stop; /* stop: atomic */
    MPI_Request in[MAX_DEVICES], out[MAX_DEVICES];
    int sending[MAX_DEVICES]; /* 1: out[r] is in flight */
    struct beat mine[MAX_DEVICES], theirs[MAX_DEVICES];
    int64_t heard[MAX_DEVICES]; /* when the last beat arrived */
};

struct network {
    struct mpi mpi;
    struct comm *comm;
    int initialized;       /* 1: this job has initialised MPI and must finalise it */
    MPI_Comm job, control; /* for the job's own collectives; for heartbeats */
    struct beats beats;
    struct task aside; /* runs a call that MPI offers only in blocking form */
};

/* Converts the result of an MPI call into a code; OK if it succeeded. */
int mpi_result(struct network *net, int result, const char *what);

/* Waits within the wait's deadline for the request of a call that returned `result`. After an error
 * the request is still pending, and the job has failed. */
int mpi_wait(struct network *net, int result, MPI_Request *request, struct wait *wait);

/* Pauses between two tests of a wait. A message takes a few microseconds, much less than a sleep.
 * MPI moves long messages only while a thread tests, so the sleeps stay short. */
void mpi_pause(const struct network *net, int64_t waited_ns);

/* Makes a communicator of the ranks with `member`, in the order of `key`. It is collective; call it
 * after a collective with a deadline. The communicator exists until MPI ends, because freeing it
 * would be another collective. */
int mpi_split(struct network *net, int member, int key, MPI_Comm *out);

int beats_start(struct network *net);
void beats_stop(struct network *net); /* sends the last beat and ends the thread */

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

/* How many elements of that sum this rank receives from rank r. */
size_t line_sum_takes(const struct line *line, size_t count, size_t element, int r);

/* out = this rank's block of that sum. Rank r's block of `in` has sizes[r] elements. */
int line_sum_block(struct line *line, struct arithmetic how, double scale, const void *in,
                   void *out, const size_t *sizes, struct wait *wait);

struct work;
int line_message(struct line *line, struct work *work, struct wait *wait); /* messages.c */
int line_broadcast(struct line *line, void *data, size_t bytes, int root, struct wait *wait);

/* Sizes and offsets in bytes of consecutive blocks, as MPI needs them. ERR_USAGE: 2 GiB or more in
 * all. */
struct blocks {
    int count[MAX_DEVICES], at[MAX_DEVICES];
};
int line_blocks(struct blocks *blocks, int n, const size_t *sizes, size_t element);

/* The communicators of a group, one for collectives and one for messages, so that the program's
 * tags never collide with Duet's. */
struct group_mpi {
    struct line calls, messages;
};

#endif
