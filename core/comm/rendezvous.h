/* A job without a launcher of Duet: its ranks were started by torchrun, by mpirun or by hand, and
 * find each other. Rank 0 then serves the rendezvous, as the launcher does elsewhere. */
#ifndef COMM_RENDEZVOUS_H
#define COMM_RENDEZVOUS_H

#include "comm/rank.h"

/* Sets up comm->board and comm->socket: rank 0 makes the board and waits until all ranks have come,
 * the others get the board from it. comm has rank, world, timeout_ns. name: the job's; NULL: taken
 * from the environment. ERR_TIMEOUT names the ranks that did not come; ERR_USAGE: another job meets
 * at the same place, or the ranks were started for jobs of different sizes. */
int meet_ranks(struct comm *comm, const char *name);

/* Rank 0: delivers what the others still wait for, for a second or two at most, and ends the thread
 * that served them. NULL is fine. */
void meeting_end(struct meeting *meeting);

#endif
