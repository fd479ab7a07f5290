/* The inside of links, for link.c and links.c. */
#ifndef RPC_LINK_H
#define RPC_LINK_H

#include <pthread.h>

#include "rpc/links.h"
#include "rpc/proof.h"

enum { IN_BYTES = 64 << 10, READS = 16 };

struct link {
    struct links *all;
    int fd; /* -1: it has ended; written under the lock of all */
    enum proof_role role;
    void *user;       /* NULL: no good hello yet */
    int64_t deadline; /* of the whole opening */
    int opened;       /* 1: the peer's opening has come, with this nonce */
    uint8_t nonce[NONCE_BYTES], peer_nonce[NONCE_BYTES];
    uint8_t in[IN_BYTES];
    size_t start, end;          /* what has come and was not taken: in[start .. end) */
    struct frame *incoming;     /* its payload is being read straight into it */
    uint64_t got;               /* bytes of that payload */
    struct frame *first, *last; /* what is to be sent; under the lock of all */
    size_t written;             /* bytes of `first` that have left */
    struct link *next;
};

struct links {
    struct link_events events;
    struct hello own;
    int beyond;
    const char *secret;
    pthread_t thread;
    int wake;             /* an eventfd */
    int64_t accept_after; /* no descriptor was free for the last one that came */
    pthread_mutex_t lock; /* of the list, the queues, and what follows */
    pthread_cond_t sent;
    struct link *first; /* the latest first */
    int listener, listened, stop;
};

int link_say(struct link *l, const void *data, size_t bytes); /* 0: the socket did not take it */
void links_wake(struct links *all);
/* On the thread of the links: takes in what has come, and may end the link. */
void link_take_in(struct link *l);
/* Under the lock: what the socket takes, but not for long. An error of it is seen by the reader. */
void link_write_some(struct link *l);
void link_drop_queue(struct link *l); /* under the lock */
/* On the thread of the links. A stranger's link goes whole; of a peer's the memory may stay
 * (on_gone). The text of the thread's error, or "", is why. */
void link_end(struct link *l);

#endif
