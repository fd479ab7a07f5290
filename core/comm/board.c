/* The shared memory of a job: creation, mapping, and the record of the job's first failure. */
#include "comm/board.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/system_error.h"
#include "comm/environment.h"
#include "comm/peers.h"

/* The gather boxes come after the struct. 64 ranks make it 8 MiB of address space, but only pages
 * that are touched take memory. */
static size_t board_bytes(int world) {
    return sizeof(struct board) + (size_t)world * 2 * COMM_BOX_BYTES;
}

static int map(struct board **board, int fd, int world) {
    void *memory = mmap(NULL, board_bytes(world), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return fail_system(errno, "shared memory of the job: %zu bytes: mmap", board_bytes(world));
    *board = memory;
    return OK;
}

int board_create(struct board **board, int *fd, int world) {
    *board = NULL;
    int code = OK;
    *fd = memfd_create(JOB_MEMORY, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0) return fail_system(errno, "shared memory of the job: memfd_create");
    if (ftruncate(*fd, (off_t)board_bytes(world)) ||
        fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
        code = fail_system(errno, "shared memory of the job: %zu bytes", board_bytes(world));
        goto out;
    }
    CHECK_GOTO(map(board, *fd, world), code, out);
    (*board)->world = (uint32_t)world;
    return OK;
out:
    close(*fd);
    *fd = -1;
    return code;
}

int board_fits(int fd, int world) {
    struct stat status;
    return !fstat(fd, &status) && (size_t)status.st_size == board_bytes(world);
}

int board_map(struct board **board, int fd, int world) {
    *board = NULL;
    if (!board_fits(fd, world))
        return fail(
            ERR_USAGE,
            "descriptor %d is not the shared memory of a job of %d ranks: start the ranks again "
            "with their launcher",
            fd, world);
    return map(board, fd, world);
}

void board_unmap(struct board *board) {
    if (board) munmap(board, board_bytes((int)board->world));
}

void *board_box(struct board *board, int rank, int parity) {
    return (char *)(board + 1) + ((size_t)rank * 2 + (size_t)parity) * COMM_BOX_BYTES;
}

int board_abort(struct board *board, int rank, int code, const char *text) {
    struct abort_record *record = &board->abort;
    uint32_t expected = ABORT_NONE;
    if (!__atomic_compare_exchange_n(&record->state, &expected, ABORT_WRITING, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        return 0;
    record->rank = rank;
    record->code = code;
    snprintf(record->text, sizeof record->text, "%s", text);
    __atomic_store_n(&record->state, ABORT_WRITTEN, __ATOMIC_RELEASE);
    return 1;
}

void board_note_process(struct board *board, int rank, pid_t pid) {
    __atomic_store_n(&board->cards[rank].pid, (uint32_t)pid, __ATOMIC_RELAXED);
}

void board_look_for_death(struct board *board, int rank) {
    const struct card *card = &board->cards[rank];
    uint32_t pid = __atomic_load_n(&card->pid, __ATOMIC_RELAXED);
    char text[BOARD_TEXT];
    if (!pid || !process_has_ended((pid_t)pid) || __atomic_load_n(&card->left, __ATOMIC_ACQUIRE))
        return;
    snprintf(text, sizeof text, "rank %d (pid %u) died", rank, pid);
    board_abort(board, rank, ERR_PEER, text);
}

void board_beat(struct board *board, int rank) {
    __atomic_fetch_add(&board->cards[rank].beats, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&board->cards[rank].beat_ns, now_ns(), __ATOMIC_RELAXED);
}

int board_aborted(const struct board *board) {
    return __atomic_load_n(&board->abort.state, __ATOMIC_ACQUIRE) != ABORT_NONE;
}

enum { LOOKS_FOR_TEXT = 20 }; /* polls, a millisecond apart */

int board_failure(const struct board *board, struct abort_record *out) {
    if (!board_aborted(board)) return 0;
    for (int i = 0; i < LOOKS_FOR_TEXT; i++) {
        if (__atomic_load_n(&board->abort.state, __ATOMIC_ACQUIRE) == ABORT_WRITTEN) {
            /* Field by field, without `state`: another rank may be accessing that one atomically in
             * board_abort. */
            out->state = ABORT_WRITTEN;
            out->code = board->abort.code;
            out->rank = board->abort.rank;
            memcpy(out->text, board->abort.text, sizeof out->text);
            return 1;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    *out = (struct abort_record){.state = ABORT_WRITING,
                                 .code = ERR_PEER,
                                 .rank = -1,
                                 .text = "a rank died while it reported a failure"};
    return 1;
}
