/* The board is the one piece of memory that a job shares, a memfd that the launcher creates and
 * every rank maps. All of it starts as zero. The writers:
 *
 *   abort     the rank or launcher that first notices a failure; once    read in every wait
 *   cards[r]  rank r (pid, and start_errno before its main runs)       read by launcher and peers
 *   arrivals  every rank, by an atomic addition                        barrier.c
 *   released  the rank that arrives last at a barrier                  barrier.c
 *   announced[r]  rank r, before each of its collectives               announce.c
 *   boxes     rank r writes its own two                                read after a barrier
 *   asked     the launcher, once                                       stop.c
 *   looked, stop_at   rank 0                                           stop.c
 *
 * Only the __atomic built-ins access atomic variables that processes share. The other fields are
 * written before a store-release and read after the matching load-acquire. */
#ifndef COMM_BOARD_H
#define COMM_BOARD_H

#include <sys/types.h>

#include "base/limits.h"
#include "comm/announce.h"
#include "comm/comm.h"

enum {
    BOARD_TEXT = 768,
    BOARD_WHERE = 128
}; /* sizes of an error message and of a location in the program */

/* ABORT_NONE -> ABORT_WRITING -> ABORT_WRITTEN, each step once. A rank that is killed while it
 * writes leaves ABORT_WRITING forever: readers then go without the message. */
enum abort_state { ABORT_NONE, ABORT_WRITING, ABORT_WRITTEN };

struct abort_record {
    uint32_t state; /* enum abort_state: the abort word */
    int32_t code;   /* ERR_PEER: `rank` died or left; else the error of `rank` */
    int32_t rank;   /* the rank to blame, -1 if unknown */
    char text[BOARD_TEXT];
};

struct card {
    uint64_t barriers; /* how many the rank has begun: shows who is missing */
    uint64_t beats;    /* grows whenever the rank polls in a wait or calls comm_check */
    int64_t heard_ns;  /* over a network: when its last beat came */
    int64_t beat_ns; /* when it last did so, on the clock of base/clock.h, which all ranks share */
    uint32_t pid;
    uint32_t left;       /* 1: comm_close was called, so the end of the process is not a failure */
    int32_t start_errno; /* why the program could not be started, 0 if it could */
    uint32_t core; /* 1 + the core of the last thread of the rank that had to wait; 0: unknown */
    uint64_t gather_bytes[2]; /* the rank's bytes for the gather in box 0 and 1 */
    /* whereabouts.c: a thread of the rank shows where it waits, and since when (0: no wait) */
    uint32_t shows;
    int64_t since_ns;
    char waits_in[BOARD_WHERE];
} __attribute__((aligned(128)));

struct board {
    uint32_t world;
    struct abort_record abort;
    uint64_t arrivals __attribute__((aligned(128)));         /* counts over all barriers */
    struct comm_flag released __attribute__((aligned(128))); /* epoch k: barrier k is complete */
    struct comm_flag looked __attribute__((aligned(128))); /* epoch k: rank 0 has looked k times */
    uint64_t stop_at;   /* all ranks stop at this look; 0: none */
    uint32_t asked;     /* the signal that asks the job to stop; 0: none */
    uint64_t warned_ns; /* when a rank last warned of a long wait; 0: never */
    struct card cards[MAX_DEVICES];
    struct announcement announced[MAX_DEVICES][ANNOUNCED];
};

/* Creates the board for `world` ranks. *fd is close-on-exec. Its size is sealed, since a rank that
 * truncated it would kill the others. On failure *board is NULL and *fd -1. */
int board_create(struct board **board, int *fd, int world);

int board_fits(int fd, int world); /* 1: it has the size of a board for so many ranks */

/* Maps a board. ERR_USAGE if fd does not fit. */
int board_map(struct board **board, int fd, int world);

void board_unmap(struct board *board); /* NULL is allowed */

/* Gather box 0 or 1 of a rank: COMM_BOX_BYTES bytes. */
void *board_box(struct board *board, int rank, int parity);

/* Writes the job's first failure. Returns 1 if this call was first, so that its message counts. */
int board_abort(struct board *board, int rank, int code, const char *text);

void board_note_process(struct board *board, int rank, pid_t pid);

/* If the process of a rank has ended without comm_close, the job has failed. */
void board_look_for_death(struct board *board, int rank);

/* Tells the other ranks that a thread of this rank is polling. */
void board_beat(struct board *board, int rank);

/* Says whether any rank has failed. It costs one load, so every wait can call it. */
int board_aborted(const struct board *board);

/* Copies the failure and returns 1, or returns 0 without a failure. If a rank is still writing the
 * message, it waits a few milliseconds. */
int board_failure(const struct board *board, struct abort_record *out);

#endif
