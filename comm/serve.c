/* The launcher as the server of the rendezvous: one poll loop, no thread.
 *
 * An exchange has two phases. Taking: each rank's packet is read when it comes; a rank that has
 * brought its own is not read again. Giving: once all are here each rank is sent all of them, in
 * rank order, as fast as its socket takes them; meanwhile nothing is read, so a fast rank's next
 * packet waits in its socket. 64 ranks with a descriptor each are 4096 descriptors in flight if
 * nobody reads; the kernel allows a user as many as one process may open, often 1024, so a full
 * kernel is no error: we pause and go on. */
#include "base/clock.h"
#include "base/error.h"
#include "comm/job.h"
#include "comm/wire.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

int serve_start(struct job *job) {
    job->exchange = 1;
    for (int r = 0; r < job->world; r++) {
        /* no page is touched before it is used */
        job->ranks[r].offer.blob = malloc(COMM_BLOB_BYTES);
        if (!job->ranks[r].offer.blob) return fail(ERR_MEMORY, "launcher: out of memory");
    }
    return OK;
}

static void hang_up(struct process *process) {
    if (process->socket >= 0) close(process->socket);
    process->socket = -1;
}

static void drop_offers(struct job *job) {
    for (int r = 0; r < job->world; r++) {
        struct offer *offer = &job->ranks[r].offer;
        if (offer->fd >= 0) close(offer->fd);
        offer->fd = -1;
        offer->here = false;
        offer->given = 0;
    }
}

void serve_stop(struct job *job) {
    drop_offers(job);
    for (int r = 0; r < job->world; r++) {
        hang_up(&job->ranks[r]);
        free(job->ranks[r].offer.blob);
        job->ranks[r].offer.blob = NULL;
    }
}

/* All ranks must bring the same number of bytes to the same exchange. */
static void check_offer(struct job *job, int rank, const struct wire_header *header) {
    char text[BOARD_TEXT];
    for (int r = 0; r < job->world; r++) {
        const struct offer *other = &job->ranks[r].offer;
        if (r == rank || !other->here || other->bytes == header->bytes) continue;
        snprintf(text, sizeof text,
                 "rank %d: exchange: %u bytes, but rank %d brought %u: all must bring the same",
                 rank, header->bytes, r, other->bytes);
        end_job(job, rank, ERR_FAILED, text);
        return;
    }
}

static void take(struct job *job, int rank) {
    struct process *process = &job->ranks[rank];
    struct wire_header header;
    char text[BOARD_TEXT];
    enum wire_result result =
        wire_receive(process->socket, &header, process->offer.blob, &process->offer.fd);
    switch (result) {
    case WIRE_LATER:
    case WIRE_CROWDED: return;
    case WIRE_CLOSED: hang_up(process); return; /* it left, or its death is seen elsewhere */
    case WIRE_BROKEN:
        snprintf(text, sizeof text, "rank %d: exchange: launcher: %s%s", rank, strerror(errno),
                 errno == EMFILE ? ": raise the limit of open files (ulimit -n)" : "");
        hang_up(process);
        end_job(job, rank, ERR_FAILED, text);
        return;
    case WIRE_DONE: break;
    }
    if (!job->first_came) job->first_came = now_ns();
    check_offer(job, rank, &header);
    process->offer.bytes = header.bytes;
    process->offer.here = true;
}

static void give(struct job *job, int rank) {
    struct process *process = &job->ranks[rank];
    while (process->socket >= 0 && process->offer.given < job->world) {
        int from = process->offer.given;
        const struct offer *offer = &job->ranks[from].offer;
        struct wire_header header = {WIRE_MAGIC, job->exchange, (uint32_t)from, offer->bytes,
                                     offer->fd >= 0};
        enum wire_result result = wire_send(process->socket, &header, offer->blob, offer->fd);
        if (result == WIRE_LATER) return;
        if (result == WIRE_CROWDED) {
            job->crowded = true;
            return;
        }
        if (result == WIRE_DONE)
            process->offer.given++;
        else
            hang_up(process);
    }
}

