/* How frames get from worker to worker: a small table of functions, so that another library may
 * stand beside the one there is. NNG's byte streams carry them (rpc/transport_nng.c): over abstract
 * sockets, which only processes of this machine get to, or over TCP and TLS. Where NNG was not
 * found by the build there is none (rpc/transport_absent.c).
 *
 * A link is a connection to one peer. Events come on threads of the transport, which must not wait,
 * and on those that look:
 *     on_link    a peer has said a good hello; returns what `user` of its later events is, or NULL,
 *                and then the link is closed
 *     on_refused a connection has ended without a good hello: error_message() says why, or is "".
 *                dialed 1: `dial` has made it
 *     on_frame   a frame has come; it belongs to the receiver. Of one link one at a time, in order
 *     on_gone    the stream has ended; the last event of a link */
#ifndef RPC_TRANSPORT_H
#define RPC_TRANSPORT_H

#include "rpc/frame.h"

struct link;
struct carrier;

struct transport_events {
    void *(*on_link)(void *context, struct link *link, const struct hello *hello);
    void (*on_refused)(void *context, int dialed);
    void (*on_frame)(void *context, void *user, struct frame *frame);
    void (*on_gone)(void *context, void *user);
    void *context;
};

struct transport_options {
    const char *scheme;          /* "abstract", "tcp", "tls+tcp" */
    const char *secret;          /* of the job; stays until close */
    const char *tls_file;        /* tls+tcp: duet_rpc_options */
    struct payload_spare *spare; /* for what comes */
};

struct transport {
    const char *name;
    /* A short word that is the same for all who know the secret, and does not tell it. */
    void (*name_of)(char *out, size_t bytes, const char *secret);
    /* `own` is said to each peer. */
    int (*open)(struct carrier **out, const struct transport_events *events,
                const struct hello *own, const struct transport_options *options);
    /* Accepts peers at this address, until as many have come as `own` says: "abstract://NAME",
     * "tcp://HOST:PORT". Port 0: any; what is then said to peers as the place has its number. */
    int (*listen)(struct carrier *carrier, const char *address);
    /* Connects; ERR_PEER: nobody listens there yet. The hellos are exchanged behind it.
     * listen_too: over TCP, before them, listens at the address that leads there. */
    int (*dial)(struct carrier *carrier, const char *address, int listen_too);
    /* Memory that both ends of the link see, with room for so many bytes: for `beside` of a frame
     * to the peer. NULL: there is none. Any thread. */
    struct region *(*room)(struct link *link, uint64_t bytes);
    /* Takes the frame, also of a link that is gone. Any thread; returns at once. */
    void (*send)(struct link *link, struct frame *frame);
    /* Takes in what has come, where no other thread is at it; 1: it did, and its events came on
     * this thread. For a thread that waits, which calls it again and again for a moment. */
    int (*look)(struct link *link);
    /* Waits up to timeout_ms until what was sent has left, and the memory beside it was found. */
    void (*flush)(struct carrier *carrier, int timeout_ms);
    /* Ends all links, without on_gone. No event comes once it has returned. NULL is fine. */
    void (*close)(struct carrier *carrier);
};

/* NULL: the build has none, and the error text says so. */
const struct transport *transport_of_build(void);

#endif
