/* The protocol of references: see lifetime.h. Lists are short, so they are searched from end to
 * end; an entry that goes is replaced by the last one. */
#include "rpc/lifetime.h"

#include <stdlib.h>
#include <string.h>

#define REMOVE(list, i) ((list).item[i] = (list).item[--(list).count])
#define FIND(list, i, condition)             \
    int i = 0;                               \
    while (i < (list).count && !(condition)) \
        i++;

static void *grow(struct life *l, void *items, int count, int *room, size_t bytes) {
    if (count < *room) return items;
    int more = *room ? 2 * *room : 8;
    void *grown = realloc(items, (size_t)more * bytes);
    if (!grown) {
        l->failed = 1;
        return NULL;
    }
    *room = more;
    return grown;
}
#define ADD(l, list, ...)                                                                     \
    do {                                                                                      \
        void *grown_ = grow(l, (list).item, (list).count, &(list).room, sizeof *(list).item); \
        if (!grown_) return;                                                                  \
        (list).item = grown_;                                                                 \
        memset(&(list).item[(list).count], 0, sizeof *(list).item);                           \
        __typeof__(*(list).item) new_ = {__VA_ARGS__};                                        \
        (list).item[(list).count++] = new_;                                                   \
    } while (0)

void life_close(struct life *l) {
    free(l->users.item);
    free(l->children.item);
    free(l->accepts.item);
    free(l->forks.item);
    free(l->owned.item);
    memset(l, 0, sizeof *l);
}

static void emit(struct life *l, int to, enum life_kind kind, uint64_t rref, uint64_t fork) {
    struct life_message m = {.kind = kind, .rref = rref, .fork = fork};
    l->emit(l->context, to, &m);
}

static struct life_user *user_of(const struct life *l, uint64_t fork) {
    FIND(l->users, i, l->users.item[i].fork == fork);
    return i < l->users.count ? &l->users.item[i] : NULL;
}

static struct life_owned *owned_of(const struct life *l, uint64_t rref) {
    FIND(l->owned, i, l->owned.item[i].rref == rref);
    return i < l->owned.count ? &l->owned.item[i] : NULL;
}

/* ---- at the owner ---- */

/* Ends the object if nobody has it: its tombstones go too, for an object that is not there is not
 * made by a FORK. */
static void end_object(struct life *l, uint64_t rref) {
    FIND(l->owned, at, l->owned.item[at].rref == rref);
    if (at == l->owned.count || l->owned.item[at].held || l->owned.item[at].forks) return;
    REMOVE(l->owned, at);
    for (int i = l->forks.count - 1; i >= 0; i--)
        if (l->forks.item[i].rref == rref) {
            l->tombstones -= l->forks.item[i].deleted;
            REMOVE(l->forks, i);
        }
    l->free(l->context, rref);
}

void life_hold(struct life *l, uint64_t rref) {
    struct life_owned *o = owned_of(l, rref);
    if (o)
        o->held++;
    else
        ADD(l, l->owned, .rref = rref, .held = 1);
}

void life_release_object(struct life *l, uint64_t rref) {
    struct life_owned *o = owned_of(l, rref);
    if (o && o->held) o->held--;
    end_object(l, rref);
}

void life_know(struct life *l, uint64_t rref, uint64_t fork, int holder) {
    struct life_owned *o = owned_of(l, rref);
    FIND(l->forks, i, l->forks.item[i].fork == fork);
    if (!o || i < l->forks.count) return; /* known, or a tombstone */
    o->forks++;
    ADD(l, l->forks, .rref = rref, .fork = fork, .holder = holder);
}

static void drop_oldest_tombstone(struct life *l) {
    FIND(l->forks, i, l->forks.item[i].deleted);
    memmove(&l->forks.item[i], &l->forks.item[i + 1],
            (size_t)(--l->forks.count - i) * sizeof *l->forks.item);
    l->tombstones--;
}

/* holder -1: whoever it is. */
static void forget_fork(struct life *l, uint64_t fork, int holder) {
    FIND(l->forks, i, l->forks.item[i].fork == fork);
    if (i == l->forks.count || l->forks.item[i].deleted) return;
    if (holder >= 0 && l->forks.item[i].holder != holder) return;
    uint64_t rref = l->forks.item[i].rref;
    l->forks.item[i].deleted = 1;
    owned_of(l, rref)->forks--;
    if (++l->tombstones > LIFE_TOMBSTONES) drop_oldest_tombstone(l);
    end_object(l, rref);
}

/* ---- forks of this worker ---- */

static void end_user(struct life *l, struct life_user *u) {
    if (u->held || u->children || u->state != LIFE_LIVE) return;
    u->state = LIFE_ENDING;
    emit(l, u->owner, LIFE_DELETE, u->rref, u->fork);
}

void life_create(struct life *l, uint64_t rref, uint64_t fork, int owner) {
    ADD(l, l->users, .rref = rref, .fork = fork, .owner = owner, .parent = -1, .held = 1,
        .by_call = 1);
}

int life_confirmed(const struct life *l, uint64_t fork) {
    const struct life_user *u = user_of(l, fork);
    return !u || u->state != LIFE_ASKED;
}

static void accept_from(struct life *l, uint64_t rref, uint64_t fork, int to) {
    ADD(l, l->accepts, .rref = rref, .fork = fork, .to = to);
    emit(l, to, LIFE_ACCEPT, rref, fork);
}

