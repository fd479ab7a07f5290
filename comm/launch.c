/* The launcher, from start to end: check the words, open the segment, take the signals, start the
 * ranks, serve them until none is left, and say what happened. */
#include "base/error.h"
#include "comm/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static int check_words(const struct launch *launch) {
    if (launch->world_size < 1 || launch->world_size > MAX_DEVICES)
        return fail(ERR_USAGE, "number of ranks: %d: 1 to %d", launch->world_size, MAX_DEVICES);
    if (!launch->entry && (!launch->argv || !launch->argv[0]))
        return fail(ERR_USAGE, "ranks: no program: name one to start");
    return OK;
}

/* SIGINT, SIGTERM and SIGHUP become readable instead of deadly. One that is ignored (nohup, a
 * job in the background of a script) stays ignored. */
static int take_signals(struct job *job) {
    static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t taken;
    sigemptyset(&taken);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) {
        struct sigaction action;
        if (!sigaction(ending[i], NULL, &action) && action.sa_handler != SIG_IGN)
            sigaddset(&taken, ending[i]);
    }
    pthread_sigmask(SIG_BLOCK, &taken, &job->mask_before);
    job->signal_fd = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    return job->signal_fd < 0 ? fail_errno(ERR_FAILED, errno, "launcher: signalfd") : OK;
}

/* Without pidfds nothing wakes us when a rank ends: look often. */
static int patience_ms(const struct job *job) {
    if (job->ending_since) return time_to_next_stage(job);
    for (int r = 0; r < job->world; r++)
        if (job->ranks[r].pidfd < 0) return 20;
    /* also how soon an abort is seen that a rank made and has not followed by its end */
    return 200;
}

static int run_job(struct job *job) {
    int code = OK;
    CHECK_GOTO(board_create(&job->board, &job->board_fd, job->world), code, out);
    CHECK_GOTO(serve_start(job), code, out);
    CHECK_GOTO(take_signals(job), code, out);
    code = start_ranks(job);
    if (code) end_job(job, -1, code, error_message());
    while (watch_processes(job) > 0) {
        int served = serve_ranks(job, patience_ms(job));
        if (served) end_job(job, -1, served, error_message());
    }
    serve_late_signal(job);
    return OK; /* the board says how it went */
out:
    return code;
}

static struct job *new_job(const struct launch *launch) {
    struct job *job = calloc(1, sizeof *job);
    if (!job) return NULL;
    job->launch = launch;
    job->world = launch->world_size;
    job->board_fd = job->signal_fd = -1;
    for (int r = 0; r < MAX_DEVICES; r++)
        job->ranks[r].socket = job->ranks[r].pidfd = job->ranks[r].offer.fd = -1;
    pthread_sigmask(SIG_SETMASK, NULL, &job->mask_before);
    return job;
}

static void free_job(struct job *job) {
    reap_ranks(job);
    serve_stop(job);
    if (job->signal_fd >= 0) close(job->signal_fd);
    if (job->board_fd >= 0) close(job->board_fd);
    board_unmap(job->board);
    pthread_sigmask(SIG_SETMASK, &job->mask_before, NULL);
    free(job);
}

int launch_ranks(const struct launch *launch, struct launch_result *out) {
    *out = (struct launch_result){.exit_status = 2, .rank = -1};
    CHECK(check_words(launch));
    struct job *job = new_job(launch);
    if (!job) return fail(ERR_MEMORY, "launcher: out of memory");
    int code = run_job(job);
    out->exit_status = error_exit_status(code);
    if (!code) code = report_end(job, out);
    free_job(job);
    return code;
}
