/* Processes that ranks have left running: see left_over.h. */
#include "cli/run/left_over.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/process.h"
#include "base/program_name.h"

enum { MOST = 256 }; /* of them are seen at once; more are seen when these have ended */
static const int64_t TERM_AFTER_NS = 500000000, KILL_AFTER_NS = 750000000;
/* A process that SIGKILL does not end hangs in the kernel. */
static const int64_t GIVE_UP_NS = 5000000000;

void left_over_adopt(void) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* The children that still run, but `kept`; those that have ended are collected. */
static int find(pid_t kept, pid_t children[MOST]) {
    int count = process_children(children, MOST), running = 0;
    for (int i = 0; i < count; i++)
        if (children[i] != kept && waitpid(children[i], NULL, WNOHANG) == 0)
            children[running++] = children[i];
    return running;
}

static void signal_all(const pid_t *children, int count, int signal) {
    for (int i = 0; i < count; i++)
        kill(children[i], signal);
}

static void end_all(pid_t kept) {
    const struct timespec pause = {.tv_nsec = 5000000};
    pid_t children[MOST];
    int64_t start = now_ns(), passed;
    for (int count, told = 0; (count = find(kept, children)) > 0; nanosleep(&pause, NULL)) {
        passed = now_ns() - start;
        if (passed >= KILL_AFTER_NS) signal_all(children, count, SIGKILL);
        if (passed >= TERM_AFTER_NS && !told) {
            signal_all(children, count, SIGTERM);
            signal_all(children, count, SIGCONT); /* one that is stopped handles it only then */
            told = 1;
        }
        if (passed < GIVE_UP_NS) continue;
        fprintf(stderr, "%s run: %d processes that ranks started do not end by SIGKILL: see ps\n",
                program_name(), count);
        return;
    }
}

void left_over_end(pid_t kept) {
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    end_all(kept);
    sigprocmask(SIG_SETMASK, &before, NULL);
}
