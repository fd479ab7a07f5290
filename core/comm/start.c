/* Starts the ranks: fork, a few calls in the child, exec.
 *
 * Every descriptor of the launcher is created close-on-exec. The child clears close-on-exec only
 * for the board and the caller's descriptors. Without an exec (the entry function of tests) the
 * child closes the launcher's descriptors itself.
 *
 * The program may have several threads, so between fork and exec only async-signal-safe functions
 * may be called. The environment is therefore built before the fork. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/system_error.h"
#include "comm/job.h"

/* torchrun's variables, the one that comm_open needs, and what only ranks of this job know (rpc/).
 * No port is opened: MASTER_PORT is set because some programs read it. */
static const char *const NAMES[] = {
    "RANK",        "LOCAL_RANK", "WORLD_SIZE",     "LOCAL_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "ROLE_RANK",  "DUET_SHARED_FD", "DUET_RPC_SECRET",  "OMP_NUM_THREADS"};
enum { NAME_COUNT = sizeof NAMES / sizeof *NAMES, VALUE_BYTES = 56 };
enum { MASTER_PORT = 29500 }; /* PyTorch's default */

/* The caller's environment with the variables above replaced. One allocation: free() it. */
static char **environment_of(const struct job *job, int rank) {
    extern char **environ;
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **list = calloc(1, (count + NAME_COUNT + 1) * sizeof *list + NAME_COUNT * VALUE_BYTES);
    if (!list) return NULL;
    int threads_set = getenv("OMP_NUM_THREADS") != NULL;
    int names = threads_set ? NAME_COUNT - 1 : NAME_COUNT; /* the last is OMP_NUM_THREADS */
    for (size_t i = 0; i < count; i++) {
        int ours = 0;
        for (int n = 0; n < names; n++) {
            size_t length = strlen(NAMES[n]);
            ours |= !strncmp(environ[i], NAMES[n], length) && environ[i][length] == '=';
        }
        if (!ours) list[kept++] = environ[i];
    }
    char *text = (char *)(list + count + NAME_COUNT + 1);
    int port = job->launch->master_port ? job->launch->master_port : MASTER_PORT;
    const int values[NAME_COUNT] = {rank, rank, job->world,    job->world, 0,
                                    port, rank, job->board_fd, 0,          1};
    for (int n = 0; n < names; n++, text += VALUE_BYTES) {
        if (!strcmp(NAMES[n], "MASTER_ADDR"))
            snprintf(text, VALUE_BYTES, "MASTER_ADDR=127.0.0.1");
        else if (!strcmp(NAMES[n], "DUET_RPC_SECRET"))
            snprintf(text, VALUE_BYTES, "%s=%016llx%016llx", NAMES[n],
                     (unsigned long long)job->secret[0], (unsigned long long)job->secret[1]);
        else
            snprintf(text, VALUE_BYTES, "%s=%d", NAMES[n], values[n]);
        list[kept++] = text;
    }
    return list;
}

static int keep_over_exec(int fd) {
    int flags = fcntl(fd, F_GETFD);
    return flags < 0 ? -1 : fcntl(fd, F_SETFD, flags & ~FD_CLOEXEC);
}

static void close_launchers_descriptors(const struct job *job, int rank) {
    for (int r = 0; r < rank; r++)
        if (job->ranks[r].pidfd >= 0) close(job->ranks[r].pidfd);
    close(job->signal_fd);
}

/* Runs in the child and does not return. `list` is its environment. */
static void become_rank(const struct job *job, int rank, pid_t launcher, char **list) {
    extern char **environ;
    const struct launch *launch = job->launch;
    /* The kernel will kill this process when the thread that forked it ends. If that thread ended
     * before this call, this process already has another parent. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);
    close_launchers_descriptors(job, rank);
    keep_over_exec(job->board_fd);
    for (int i = 0; i < launch->pass_count; i++)
        if (keep_over_exec(launch->pass_fds[i])) {
            job->board->cards[rank].start_errno = errno;
            _exit(127);
        }
    environ = list;
    pthread_sigmask(SIG_SETMASK, &job->mask_before, NULL);
    int status = launch->entry ? launch->entry(launch->context) : 0;
    if (launch->entry && (status || !launch->program)) {
        fflush(NULL);
        _exit(status);
    }
    if (launch->program)
        execvp(launch->program, launch->argv);
    else
        execv("/proc/self/exe", launch->argv);
    job->board->cards[rank].start_errno = errno;
    _exit(127);
}

static int start_rank(struct job *job, int rank) {
    struct process *process = &job->ranks[rank];
    char **list = environment_of(job, rank);
    if (!list)
        return fail(ERR_MEMORY, "starting rank %d: out of host memory: free some memory", rank);
    pid_t launcher = getpid(), pid = fork();
    if (pid == 0) become_rank(job, rank, launcher, list);
    int error = errno;
    free(list);
    if (pid < 0) return fail_system(error, "starting rank %d: fork", rank);
    process->pid = pid;
    /* a pidfd is always close-on-exec */
    process->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    return OK;
}

int start_ranks(struct job *job) {
    if (getrandom(job->secret, sizeof job->secret, GRND_NONBLOCK) < 0)
        job->secret[0] = (uint64_t)now_ns(); /* still differs from other jobs */
    fflush(NULL); /* otherwise every child would print the buffers' contents again */
    for (int r = 0; r < job->world; r++)
        CHECK(start_rank(job, r));
    return OK;
}
