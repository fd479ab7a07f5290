/* Regions: memory that two workers of one machine both see. The elements of large tensors travel in
 * it, beside the frame that tells of them, so that they are copied twice: from the sender's tensor
 * into the region, and from there into the receiver's. Through a socket it would be four times.
 *
 * A region is a memfd with a head and room behind it. Its maker is its owner for good:
 *
 *     free     region_take  -> held      a message is being written into it
 *     held     region_give  -> sent      the frame is on its way
 *     sent     guests_find  -> read      the receiver has it mapped, and says so in the head
 *     read     the receiver's region_release says in the head that it is free again
 *     held     region_release            the message was not sent: free again
 *     sent     regions_back              the receiver cannot open it: free again
 *
 * So only the last needs a message, and nobody waits for a region: where none is free
 * another is made, up to MOST_REGIONS, and then elements travel in the payload, as they do where
 * two workers share no memory. Fresh pages cost four times a copy, so a free region is kept for the
 * next message of about its size; one that nobody has used for KEPT_NS is given back.
 *
 * The receiver opens a region through /proc/PID/fd, whose pid and descriptors the hello and the
 * frames have told, and keeps it mapped, found by its id, until it has not been used for as long.
 * Whether that goes is tried once: the hello names a region without room, the door, and who can
 * open the peer's door says so (FRAME_SHARES). A number in the head, drawn anew for each worker,
 * shows that the pid is the peer's also here, and not that of some process of another namespace.
 *
 * What ends while a region is out:
 *     the owner      the pages stay as long as the receiver has them mapped. They were allocated
 *                    before they were used and the size is sealed, so that reading what was there
 *                    once cannot end in SIGBUS. A memfd has no name: nothing is left behind. What
 *                    was not opened by then is lost, as what a socket had not yet sent; that its
 *                    link has ended, or why, is the next that its receiver hears. Who leaves as
 *                    planned waits for a moment until nothing is on its way (transport's flush)
 *     the receiver   its link ends, and the owner gives back what it had taken
 *
 * What comes is not believed: the file must be sealed against shrinking and the frame's bytes lie
 * within the size that it really has. The peer can change them while they are read, so they are
 * elements only, of which every value is a good one: all lengths and names are in the payload, of
 * which the receiver has a copy of its own (rpc/wire.h). */
#ifndef RPC_REGION_H
#define RPC_REGION_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "rpc/frame.h"

enum { MOST_REGIONS = 16 };

struct region {
    struct region_head *head; /* mapped, with the room behind it */
    uint8_t *data;            /* [bytes] the room */
    size_t bytes;
    uint64_t id;
    int refs; /* of an own one: 1: held. Of a peer's: who has it, its list and frames. Atomic */
    int fd;   /* -1: it is a peer's */
    const void *reader; /* the link to whom it was given last; NULL: nobody */
    int64_t used;       /* when it was found last */
    struct region *next;
};

/* Elements are read, or will not be sent. Any thread; NULL is fine. */
void region_release(struct region *r);

/* ---- the own ones, for all links ---- */
struct regions {
    pthread_mutex_t lock; /* holds no other */
    struct region *first, *door;
    int count;
    uint64_t token, ids;
    int64_t trimmed;
};
/* Without a door (no memory, or a limit of file sizes) this worker shares nothing. */
void regions_open(struct regions *all);
void regions_close(struct regions *all);
void regions_introduce(const struct regions *all, struct hello *hello);
/* With room for `bytes` bytes; NULL: none is free. */
struct region *region_take(struct regions *all, uint64_t bytes);
/* It is the reader's now; `header` is told where it is. */
void region_give(struct regions *all, struct region *r, const void *reader,
                 struct frame_header *header);
/* Its reader cannot open it. */
void regions_back(struct regions *all, uint64_t id, const void *reader);
int regions_under_way(struct regions *all); /* 1: one was sent, and nobody has opened it yet */
void regions_of_gone(struct regions *all, const void *reader);
void regions_trim(struct regions *all, int64_t now);

/* ---- those of a peer, for one link ---- */
struct guests {
    struct region *first;
    int pid;
    uint64_t token;
    int64_t trimmed;
};
/* 1: what this peer shares can be opened here. */
int guests_open(struct guests *all, const struct hello *peer);
void guests_close(struct guests *all);
/* The region of which this header tells, with a reference; NULL: descriptors or memory of this
 * worker do not suffice. -1: it is not as told, or its owner has ended. */
int guests_find(struct region **out, struct guests *all, const struct frame_header *header,
                int64_t now);
void guests_trim(struct guests *all, int64_t now);

#endif
