/* Ranks find each other without a launcher.
 *
 *     rank 0    listens at an abstract unix socket         the others    connect to it
 *               checks who comes: user, rank, world        <---          say who they are
 *               hands out the board                        --->          map it
 *               once all have come, stops listening; a thread serves the exchanges (serve.c)
 *               and watches the others, who watch rank 0
 *
 * The name of the socket consists of the user's number, MASTER_ADDR, MASTER_PORT and the launcher's
 * name for the job. It is in no file system and disappears with the process, so no job leaves
 * anything behind. No port is opened. Two jobs with the same name do not mix, because the kernel
 * lets only one listen, and rank 0 accepts no rank twice. The kernel also reports the user at the
 * other end. Ranks of other users are refused, and a rank does not take the board from another
 * user's rank 0. */
#include "comm/rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/system_error.h"
#include "base/text/text.h"
#include "base/thread.h"
#include "comm/environment.h"
#include "comm/job.h"
#include "comm/wire.h"

static const int64_t TAKEN_NS = 1000000000; /* how long rank 0 retries a name that is taken */
static const int64_t LEAVE_NS = 2000000000; /* how long the thread goes on delivering at the end */
enum { LOOK_MS = 50, RETRY_MS = 2 };

struct meeting {
    struct launch launch; /* all zero but for the number of ranks: there is no launcher */
    struct job job;
    pthread_t thread;
    int running, stop; /* stop: atomic */
};

/* Where the ranks meet. */
struct spot {
    struct sockaddr_un name;
    socklen_t length;
    const char *address, *port;
};

static void find_spot(struct spot *spot, const char *name) {
    char job[512];
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a: a name of any length becomes a short one */
    spot->address = "name";
    spot->port = name;
    if (name)
        snprintf(job, sizeof job, "name:%s", name);
    else
        describe_job(job, sizeof job, &spot->address, &spot->port);
    for (const char *c = job; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    memset(&spot->name, 0, sizeof spot->name);
    spot->name.sun_family = AF_UNIX;
    int length = snprintf(spot->name.sun_path + 1, sizeof spot->name.sun_path - 1,
                          "duet-%u-%016llx", (unsigned)geteuid(), (unsigned long long)hash);
    spot->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int new_socket(int *out) {
    *out = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    return *out < 0 ? fail_system(errno, "rendezvous: socket") : OK;
}

/* Receives one packet within the deadline. blob: WIRE_MOST_BYTES of memory. */
static int receive(int socket, int64_t deadline, struct wire_header *header, void *blob, int *fd) {
    enum wire_result result;
    while ((result = wire_receive(socket, header, blob, fd)) == WIRE_LATER) {
        struct pollfd polled = {.fd = socket, .events = POLLIN};
        if (now_ns() >= deadline) return ERR_TIMEOUT;
        poll(&polled, 1, LOOK_MS);
    }
    return result == WIRE_DONE ? OK : ERR_PEER;
}

/* The end of each timeout message here. */
#define START_ALIKE \
    "with the same MASTER_ADDR and MASTER_PORT, on one machine: mpirun starts those of several"

/* ---- ranks other than 0 ---- */

static int connect_to_rank_0(struct comm *comm, const struct spot *spot, int64_t deadline) {
    while (connect(comm->socket, (const struct sockaddr *)&spot->name, spot->length)) {
        if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR)
            return fail_system(errno, "rank %d: rendezvous: connect", comm->rank);
        if (now_ns() >= deadline)
            return fail(ERR_TIMEOUT,
                        "rank %d: rendezvous at %s:%s: no word from rank 0 after %g s: start "
                        "it " START_ALIKE,
                        comm->rank, spot->address, spot->port, (double)comm->timeout_ns * 1e-9);
        nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000}, NULL);
    }
    if (socket_of_this_user(comm->socket)) return OK;
    return fail(ERR_FAILED,
                "rank %d: rendezvous at %s:%s: another user's process listens there: give "
                "MASTER_PORT another number",
                comm->rank, spot->address, spot->port);
}

