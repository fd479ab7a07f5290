/* An object lives exactly as long as any worker has a reference to it. This file has only the
 * protocol, a state machine without threads or time, so that a test can explore all orders of its
 * messages (tests/rpc/test_lifetime.c).
 *
 * The *owner* has the object. It counts each worker's references to it, and frees it when all
 * counts are zero and the owner has none itself.
 *
 *     the owner passes one on to C         it counts C's reference at once
 *     A passes one on to the owner         it counts its own when the message arrives; A's end
 *                                          arrives later
 *     A passes one on to C                 A -> owner: HOLD for C
 *                                          owner -> A: HELD
 *                                          now A may send it, because C is counted
 *     C releases one                       C -> owner: DROP for C
 *     A gives up, and sends none to C      A -> owner: DROP for C, after its HOLD
 *     A makes an object by a remote call   the owner counts A's when the call arrives
 *
 * So a worker is counted before it has the reference, and no count reaches zero too early. A HOLD
 * follows the call that makes its object in the same stream, so a third worker never asks the owner
 * for an object that is not made yet.
 *
 * Messages between two workers keep their order and are neither lost nor duplicated, as on one
 * socket. Messages of different pairs arrive in any order. Only its holder ends a reference. */
#ifndef RPC_LIFETIME_H
#define RPC_LIFETIME_H

#include <stdint.h>

enum { MOST_WORKERS = 64 };
enum life_kind { LIFE_HOLD, LIFE_HELD, LIFE_DROP };

struct life_message {
    enum life_kind kind;
    int worker; /* whose reference it is */
    uint64_t rref;
};

struct life_object { /* an entry at the owner */
    uint64_t rref;
    void *value;             /* what references refer to; NULL: made later, or never */
    int held;                /* number of holders here */
    int count[MOST_WORKERS]; /* other workers' references */
};

struct life {
    int self;
    struct life_object *object; /* [objects] */
    int objects, room;
    uint64_t asked[MOST_WORKERS], confirmed[MOST_WORKERS]; /* HOLDs sent to each owner; HELDs */
    uint64_t gone;                                         /* dead workers, a bit each */
    void (*emit)(void *context, int to, const struct life_message *message);
    void (*free)(void *context, uint64_t rref, void *value); /* called when no holder is left */
    void *context;
};

void life_close(struct life *l);

/* ---- at the owner ---- */
struct life_object *life_find(const struct life *l, uint64_t rref); /* NULL: none */
void life_hold(struct life *l, uint64_t rref);                      /* makes a missing entry */
void life_release(struct life *l, uint64_t rref);
void life_count(struct life *l, uint64_t rref, int worker); /* counts one more for this worker */

/* ---- at the others ---- */
/* Asks the owner to count a reference of `worker`. Returns the number to wait for. */
uint64_t life_ask(struct life *l, int owner, uint64_t rref, int worker);
int life_confirmed(const struct life *l, int owner, uint64_t number);
/* Releases a reference of ours, or one that `worker` was counted for and is not sent. */
void life_drop(struct life *l, int owner, uint64_t rref, int worker);

/* ---- messages ---- */
void life_deliver(struct life *l, int from, const struct life_message *message);
void life_gone(struct life *l, int worker); /* the worker has died, so its references end */

#endif
