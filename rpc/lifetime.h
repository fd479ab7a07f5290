/* How long an object of a reference lives: as long as anybody anywhere has a reference to it, and
 * no longer. This is the protocol alone, a state machine without threads, time or memory of others,
 * so that a test can walk through all orders of its messages (tests/rpc/test_lifetime.c). It is
 * that of PyTorch's design note on remote references.
 *
 * Words. The *owner* has the object. Every copy of a reference on another worker is a *fork*, with
 * an id of its own. Passing a reference on makes a new fork, the child of the one passed on. Ids
 * are (worker << 48 | counter), so nobody is asked for one.
 *
 *     G1  the owner is told when a fork ends                              DELETE
 *     G2  a fork does not end before the owner knows all its children     FORK, then ACCEPT
 *
 *     A passes its fork a to C          A: a has a pending child c, so a stays
 *     C gets it                         C -> owner: FORK c
 *     owner: c is known                 owner -> C: FORK_ACK c
 *     C: c is confirmed                 C -> A: ACCEPT c
 *     A: c is no longer pending         now a may end
 *     C releases c                      C -> owner: DELETE c
 *
 * The owner itself counts what it passes on at once, without a message. A fork that comes back to
 * the owner is accepted there at once. The fork that `remote` makes is known to the owner when the
 * call comes.
 *
 * Between two workers messages keep their order and are neither lost nor doubled, as those of one
 * socket; those of different pairs come in any order, and a call is taken at any time after it has
 * come. Only a fork that the owner has confirmed is passed on (life_confirmed), so the owner is
 * never asked for an object that it has yet to make. What a peer says of forks that are not its
 * own changes nothing. */
#ifndef RPC_LIFETIME_H
#define RPC_LIFETIME_H

#include <stdint.h>

enum life_kind { LIFE_FORK, LIFE_FORK_ACK, LIFE_ACCEPT, LIFE_DELETE, LIFE_KINDS };

struct life_message {
    uint32_t kind, zero;
    uint64_t rref, fork;
};

struct life_user { /* a fork of this worker */
    uint64_t rref, fork;
    int owner, parent;   /* workers; parent -1: none waits for ACCEPT */
    int confirmed, held; /* 1: the owner knows it; the program has it */
    int children;        /* passed on, and not accepted yet */
};
struct life_child { /* a fork that this worker has passed on */
    uint64_t fork, parent;
    int to;
};
struct life_fork { /* at the owner: a fork elsewhere */
    uint64_t rref, fork;
    int holder;
};
struct life_owned { /* at the owner: an object */
    uint64_t rref;
    int held, forks; /* how many here have it; forks that are known */
};

#define LIFE_LIST(type)  \
    struct {             \
        type *item;      \
        int count, room; \
    }

struct life {
    int self;
    LIFE_LIST(struct life_user) users;
    LIFE_LIST(struct life_child) children;
    LIFE_LIST(struct life_fork) forks;
    LIFE_LIST(struct life_owned) owned;
    void (*emit)(void *context, int to, const struct life_message *message);
    void (*free)(void *context, uint64_t rref); /* nobody has the object any more */
    void *context;
};

void life_close(struct life *l);

/* ---- at the owner ---- */
void life_hold(struct life *l, uint64_t rref); /* makes the entry where there is none */
void life_release_object(struct life *l, uint64_t rref);
/* A fork elsewhere that this worker knows of without FORK. */
void life_know(struct life *l, uint64_t rref, uint64_t fork, int holder);

/* ---- forks of this worker ---- */
/* The fork that a remote call of this worker makes; life_confirm when the call has come. */
void life_create(struct life *l, uint64_t rref, uint64_t fork, int owner);
void life_confirm(struct life *l, uint64_t fork);
int life_confirmed(const struct life *l, uint64_t fork);
/* Passes `fork` (0: this worker is the owner) on to `to` as `child`. */
void life_share(struct life *l, uint64_t rref, uint64_t fork, uint64_t child, int to);
/* `fork` has come from `from`: on the owner the object is held, as by life_hold. */
void life_receive(struct life *l, uint64_t rref, uint64_t fork, int owner, int from);
void life_take_back(struct life *l, uint64_t child); /* of life_share: it was not sent */
void life_release(struct life *l, uint64_t fork);    /* the program releases it */
void life_forget(struct life *l, uint64_t fork);     /* the call of life_create was not made */

/* ---- messages ---- */
void life_deliver(struct life *l, int from, const struct life_message *message);
void life_gone(struct life *l, int worker); /* the worker has died: what it had is over */

#endif
