/* Finds out whether a job has stopped making progress. launch.h states the rule.
 *
 * A rank makes progress when it uses CPU time, or when its beats in the shared memory grow: it
 * raises them whenever it polls, and every wait that polls has its own deadline. A rank that does
 * neither is stopped, or blocked in a system call or on a lock, and there is no other deadline for
 * that. CPU time is compared with elapsed time, since a driver may have threads that wake now and
 * then and do nothing.
 *
 * The CPU clock of another process needs no /proc. If it cannot be read, the rank counts as making
 * progress. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/advice.h"
#include "comm/job.h"

static const int64_t LEAST_CPU_NS = 1000000; /* less than the work of any step */
enum { LEAST_CPU_SHARE = 1000 };             /* and a thousandth of one core */

static int read_cpu_time(pid_t pid, int64_t *ns) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t)) return 0;
    *ns = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    return 1;
}

static int made_progress(const struct job *job, int rank) {
    struct process process = job->ranks[rank];
    int64_t idle = job->clock - process.progress_at, cpu_ns;
    if (__atomic_load_n(&job->board->cards[rank].beats, __ATOMIC_RELAXED) != process.beats)
        return 1;
    if (!read_cpu_time(process.pid, &cpu_ns)) return 1;
    return cpu_ns - process.cpu_ns >= LEAST_CPU_NS + idle / LEAST_CPU_SHARE;
}

static void mark_progress(struct job *job, int rank) {
    struct process *process = &job->ranks[rank];
    process->beats = __atomic_load_n(&job->board->cards[rank].beats, __ATOMIC_RELAXED);
    read_cpu_time(process->pid, &process->cpu_ns);
    process->progress_at = job->clock;
}

static const char *why_stuck(pid_t pid) {
    siginfo_t info = {0};
    if (!waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG | WNOWAIT) && info.si_pid == pid)
        return "it was stopped: continue it in time (kill -CONT)";
    return "it waits for a file, a pipe or a device: see its output";
}

int find_stuck(struct job *job, char *text, size_t size) {
    int64_t limit = (int64_t)(job->launch->stall_timeout_s * 1e9);
    int stuck = -1;
    int moving = 0;
    if (limit <= 0 || job->ending_since) return -1;
    for (int r = 0; r < job->world; r++) {
        const struct process *process = &job->ranks[r];
        if (!process->pid || process->ended) continue;
        if (made_progress(job, r)) mark_progress(job, r);
        int late = job->clock - process->progress_at >= limit;
        if (late && stuck < 0) stuck = r;
        moving |= !late; /* the others wait for this one, by their own deadlines */
    }
    if (moving || stuck < 0) return -1;
    int pid = (int)job->ranks[stuck].pid;
    snprintf(text, size, "rank %d (pid %d): no progress for %g s: %s, or %s", stuck, pid,
             job->launch->stall_timeout_s, why_stuck(pid), ADVICE_TIMEOUT);
    return stuck;
}
