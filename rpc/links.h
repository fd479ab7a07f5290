/* Links: how messages get from worker to worker. A link is one socket to one peer: an abstract unix
 * socket, which only processes of this machine get to, or TCP. A thread of each link reads, and
 * another writes what the socket did not take at once; so nobody who sends waits for a peer.
 *
 *     each side    opening: a random number   ->  hello and proof (proof.h)  ->  messages
 *
 * Until a peer has proved itself its link is a stranger's, and costs little: each has one deadline
 * for its whole opening, there are at most MOST_STRANGERS, and the oldest makes room for the next.
 * A worker listens until as many peers have proved themselves as there are. Who has dialed speaks
 * first: the listener's hello says that it is in.
 *
 * Events come on the threads of the links:
 *     on_link    a peer has said a good hello; returns what `user` of its later events is, or NULL,
 *                and then the link is closed
 *     on_refused a connection has ended without a good hello, for the thread's error. proved 1: a
 *                peer that knows the secret is wrong here
 *     on_frame   a message has come; the frame belongs to the receiver. Those of one link in order
 *     on_gone    the stream has ended; the last event of a link */
#ifndef RPC_LINKS_H
#define RPC_LINKS_H

#include "rpc/proof.h"

enum { MOST_STRANGERS = 64, OPENING_MS = 5000 };

struct frame;
struct link;
struct links;

struct link_events {
    void *(*on_link)(void *context, struct link *link, const struct hello *hello);
    void (*on_refused)(void *context, int proved);
    void (*on_frame)(void *context, void *user, struct frame *frame);
    void (*on_gone)(void *context, void *user);
    void *context;
};

/* `own` is said to each peer. beyond 1: TCP. The secret stays until links_close. */
int links_open(struct links **out, const struct link_events *events, const struct hello *own,
               int beyond, const char *secret);
/* Accepts peers at this address: the name of an abstract socket, or "HOST:PORT", "[HOST]:PORT".
 * Port 0: any; what is then said to peers as the place has its number. */
int links_listen(struct links *all, const char *address);
/* Connects, and waits for the peer's hello. ERR_PEER: nobody listens there yet, or it was no good
 * hello, as on_refused has heard. listen_too: over TCP, listens before it at the own address that
 * leads there. */
int links_dial(struct links *all, const char *address, int listen_too);
/* Takes the frame, also of a link that is gone. Any thread; returns at once. */
void link_send(struct link *link, struct frame *frame);
/* Waits up to timeout_ms until the sockets have taken what was sent. */
void links_flush(struct links *all, int timeout_ms);
/* Ends all links, without on_gone. No event comes once it has returned. NULL is fine. */
void links_close(struct links *all);

/* ---- sockets.c: the sockets themselves, which are closed on exec ---- */

int socket_listen(int *fd, int beyond, const char *address); /* it does not block */
/* Within timeout_ms. ERR_PEER: nobody listens there. */
int socket_dial(int *fd, int beyond, const char *address, int timeout_ms);
/* The next that has come; -1, with errno: none, or no descriptor is free. */
int socket_accept(int listener);
/* Until all of it has come. deadline 0: none. ERR_PEER: the stream has ended, or it is late; the
 * text is that of an opening. */
int socket_read(int fd, void *out, size_t bytes, int64_t deadline);
/* "HOST:PORT" of its own end; port 0: that of the socket. */
int socket_place(int fd, int any_port, char *place, size_t bytes);

#endif
