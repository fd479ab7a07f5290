/* The thread that exchanges heartbeats with the other ranks (comm/network.h). It also ends the
 * process if all else fails. When a job fails, a thread may be stuck inside MPI because its peer is
 * gone. So this thread ends a process that still runs a few seconds after its job has failed. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/program_name.h"
#include "base/thread.h"
#include "group/mpi/state.h"

enum { TAG = 1 };
static const int64_t BEAT_NS = 100000000, PAUSE_NS = 5000000, LAST_WORD_NS = 3000000000,
                     FLUSH_NS = 500000000;

static void await_beat(struct network *net, int rank) {
    struct beats *b = &net->beats;
    net->mpi.Irecv(&b->theirs[rank], sizeof b->theirs[rank], net->mpi.byte, rank, TAG, net->control,
                   &b->in[rank]);
}

/* 1: a heartbeat of the rank has arrived. */
static int has_come(struct network *net, int rank) {
    int done = 0;
    return net->mpi.Test(&net->beats.in[rank], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done;
}

static void hear(struct network *net, int64_t now) {
    struct comm *comm = net->comm;
    struct beats *b = &net->beats;
    for (int r = 0; r < comm->world; r++) {
        if (r == comm->rank) continue;
        while (has_come(net, r)) {
            beat_came(comm, r, &b->theirs[r]);
            b->heard[r] = now;
            await_beat(net, r);
        }
        int left = (int)__atomic_load_n(&comm->board->cards[r].left, __ATOMIC_ACQUIRE);
        if (!left && now - b->heard[r] > comm->timeout_ns)
            beat_missing(comm, r, (double)comm->timeout_ns * 1e-9);
    }
}

/* Returns how many sends are pending. A rank that has not received the last heartbeat gets no new
 * one. */
static int tell(struct network *net, const struct beat *beat, int again) {
    struct comm *comm = net->comm;
    struct beats *b = &net->beats;
    int late = 0;
    for (int r = 0; r < comm->world; r++) {
        int done = 0;
        if (r == comm->rank) continue;
        if (b->sending[r]) {
            net->mpi.Test(&b->out[r], &done, MPI_STATUS_IGNORE);
            b->sending[r] = !done;
        }
        if (again && !b->sending[r]) {
            b->mine[r] = *beat;
            b->sending[r] = !net->mpi.Isend(&b->mine[r], sizeof *beat, net->mpi.byte, r, TAG,
                                            net->control, &b->out[r]);
        }
        late += b->sending[r];
    }
    return late;
}

/* Waiting calls have been told of the failure, but this process is not in a call that checks for
 * it. */
static void last_word(const struct comm *comm) {
    struct abort_record failure;
    if (!board_failure(comm->board, &failure)) return;
    fprintf(stderr, "%s: rank %d on %s: a peer failed first: %s\n", program_name(), comm->rank,
            comm->machines ? comm->machines[comm->rank] : "this machine", failure.text);
    _exit(error_exit_status(ERR_PEER));
}

static void *beat(void *argument) {
    struct network *net = argument;
    struct comm *comm = net->comm;
    struct beat now_told = {0}, told = {0};
    int64_t last = now_ns(), next = 0, failed = 0;
    int stop = 0;
    while (!stop) {
        stop = __atomic_load_n(&net->beats.stop, __ATOMIC_ACQUIRE);
        int64_t now = now_ns(), slept = now - last;
        last = now;
        /* If this machine or process itself was stopped, no other rank is to blame. */
        for (int r = 0; slept > BEAT_NS && r < comm->world; r++)
            net->beats.heard[r] += slept;
        hear(net, now);
        beat_of(comm, &now_told);
        int is_news =
            now_told.card.left != told.card.left || now_told.failure.state != told.failure.state;
        if (is_news || now >= next) {
            tell(net, &now_told, 1);
            told = now_told;
            next = now + BEAT_NS;
        }
        if (told.failure.state && !failed) failed = now;
        if (failed && now - failed > LAST_WORD_NS) last_word(comm);
        if (!stop) nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    beat_of(comm, &now_told);
    tell(net, &now_told, 1);
    for (int64_t end = now_ns() + FLUSH_NS; tell(net, NULL, 0) && now_ns() < end;)
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS / 5}, NULL);
    return NULL;
}

int beats_start(struct network *net) {
    struct beats *b = &net->beats;
    for (int r = 0; r < net->comm->world; r++) {
        b->heard[r] = now_ns();
        if (r != net->comm->rank) await_beat(net, r);
    }
    b->running = !thread_start(&b->thread, beat, net);
    return b->running ? OK : fail(ERR_FAILED, "MPI: no thread for heartbeats: end other processes");
}

void beats_stop(struct network *net) {
    struct beats *b = &net->beats;
    if (!b->running) return;
    __atomic_store_n(&b->stop, 1, __ATOMIC_RELEASE);
    pthread_join(b->thread, NULL);
    b->running = 0;
    for (int r = 0; r < net->comm->world; r++)
        if (r != net->comm->rank) net->mpi.Cancel(&b->in[r]);
}