static int ask_for_board(struct comm *comm, const struct spot *spot, int64_t deadline) {
    char blob[WIRE_MOST_BYTES];
    struct wire_header header = {WIRE_MAGIC, 0, (uint32_t)comm->rank, sizeof(uint32_t), 0};
    uint32_t world = (uint32_t)comm->world;
    int fd = -1;
    if (wire_send(comm->socket, &header, &world, -1) != WIRE_DONE ||
        receive(comm->socket, deadline, &header, blob, &fd))
        return fail(ERR_PEER,
                    "rank %d: rendezvous at %s:%s: rank 0 does not answer: see its output",
                    comm->rank, spot->address, spot->port);
    if (fd < 0) return fail(ERR_USAGE, "rank %d: %.*s", comm->rank, (int)header.bytes, blob);
    int code = board_map(&comm->board, fd, comm->world);
    close(fd);
    return code;
}

static int come(struct comm *comm, const struct spot *spot) {
    int64_t deadline = now_ns() + comm->timeout_ns;
    CHECK(new_socket(&comm->socket));
    CHECK(connect_to_rank_0(comm, spot, deadline));
    comm->host_pidfd = socket_pidfd(comm->socket);
    return ask_for_board(comm, spot, deadline);
}

/* ---- rank 0 ---- */

static int listen_at(struct comm *comm, const struct spot *spot, int *listener) {
    int64_t deadline = now_ns() + TAKEN_NS;
    CHECK(new_socket(listener));
    fcntl(*listener, F_SETFL, O_NONBLOCK);
    while (bind(*listener, (const struct sockaddr *)&spot->name, spot->length)) {
        if (errno != EADDRINUSE) return fail_system(errno, "rank 0: rendezvous: bind");
        if (now_ns() >= deadline)
            return fail(ERR_USAGE,
                        "rank 0: rendezvous at %s:%s: another process is rank 0 there: give "
                        "each rank its own RANK, and each job its own MASTER_PORT",
                        spot->address, spot->port);
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000000}, NULL);
    }
    return listen(*listener, comm->world) ? fail_system(errno, "rank 0: rendezvous: listen") : OK;
}

static void turn_away(int socket, const char *text) {
    struct wire_header reply = {WIRE_MAGIC, 0, 0, (uint32_t)strlen(text), 0};
    wire_send(socket, &reply, text, -1);
    close(socket);
}

/* A process has connected: is it a rank of this job? Then it gets the board. */
static void receive_rank(struct job *job, const struct spot *spot, int socket) {
    struct wire_header header;
    char text[200], blob[WIRE_MOST_BYTES];
    uint32_t world = 0;
    int fd = -1;
    if (!socket_of_this_user(socket) ||
        receive(socket, now_ns() + 1000000000, &header, blob, &fd) ||
        header.bytes != sizeof world) {
        if (fd >= 0) close(fd);
        close(socket);
        return;
    }
    memcpy(&world, blob, sizeof world);
    struct process *process = header.rank < (uint32_t)job->world ? &job->ranks[header.rank] : NULL;
    if (world != (uint32_t)job->world)
        snprintf(text, sizeof text,
                 "rendezvous at %s:%s: WORLD_SIZE is %u here and %d on rank 0: give all ranks the "
                 "same, and each job its own MASTER_PORT",
                 spot->address, spot->port, world, job->world);
    else if (!process || header.rank == 0 || process->socket >= 0)
        snprintf(
            text, sizeof text,
            "rendezvous at %s:%s: rank %u has already joined: give each rank another RANK, and "
            "each job its own MASTER_PORT",
            spot->address, spot->port, header.rank);
    else {
        struct wire_header reply = {WIRE_MAGIC, 0, 0, 0, 1};
        if (wire_send(socket, &reply, NULL, job->board_fd) != WIRE_DONE)
            close(socket);
        else
            process->socket = socket, process->pidfd = socket_pidfd(socket);
        return;
    }
    turn_away(socket, text);
}

static int late(struct comm *comm, const struct job *job, const struct spot *spot) {
    char ranks[4 * MAX_DEVICES] = "";
    int missing = 0;
    for (int r = 1; r < job->world; r++)
        if (job->ranks[r].socket < 0)
            text_append(ranks, sizeof ranks, missing++ ? ", %d" : "%d", r);
    return fail(ERR_TIMEOUT,
                "rank 0: rendezvous at %s:%s: no word from rank%s %s after %g s: start all "
                "ranks " START_ALIKE,
                spot->address, spot->port, missing > 1 ? "s" : "", ranks,
                (double)comm->timeout_ns * 1e-9);
}

