/* Jobs: a run as processes of its own: one (single, DP) or one per device (DDP), all started
 * from this very program by fork+exec. The configuration travels in one memfd, the record comes
 * back in another. */
#ifndef TRAIN_JOB_H
#define TRAIN_JOB_H

#include "trace/record.h"
#include "train/run.h"

struct job_result {
    int exit_status; /* what main should exit with if job_run fails */
    int signal;      /* the signal that ended us while waiting: start no further job */
};

/* Runs config as a job and waits. record NULL: not wanted; else filled in by the job
 * (record_free it). `initial`: start from these parameters (count floats, registration order)
 * instead of a seed or file; NULL: as config says. On failure the error text is the root cause,
 * and result->exit_status that of the failing rank. */
int job_run(const struct run_config *config, const float *initial, size_t initial_count,
            struct run_record *record, struct job_result *result);

/* As job_run, for one of several runs: its error text begins with `title`, "DP: rank 0: ...". */
int job_run_titled(const char *title, const struct run_config *config, struct run_record *record,
                   struct job_result *result);

/* For a command that runs several modes, before the first: whether its ranks may share a GPU
 * only NCCL knows, in a job. With
 * --allreduce nccl one step of DDP, unseen; else nothing. Error texts as those of the run itself. */
int job_try_nccl(const struct run_config *config, struct job_result *result);

/* The subcommand that such a process is started with: `duet job CONFIG_FD RECORD_FD SPANS_FD`.
 * Returns the exit status. */
int job_main(int argc, char **argv);

/* For main alone, after trainer_run has left something in use: ends the process without what
 * libraries do at exit, where a driver may wait for its GPU without a deadline. What was printed
 * is written. */
_Noreturn void job_leave(int status);

#endif
