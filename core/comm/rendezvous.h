/* The rendezvous of a job that torchrun, mpirun or a user started, instead of Duet's launcher. */
#ifndef COMM_RENDEZVOUS_H
#define COMM_RENDEZVOUS_H

#include "comm/rank.h"

/* Sets up comm->board. Rank 0 makes the board and waits until all ranks have come; the others get
 * the board from it. comm has rank, world, timeout_ns. name is the job's name, or NULL to take it
 * from the environment. ERR_TIMEOUT names ranks that did not join. ERR_USAGE: another job uses this
 * place, or the ranks disagree on the job's size. */
int meet_ranks(struct comm *comm, const char *name);

#endif
