/* The protocol of references: see lifetime.h. Lists are short, so they are searched from end to
 * end; an entry that goes is replaced by the last one. Without host memory for an entry its object
 * stays until the worker ends. */
#include "rpc/lifetime.h"

#include <stdlib.h>
#include <string.h>

#define REMOVE(list, i) ((list).item[i] = (list).item[--(list).count])
#define FIND(list, i, condition)             \
    int i = 0;                               \
    while (i < (list).count && !(condition)) \
        i++;

static void *grow(void *items, int count, int *room, size_t bytes) {
    if (count < *room) return items;
    int more = *room ? 2 * *room : 8;
    void *grown = realloc(items, (size_t)more * bytes);
    if (grown) *room = more;
    return grown;
}
#define ADD(list, ...)                                                                     \
    do {                                                                                   \
        void *grown_ = grow((list).item, (list).count, &(list).room, sizeof *(list).item); \
        if (!grown_) return;                                                               \
        (list).item = grown_;                                                              \
        __typeof__(*(list).item) new_ = {__VA_ARGS__};                                     \
        (list).item[(list).count++] = new_;                                                \
    } while (0)

void life_close(struct life *l) {
    free(l->users.item);
    free(l->children.item);
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

static void end_object(struct life *l, uint64_t rref) {
    FIND(l->owned, at, l->owned.item[at].rref == rref);
    if (at == l->owned.count || l->owned.item[at].held || l->owned.item[at].forks) return;
    REMOVE(l->owned, at);
    l->free(l->context, rref);
}

void life_hold(struct life *l, uint64_t rref) {
    struct life_owned *o = owned_of(l, rref);
    if (o)
        o->held++;
    else
        ADD(l->owned, .rref = rref, .held = 1);
}

void life_release_object(struct life *l, uint64_t rref) {
    struct life_owned *o = owned_of(l, rref);
    if (o && o->held) o->held--;
    end_object(l, rref);
}

void life_know(struct life *l, uint64_t rref, uint64_t fork, int holder) {
    struct life_owned *o = owned_of(l, rref);
    FIND(l->forks, i, l->forks.item[i].fork == fork);
    if (!o || i < l->forks.count) return; /* the object is gone, or the fork is known */
    o->forks++;
    ADD(l->forks, .rref = rref, .fork = fork, .holder = holder);
}

/* holder -1: whoever it is. */
static void forget_fork(struct life *l, uint64_t fork, int holder) {
    FIND(l->forks, i, l->forks.item[i].fork == fork);
    if (i == l->forks.count || (holder >= 0 && l->forks.item[i].holder != holder)) return;
    uint64_t rref = l->forks.item[i].rref;
    REMOVE(l->forks, i);
    owned_of(l, rref)->forks--;
    end_object(l, rref);
}

/* ---- forks of this worker ---- */

static void end_user(struct life *l, uint64_t fork) {
    FIND(l->users, i, l->users.item[i].fork == fork);
    if (i == l->users.count) return;
    const struct life_user u = l->users.item[i];
    if (u.held || u.children || !u.confirmed) return;
    REMOVE(l->users, i);
    emit(l, u.owner, LIFE_DELETE, u.rref, u.fork);
}

void life_create(struct life *l, uint64_t rref, uint64_t fork, int owner) {
    ADD(l->users, .rref = rref, .fork = fork, .owner = owner, .parent = -1, .held = 1);
}

int life_confirmed(const struct life *l, uint64_t fork) {
    const struct life_user *u = user_of(l, fork);
    return !u || u->confirmed;
}

void life_confirm(struct life *l, uint64_t fork) {
    struct life_user *u = user_of(l, fork);
    if (!u || u->confirmed) return;
    u->confirmed = 1;
    if (u->parent >= 0) emit(l, u->parent, LIFE_ACCEPT, u->rref, fork);
    end_user(l, fork);
}

void life_share(struct life *l, uint64_t rref, uint64_t fork, uint64_t child, int to) {
    if (!fork) {
        life_know(l, rref, child, to);
        return;
    }
    struct life_user *u = user_of(l, fork);
    if (!u) return;
    u->children++;
    ADD(l->children, .fork = child, .parent = fork, .to = to);
}

void life_receive(struct life *l, uint64_t rref, uint64_t fork, int owner, int from) {
    if (owner == l->self) {
        life_hold(l, rref);
        if (from != l->self) emit(l, from, LIFE_ACCEPT, rref, fork);
        return;
    }
    if (user_of(l, fork)) return; /* each comes once: this peer lies */
    int of_owner = from == owner;
    ADD(l->users, .rref = rref, .fork = fork, .owner = owner, .parent = of_owner ? -1 : from,
        .confirmed = of_owner, .held = 1);
    if (!of_owner) emit(l, owner, LIFE_FORK, rref, fork);
}

void life_release(struct life *l, uint64_t fork) {
    struct life_user *u = user_of(l, fork);
    if (u) u->held = 0;
    end_user(l, fork);
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
    uint64_t parent = l->children.item[i].parent;
    REMOVE(l->children, i);
    struct life_user *u = user_of(l, parent);
    if (u) u->children--;
    end_user(l, parent);
}

void life_take_back(struct life *l, uint64_t child) {
    accepted(l, child, -1);
    forget_fork(l, child, -1);
}

void life_deliver(struct life *l, int from, const struct life_message *m) {
    const struct life_user *u = user_of(l, m->fork);
    switch (m->kind) {
    case LIFE_FORK:
        life_know(l, m->rref, m->fork, from);
        emit(l, from, LIFE_FORK_ACK, m->rref, m->fork);
        break;
    case LIFE_FORK_ACK:
        if (u && u->owner == from) life_confirm(l, m->fork);
        break;
    case LIFE_ACCEPT: accepted(l, m->fork, from); break;
    case LIFE_DELETE: forget_fork(l, m->fork, from); break;
    default: break; /* no message of ours */
    }
}

void life_gone(struct life *l, int worker) {
    for (int i = l->users.count - 1; i >= 0; i--)
        if (l->users.item[i].owner == worker) REMOVE(l->users, i);
    for (int i = l->children.count - 1; i >= 0; i--)
        if (l->children.item[i].to == worker) accepted(l, l->children.item[i].fork, worker);
    for (int i = l->forks.count - 1; i >= 0; i--)
        if (l->forks.item[i].holder == worker) forget_fork(l, l->forks.item[i].fork, worker);
}
