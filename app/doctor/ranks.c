/* Ranks of a check: see ranks.h. The process of the check is their launcher. */
#include "doctor/ranks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/program_name.h"
#include "comm/launch.h"

/* A task and the descriptor of its memory, which the ranks inherit. */
struct shared_task {
    struct rank_task task; /* first, so that a pointer to a task is one to its shared_task */
    int fd;
};

static struct shared_task *map_shared(int fd) {
    void *memory =
        mmap(NULL, sizeof(struct shared_task), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

struct rank_task *rank_task_new(const struct doctor *d) {
    int fd = memfd_create("duet-doctor", MFD_CLOEXEC);
    if (fd < 0) return NULL;
    struct shared_task *shared = ftruncate(fd, sizeof(struct shared_task)) ? NULL : map_shared(fd);
    if (!shared) return close(fd), NULL;
    shared->fd = fd;
    shared->task.config = d->config;
    shared->task.kind = d->kind;
    shared->task.devices = d->devices;
    shared->task.gpus = d->progress->gpus;
    return &shared->task;
}

void rank_task_free(struct rank_task *task) {
    if (!task) return;
    close(((struct shared_task *)task)->fd);
    munmap(task, sizeof(struct shared_task));
}

static struct rank_task *rank_task_map(int fd) {
    struct stat about;
    if (fd < 0 || fstat(fd, &about) || about.st_size != sizeof(struct shared_task)) return NULL;
    struct shared_task *shared = map_shared(fd);
    return shared ? &shared->task : NULL;
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

static int rank_run(struct rank_task *task, int *reported) {
    struct progress progress = {.gpus = task->gpus};
    struct doctor d = {.config = task->config,
                       .progress = &progress,
                       .kind = task->kind,
                       .devices = task->devices};
    struct comm *comm = NULL;
    struct comm_options options = {.timeout_s = task->config.timeout / 2};
    int code = comm_open(&comm, &options);
    *reported = comm_open_was_reported(code);
    if (code) return code;
    d.comm = comm;
    code = allreduce_rank(&d, comm, task);
    comm_abort(comm, code, error_message());
    comm_close(comm);
    return code;
}

/* ---- the launcher's side ---- */

static int run_forked(void *context) {
    int reported;
    return error_exit_status(rank_run(context, &reported));
}

int ranks_run(struct doctor *d, int world, struct rank_task *task) {
    int fd = ((struct shared_task *)task)->fd;
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    char *argv[] = {(char *)program_name(), "doctor-rank", number, NULL};
    struct launch launch = {.world_size = world,
                            .pass_fds = &fd,
                            .pass_count = 1,
                            .start_timeout_s = d->config.timeout / 2};
    struct launch_result result;
    if (d->config.open_device) {
        launch.entry = run_forked;
        launch.context = task;
    } else {
        launch.argv = argv;
    }
    return launch_ranks(&launch, &result);
}

/* The program of a rank: duet doctor-rank TASK_FD. */
int doctor_rank_main(int argc, char **argv) {
    struct rank_task *task = rank_task_map(argc == 1 ? atoi(argv[0]) : -1);
    int reported = 0;
    int code = task ? rank_run(task, &reported)
                    : fail(ERR_USAGE, "doctor-rank: is started by duet itself: use duet doctor");
    if (code && !reported) fprintf(stderr, "%s: %s\n", program_name(), error_message());
    return error_exit_status(code);
}
