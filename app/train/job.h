/* Jobs: a run in its own processes, one for single and DP, one per device for DDP. Each is
 * started from this program by fork and exec. The configuration travels to them in one memfd,
 * and the run record comes back in another. */
#ifndef TRAIN_JOB_H
#define TRAIN_JOB_H

#include "trace/record.h"
#include "train/run.h"

struct job_result {
    int exit_status; /* the exit status for the whole program if job_run failed */
    int signal;      /* the signal that ended the wait; then start no other job. 0: none */
    /* 1: a signal has stopped the run after a step. The record is complete, and the requested files
     * are written; the error text says after how many steps. */
    int stopped;
    /* 1: job_run failed only because some of the run's files could not be written. The run itself
     * succeeded, and its record is complete. */
    int unwritten;
};

/* Runs config as a job and waits for its end.
 * record: NULL: not wanted; otherwise the job's; record_free it. On failure the error text is the
 * root cause and result->exit_status that of the failing rank. */
int job_run(const struct run_config *config, struct run_record *record, struct job_result *result);

/* job_run for one of several runs: the error text begins with `title`, "DP: rank 0: ...". */
int job_run_titled(const char *title, const struct run_config *config, struct run_record *record,
                   struct job_result *result);

/* With --allreduce nccl, runs one silent step of DDP, and with --units one of FSDP; otherwise does
 * nothing. A command that runs several modes calls it before the first: only NCCL knows whether
 * ranks may share a GPU, and only the model which modules it has, and the user should not have to
 * wait for the other modes to find out. Error texts are those of the run itself. */
int job_try_first(const struct run_config *config, struct job_result *result);

/* The main of such a process, `duet job CONFIG_FD RECORD_FD SPANS_FD`. Returns the exit status.
 * own: the program's own model, which is the same in all its processes, or NULL. */
int job_main(int argc, char **argv, const struct duet_model *own);

#endif
