/* The ranks that a check starts: real processes, started by the launcher of comm/ as for DDP.
 *
 * The ranks' orders and findings are in one struct rank_task, in memory that the check shares with
 * them. Each rank writes only its own entries, and has a struct progress of its own. */
#ifndef DOCTOR_RANKS_H
#define DOCTOR_RANKS_H

#include "comm/comm.h"
#include "doctor/check.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { RANK_TRIALS = 16 }; /* the most parts of a task that are judged one by one */

/* What one rank found in one trial. */
struct rank_finding {
    int done; /* 1: the fields below are written */
    enum finding_state state;
    char text[200]; /* what was measured, or what was wrong */
};

struct rank_task {
    struct doctor_config config;
    enum device_kind kind;
    int devices, gpus;
    int first; /* the trial to begin with: ranks that have ended did those before it */
    struct rank_finding found[RANK_TRIALS][MAX_DEVICES];
};

/* The work of a rank: collective.c. Every rank of a task calls it, with the job joined. d->findings
 * is NULL: a rank reports with rank_note. */
int allreduce_rank(struct doctor *d, struct comm *comm, struct rank_task *task);

/* A task filled in from d, without findings. NULL: no memory. */
struct rank_task *rank_task_new(const struct doctor *d);
void rank_task_free(struct rank_task *task); /* NULL is allowed */

/* Starts `world` ranks of allreduce_rank and waits for their end. The error is the job's root
 * cause. */
int ranks_run(struct doctor *d, int world, struct rank_task *task);

/* Records what this rank found in a trial. */
void rank_note(struct comm *comm, struct rank_task *task, int trial, enum finding_state state,
               const char *format, ...) __attribute__((format(printf, 5, 6)));

#ifdef __cplusplus
}
#endif
#endif
