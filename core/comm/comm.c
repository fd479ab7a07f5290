/* Joins a job and leaves it.
 *
 * comm_open:  1. read from the environment which rank this is, and which descriptors it inherited;
 *                without those, meet the other ranks (rendezvous.h)
 *             2. map the board and write this process's id on it
 *             3. rendezvous: an exchange through the launcher, complete when all ranks have come
 *             4. a barrier
 *
 * A rank that dies (kill -9, out of memory, a crash) cannot report it, but the kernel can: a pidfd
 * is a handle on one process that becomes readable when the process ends. The launcher watches all
 * ranks in this way (end.c); without a launcher rank 0 does, and the others watch rank 0. The death
 * becomes the failure of the job, and every wait of every rank ends within a slice. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/error.h"
#include "comm/environment.h"
#include "comm/network.h"
#include "comm/rendezvous.h"

static const double DEFAULT_TIMEOUT_S = 300;
enum { WARN_AFTER_S = 10 };
static const double LONGEST_TIMEOUT_S = 1e9; /* thirty years, which fit 64 bits as nanoseconds */
enum { MOST_FDS = 1 << 20 };                 /* a descriptor's number is below this */
static const char BY_TRAIN[] = "ranks are started by `duet train --mode ddp`";
static const char BY_RUN[] = "start the ranks by duet_spawn, `duet run`, torchrun or "
                             "mpirun, or set it";

static int is_packet_socket(int fd) {
    int type = 0;
    socklen_t size = sizeof type;
    return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_SEQPACKET;
}

/* Takes over the two inherited descriptors, which this process's own children must not inherit. */
static int take_descriptors(struct comm *comm) {
    int board = -1, socket = -1;
    CHECK(environment_number("DUET_SHARED_FD", 0, MOST_FDS, &board));
    CHECK(environment_number("DUET_COMM_FD", 0, MOST_FDS, &socket));
    if (board < 0 || socket < 0)
        return fail(ERR_USAGE, "environment variable %s: expected, but not set: %s",
                    board < 0 ? "DUET_SHARED_FD" : "DUET_COMM_FD", BY_TRAIN);
    CHECK(board_map(&comm->board, board, comm->world));
    close(board);
    if (!is_packet_socket(socket))
        return fail(ERR_USAGE,
                    "environment variable DUET_COMM_FD: %d: not the launcher's socket: join a job "
                    "only once",
                    socket);
    comm->socket = socket;
    fcntl(socket, F_SETFD, FD_CLOEXEC);
    return OK;
}

/* Did the launcher's descriptors reach this process? A program in between may have closed them, as
 * Python's subprocess does. Under `duet run` the ranks then meet by the name of their job; the
 * ranks of other launchers have no such name. */
static int were_closed(void) {
    int board = -1, socket = -1;
    if (!getenv("TORCHELASTIC_RUN_ID") ||
        environment_number("DUET_SHARED_FD", 0, MOST_FDS, &board) ||
        environment_number("DUET_COMM_FD", 0, MOST_FDS, &socket))
        return 0;
    return fcntl(board, F_GETFD) < 0 || !is_packet_socket(socket);
}

/* Finds the job's board and the connection to the server of the rendezvous. */
static int find_job(struct comm *comm, const struct comm_options *options) {
    struct place place;
    const struct network_ops *by = options ? options->by : NULL;
    int meet = options && options->meet, spread = 0;
    if (options && options->name) {
        comm->world = options->world;
        comm->rank = options->rank;
        return meet_ranks(comm, options->name);
    }
    if (!getenv("DUET_SHARED_FD")) CHECK(network_is_wanted(by, &spread));
    if (spread) return network_open(comm, by);
    int alone = meet && (!getenv("DUET_SHARED_FD") || were_closed());
    CHECK(read_place(&place, meet ? BY_RUN : BY_TRAIN));
    comm->world = place.world;
    comm->rank = place.rank;
    return alone ? meet_ranks(comm, NULL) : take_descriptors(comm);
}

static int meet(struct comm *comm) {
    struct card *card = &comm->board->cards[comm->rank];
    __atomic_store_n(&card->pid, (uint32_t)getpid(), __ATOMIC_RELAXED);
    CHECK(comm_pass_descriptors(comm, -1, NULL));
    if (!comm_can_post_lightly()) __atomic_store_n(&comm->board->heavy, 1, __ATOMIC_RELAXED);
    CHECK(comm_barrier(comm, "start"));
    comm->light = !__atomic_load_n(&comm->board->heavy, __ATOMIC_RELAXED);
    return OK;
}

/* Frees everything. The peers are not told: comm_close has done so, or comm_open failed. */
static void release(struct comm *comm) {
    network_close(comm);
    meeting_end(comm->meeting);
    if (comm->socket >= 0) close(comm->socket);
    if (comm->host_pidfd >= 0) close(comm->host_pidfd);
    board_unmap(comm->board);
    free(comm);
}

int comm_open(struct comm **out, const struct comm_options *options) {
    *out = NULL;
    double timeout = options && options->timeout_s != 0 ? options->timeout_s : DEFAULT_TIMEOUT_S;
    if (!(timeout > 0 && timeout <= LONGEST_TIMEOUT_S))
        return fail(ERR_USAGE, "timeout: %g: seconds above 0 are expected", timeout);
    struct comm *comm = calloc(1, sizeof *comm);
    if (!comm) return fail(ERR_MEMORY, "communicator: out of host memory: free some memory");
    comm->timeout_ns = (int64_t)(timeout * 1e9);
    comm->socket = comm->host_pidfd = -1;

    int code = OK, warn_after_s = WARN_AFTER_S;
    CHECK_GOTO(environment_number("DUET_WARN_AFTER", 1, 1 << 30, &warn_after_s), code, out);
    comm->warn_ns = warn_after_s * (int64_t)1000000000;
    CHECK_GOTO(find_job(comm, options), code, out);
    comm->announcer = (struct announcer){
        .comm = comm, .shown = comm->board->announced, .n = comm->world, .me = comm->rank};
    comm->spin = usable_cores() >= comm->world;
    CHECK_GOTO(meet(comm), code, out);
    *out = comm;
    return OK;
out:
    if (comm->board) {
        comm_abort(comm, code, error_message());
        if (!comm_open_was_reported(code)) code = fail(ERR_FAILED, "%s", error_message());
    }
    release(comm);
    return code;
}

int comm_open_was_reported(int code) {
    return code != ERR_USAGE && code != ERR_MEMORY;
}

void comm_close(struct comm *comm) {
    if (!comm) return;
    if (comm->board) __atomic_store_n(&comm->board->cards[comm->rank].left, 1, __ATOMIC_RELEASE);
    release(comm);
}

int comm_rank(const struct comm *comm) {
    return comm->rank;
}

int comm_world_size(const struct comm *comm) {
    return comm->world;
}
