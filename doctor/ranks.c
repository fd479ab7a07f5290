/* Ranks of a check: see ranks.h. The check's process is the launcher. */
#include "doctor/ranks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/launch.h"

/* A task and the descriptor its pages belong to; the ranks get the descriptor. */
struct shared_task {
    struct rank_task task; /* first: a task is its shared_task */
    int fd;
};

static struct shared_task *map_task(int fd) {
    void *memory =
        mmap(NULL, sizeof(struct shared_task), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

struct rank_task *rank_task_new(const struct doctor *d, enum rank_work work) {
    int fd = memfd_create("duet-doctor", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(struct shared_task))) return NULL;
    struct shared_task *shared = map_task(fd);
    if (!shared) return close(fd), NULL;
    shared->fd = fd;
    shared->task.work = work;
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

void rank_say(struct comm *comm, struct rank_task *task, int trial, enum finding_state state,
              const char *format, ...) {
    struct rank_word *word = &task->said[trial][comm_rank(comm)];
    va_list words;
    va_start(words, format);
    vsnprintf(word->text, sizeof word->text, format, words);
    va_end(words);
    word->state = state;
    word->done = 1;
}

/* ---- the rank's side ---- */

/* *told: the launcher knows of the failure and hands its text to the check. */
static int be_rank(struct rank_task *task, int *told) {
    rank_main *const mains[WORK_KINDS] = {ipc_rank, allreduce_rank};
    struct progress progress = {.gpus = task->gpus};
    struct doctor d = {.config = task->config,
                       .progress = &progress,
                       .kind = task->kind,
                       .devices = task->devices};
    struct comm *comm = NULL;
    struct comm_options options = {.timeout_s = task->config.timeout / 2};
    int code = comm_open(&comm, &options);
    *told = code != ERR_USAGE; /* that one says that there is no launcher */
    if (code) return code;
    d.comm = comm;
    code = mains[task->work](&d, comm, task);
    comm_abort(comm, code, error_message());
    comm_close(comm);
    return code;
}

int doctor_rank_main(int argc, char **argv) {
    struct stat about;
    struct shared_task *shared = NULL;
    int told = 0, fd = argc == 1 ? atoi(argv[0]) : -1;
    if (fd > 2 && !fstat(fd, &about) && about.st_size == sizeof *shared) shared = map_task(fd);
    int code = shared && shared->task.work < WORK_KINDS
                   ? be_rank(&shared->task, &told)
                   : fail(ERR_USAGE, "doctor-rank: is started by duet itself: use duet doctor");
    if (code && !told) fprintf(stderr, "duet: %s\n", error_message());
    return error_exit_status(code);
}

static int entry(void *context) {
    int told;
    return error_exit_status(be_rank(context, &told));
}

/* ---- the launcher's side ---- */

int ranks_run(struct doctor *d, int world, struct rank_task *task) {
    int fd = ((struct shared_task *)task)->fd;
    char word[16];
    snprintf(word, sizeof word, "%d", fd);
    char *argv[] = {"duet", "doctor-rank", word, NULL};
    struct launch launch = {.world_size = world,
                            .pass_fds = &fd,
                            .pass_count = 1,
                            .start_timeout_s = d->config.timeout / 2};
    struct launch_result result;
    if (d->config.open_device) {
        launch.entry = entry;
        launch.context = task;
    } else {
        launch.argv = argv;
    }
    return launch_ranks(&launch, &result);
}
