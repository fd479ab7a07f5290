/* The launcher as the server of comm_pass_descriptors: one poll loop, no thread.
 *
 * An exchange has two phases. In the first the launcher receives each rank's packet when it
 * arrives, and does not read that rank again. In the second, once all packets have arrived, it
 * sends all of them to each rank in rank order, as fast as the socket takes them. Meanwhile it
 * reads nothing, so the next packet of a fast rank waits in its socket.
 *
 * 64 ranks with a descriptor each have 64 x 64 = 4096 descriptors in flight before any rank reads.
 * The kernel lets a user have as many in flight as one process may open, often 1024. So a send that
 * the kernel refuses for that reason is not an error: the loop pauses and tries again. */
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
#include "comm/wire.h"

static void hang_up(struct process *process) {
    if (process->socket >= 0) close(process->socket);
    process->socket = -1;
}

static void drop_offers(struct job *job) {
    for (int r = 0; r < job->world; r++) {
        struct offer *offer = &job->ranks[r].offer;
        if (offer->fd >= 0) close(offer->fd);
        offer->fd = -1;
        offer->arrived = 0;
        offer->delivered = 0;
    }
}

void serve_stop(struct job *job) {
    drop_offers(job);
    for (int r = 0; r < job->world; r++)
        hang_up(&job->ranks[r]);
}

static void receive_offer(struct job *job, int rank) {
    struct process *process = &job->ranks[rank];
    struct wire_header header;
    char nothing[WIRE_MOST_BYTES];
    enum wire_result result = wire_receive(process->socket, &header, nothing, &process->offer.fd);
    switch (result) {
    case WIRE_LATER:
    case WIRE_CROWDED: return;
    case WIRE_CLOSED: hang_up(process); return; /* it left, or it died: end.c notices that */
    case WIRE_BROKEN:
        fail_system(errno, "rank %d: exchange: launcher", rank);
        hang_up(process);
        end_job(job, rank, ERR_FAILED, error_message());
        return;
    case WIRE_DONE: break;
    }
    job->joined = 1;
    process->offer.arrived = 1;
}

static void deliver(struct job *job, int rank) {
    struct process *process = &job->ranks[rank];
    while (process->socket >= 0 && process->offer.delivered < job->world) {
        int from = process->offer.delivered;
        const struct offer *offer = &job->ranks[from].offer;
        struct wire_header header = {WIRE_MAGIC, job->exchange, (uint32_t)from, 0, offer->fd >= 0};
        enum wire_result result = wire_send(process->socket, &header, NULL, offer->fd);
        if (result == WIRE_LATER) return;
        if (result == WIRE_CROWDED) {
            job->crowded = 1;
            return;
        }
        if (result == WIRE_DONE)
            process->offer.delivered++;
        else
            hang_up(process);
    }
}

/* From collecting to delivering once all offers have arrived, and back once every rank has been
 * sent all of them. */
static void advance(struct job *job) {
    int arrived = 0, done = 0;
    for (int r = 0; r < job->world; r++) {
        arrived += job->ranks[r].offer.arrived;
        done += job->ranks[r].socket < 0 || job->ranks[r].offer.delivered == job->world;
    }
    if (!job->delivering && arrived == job->world) job->delivering = 1;
    if (!job->delivering || done < job->world) return;
    drop_offers(job);
    job->delivering = 0;
    job->exchange++;
}

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
void serve_late_signal(struct job *job) {
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

static short events_wanted(const struct job *job, int rank) {
    const struct offer *offer = &job->ranks[rank].offer;
    if (job->delivering) return offer->delivered < job->world && !job->crowded ? POLLOUT : 0;
    return offer->arrived ? 0 : POLLIN;
}

int serve_ranks(struct job *job, int timeout_ms) {
    struct pollfd polled[2 * MAX_DEVICES + 1], *sockets = polled, *pidfds = polled + job->world;
    for (int r = 0; r < job->world; r++) {
        const struct process *process = &job->ranks[r];
        /* If nothing is expected, the socket is left out: poll would report a closed one at once,
         * again and again. */
        short events = events_wanted(job, r);
        sockets[r] = (struct pollfd){.fd = events ? process->socket : -1, .events = events};
        pidfds[r] = (struct pollfd){.fd = process->ended ? -1 : process->pidfd, .events = POLLIN};
    }
    polled[2 * job->world] = (struct pollfd){.fd = job->signal_fd, .events = POLLIN};
    if (job->crowded) timeout_ms = 1;
    job->crowded = 0;
    int ready = poll(polled, 2 * (nfds_t)job->world + 1, timeout_ms);
    if (ready < 0 && errno != EINTR) return fail_system(errno, "launcher: poll");
    if (ready > 0 && polled[2 * job->world].revents) receive_signal(job);
    for (int r = 0; ready > 0 && r < job->world; r++)
        if (sockets[r].revents && !job->delivering) receive_offer(job, r);
    advance(job);
    for (int r = 0; job->delivering && !job->crowded && r < job->world; r++)
        if (job->ranks[r].offer.delivered < job->world) deliver(job, r);
    advance(job);
    return OK;
}
