/* Ends a job: finds the rank that failed first, and leaves no process behind.
 *
 * The first to notice a failure writes the abort record on the board: the failing rank itself, a
 * peer whose deadline passed, or who watches the processes (comm.c). The rank that this record
 * blames is the root cause, and every later failure is a consequence of it. So the launcher need
 * not guess the cause from the order in which processes end. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/job.h"

/* When SIGTERM and SIGKILL are sent, on the job's clock and counted from the failure: the job ends
 * within a second, with time to spare for the kernel. */
static const int64_t TERM_AFTER_NS = 500000000, KILL_AFTER_NS = 750000000;
/* A process that SIGKILL does not end hangs in the kernel; the launcher stops waiting for it after
 * this time. */
static const int64_t GIVE_UP_NS = 30000000000;

static void signal_all(struct job *job, int signal) {
    for (int r = 0; r < job->world; r++) {
        struct process *process = &job->ranks[r];
        if (!process->pid || process->ended) continue;
        process->signalled = 1;
        /* cannot hit another process: an ended one stays a zombie until reap_ranks(). A rank that
         * has only just started may not have its group yet. */
        if (!job->launch->groups || kill(-process->pid, signal)) kill(process->pid, signal);
    }
}

void end_job(struct job *job, int rank, int code, const char *text) {
    board_abort(job->board, rank, code, text);
    if (!job->ending_since) job->ending_since = job->clock;
}

/* Passes the launcher's signal on to the ranks. The board is not aborted: a rank that saves its
 * state may still need the others. A stopped rank handles a signal only once it continues. */
void pass_on_signal(struct job *job, int signal) {
    if (job->ending_since) return;
    job->ending_since = job->clock + (now_ns() - job->last_look); /* the job's clock, as of now */
    job->passed_on = 1;
    job->ending = ENDING_TERM;
    signal_all(job, signal);
    signal_all(job, SIGCONT);
}

/* Moves to the next stage when its time has come. A stopped process handles SIGTERM only once it
 * continues, hence SIGCONT; SIGKILL needs no such help. A second Ctrl-C means: now. */
static void escalate(struct job *job) {
    int64_t passed = job->clock - job->ending_since;
    int64_t kill_after = job->passed_on ? (int64_t)(job->launch->grace_s * 1e9) : KILL_AFTER_NS;
    if (job->ending == ENDING_LEAVE && passed >= TERM_AFTER_NS) {
        signal_all(job, SIGTERM);
        signal_all(job, SIGCONT);
        job->ending = ENDING_TERM;
    }
    if (job->ending != ENDING_KILL && (passed >= kill_after || job->signals > 1)) {
        signal_all(job, SIGKILL);
        job->ending = ENDING_KILL;
    }
}

static void rank_ended(struct job *job, int rank, const siginfo_t *info) {
    struct process *process = &job->ranks[rank];
    process->ended = 1;
    if (info->si_code == CLD_EXITED)
        process->exit_code = info->si_status;
    else
        process->signal = info->si_status;
    /* processes that a failed rank left in its group; its zombie reserves the group's id */
    if (job->launch->groups && (process->signal || process->exit_code))
        kill(-process->pid, SIGKILL);
}

/* Ends the job if a rank has ended badly. The programs of a job either all use the communicator or
 * none does: once one has joined, every rank that has ended before, or that ends
 * without comm_close, has failed. */
static void judge_ends(struct job *job) {
    for (int r = 0; r < job->world; r++) {
        char text[BOARD_TEXT];
        if (!job->ranks[r].ended || ended_well(job, r) || job->ending_since) continue;
        describe_end(job, r, text, sizeof text);
        end_job(job, r, ERR_PEER, text);
    }
}

/* Looks at every rank that was running; returns how many still are. */
static int look_at_processes(struct job *job) {
    int running = 0;
    for (int r = 0; r < job->world; r++) {
        struct process *process = &job->ranks[r];
        if (!process->pid || process->ended) continue;
        siginfo_t info = {0};
        /* WNOWAIT: look at the status, but leave the zombie. */
        int error =
            waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) ? errno : 0;
        if (error && error != EINTR) { /* ECHILD: somebody else has collected its status */
            if (error != ECHILD) kill(process->pid, SIGKILL);
            process->ended = process->exit_code = 1;
        } else if (info.si_pid == process->pid)
            rank_ended(job, r, &info);
        running += !process->ended;
    }
    return running;
}

int watch_processes(struct job *job) {
    int running = look_at_processes(job);
    judge_ends(job);
    /* A rank may have aborted the job and still be running. */
    if (!job->ending_since && board_aborted(job->board)) job->ending_since = job->clock;
    if (job->ending_since) escalate(job);
    int64_t grace_ns = job->passed_on ? (int64_t)(job->launch->grace_s * 1e9) : 0;
    int hopeless = job->ending_since && job->clock - job->ending_since > GIVE_UP_NS + grace_ns;
    return hopeless ? 0 : running;
}

void reap_ranks(struct job *job) {
    for (int r = 0; r < job->world; r++) {
        struct process *process = &job->ranks[r];
        /* processes that ranks of an ended job left behind: see rank_ended */
        if (job->launch->groups && job->ending_since && process->pid) kill(-process->pid, SIGKILL);
        if (process->pid) waitpid(process->pid, NULL, WNOHANG);
        if (process->pidfd >= 0) close(process->pidfd);
        process->pidfd = -1;
    }
}
