/* The board: the one memory segment of a job, a memfd that the launcher creates and every rank
 * maps. Everything on it starts as zero. Who writes what:
 *
 *   abort     whoever fails first, rank or launcher, once     read by all in every wait
 *   slots[r]  rank r alone (pid, start_errno: its process     read by the launcher and the peers
 *             before main)
 *   arrivals  all ranks, by atomic addition                   barrier.c
 *   released  the rank that arrives last                      barrier.c
 *   boxes     rank r its own two                              read by all after the barrier, barrier.c
 *
 * A word that crosses processes is only touched by the __atomic built-ins, store release and
 * load acquire: the plain fields beside it are written before the store and read after the load. */
#ifndef COMM_BOARD_H
#define COMM_BOARD_H

#include "base/limits.h"
#include "comm/comm.h"

#include <stdbool.h>

enum { BOARD_TEXT = 768, BOARD_WHERE = 128 };

/* state 0: nobody failed. 1: the winner is writing. 2: written. A winner that is killed while it
 * writes leaves 1 for ever: readers then do without the text. */
struct abort_record {
    uint32_t state;
    int32_t code; /* ERR_PEER: `rank` died or left; else its own error */
    int32_t rank; /* the rank to blame, -1 unknown */
    char text[BOARD_TEXT];
};

/* What a rank has begun, counted: a wait that runs late finds there who is missing. */
enum counter { COUNT_BARRIERS, COUNT_EXCHANGES, COUNTERS };

struct slot {
    uint64_t begun[COUNTERS];
    uint32_t pid;
    uint32_t left;        /* 1: comm_close, whatever happens now is no failure of the job */
    int32_t start_errno;  /* why the program could not be started */
    uint32_t where_taken; /* 1: a thread of the rank has begun to write `where` */
    uint32_t box_bytes[2];
    char where[BOARD_WHERE]; /* what the rank was waiting in when a peer failed */
} __attribute__((aligned(128)));

struct board {
    uint64_t magic;
    uint32_t world;
    struct abort_record abort;
    uint64_t arrivals __attribute__((aligned(128)));
    struct comm_flag released __attribute__((aligned(128)));
    struct slot slots[MAX_DEVICES];
};

/* Creates the segment for `world` ranks. *fd: close-on-exec, sealed against a change of size (a
 * rank that truncated it would kill the others). On failure *board is NULL and *fd -1. */
int board_create(struct board **board, int *fd, int world);

/* Maps an inherited segment; ERR_USAGE if fd is none, or one of another world size. */
int board_map(struct board **board, int fd, int world);

void board_unmap(struct board *board); /* NULL is fine */

/* Gather box 0 or 1 of a rank, COMM_BLOB_BYTES. */
void *board_box(struct board *board, int rank, int parity);

/* Writes the job's first failure. True if this call was the first and its text stands now. */
bool board_abort(struct board *board, int rank, int code, const char *text);

/* Cheap: has anybody failed? */
bool board_aborted(const struct board *board);

/* Copies the failure; false if there is none. Waits a few ms at most for a text being written. */
bool board_failure(const struct board *board, struct abort_record *out);

#endif
