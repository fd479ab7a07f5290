/* The launcher sleeps until a rank ends or a signal reaches it. This file decides what the signal
 * means. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/system_error.h"
#include "comm/job.h"

/* The next signal that the launcher has received; 0 if there is none. */
static int next_signal(int signal_fd) {
    struct signalfd_siginfo info;
    return read(signal_fd, &info, sizeof info) == (ssize_t)sizeof info ? (int)info.ssi_signo : 0;
}

/* Returns 1 if this signal asks the ranks to stop: the first one, once they have begun to look. */
static int ask_to_stop(struct job *job, int signal) {
    struct board *board = job->board;
    if (!job->launch->stoppable || job->ending_since || job->signals > 1 ||
        (signal != SIGINT && signal != SIGTERM) ||
        !__atomic_load_n(&board->looked.epoch, __ATOMIC_ACQUIRE))
        return 0;
    __atomic_store_n(&board->asked, (uint32_t)signal, __ATOMIC_RELEASE);
    return 1;
}

/* `timeout` sends a signal to a command and then to its group: within this time it is the same
 * one. */
static const int64_t SAME_NS = 100000000;

static void receive_signal(struct job *job) {
    char text[BOARD_TEXT];
    int signal = next_signal(job->signal_fd);
    if (!signal || (signal == job->signal && now_ns() - job->signal_ns < SAME_NS)) return;
    if (!job->signal) job->signal = signal, job->signal_ns = now_ns();
    job->signals++;
    if (ask_to_stop(job, signal)) return;
    if (job->launch->grace_s > 0) {
        pass_on_signal(job, signal);
        return;
    }
    snprintf(text, sizeof text, "signal %d (%s) to the launcher", job->signal,
             strsignal(job->signal));
    end_job(job, -1, ERR_PEER, text);
}

/* Ctrl-C reaches the launcher and the ranks alike. Ranks that died of it may be noticed before the
 * launcher's own signal arrives, which is the true cause: wait for it a moment. */
void take_late_signal(struct job *job) {
    enum { LATE_MS = 200 };
    struct pollfd own = {.fd = job->signal_fd, .events = POLLIN};
    int likely = 0;
    for (int r = 0; r < job->world; r++) {
        const struct process *process = &job->ranks[r];
        int signal = process->signalled ? 0 : process->signal;
        likely |= signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
    }
    if (poll(&own, 1, likely ? LATE_MS : 0) > 0) receive_signal(job);
}

int sleep_until_event(struct job *job, int most_ms) {
    struct pollfd polled[MAX_DEVICES + 1];
    for (int r = 0; r < job->world; r++)
        polled[r] =
            (struct pollfd){.fd = job->ranks[r].ended ? -1 : job->ranks[r].pidfd, .events = POLLIN};
    polled[job->world] = (struct pollfd){.fd = job->signal_fd, .events = POLLIN};
    int ready = poll(polled, (nfds_t)job->world + 1, most_ms);
    if (ready < 0 && errno != EINTR) return fail_system(errno, "launcher: poll");
    if (ready > 0 && polled[job->world].revents) receive_signal(job);
    return OK;
}