/* A rank that has come waits for the others; if it ends meanwhile, it hangs up. */
static int anybody_gone(const struct job *job) {
    for (int r = 1; r < job->world; r++) {
        struct pollfd polled = {.fd = job->ranks[r].socket, .events = 0};
        if (poll(&polled, 1, 0) > 0 && polled.revents & (POLLHUP | POLLERR)) return r;
    }
    return 0;
}

static int collect(struct comm *comm, struct job *job, const struct spot *spot, int listener) {
    int64_t deadline = now_ns() + comm->timeout_ns;
    for (int came = 0; came < job->world - 1;) {
        struct pollfd polled = {.fd = listener, .events = POLLIN};
        int socket =
            poll(&polled, 1, LOOK_MS) > 0 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (socket >= 0) receive_rank(job, spot, socket);
        int gone = anybody_gone(job);
        if (gone)
            return fail(ERR_PEER,
                        "rank 0: rendezvous: rank %d ended before all ranks had come: see "
                        "its output",
                        gone);
        if (now_ns() >= deadline) return late(comm, job, spot);
        came = 0;
        for (int r = 1; r < job->world; r++)
            came += job->ranks[r].socket >= 0;
    }
    return OK;
}

/* A pidfd that is readable stays so: it is looked at once. */
static void look_for_deaths(struct job *job) {
    for (int r = 1; r < job->world; r++) {
        int *pidfd = &job->ranks[r].pidfd;
        if (!board_look_for_death(job->board, r, *pidfd)) continue;
        close(*pidfd);
        *pidfd = -1;
    }
}

static void *serve(void *argument) {
    struct meeting *m = argument;
    int64_t end = 0;
    for (;;) {
        int stop = __atomic_load_n(&m->stop, __ATOMIC_ACQUIRE);
        if (stop && !end) end = now_ns() + LEAVE_NS;
        if (stop && (!m->job.delivering || now_ns() >= end)) return NULL;
        if (serve_ranks(&m->job, stop ? 1 : 200)) end_job(&m->job, 0, ERR_FAILED, error_message());
        look_for_deaths(&m->job);
    }
}

static int start_thread(struct comm *comm, struct meeting *m) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return fail_system(errno, "rank 0: rendezvous: socketpair");
    m->job.ranks[0].socket = pair[0];
    comm->socket = pair[1];
    /* serve.c reads the launcher's signals from this descriptor: here it only wakes the thread */
    m->job.signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->job.signal_fd < 0) return fail_system(errno, "rank 0: rendezvous: eventfd");
    int error = thread_start(&m->thread, serve, m);
    if (error) return fail_system(error, "rank 0: rendezvous: a thread");
    m->running = 1;
    return OK;
}

static int host(struct comm *comm, const struct spot *spot) {
    struct meeting *m = comm->meeting = calloc(1, sizeof *m);
    int listener = -1;
    if (!m) return fail(ERR_MEMORY, "rank 0: rendezvous: out of host memory: free some memory");
    m->launch.world_size = comm->world;
    job_begin(&m->job, &m->launch);
    CHECK(board_create(&comm->board, &m->job.board_fd, comm->world));
    m->job.board = comm->board;
    int code = comm->world > 1 ? listen_at(comm, spot, &listener) : OK;
    if (!code && comm->world > 1) code = collect(comm, &m->job, spot, listener);
    if (listener >= 0) close(listener);
    return code ? code : start_thread(comm, m);
}

int meet_ranks(struct comm *comm, const char *name) {
    struct spot spot;
    find_spot(&spot, name);
    return comm->rank == 0 ? host(comm, &spot) : come(comm, &spot);
}

void meeting_end(struct meeting *m) {
    if (!m) return;
    if (m->running) {
        uint64_t one = 1;
        __atomic_store_n(&m->stop, 1, __ATOMIC_RELEASE);
        while (write(m->job.signal_fd, &one, sizeof one) < 0 && errno == EINTR)
            continue;
        pthread_join(m->thread, NULL);
    }
    serve_stop(&m->job);
    for (int r = 1; r < m->job.world; r++)
        if (m->job.ranks[r].pidfd >= 0) close(m->job.ranks[r].pidfd);
    if (m->job.signal_fd >= 0) close(m->job.signal_fd);
    if (m->job.board_fd >= 0) close(m->job.board_fd);
    free(m);
}