/* From taking to giving when all offers are here, and back when all have all. */
static void advance(struct job *job) {
    int here = 0, done = 0;
    for (int r = 0; r < job->world; r++) {
        here += job->ranks[r].offer.here;
        done += job->ranks[r].socket < 0 || job->ranks[r].offer.given == job->world;
    }
    if (!job->giving && here == job->world) job->giving = true;
    if (!job->giving || done < job->world) return;
    drop_offers(job);
    job->giving = false;
    job->exchange++;
}

static void check_start(struct job *job) {
    const double limit = job->launch->start_timeout_s > 0 ? job->launch->start_timeout_s : 300;
    if (job->exchange > 1 || job->giving || !job->first_came || job->ending_since) return;
    if ((double)(now_ns() - job->first_came) < limit * 1e9) return;
    for (int r = 0; r < job->world; r++) {
        if (job->ranks[r].offer.here) continue;
        char text[BOARD_TEXT];
        snprintf(text, sizeof text,
                 "rank %d: rendezvous: did not come within %g s of the first rank: see its output",
                 r, limit);
        end_job(job, r, ERR_TIMEOUT, text);
        return;
    }
}

/* 0: none is there. */
static int next_signal(int signal_fd) {
    struct signalfd_siginfo info;
    return read(signal_fd, &info, sizeof info) == (ssize_t)sizeof info ? (int)info.ssi_signo : 0;
}

static void take_signal(struct job *job) {
    char text[BOARD_TEXT];
    int signal = next_signal(job->signal_fd);
    if (!signal) return;
    if (!job->signal) job->signal = signal;
    job->signals++;
    snprintf(text, sizeof text, "signal %d (%s) to the launcher", job->signal,
             strsignal(job->signal));
    end_job(job, -1, ERR_PEER, text);
}

/* Ctrl-C reaches launcher and ranks alike. If the ranks died of it first, the launcher's own is
 * on its way and is the true cause. */
void serve_late_signal(struct job *job) {
    struct pollfd own = {.fd = job->signal_fd, .events = POLLIN};
    bool likely = false;
    for (int r = 0; r < job->world; r++) {
        const struct process *process = &job->ranks[r];
        int signal = process->told ? 0 : process->signal;
        likely |= signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
    }
    if (poll(&own, 1, likely ? 200 : 0) > 0) take_signal(job);
}

static short wanted(const struct job *job, int rank) {
    const struct offer *offer = &job->ranks[rank].offer;
    if (job->giving) return offer->given < job->world && !job->crowded ? POLLOUT : 0;
    return offer->here ? 0 : POLLIN;
}

int serve_ranks(struct job *job, int timeout_ms) {
    struct pollfd polled[2 * MAX_DEVICES + 1], *sockets = polled, *pidfds = polled + job->world;
    for (int r = 0; r < job->world; r++) {
        const struct process *process = &job->ranks[r];
        /* none: not polled at all, or a closed line would keep us awake */
        short events = wanted(job, r);
        sockets[r] = (struct pollfd){.fd = events ? process->socket : -1, .events = events};
        pidfds[r] = (struct pollfd){.fd = process->ended ? -1 : process->pidfd, .events = POLLIN};
    }
    polled[2 * job->world] = (struct pollfd){.fd = job->signal_fd, .events = POLLIN};
    if (job->crowded) timeout_ms = 1;
    job->crowded = false;
    int ready = poll(polled, 2 * (nfds_t)job->world + 1, timeout_ms);
    if (ready < 0 && errno != EINTR) return fail_errno(ERR_FAILED, errno, "launcher: poll");
    if (ready > 0 && polled[2 * job->world].revents) take_signal(job);
    for (int r = 0; ready > 0 && r < job->world; r++)
        if (sockets[r].revents && !job->giving) take(job, r);
    advance(job);
    for (int r = 0; job->giving && !job->crowded && r < job->world; r++)
        if (job->ranks[r].offer.given < job->world) give(job, r);
    advance(job);
    check_start(job);
    return OK;
}
