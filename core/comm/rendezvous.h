/* The rendezvous of a job that torchrun, mpirun or a user started, instead of Duet's launcher. The
 * ranks find each other, and rank 0 serves the rendezvous in place of the launcher. */
#ifndef COMM_RENDEZVOUS_H
#define COMM_RENDEZVOUS_H

#include "comm/rank.h"

/* Sets up comm->board and comm->socket. Rank 0 makes the board and waits until all ranks have
 * joined; the others get the board from it. comm has rank, world, timeout_ns. name is the job's
 * name, or NULL to take it from the environment. ERR_TIMEOUT names ranks that did not join.
 * ERR_USAGE: another job uses this place, or the ranks disagree on the job's size. */
int meet_ranks(struct comm *comm, const char *name);

/* Rank 0 calls it at the end. It delivers what other ranks still wait for, within two seconds, and
 * ends the thread that served them. NULL is fine. */
void meeting_end(struct meeting *meeting);

#endif
