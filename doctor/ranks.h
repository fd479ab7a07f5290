/* The ranks that a check starts: real processes by comm's launcher, as DDP's are, `duet
 * doctor-rank` by exec.
 *
 * What they are to do and what they found lies in one task, in a memfd that all of them and the
 * check map. A rank writes its own row and a progress that others do not touch. */
#ifndef DOCTOR_RANKS_H
#define DOCTOR_RANKS_H

#include "comm/comm.h"
#include "doctor/check.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rank_work { WORK_IPC, WORK_ALLREDUCE, WORK_KINDS };

enum { RANK_TRIALS = 16 }; /* pieces of work that are judged one by one */

/* What one rank says of one trial. */
struct rank_word {
    int done; /* 1: the rest is whole */
    enum finding_state state;
    char text[160]; /* measured, or what was wrong */
};

struct rank_task {
    enum rank_work work;
    struct doctor_config config; /* open_device is NULL for ranks by exec */
    enum device_kind kind;
    int devices, gpus;
    int first; /* trial to begin with: those below were done by ranks that came to an end */
    struct rank_word said[RANK_TRIALS][MAX_DEVICES];
};

/* Ranks of each kind of work: ipc.c, collective.c. Called by all with the job joined;
 * d->findings is NULL. */
typedef int rank_main(struct doctor *d, struct comm *comm, struct rank_task *task);
rank_main ipc_rank, allreduce_rank;

/* Starts `world` ranks of task->work and waits for their end. task is shared memory from
 * rank_task_new. The error is the job's root cause. */
int ranks_run(struct doctor *d, int world, struct rank_task *task);

/* Filled in from d, all words empty. NULL: no memory. */
struct rank_task *rank_task_new(const struct doctor *d, enum rank_work work);
void rank_task_free(struct rank_task *task); /* NULL is fine */

/* Writes what this rank says. */
void rank_say(struct comm *comm, struct rank_task *task, int trial, enum finding_state state,
              const char *format, ...) __attribute__((format(printf, 5, 6)));

#ifdef __cplusplus
}
#endif
#endif
