/* Process groups over several machines: MPI carries the calls of group_run.
 *
 *     library.h   libmpi, loaded at run time
 *     world.c     the job: its beginning and end, the collectives of comm/
 *     wait.c      waits for calls, which have a deadline
 *     beats.c     the heartbeats that the ranks exchange ten times a second: comm/network.h
 *     line.c      sums in fold order: all_to_all of chunks, the sum of a chunk, all_gather: state.h
 *     calls.c     the collectives of a group; messages.c: send and recv
 *     executor.c  DDP's sums, the broadcast of buffers, SyncBatchNorm's gather
 *     absent.c    replaces all of these if mpi.h was not found
 *
 * Only files in this folder include mpi.h. */
#ifndef GROUP_MPI_MPI_H
#define GROUP_MPI_MPI_H

#include "group/state.h"

struct group_network {
    /* Collective over the job; a rank that is not a member gets NULL. */
    int (*open)(struct group_mpi **out, struct group *group);
    void (*close)(struct group_mpi *mpi);

    int (*run)(struct runner *runner, struct work *work); /* work.run, for messages too */

    /* monitored_barrier: signals another rank that this one has arrived; waits for such signals. */
    int (*signal)(struct group *group, int to, uint64_t epoch);
    int (*take_signals)(struct group *group, struct wait *wait);
};
int signal_by_mpi(struct group *group, int to, uint64_t epoch); /* messages.c */
int take_signals_by_mpi(struct group *group, struct wait *wait);

extern const struct group_network *const group_by_mpi; /* NULL: built without MPI */

#endif
