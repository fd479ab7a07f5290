/* A job is a run in its own processes: one for single and DP, one per device for DDP. Each is
 * started from this program with fork and exec. They read the configuration from one memfd, and
 * return the run record in another. */
#ifndef TRAIN_JOB_H
#define TRAIN_JOB_H

#include "trace/record.h"
#include "train/run.h"

struct job_result {
    int exit_status; /* the exit status for the whole program if job_run failed */
    int signal;      /* the signal that ended the wait; then start no other job. 0: none */
    /* 1: a signal has stopped the run after a step. The record is complete, and the requested files
     * are written; the error says after how many steps. */
    int stopped;
    /* 1: job_run failed only because some of the run's files could not be written. The run itself
     * succeeded, and its record is complete. */
    int unwritten;
};

/* Runs config as a job and waits for its end. record, which may be NULL, becomes the job's;
 * record_free it. On failure the error is the root cause, and result->exit_status is the failing
 * rank's. */
int job_run(const struct run_config *config, struct run_record *record, struct job_result *result);

/* job_run for one of several runs: the error begins with `title`, "DP: rank 0: ...". */
int job_run_titled(const char *title, const struct run_config *config, struct run_record *record,
                   struct job_result *result);

/* With --allreduce nccl, runs one silent step of DDP, and with --units one of FSDP; otherwise does
 * nothing. A command that runs several modes calls it before the first. Only NCCL knows whether
 * ranks may share a GPU, and only the model knows its modules, and the user should not have to wait
 * for the other modes to find out. Errors are those of the run itself. */
int job_try_first(const struct run_config *config, struct job_result *result);

/* The main of a job's process, `duet job CONFIG_FD RECORD_FD SPANS_FD`. Returns the exit status.
 * own is the program's own model, the same in all its processes, or NULL. */
int job_main(int argc, char **argv, const struct duet_model *own);

#endif
