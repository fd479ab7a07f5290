/* Barrier, gather, and exchange of descriptors, in the shared memory of the job.
 *
 * The barrier counts arrivals and never resets the count: the k-th barrier is complete when the
 * count has reached k times the world size. The last rank to arrive posts epoch k in the flag that
 * the others wait on. No rank can arrive for barrier k+1 before barrier k is released, so one count
 * is enough. A fast rank cannot confuse a slow one that is still waking up, because the flag's
 * epoch never decreases and stays >= k.
 *
 * Gather: each rank writes its bytes into its own box, passes one barrier, and reads all boxes.
 * With a single box per rank, a fast rank could overwrite its box for the next gather while a slow
 * rank still reads it. With two boxes used in turn it cannot. The box of gather k is used again in
 * gather k+2, which a rank begins after barrier k+1. Every rank has arrived at barrier k+1, which
 * it does only after it has read all boxes of gather k. Data that do not fit into a box travel in
 * several pieces, one gather for each.
 *
 * Descriptors: each rank gathers the numbers of the others' descriptors and opens the memory behind
 * them (peers.h). A barrier keeps a rank from closing its own before all have opened it. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/system_error.h"
#include "comm/network.h"
#include "comm/peers.h"

int pass_barrier(struct comm *comm, const char *collective, const char *what) {
    struct board *board = comm->board;
    if (comm->network) return network_barrier(comm, collective, what);
    uint64_t k = ++comm->barriers;
    /* The card's count serves error texts only. It is written first, so that no rank that has
     * arrived is reported missing. */
    __atomic_store_n(&board->cards[comm->rank].barriers, k, __ATOMIC_RELEASE);
    /* Acquire-release: the last rank to arrive sees what all ranks wrote before they arrived, and
     * its post makes it visible to all of them. */
    if (__atomic_add_fetch(&board->arrivals, 1, __ATOMIC_ACQ_REL) == k * (uint64_t)comm->world) {
        comm_post_flag(&board->released, k);
        return OK;
    }
    struct wait wait;
    wait_start(&wait, comm, NULL);
    wait.reason.collective = collective;
    wait.what = what;
    wait.barrier = 1;
    wait.target = k;
    return wait_flag(comm, &board->released, k, &wait);
}

int comm_barrier(struct comm *comm, const char *what) {
    struct comm_call call = {.collective = "BARRIER", .bucket = -1, .step = -1, .what = what};
    if (comm_is_imagined(comm)) return OK;
    CHECK(announce(comm, &call));
    return pass_barrier(comm, "barrier", what);
}

int comm_announce(struct comm *comm, const struct comm_call *call) {
    if (comm->world == 1 || comm_is_imagined(comm)) return OK;
    return announce(comm, call);
}

/* One piece of a gather of `bytes` per rank. Row r of `all` begins at r * bytes. */
static int gather_piece(struct comm *comm, const char *mine, size_t piece, size_t bytes,
                        char *all) {
    struct board *board = comm->board;
    int parity = (int)(comm->gathers++ & 1);
    if (piece) memcpy(board_box(board, comm->rank, parity), mine, piece);
    board->cards[comm->rank].gather_bytes[parity] = bytes;
    CHECK(pass_barrier(comm, "gather", comm->gathers_for));
    for (int r = 0; r < comm->world; r++) {
        uint64_t theirs = board->cards[r].gather_bytes[parity];
        if (theirs != bytes)
            return fail(
                ERR_USAGE,
                "rank %d: gather: rank %d sent %llu bytes, this rank %zu: all must send the same",
                comm->rank, r, (unsigned long long)theirs, bytes);
        if (piece) memcpy(all + (size_t)r * bytes, board_box(board, r, parity), piece);
    }
    return OK;
}

void comm_name_gathers(struct comm *comm, const char *what) {
    comm->gathers_for = what;
}

int comm_gather(struct comm *comm, const void *mine, size_t bytes, void *all) {
    size_t done = 0;
    struct comm_call call = {.collective = "ALLGATHER", .bucket = -1, .step = -1};
    if (comm_is_imagined(comm)) return imagine_all(comm, mine, bytes, all), OK;
    CHECK(announce(comm, &call));
    if (comm->network) return network_gather(comm, mine, bytes, all);
    do {
        size_t left = bytes - done, piece = left < COMM_BOX_BYTES ? left : COMM_BOX_BYTES;
        CHECK(gather_piece(comm, (const char *)mine + done, piece, bytes, (char *)all + done));
        done += piece;
    } while (done < bytes);
    return OK;
}

static int open_of_rank(const struct comm *comm, int rank, int theirs, int *fd) {
    uint32_t pid = __atomic_load_n(&comm->board->cards[rank].pid, __ATOMIC_RELAXED);
    *fd = descriptor_of((pid_t)pid, theirs);
    if (*fd < 0 && errno == ENOENT)
        return fail(ERR_FAILED,
                    "rank %d: descriptor %d of rank %d is not in /proc/%u: mount /proc, and start "
                    "all ranks in one PID namespace",
                    comm->rank, theirs, rank, pid);
    return *fd < 0 ? fail_system(errno, "rank %d: descriptor %d of rank %d (/proc/%u)", comm->rank,
                                 theirs, rank, pid)
                   : OK;
}

int comm_pass_descriptors(struct comm *comm, int fd, int *fds) {
    int theirs[MAX_DEVICES], code = OK;
    for (int r = 0; fds && r < comm->world; r++)
        fds[r] = -1;
    if (comm_is_imagined(comm) || comm->network) return OK;
    CHECK(comm_gather(comm, &fd, sizeof fd, theirs));
    for (int r = 0; fds && r < comm->world && !code; r++)
        if (theirs[r] >= 0) code = open_of_rank(comm, r, theirs[r], &fds[r]);
    if (!code) code = comm_barrier(comm, "exchange of descriptors");
    for (int r = 0; code && fds && r < comm->world; r++) {
        if (fds[r] >= 0) close(fds[r]);
        fds[r] = -1;
    }
    return code;
}
