/* The launcher from start to end. It checks the arguments, creates the board, catches signals,
 * starts the ranks, watches them until all have ended, and reports what happened. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/system_error.h"
#include "comm/job.h"

static int check_arguments(const struct launch *launch) {
    if (launch->world_size < 1 || launch->world_size > MAX_DEVICES)
        return fail(ERR_USAGE, "number of ranks: %d: give 1 to %d", launch->world_size,
                    MAX_DEVICES);
    if (!launch->entry && (!launch->argv || !launch->argv[0]))
        return fail(ERR_USAGE, "ranks: no program: name one to start");
    return OK;
}

/* SIGINT, SIGTERM and SIGHUP no longer end this process: it reads them from signal_fd, and SIGQUIT
 * where signals are passed on. An ignored signal (nohup, a background job of a script) stays
 * ignored. */
static int catch_signals(struct job *job) {
    static const int deadly[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    const size_t count = sizeof deadly / sizeof *deadly - !(job->launch->grace_s > 0);
    sigset_t caught;
    sigemptyset(&caught);
    for (size_t i = 0; i < count; i++) {
        struct sigaction action;
        if (!sigaction(deadly[i], NULL, &action) && action.sa_handler != SIG_IGN)
            sigaddset(&caught, deadly[i]);
    }
    pthread_sigmask(SIG_BLOCK, &caught, &job->mask_before);
    job->signal_fd = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
    return job->signal_fd < 0 ? fail_system(errno, "launcher: signalfd") : OK;
}

/* If SIGCHLD is ignored, a rank that has ended leaves no status to wait for. */
static void keep_exit_statuses(struct job *job) {
    struct sigaction *before = &job->child_before, plain = {.sa_handler = SIG_DFL};
    int ignored = !sigaction(SIGCHLD, NULL, before) &&
                  (before->sa_handler == SIG_IGN || before->sa_flags & SA_NOCLDWAIT);
    if (ignored) sigaction(SIGCHLD, &plain, NULL);
}

/* How long the poll loop may sleep. While the job ends, the sleeps are short, so that a machine
 * that stands still takes little of the time that ranks have to leave. Otherwise the loop only has
 * to notice a rank that has aborted the job and still runs. */
static int poll_timeout_ms(const struct job *job) {
    enum { ENDING_MS = 10, RUNNING_MS = 200 };
    return job->ending_since ? ENDING_MS : RUNNING_MS;
}

/* Called after each sleep of at most `slept_ms`. If clearly more time has passed, the launcher
 * could not run in it. */
static void advance_clock(struct job *job, int slept_ms) {
    static const int64_t SLACK_NS = 50000000;
    int64_t now = now_ns(), passed = now - job->last_look;
    int64_t most = (int64_t)slept_ms * 1000000 + SLACK_NS;
    job->clock += passed < most ? passed : most;
    job->last_look = now;
}

static int run_job(struct job *job) {
    int code = OK;
    CHECK_GOTO(board_create(&job->board, &job->board_fd, job->world), code, out);
    CHECK_GOTO(catch_signals(job), code, out);
    keep_exit_statuses(job);
    code = start_ranks(job);
    if (code) end_job(job, -1, code, error_message());
    while (watch_processes(job) > 0) {
        int sleep_ms = poll_timeout_ms(job), slept = sleep_until_event(job, sleep_ms);
        advance_clock(job, sleep_ms);
        if (slept) end_job(job, -1, slept, error_message());
    }
    take_late_signal(job);
    return OK; /* the job has run; the board has its outcome */
out:
    return code;
}

static void job_begin(struct job *job, const struct launch *launch) {
    job->launch = launch;
    job->world = launch->world_size;
    job->board_fd = job->signal_fd = -1;
    job->clock = 1;
    job->last_look = now_ns();
    for (int r = 0; r < MAX_DEVICES; r++)
        job->ranks[r].pidfd = -1;
}

static void free_job(struct job *job) {
    reap_ranks(job);
    if (job->child_before.sa_handler == SIG_IGN || job->child_before.sa_flags & SA_NOCLDWAIT)
        sigaction(SIGCHLD, &job->child_before, NULL);
    if (job->signal_fd >= 0) close(job->signal_fd);
    if (job->board_fd >= 0) close(job->board_fd);
    board_unmap(job->board);
    pthread_sigmask(SIG_SETMASK, &job->mask_before, NULL);
    free(job);
}

int launch_ranks(const struct launch *launch, struct launch_result *out) {
    *out = (struct launch_result){.exit_status = 2, .rank = -1};
    CHECK(check_arguments(launch));
    struct job *job = calloc(1, sizeof *job);
    if (!job) return fail(ERR_MEMORY, "launcher: out of host memory: free some memory");
    job_begin(job, launch);
    pthread_sigmask(SIG_SETMASK, NULL, &job->mask_before);
    int code = run_job(job);
    out->exit_status = error_exit_status(code);
    if (!code) code = report_end(job, out);
    free_job(job);
    return code;
}
