/* Sequences of calls that several ranks make in the same order. The ranks show each other these
 * calls, and announce.c compares them. The job has one such sequence (comm_announce); each process
 * group has its own, in memory that its ranks share. A call of the job that belongs to a group,
 * such as DDP's, is in both sequences. */
#ifndef COMM_ANNOUNCE_H
#define COMM_ANNOUNCE_H

#include "comm/comm.h"

/* A call that a rank has begun. The fields are those of struct comm_call. */
enum { ANNOUNCED = 64 }; /* how many of a rank's last calls are kept */
struct announced_call {
    char collective[24], what[48];
    int64_t bucket, step;
    uint64_t count, offset;
};
struct announcement {
    uint64_t number; /* counted from 1; 0: none, or being written */
    uint64_t word[sizeof(struct announced_call) / sizeof(uint64_t)];
};

/* One rank's view of a sequence. The announcements start as zero; rank k writes shown[k]. */
struct announcer {
    struct comm *comm;
    struct announcement (*shown)[ANNOUNCED]; /* [n], shared by these ranks */
    int n, me;                               /* ranks, and this one's index among them */
    const int *ranks;                        /* [n]: their numbers in messages; NULL: 0 .. n-1 */
    int numbered;                            /* 1: messages include the call's number */
    uint64_t number;                         /* calls that this rank has announced */
    uint64_t tally;                          /* a hash of the sequence of calls */
    uint64_t holds[ANNOUNCED];               /* the signature of the call in each slot; 0: none */
};

/* Announces the call that this rank is about to begin, without waiting. ERR_FAILED: a peer
 * announced a different call under the same number. The message, which ends the job, names both. */
int announcer_announce(struct announcer *announcer, const struct comm_call *call);

/* The same for short calls. It records the call and compares nothing, so somebody has to call
 * announcer_look_back later. `signature` is announced_signature of the call. */
void announced_fill(struct announced_call *out, const struct comm_call *call);
uint64_t announced_signature(const struct announced_call *call);
void announcer_note(struct announcer *announcer, const struct announced_call *call,
                    uint64_t signature);

/* Makes this rank's notes visible, as announcer_announce does: if two ranks look back after it, at
 * least one of them sees the other's notes. */
void announcer_show_all(struct announcer *announcer);

/* Compares all calls up to `number` that this rank and a peer still show. Fails like
 * announcer_announce. It reads only constant members, so any thread may call it. */
int announcer_look_back(struct announcer *announcer, uint64_t number);

#endif