void life_confirm(struct life *l, uint64_t fork) {
    struct life_user *u = user_of(l, fork);
    if (!u || u->state != LIFE_ASKED) return;
    u->state = LIFE_LIVE;
    if (u->parent >= 0) accept_from(l, u->rref, fork, u->parent);
    end_user(l, u);
}

void life_share(struct life *l, uint64_t rref, uint64_t fork, uint64_t child, int to) {
    if (!fork) {
        life_know(l, rref, child, to);
        return;
    }
    struct life_user *u = user_of(l, fork);
    if (!u) return;
    u->children++;
    ADD(l, l->children, .fork = child, .parent = fork, .to = to);
}

void life_receive(struct life *l, uint64_t rref, uint64_t fork, int owner, int from) {
    if (owner == l->self) {
        life_hold(l, rref);
        if (from != l->self) accept_from(l, rref, fork, from);
        return;
    }
    if (user_of(l, fork)) return; /* it comes once: this one was drawn twice */
    int of_owner = from == owner;
    ADD(l, l->users, .rref = rref, .fork = fork, .owner = owner, .parent = of_owner ? -1 : from,
        .state = of_owner ? LIFE_LIVE : LIFE_ASKED, .held = 1);
    if (!of_owner) emit(l, owner, LIFE_FORK, rref, fork);
}

void life_release(struct life *l, uint64_t fork) {
    struct life_user *u = user_of(l, fork);
    if (!u) return;
    u->held = 0;
    end_user(l, u);
}

void life_forget(struct life *l, uint64_t fork) {
    FIND(l->users, i, l->users.item[i].fork == fork);
    if (i < l->users.count) REMOVE(l->users, i);
}

/* ---- messages ---- */

/* by -1: whoever has it. */
static void accepted(struct life *l, uint64_t fork, int by) {
    FIND(l->children, i,
         l->children.item[i].fork == fork && (by < 0 || l->children.item[i].to == by));
    if (i == l->children.count) return;
    struct life_user *parent = user_of(l, l->children.item[i].parent);
    REMOVE(l->children, i);
    if (!parent) return;
    parent->children--;
    end_user(l, parent);
}

void life_take_back(struct life *l, uint64_t child) {
    accepted(l, child, -1);
    forget_fork(l, child, -1);
}

void life_deliver(struct life *l, int from, const struct life_message *m) {
    switch (m->kind) {
    case LIFE_FORK:
        life_know(l, m->rref, m->fork, from);
        emit(l, from, LIFE_FORK_ACK, m->rref, m->fork);
        break;
    case LIFE_FORK_ACK: {
        const struct life_user *u = user_of(l, m->fork);
        if (u && u->owner == from) life_confirm(l, m->fork);
        break;
    }
    case LIFE_ACCEPT:
        accepted(l, m->fork, from);
        emit(l, from, LIFE_ACCEPT_ACK, m->rref, m->fork);
        break;
    case LIFE_ACCEPT_ACK: {
        FIND(l->accepts, i, l->accepts.item[i].fork == m->fork && l->accepts.item[i].to == from);
        if (i < l->accepts.count) REMOVE(l->accepts, i);
        break;
    }
    case LIFE_DELETE:
        forget_fork(l, m->fork, from);
        emit(l, from, LIFE_DELETE_ACK, m->rref, m->fork);
        break;
    case LIFE_DELETE_ACK: {
        FIND(l->users, i, l->users.item[i].fork == m->fork && l->users.item[i].owner == from);
        if (i < l->users.count && l->users.item[i].state == LIFE_ENDING) REMOVE(l->users, i);
        break;
    }
    default: break; /* no message of ours */
    }
}

void life_resend(struct life *l) {
    for (int i = 0; i < l->users.count; i++) {
        const struct life_user *u = &l->users.item[i];
        if (u->state == LIFE_ENDING) emit(l, u->owner, LIFE_DELETE, u->rref, u->fork);
        if (u->state == LIFE_ASKED && !u->by_call) emit(l, u->owner, LIFE_FORK, u->rref, u->fork);
    }
    for (int i = 0; i < l->accepts.count; i++) {
        const struct life_accept *a = &l->accepts.item[i];
        emit(l, a->to, LIFE_ACCEPT, a->rref, a->fork);
    }
}

int life_waits(const struct life *l) {
    int waits = l->accepts.count || l->children.count;
    for (int i = 0; i < l->users.count; i++)
        waits |= l->users.item[i].state != LIFE_LIVE;
    return waits;
}

void life_gone(struct life *l, int worker) {
    for (int i = l->users.count - 1; i >= 0; i--)
        if (l->users.item[i].owner == worker) REMOVE(l->users, i);
    for (int i = l->accepts.count - 1; i >= 0; i--)
        if (l->accepts.item[i].to == worker) REMOVE(l->accepts, i);
    for (int i = l->children.count - 1; i >= 0; i--)
        if (l->children.item[i].to == worker) accepted(l, l->children.item[i].fork, worker);
    for (int again = 1; again;) { /* an object that ends takes its forks out of the list */
        again = 0;
        for (int i = 0; i < l->forks.count && !again; i++)
            if (l->forks.item[i].holder == worker && !l->forks.item[i].deleted) {
                forget_fork(l, l->forks.item[i].fork, worker);
                again = 1;
            }
    }
}
