/* Joins a job and leaves it.
 *
 * comm_open:  1. read from the environment which rank this is, and where it inherited the board;
 *                without that, meet the other ranks (rendezvous.h)
 *             2. map the board and write this process's id on it
 *             3. rendezvous: a barrier, complete when all ranks have come
 *
 * A rank that dies (kill -9, out of memory, a crash) cannot report it, but the kernel can: a pidfd
 * is a handle on one process that becomes readable when the process ends. The launcher watches all
 * ranks in this way (end.c); without a launcher each rank that waits looks at all others (wait.c).
 * The death becomes the failure of the job, and every wait of every rank ends within a slice. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/error.h"
#include "comm/environment.h"
#include "comm/network.h"
#include "comm/rendezvous.h"

static const double DEFAULT_TIMEOUT_S = 300;
enum { WARN_AFTER_S = 10 };
static const double LONGEST_TIMEOUT_S = 1e9; /* thirty years; in nanoseconds it fits 64 bits */
enum { MOST_FDS = 1 << 20 };                 /* a descriptor's number is below this */
static const char BY_TRAIN[] = "ranks are started by `duet train --mode ddp`";
static const char BY_RUN[] = "start the ranks by duet_spawn, `duet run`, torchrun or "
                             "mpirun, or set it";

/* Maps the inherited board. This process's own children must not inherit it. */
static int take_board(struct comm *comm) {
    int fd = -1;
    CHECK(environment_number("DUET_SHARED_FD", 0, MOST_FDS, &fd));
    if (fd < 0)
        return fail(ERR_USAGE, "environment variable DUET_SHARED_FD: expected, but not set: %s",
                    BY_TRAIN);
    CHECK(board_map(&comm->board, fd, comm->world));
    close(fd);
    return OK;
}

/* Did the launcher's board reach this process? A program in between may have closed it, as Python's
 * subprocess does. Under `duet run` the ranks then meet by the name of their job; the ranks of
 * other launchers have no such name. A board that this process made for another job may have the
 * same number, but it closes on exec, so it was not inherited. */
static int was_closed(int world) {
    int fd = -1;
    return getenv("TORCHELASTIC_RUN_ID") &&
           !environment_number("DUET_SHARED_FD", 0, MOST_FDS, &fd) &&
           (!board_fits(fd, world) || fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

/* Finds the job's board. */
static int find_job(struct comm *comm, const struct comm_options *options) {
    struct job_rank self;
    const struct network_ops *by = options ? options->by : NULL;
    int meet = options && options->meet, spread = 0;
    if (options && options->name) {
        comm->world = options->world;
        comm->rank = options->rank;
        return meet_ranks(comm, options->name);
    }
    if (!getenv("DUET_SHARED_FD")) CHECK(network_is_wanted(by, &spread));
    if (spread) return network_open(comm, by);
    CHECK(read_job_rank(&self, meet ? BY_RUN : BY_TRAIN));
    comm->world = self.world;
    comm->rank = self.rank;
    int alone = meet && (!getenv("DUET_SHARED_FD") || was_closed(self.world));
    return alone ? meet_ranks(comm, NULL) : take_board(comm);
}

static int meet(struct comm *comm) {
    const int64_t second = comm->alone && comm->rank ? 1000000000 : 0;
    board_note_process(comm->board, comm->rank, getpid());
    comm->timeout_ns += second; /* rank 0 knows who has not come, and speaks first */
    int code = pass_barrier(comm, "rendezvous", NULL);
    comm->timeout_ns -= second;
    return code;
}

/* Frees everything. The peers are not told: comm_close has done so, or comm_open failed. */
static void release(struct comm *comm) {
    network_close(comm);
    if (comm->board_fd >= 0) close(comm->board_fd);
    board_unmap(comm->board);
    free(comm);
}

int comm_open(struct comm **out, const struct comm_options *options) {
    *out = NULL;
    double timeout = options && options->timeout_s != 0 ? options->timeout_s : DEFAULT_TIMEOUT_S;
    if (!(timeout > 0 && timeout <= LONGEST_TIMEOUT_S))
        return fail(ERR_USAGE, "timeout: %g: give more than 0 seconds", timeout);
    struct comm *comm = calloc(1, sizeof *comm);
    if (!comm) return fail(ERR_MEMORY, "communicator: out of host memory: free some memory");
    comm->timeout_ns = (int64_t)(timeout * 1e9);
    comm->board_fd = -1;

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
