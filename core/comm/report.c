/* Reports the end of a job: the rank that is the root cause, and how it ended. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/system_error.h"
#include "comm/job.h"

void describe_end(const struct job *job, int rank, char *text, size_t size) {
    const struct process *process = &job->ranks[rank];
    int start_errno = job->board->cards[rank].start_errno;
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
                 process->exit_code ? "" : " without leaving the job");
}

static int is_joined(const struct job *job) {
    int joined = 0;
    for (int r = 0; r < job->world; r++)
        joined |= __atomic_load_n(&job->board->cards[r].pid, __ATOMIC_ACQUIRE) != 0;
    return joined;
}

/* A rank ends well with status 0 after comm_close, or in a job that no rank has joined. */
int ended_well(const struct job *job, int rank) {
    const struct process *process = &job->ranks[rank];
    if (process->signal || process->exit_code) return 0;
    if (__atomic_load_n(&job->board->cards[rank].left, __ATOMIC_ACQUIRE)) return 1;
    return !is_joined(job);
}

/* " while rank 0 was in allreduce bucket 3 step 118", or "". */
static void describe_where(const struct job *job, int culprit, char *text, size_t size) {
    text[0] = 0;
    for (int r = 0; r < job->world; r++) {
        const struct card *card = &job->board->cards[r];
        if (r == culprit || !card->since_ns) continue;
        snprintf(text, size, " while rank %d was in %.*s", r, BOARD_WHERE - 1, card->waits_in);
        return;
    }
}

static const char *advice_on_start(const struct launch *launch, int error) {
    if (error == ENOENT && launch->program) return "no such program here or in PATH";
    if (error == EACCES && launch->program) return "give a program, or python and its script";
    if (error == ENOENT) return "mount /proc";
    const char *advice = system_advice(error);
    return advice ? advice : "start it again";
}

/* A rank of Duet's own records why it fails, once it has joined. Before that it can only print. */
static const char *advice_on_status(const struct job *job, int rank) {
    int own = !job->launch->entry && !job->launch->program;
    if (!job->ranks[rank].exit_code)
        return "a rank must leave before it ends (in a program of process groups: "
               "duet_group_destroy)";
    if (own && !job->board->cards[rank].pid) return "see its own message above";
    return "it recorded no reason: if it printed one, see above";
}

static const char *advice(const struct job *job, int rank) {
    int start_errno = job->board->cards[rank].start_errno;
    if (start_errno) return advice_on_start(job->launch, start_errno);
    switch (job->ranks[rank].signal) {
    case 0: return advice_on_status(job, rank);
    case SIGXCPU: return "raise the limit of CPU time (ulimit -t)";
    case SIGKILL:
        return "if nobody killed it, memory ran out, or CPU time (ulimit -t): use fewer devices or "
               "a smaller batch";
    case SIGSEGV:
    case SIGBUS:
    case SIGABRT:
    case SIGILL:
    case SIGFPE:
        return "a crash: a debugger or a build with -fsanitize=address,undefined shows where";
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
static int ended_by_itself(const struct job *job, int rank) {
    return job->ranks[rank].ended && !job->ranks[rank].signalled && !ended_well(job, rank);
}

int report_end(const struct job *job, struct launch_result *out) {
    struct abort_record failure;
    char end[BOARD_TEXT], where[2 * BOARD_WHERE];
    int left_over = count_left_over(job);
    out->signal = job->signal;
    if (job->signal) {
        out->exit_status = 128 + job->signal;
        out->stopped = __atomic_load_n(&job->board->asked, __ATOMIC_ACQUIRE) &&
                       !board_failure(job->board, &failure);
        return fail(ERR_FAILED, "ended by signal %d (%s) to the launcher%s", job->signal,
                    strsignal(job->signal),
                    job->passed_on && job->ending == ENDING_KILL
                        ? ": ranks that did not end then were killed"
                        : "");
    }
    if (!board_failure(job->board, &failure)) return OK;
    const struct process *culprit =
        failure.rank >= 0 && failure.rank < job->world ? &job->ranks[failure.rank] : NULL;
    out->rank = failure.rank;
    out->pid = culprit ? culprit->pid : 0;
    out->exit_status = culprit ? own_status(culprit, failure.code) : 1;
    if (left_over)
        return fail(ERR_FAILED, "%s; %d processes did not end even after SIGKILL: see ps",
                    failure.text, left_over);
    if (failure.code != ERR_PEER || !culprit || !ended_by_itself(job, failure.rank))
        return fail(failure.code == ERR_PEER ? ERR_FAILED : failure.code, "%s", failure.text);
    describe_end(job, failure.rank, end, sizeof end);
    /* not a failure: the reader of the output has closed it (| head) */
    if (culprit->signal == SIGPIPE) return fail(ERR_READER, "%s", end);
    describe_where(job, failure.rank, where, sizeof where);
    return fail(ERR_FAILED, "%s%s: %s", end, where, advice(job, failure.rank));
}
