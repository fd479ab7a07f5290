/* The rank's side of comm_pass_descriptors: it sends one packet to the launcher and receives one
 * packet per rank, its own included. The launcher's side is serve.c. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "base/error.h"
#include "base/system_error.h"
#include "comm/network.h"
#include "comm/wire.h"

/* Turns the loss of the socket into an error. A socket that closes usually means that the launcher
 * is ending the job; the abort record then says why. */
static int socket_lost(struct comm *comm, enum wire_result result) {
    int error = errno;
    CHECK(failure_of_job(comm, "exchange"));
    const char *server = comm->host_pidfd < 0 ? "the launcher" : "rank 0";
    if (result == WIRE_CLOSED)
        return fail(ERR_PEER, "rank %d: exchange: %s has ended", comm->rank, server);
    return fail_system(error, "rank %d: exchange: socket to %s", comm->rank, server);
}

/* Sleeps until the socket is ready, for at most one slice. */
static int wait_for_socket(struct wait *wait, short events) {
    int64_t slice_ns;
    CHECK(wait_poll(wait, &slice_ns));
    struct pollfd polled = {.fd = wait->comm->socket, .events = events};
    poll(&polled, 1, (int)(slice_ns / 1000000) + 1);
    return OK;
}

static int send_mine(struct comm *comm, struct wait *wait, const struct wire_header *header,
                     int fd) {
    for (;;) {
        enum wire_result result = wire_send(comm->socket, header, NULL, fd);
        if (result == WIRE_DONE) return OK;
        if (result == WIRE_LATER)
            CHECK(wait_for_socket(wait, POLLOUT));
        else if (result == WIRE_CROWDED)
            CHECK(wait_for_socket(wait, 0));
        else
            return socket_lost(comm, result);
    }
}

static int receive_one(struct comm *comm, struct wait *wait, struct wire_header *header, int *fd) {
    char nothing[WIRE_MOST_BYTES];
    for (;;) {
        enum wire_result result = wire_receive(comm->socket, header, nothing, fd);
        if (result == WIRE_DONE) return OK;
        if (result != WIRE_LATER) return socket_lost(comm, result);
        CHECK(wait_for_socket(wait, POLLIN));
    }
}

static int receive_all(struct comm *comm, struct wait *wait, int *fds) {
    for (int r = 0; r < comm->world; r++) {
        struct wire_header header;
        int fd;
        CHECK(receive_one(comm, wait, &header, &fd));
        int expected = header.exchange == comm->exchanges && header.rank == (uint32_t)r;
        if (expected && fds)
            fds[r] = fd;
        else if (fd >= 0)
            close(fd);
        if (!expected)
            return fail(ERR_FAILED,
                        "rank %d: exchange %llu: rank %u is in exchange %u: all must make the same",
                        comm->rank, (unsigned long long)comm->exchanges, header.rank,
                        header.exchange);
    }
    return OK;
}

int comm_pass_descriptors(struct comm *comm, int fd, int *fds) {
    for (int r = 0; fds && r < comm->world; r++)
        fds[r] = -1;
    if (comm_is_imagined(comm) || comm->network) return OK;
    int code = OK;
    uint64_t k = ++comm->exchanges;
    struct wait wait;
    wait_start(&wait, comm, NULL);
    struct comm_call call = {.collective = "EXCHANGE", .bucket = -1, .step = -1};
    CHECK_GOTO(announce(comm, &call), code, out);
    struct wire_header header = {WIRE_MAGIC, (uint32_t)k, (uint32_t)comm->rank, 0, fd >= 0};
    wait.reason.collective = k == 1 ? "rendezvous" : "exchange";
    wait.what = comm->gathers_for;
    wait.counter = COUNT_EXCHANGES;
    wait.target = k;
    __atomic_store_n(&comm->board->cards[comm->rank].begun[COUNT_EXCHANGES], k, __ATOMIC_RELEASE);
    CHECK_GOTO(send_mine(comm, &wait, &header, fd), code, out);
    CHECK_GOTO(receive_all(comm, &wait, fds), code, out);
out:
    comm_distant_end(&wait);
    for (int r = 0; code && fds && r < comm->world; r++) {
        if (fds[r] >= 0) close(fds[r]);
        fds[r] = -1;
    }
    return code;
}
