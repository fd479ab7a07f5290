/* Reads this process's role in its job from the environment. torchrun and Duet's launcher set RANK,
 * WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE; mpirun, from Open MPI or MPICH, uses other names for
 * the same numbers. */
#ifndef COMM_ENVIRONMENT_H
#define COMM_ENVIRONMENT_H

#include <stddef.h>

struct job_rank {
    int rank, world, local_rank, local_world;
};

/* ERR_USAGE names the variable that is missing, is not a number, or requests several machines;
 * `advice` ends the message about a missing one and says how to start the ranks. */
int read_job_rank(struct job_rank *out, const char *advice);
int read_job_rank_anywhere(struct job_rank *out,
                           const char *advice); /* also accepts several machines */

/* 1: the environment has a rank or a number of ranks, so another program started this process as a
 * rank. If only one of the two is set, read_job_rank names the other. */
int environment_is_of_a_rank(void);

/* 1: mpirun or srun started this process, so its ranks may meet through MPI. */
int environment_is_of_mpi(void);

/* 1: mpirun or srun started this process, and it is not the first rank on this machine. */
int environment_is_of_a_later_rank(void);

/* Sets RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE if they are not set. */
int environment_for_programs(const struct job_rank *self);

/* Reads the variable `name`, from `least` to `most`. *out keeps its value if it is not set. */
int environment_number(const char *name, int least, int most, int *out);

/* Writes a name that all ranks of a job share and, as far as the environment shows, no other job on
 * this machine has. For messages, *address and *port say where the ranks meet; their storage is
 * static or the environment's. */
void describe_job(char *text, size_t bytes, const char **address, const char **port);

#define JOB_MEMORY "duet-job" /* the memory that the ranks of a job share */

/* ERR_USAGE: a launcher has started this process as one of several ranks, but the process does not
 * act as one: it has no process group, no duet_spawn and no MPI. */
int check_alone(void);

#endif
