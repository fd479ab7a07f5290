/* Ending a job: find out who failed first, and leave no process behind.
 *
 * The first to notice a failure writes the abort record on the board: the failing rank itself, a
 * peer's watching thread, a peer whose deadline passed, or the launcher. The rank that this record
 * blames is the root cause, and every later failure is a consequence of it. So the launcher need
 * not guess the cause from the order in which processes end. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/job.h"

/* When SIGTERM and SIGKILL are sent, counted from the failure: the job ends within a second, with
 * time to spare for the kernel. */
static const int64_t TERM_AFTER_NS = 500000000, KILL_AFTER_NS = 750000000;
/* A process that SIGKILL does not end hangs in the kernel: the launcher then stops waiting for
 * it. */
static const int64_t GIVE_UP_NS = 30000000000;
enum { KILLED_POLL_MS = 10 }; /* how often to look for the end of killed ranks */

static void signal_all(struct job *job, int signal) {
    for (int r = 0; r < job->world; r++) {
        struct process *process = &job->ranks[r];
        if (!process->pid || process->ended) continue;
        process->signalled = true;
        /* cannot hit another process: one that has ended stays a zombie until reap_ranks() */
        kill(process->pid, signal);
    }
}

void end_job(struct job *job, int rank, int code, const char *text) {
    board_abort(job->board, rank, code, text);
    if (!job->ending_since) job->ending_since = now_ns();
}

/* Goes on to the next stage when its time has come. A stopped process handles SIGTERM only once it
 * continues, hence SIGCONT; SIGKILL needs no such help. A second Ctrl-C means: now. */
static void escalate(struct job *job) {
    int64_t passed = now_ns() - job->ending_since;
    if (job->ending == ENDING_LEAVE && passed >= TERM_AFTER_NS) {
        signal_all(job, SIGTERM);
        signal_all(job, SIGCONT);
        job->ending = ENDING_TERM;
    }
    if (job->ending != ENDING_KILL && (passed >= KILL_AFTER_NS || job->signals > 1)) {
        signal_all(job, SIGKILL);
        job->ending = ENDING_KILL;
    }
}

int time_to_next_stage(const struct job *job) {
    int64_t next = job->ending == ENDING_LEAVE ? TERM_AFTER_NS : KILL_AFTER_NS;
    int64_t passed = now_ns() - job->ending_since;
    if (job->ending == ENDING_KILL || passed >= next) return KILLED_POLL_MS;
    return (int)((next - passed) / 1000000) + 1;
}

static void describe_end(const struct job *job, int rank, char *text, size_t size) {
    const struct process *process = &job->ranks[rank];
    int start_errno = job->board->slots[rank].start_errno;
    size_t used = (size_t)snprintf(text, size, "rank %d (pid %d) ", rank, (int)process->pid);
    if (start_errno)
        snprintf(text + used, size - used, "could not start %s: %s",
                 job->launch->program ? job->launch->program
                 : job->launch->argv  ? job->launch->argv[0]
                                      : "its entry",
                 strerror(start_errno));
    else if (process->signal)
        snprintf(text + used, size - used, "ended by signal %d (%s)", process->signal,
                 strsignal(process->signal));
    else
        snprintf(text + used, size - used, "ended with status %d%s", process->exit_code,
                 process->exit_code ? "" : " without leaving the job (comm_close)");
}

/* A rank ends well with status 0 after comm_close, or in a job that no rank has joined. */
static bool ended_well(const struct job *job, int rank) {
    const struct process *process = &job->ranks[rank];
    if (process->signal || process->exit_code) return false;
    if (__atomic_load_n(&job->board->slots[rank].left, __ATOMIC_ACQUIRE)) return true;
    return !job->first_arrival;
}

static void rank_ended(struct job *job, int rank, const siginfo_t *info) {
    struct process *process = &job->ranks[rank];
    process->ended = true;
    if (info->si_code == CLD_EXITED)
        process->exit_code = info->si_status;
    else
        process->signal = info->si_status;
}

/* Ends the job if a rank has ended badly. The programs of a job either all use the communicator or
 * none does: once one has come to the rendezvous, every rank that ended before or that ends without
 * comm_close has failed. */
static void judge_ends(struct job *job) {
    for (int r = 0; r < job->world; r++) {
        char text[BOARD_TEXT];
        if (!job->ranks[r].ended || ended_well(job, r) || job->ending_since) continue;
        describe_end(job, r, text, sizeof text);
        end_job(job, r, ERR_PEER, text);
    }
}

