/* The guard: see guard.h. Parent and child share two pieces of memory: the findings, and where
 * the check is. */
#include "doctor/guard.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

static const struct timespec PAUSE = {.tv_nsec = 5000000};
enum { CHILD_FAILED = 1 }; /* exit status: the child has said itself what is off */

static void run_in_child(struct doctor *d, doctor_check *check, int first, pid_t parent) {
    /* Ctrl-C on the doctor takes its check, and that one's ranks, along */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(CHILD_FAILED);
    int code = check(d, first);
    if (code) note(d, FINDING_OFF, d->progress->name, "", "%s", error_message());
    fflush(NULL);
    _exit(code ? CHILD_FAILED : 0); /* nothing that a driver does at exit can hang us */
}

/* The deadline is a step's: it begins anew with each. Returns the status of waitpid; *late: it
 * was killed. */
static int wait_for(struct doctor *d, pid_t pid, int *late, void (*idle)(void *), void *context) {
    int status = 0, step = -1;
    int64_t deadline = 0;
    *late = 0;
    for (;;) {
        pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid || (ended < 0 && errno != EINTR)) return status;
        int now = __atomic_load_n(&d->progress->step, __ATOMIC_ACQUIRE);
        if (now != step) {
            step = now;
            deadline = deadline_after(d->config.timeout);
        }
        if (!*late && now_ns() > deadline) {
            *late = 1;
            kill(pid, SIGKILL);
        }
        if (idle) idle(context);
        nanosleep(&PAUSE, NULL);
    }
}

/* What a child that could not speak has come to. */
static void tell_end(struct doctor *d, int status, int late) {
    const char *name = d->progress->name;
    if (late)
        note(d, FINDING_OFF, name, "", "no end within %g s: stopped (--timeout gives it longer)",
             d->config.timeout);
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
        fflush(NULL); /* what lies in buffers would be printed by the child too */
        pid_t parent = getpid(), pid = fork();
        if (pid < 0)
            return fail_errno(ERR_FAILED, errno, "doctor: no process for the check of %s", name);
        if (pid == 0) run_in_child(d, check, first, parent);
        int status = wait_for(d, pid, &late, idle, context);
        ended_well = !late && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (!ended_well && (late || !WIFEXITED(status) || WEXITSTATUS(status) != CHILD_FAILED))
            tell_end(d, status, late);
        /* memory that a dying child wrote */
        if (d->progress->step < first) d->progress->step = first;
    }
    if (d->findings->count == before)
        note(d, FINDING_OFF, d->progress->name, "", "the check of %s found nothing out", name);
    if (idle) idle(context);
    return OK;
}
