/* The guard: see guard.h. Parent and child share two pieces of memory: the findings, and the
 * progress of the check. */
#include "doctor/guard.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/advice.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/system_error.h"

static const struct timespec PAUSE = {.tv_nsec = 5000000};
static const double GIVE_UP_S = 30; /* after SIGKILL */
enum { CHILD_FAILED = 1 };          /* exit status: the child itself has added the failed finding */

static void run_in_child(struct doctor *d, doctor_check *check, int first, pid_t parent) {
    /* If the doctor dies, by Ctrl-C for instance, the check and its ranks die too. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(CHILD_FAILED);
    int code = check(d, first);
    if (code) note(d, FINDING_OFF, d->progress->name, "", "%s", error_with_options());
    fflush(NULL);
    _exit(code ? CHILD_FAILED : 0); /* not exit(): what a driver does there might hang */
}

/* Waits for the child and kills it when one step takes longer than the timeout: each step has a
 * deadline of its own. Returns the status of waitpid. *late: the child was killed. A child that
 * even SIGKILL does not end hangs in a driver, and is not waited for. */
static int wait_for(struct doctor *d, pid_t pid, int *late, void (*idle)(void *), void *context) {
    int status = 0, step = -1;
    int64_t deadline = 0;
    *late = 0;
    for (;;) {
        pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid || (ended < 0 && errno != EINTR)) return status;
        if (*late && now_ns() > deadline) return SIGKILL;
        int now = __atomic_load_n(&d->progress->step, __ATOMIC_ACQUIRE);
        if (now != step) {
            step = now;
            deadline = deadline_after(d->config.timeout);
        }
        if (!*late && now_ns() > deadline) {
            *late = 1;
            kill(pid, SIGKILL);
            deadline = deadline_after(GIVE_UP_S);
        }
        if (idle) idle(context);
        nanosleep(&PAUSE, NULL);
    }
}

/* Adds the finding of a child that could not do so itself. */
static void note_end(struct doctor *d, int status, int late) {
    const char *name = d->progress->name;
    if (late)
        note(d, FINDING_OFF, name, "",
             "stopped: did not finish within %g s (--timeout gives it longer)", d->config.timeout);
    else if (WIFSIGNALED(status))
        note(d, FINDING_OFF, name, "", "ended by signal %d (%s)", WTERMSIG(status),
             strsignal(WTERMSIG(status)));
    else
        note(d, FINDING_OFF, name, "", "its process ended with status %d", WEXITSTATUS(status));
}

int guard_check(struct doctor *d, const char *name, doctor_check *check, void (*idle)(void *),
                void *context) {
    int before = d->findings->count, late, ended_well = 0;
    for (int first = 0; !ended_well; first = d->progress->step + 1) {
        doctor_step(d, first, "%s: %s", doctor_kind_name(d), name);
        fflush(NULL); /* else the child would print the contents of the buffers again */
        pid_t parent = getpid(), pid = fork();
        if (pid < 0) return fail_system(errno, "doctor: starting a process to check %s", name);
        if (pid == 0) run_in_child(d, check, first, parent);
        int status = wait_for(d, pid, &late, idle, context);
        ended_well = !late && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (!ended_well && (late || !WIFEXITED(status) || WEXITSTATUS(status) != CHILD_FAILED))
            note_end(d, status, late);
        /* A crashed child may have written anything there, so never go back. */
        if (d->progress->step < first) d->progress->step = first;
    }
    if (d->findings->count == before)
        note(d, FINDING_OFF, d->progress->name, "", "the check of %s reported nothing", name);
    if (idle) idle(context);
    return OK;
}