int watch_processes(struct job *job) {
    int running = 0;
    for (int r = 0; r < job->world; r++) {
        struct process *process = &job->ranks[r];
        if (!process->pid || process->ended) continue;
        siginfo_t info = {0};
        /* WNOWAIT: look at the status, but leave the zombie. */
        int found = waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT);
        if (found == 0 && info.si_pid == process->pid)
            rank_ended(job, r, &info);
        else
            running++;
    }
    judge_ends(job);
    /* A rank may have aborted the job and still be running. */
    if (!job->ending_since && board_aborted(job->board)) job->ending_since = now_ns();
    if (job->ending_since) escalate(job);
    bool hopeless = job->ending_since && now_ns() - job->ending_since > GIVE_UP_NS;
    return hopeless ? 0 : running;
}

void reap_ranks(struct job *job) {
    for (int r = 0; r < job->world; r++) {
        struct process *process = &job->ranks[r];
        if (process->pid) waitpid(process->pid, NULL, WNOHANG);
        if (process->pidfd >= 0) close(process->pidfd);
        process->pidfd = -1;
    }
}

/* " while rank 0 was in allreduce bucket 3 step 118", or "". */
static void describe_where(const struct job *job, int culprit, char *text, size_t size) {
    text[0] = 0;
    for (int r = 0; r < job->world; r++) {
        const struct slot *slot = &job->board->slots[r];
        if (r == culprit || !slot->where[0]) continue;
        snprintf(text, size, " while rank %d was in %.*s", r, BOARD_WHERE - 1, slot->where);
        return;
    }
}

static const char *advice(const struct process *process) {
    switch (process->signal) {
    case 0: return "see its own message above";
    case SIGKILL:
        return "if nobody killed it, memory ran out: use fewer devices or a smaller batch";
    case SIGSEGV:
    case SIGBUS:
    case SIGABRT:
    case SIGILL:
    case SIGFPE: return "a crash: build with SAN=address,undefined to see where";
    default: return "start it again";
    }
}

static int own_status(const struct process *process, int code) {
    if (process->ended && !process->signalled && process->signal) return 128 + process->signal;
    if (process->ended && !process->signalled && process->exit_code) return process->exit_code;
    return error_exit_status(code);
}

static int count_left_over(const struct job *job) {
    int left_over = 0;
    for (int r = 0; r < job->world; r++)
        left_over += job->ranks[r].pid && !job->ranks[r].ended;
    return left_over;
}

/* Did the rank to blame end by itself, and badly? Then its exit status or signal is the root cause.
 * A rank that left in good order while others waited for it did not end badly: then the text of the
 * rank that waited is the root cause. */
static bool ended_by_itself(const struct job *job, int rank) {
    return job->ranks[rank].ended && !job->ranks[rank].signalled && !ended_well(job, rank);
}

int report_end(const struct job *job, struct launch_result *out) {
    struct abort_record failure;
    char end[BOARD_TEXT], where[2 * BOARD_WHERE];
    int left_over = count_left_over(job);
    out->signal = job->signal;
    if (job->signal) {
        out->exit_status = 128 + job->signal;
        return fail(ERR_FAILED, "ended by signal %d (%s) to the launcher", job->signal,
                    strsignal(job->signal));
    }
    if (!board_failure(job->board, &failure)) return OK;
    const struct process *culprit =
        failure.rank >= 0 && failure.rank < job->world ? &job->ranks[failure.rank] : NULL;
    out->rank = failure.rank;
    out->pid = culprit ? culprit->pid : 0;
    out->exit_status = culprit ? own_status(culprit, failure.code) : 1;
    if (left_over)
        return fail(ERR_FAILED, "%s; %d processes do not end even by SIGKILL: see ps", failure.text,
                    left_over);
    if (failure.code != ERR_PEER || !culprit || !ended_by_itself(job, failure.rank))
        return fail(failure.code == ERR_PEER ? ERR_FAILED : failure.code, "%s", failure.text);
    describe_end(job, failure.rank, end, sizeof end);
    /* no failure: the reader of the output has gone (| head) */
    if (culprit->signal == SIGPIPE) return fail(ERR_READER, "%s", end);
    describe_where(job, failure.rank, where, sizeof where);
    return fail(ERR_FAILED, "%s%s: %s", end, where, advice(culprit));
}
