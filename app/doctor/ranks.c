/* Ranks of a check: see ranks.h. The process of the check is their launcher, and opens no device of
 * its own: a rank is forked before anything has called CUDA. */
#include "doctor/ranks.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/error.h"
#include "comm/launch.h"

struct rank_task *rank_task_new(const struct doctor *d) {
    struct rank_task *task =
        mmap(NULL, sizeof *task, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (task == MAP_FAILED) return NULL;
    task->config = d->config;
    task->kind = d->kind;
    task->devices = d->devices;
    task->gpus = d->progress->gpus;
    return task;
}

void rank_task_free(struct rank_task *task) {
    if (task) munmap(task, sizeof *task);
}

void rank_note(struct comm *comm, struct rank_task *task, int trial, enum finding_state state,
               const char *format, ...) {
    struct rank_finding *finding = &task->found[trial][comm_rank(comm)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->text, sizeof finding->text, format, arguments);
    va_end(arguments);
    finding->state = state;
    finding->done = 1;
}

static int run_rank(void *context) {
    struct rank_task *task = context;
    struct progress progress = {.gpus = task->gpus};
    struct doctor d = {.config = task->config,
                       .progress = &progress,
                       .kind = task->kind,
                       .devices = task->devices};
    struct comm_options options = {.timeout_s = task->config.timeout / 2};
    int code = comm_open(&d.comm, &options);
    if (code) return error_exit_status(code);
    code = allreduce_rank(&d, d.comm, task);
    comm_abort(d.comm, code, error_message());
    comm_close(d.comm);
    return error_exit_status(code);
}

/* ---- the launcher's side ---- */

int ranks_run(struct doctor *d, int world, struct rank_task *task) {
    struct launch launch = {.world_size = world,
                            .entry = run_rank,
                            .context = task,
                            .start_timeout_s = d->config.timeout / 2};
    struct launch_result result;
    return launch_ranks(&launch, &result);
}
