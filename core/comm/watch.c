/* Watching the peers. A rank that dies (kill -9, out of memory, a crash) cannot report it, but the
 * kernel can. A pidfd is a handle on one process that becomes readable when the process ends. One
 * thread per rank sleeps in poll on the pidfds of all peers. A peer that ends without comm_close
 * has failed: the thread sets the abort word, and every wait of every rank ends within a slice.
 *
 * The launcher watches the ranks too. If the kernel or a sandbox offers no pidfds (ENOSYS, EPERM),
 * that is enough, and this thread is not started. The ranks' own watch serves when the launcher is
 * busy or stopped.
 *
 * The kernel may give the id of a process that has ended to a new process. That cannot happen here:
 * the launcher lets a dead rank stay a zombie until the job is over (end.c), so its id stays
 * taken. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/system_error.h"
#include "base/thread.h"
#include "comm/rank.h"

static void peer_ended(struct comm *comm, int peer) {
    struct card *card = &comm->board->cards[peer];
    char text[BOARD_TEXT];
    if (__atomic_load_n(&card->left, __ATOMIC_ACQUIRE))
        return; /* in good order; the launcher judges its status */
    snprintf(text, sizeof text, "rank %d (pid %u) died", peer,
             __atomic_load_n(&card->pid, __ATOMIC_RELAXED));
    board_abort(comm->board, peer, ERR_PEER, text);
}

static void *watch_peers(void *argument) {
    struct comm *comm = argument;
    struct pollfd watched[MAX_DEVICES + 1];
    for (int r = 0; r < comm->world; r++)
        watched[r] = (struct pollfd){.fd = comm->watch.pidfds[r], .events = POLLIN};
    struct pollfd *stop = &watched[comm->world];
    *stop = (struct pollfd){.fd = comm->watch.stop_fd, .events = POLLIN};
    while (!stop->revents) {
        if (poll(watched, (nfds_t)comm->world + 1, -1) < 0) continue; /* EINTR */
        for (int r = 0; r < comm->world; r++) {
            if (watched[r].fd < 0 || !watched[r].revents) continue;
            peer_ended(comm, r);
            watched[r].fd = -1; /* poll skips it from now on */
        }
    }
    return NULL;
}

/* *opened: how many pidfds were opened. Even a dead peer has one: it is a zombie. */
static int open_pidfds(struct comm *comm, int *opened) {
    *opened = 0;
    for (int r = 0; r < comm->world; r++) {
        if (r == comm->rank) continue;
        int fd = (int)syscall(SYS_pidfd_open, comm->board->cards[r].pid, 0);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE))
            return fail_system(errno, "rank %d: watching rank %d", comm->rank, r);
        comm->watch.pidfds[r] = fd;
        *opened += fd >= 0;
    }
    return OK;
}

int watch_start(struct comm *comm) {
    struct watch *watch = &comm->watch;
    int opened;
    CHECK(open_pidfds(comm, &opened));
    if (!opened) return OK;
    watch->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (watch->stop_fd < 0) return fail_system(errno, "rank %d: eventfd", comm->rank);
    int error = thread_start(&watch->thread, watch_peers, comm);
    if (error) return fail_system(error, "rank %d: thread that watches the peers", comm->rank);
    watch->running = 1;
    return OK;
}

void watch_stop(struct comm *comm) {
    struct watch *watch = &comm->watch;
    if (watch->running) {
        uint64_t one = 1;
        while (write(watch->stop_fd, &one, sizeof one) < 0 && errno == EINTR)
            continue;
        pthread_join(watch->thread, NULL);
        watch->running = 0;
    }
    if (watch->stop_fd >= 0) close(watch->stop_fd);
    watch->stop_fd = -1;
    for (int r = 0; r < comm->world; r++) {
        if (watch->pidfds[r] >= 0) close(watch->pidfds[r]);
        watch->pidfds[r] = -1;
    }
}
