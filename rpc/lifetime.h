/* How long an object of a reference lives: as long as any worker has a reference to it, and no
 * longer. This is the protocol only, a state machine without threads or time, so that a test can
 * walk through all orders of its messages (tests/rpc/test_lifetime.c).
 *
 * The *owner* has the object. It counts the references that each worker has to it, and frees it
 * once all counts are zero and it has none itself.
 *
 *     the owner passes one on to C         it counts C's at once
 *     A passes one on to the owner         it counts its own when the message comes: A's own end
 *                                          comes behind that
 *     A passes one on to C                 A -> owner: HOLD for C
 *                                          owner -> A: HELD
 *                                          now A may send it, since C is counted
 *     C releases one                       C -> owner: DROP
 *     A makes an object by a remote call   the owner counts A's when the call comes
 *
 * So a worker is counted before it has the reference, and no count reaches zero too early. A HOLD
 * follows the call that makes its object in the same stream, so a third worker never asks the owner
 * for an object that is not made yet.
 *
 * Between two workers messages keep their order and are neither lost nor doubled, as on one socket;
 * messages of different pairs arrive in any order. Only the worker that holds a reference ends
 * it. */
#ifndef RPC_LIFETIME_H
#define RPC_LIFETIME_H

#include <stdint.h>

enum { MOST_WORKERS = 64 };
enum life_kind { LIFE_HOLD, LIFE_HELD, LIFE_DROP };

struct life_message {
    enum life_kind kind;
    int worker; /* HOLD: for whom */
    uint64_t rref;
};

struct life_object { /* at the owner */
    uint64_t rref;
    void *value;             /* what the references lead to; NULL: it is made later, or was never */
    int held;                /* how many here have it */
    int count[MOST_WORKERS]; /* references of other workers */
};

struct life {
    int self;
    struct life_object *object; /* [objects] */
    int objects, room;
    uint64_t asked[MOST_WORKERS], confirmed[MOST_WORKERS]; /* HOLDs sent to each owner; HELDs */
    uint64_t gone;                                         /* workers that have died, a bit each */
    void (*emit)(void *context, int to, const struct life_message *message);
    void (*free)(void *context, uint64_t rref, void *value); /* nobody has it any more */
    void *context;
};

void life_close(struct life *l);

/* ---- at the owner ---- */
struct life_object *life_find(const struct life *l, uint64_t rref); /* NULL: there is none */
void life_hold(struct life *l, uint64_t rref); /* makes the entry where there is none */
void life_release(struct life *l, uint64_t rref);
void life_count(struct life *l, uint64_t rref, int worker); /* one more of this worker's */

/* ---- at the others ---- */
/* Asks the owner to count one of worker's. Returns the number to wait for. */
uint64_t life_ask(struct life *l, int owner, uint64_t rref, int worker);
int life_confirmed(const struct life *l, int owner, uint64_t number);
void life_drop(struct life *l, int owner, uint64_t rref); /* one of this worker's */

/* ---- messages ---- */
void life_deliver(struct life *l, int from, const struct life_message *message);
void life_gone(struct life *l, int worker); /* the worker has died: its references end */

#endif
