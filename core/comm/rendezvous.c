/* Ranks find each other without a launcher.
 *
 *     rank 0    listens at an abstract unix socket         the others    connect to it
 *               checks who comes: user, rank, world        <---          say who they are
 *               says which descriptor has the board        --->          map it (peers.h)
 *               once all have come, stops listening
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
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/system_error.h"
#include "base/text/text.h"
#include "comm/environment.h"
#include "comm/peers.h"

static const int64_t TAKEN_NS = 1000000000; /* how long rank 0 retries a name that is taken */
enum { LOOK_MS = 50, RETRY_MS = 2 };

/* What a rank says of itself, and rank 0's answer. */
struct hello {
    uint32_t magic, rank, world;
};
struct answer {
    int32_t board_fd; /* rank 0's descriptor of the board; -1: the rank is refused */
    char text[200];   /* why */
};
enum { HELLO_MAGIC = 0x54455545 };

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

/* Receives a packet of this size within the deadline. 0: none came. */
static int receive(int socket, int64_t deadline, void *packet, size_t bytes) {
    struct pollfd polled = {.fd = socket, .events = POLLIN};
    while (poll(&polled, 1, LOOK_MS) <= 0)
        if (now_ns() >= deadline) return 0;
    return recv(socket, packet, bytes, MSG_DONTWAIT) == (ssize_t)bytes;
}

/* The end of each timeout message here. */
#define START_ALIKE \
    "with the same MASTER_ADDR and MASTER_PORT, on one machine: mpirun starts those of several"

/* ---- ranks other than 0 ---- */

static int connect_to_rank_0(const struct comm *comm, const struct spot *spot, int socket,
                             pid_t *rank_0) {
    int64_t deadline = now_ns() + comm->timeout_ns;
    while (connect(socket, (const struct sockaddr *)&spot->name, spot->length)) {
        if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR)
            return fail_system(errno, "rank %d: rendezvous: connect", comm->rank);
        if (now_ns() >= deadline)
            return fail(ERR_TIMEOUT,
                        "rank %d: rendezvous at %s:%s: no word from rank 0 after %g s: start "
                        "it " START_ALIKE,
                        comm->rank, spot->address, spot->port, (double)comm->timeout_ns * 1e-9);
        nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000}, NULL);
    }
    if ((*rank_0 = process_of_socket(socket))) return OK;
    return fail(ERR_FAILED,
                "rank %d: rendezvous at %s:%s: another user's process listens there: give "
                "MASTER_PORT another number",
                comm->rank, spot->address, spot->port);
}

static int ask_for_board(struct comm *comm, const struct spot *spot, int socket) {
    struct hello hello = {HELLO_MAGIC, (uint32_t)comm->rank, (uint32_t)comm->world};
    struct answer answer;
    pid_t rank_0;
    CHECK(connect_to_rank_0(comm, spot, socket, &rank_0));
    if (send(socket, &hello, sizeof hello, MSG_NOSIGNAL) < 0 ||
        !receive(socket, now_ns() + comm->timeout_ns, &answer, sizeof answer))
        return fail(ERR_PEER,
                    "rank %d: rendezvous at %s:%s: rank 0 does not answer: see its output",
                    comm->rank, spot->address, spot->port);
    if (answer.board_fd < 0)
        return fail(ERR_USAGE, "rank %d: %.*s", comm->rank, (int)sizeof answer.text, answer.text);
    int fd = descriptor_of(rank_0, answer.board_fd);
    if (fd < 0)
        return fail_system(errno, "rank %d: rendezvous: memory of process %d", comm->rank, rank_0);
    int code = board_map(&comm->board, fd, comm->world);
    close(fd);
    return code;
}

static int come(struct comm *comm, const struct spot *spot) {
    int socket;
    CHECK(new_socket(&socket));
    int code = ask_for_board(comm, spot, socket);
    close(socket);
    return code;
}

/* ---- rank 0 ---- */

/* The process of a rank that has come; else 0. */
static pid_t process_of(const struct comm *comm, int rank) {
    return (pid_t)__atomic_load_n(&comm->board->cards[rank].pid, __ATOMIC_RELAXED);
}

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

/* A process has connected: is it a rank of this job? Then it learns where the board is. */
static void receive_rank(const struct comm *comm, const struct spot *spot, int socket) {
    struct hello hello;
    struct answer answer = {.board_fd = -1};
    pid_t pid = process_of_socket(socket);
    if (!pid || !receive(socket, now_ns() + 1000000000, &hello, sizeof hello) ||
        hello.magic != HELLO_MAGIC)
        return;
    if (hello.world != (uint32_t)comm->world)
        snprintf(answer.text, sizeof answer.text,
                 "rendezvous at %s:%s: WORLD_SIZE is %u here and %d on rank 0: give all ranks the "
                 "same, and each job its own MASTER_PORT",
                 spot->address, spot->port, hello.world, comm->world);
    else if (!hello.rank || hello.rank >= hello.world || process_of(comm, (int)hello.rank))
        snprintf(
            answer.text, sizeof answer.text,
            "rendezvous at %s:%s: rank %u has already joined: give each rank another RANK, and "
            "each job its own MASTER_PORT",
            spot->address, spot->port, hello.rank);
    else {
        board_note_process(comm->board, (int)hello.rank, pid);
        answer.board_fd = comm->board_fd;
    }
    send(socket, &answer, sizeof answer, MSG_NOSIGNAL);
}

static int late(const struct comm *comm, const struct spot *spot) {
    char ranks[4 * MAX_DEVICES] = "";
    int missing = 0;
    for (int r = 1; r < comm->world; r++)
        if (!process_of(comm, r)) text_append(ranks, sizeof ranks, missing++ ? ", %d" : "%d", r);
    return fail(ERR_TIMEOUT,
                "rank 0: rendezvous at %s:%s: no word from rank%s %s after %g s: start all "
                "ranks " START_ALIKE,
                spot->address, spot->port, missing > 1 ? "s" : "", ranks,
                (double)comm->timeout_ns * 1e-9);
}

static int collect(const struct comm *comm, const struct spot *spot, int listener,
                   int64_t deadline) {
    for (int missing = comm->world - 1; missing;) {
        struct pollfd polled = {.fd = listener, .events = POLLIN};
        int socket =
            poll(&polled, 1, LOOK_MS) > 0 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (socket >= 0) {
            receive_rank(comm, spot, socket);
            close(socket);
        }
        missing = 0;
        for (int r = 1; r < comm->world; r++) {
            pid_t pid = process_of(comm, r);
            missing += !pid;
            if (pid && process_has_ended(pid))
                return fail(ERR_PEER,
                            "rank 0: rendezvous: rank %d ended before all ranks had joined: see "
                            "its output",
                            r);
        }
        if (missing && now_ns() >= deadline) return late(comm, spot);
    }
    return OK;
}

static int host(struct comm *comm, const struct spot *spot) {
    int listener = -1;
    int64_t deadline = now_ns() + comm->timeout_ns;
    CHECK(board_create(&comm->board, &comm->board_fd, comm->world));
    board_note_process(comm->board, 0, getpid());
    if (comm->world == 1) return OK;
    int code = listen_at(comm, spot, &listener);
    if (!code) code = collect(comm, spot, listener, deadline);
    if (listener >= 0) close(listener);
    return code;
}

int meet_ranks(struct comm *comm, const char *name) {
    struct spot spot;
    find_spot(&spot, name);
    comm->alone = 1;
    return comm->rank == 0 ? host(comm, &spot) : come(comm, &spot);
}
