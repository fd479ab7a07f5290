/* The protocol of references: see lifetime.h. The list is short, so it is searched linearly. */
#include "rpc/lifetime.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

void life_close(struct life *l) {
    free(l->object);
    memset(l, 0, sizeof *l);
}

struct life_object *life_find(const struct life *l, uint64_t rref) {
    for (int i = 0; i < l->objects; i++)
        if (l->object[i].rref == rref) return &l->object[i];
    return NULL;
}

/* Frees the object if nobody holds it. */
static void check_end(struct life *l, struct life_object *o) {
    int used = o->held;
    for (int w = 0; w < MOST_WORKERS; w++)
        used |= o->count[w];
    if (used) return;
    const struct life_object end = *o;
    *o = l->object[--l->objects];
    l->free(l->context, end.rref, end.value);
}

static void emit(struct life *l, int to, enum life_kind kind, uint64_t rref, int worker) {
    l->emit(l->context, to, &(struct life_message){kind, worker, rref});
}

/* ---- at the owner ---- */

void life_hold(struct life *l, uint64_t rref) {
    struct life_object *o = life_find(l, rref);
    if (!o && list_grow("rpc", &l->object, l->objects, &l->room, sizeof *o)) return;
    if (!o) {
        o = &l->object[l->objects++];
        *o = (struct life_object){.rref = rref};
    }
    o->held++;
}

void life_release(struct life *l, uint64_t rref) {
    struct life_object *o = life_find(l, rref);
    if (!o) return;
    o->held -= o->held > 0;
    check_end(l, o);
}

void life_count(struct life *l, uint64_t rref, int worker) {
    struct life_object *o = life_find(l, rref);
    if (o && !(l->gone >> worker & 1)) o->count[worker]++;
}

/* ---- at the others ---- */

uint64_t life_ask(struct life *l, int owner, uint64_t rref, int worker) {
    uint64_t number = ++l->asked[owner];
    emit(l, owner, LIFE_HOLD, rref, worker);
    return number;
}

int life_confirmed(const struct life *l, int owner, uint64_t number) {
    return l->confirmed[owner] >= number;
}

void life_drop(struct life *l, int owner, uint64_t rref, int worker) {
    emit(l, owner, LIFE_DROP, rref, worker);
}

/* ---- messages ---- */

void life_deliver(struct life *l, int from, const struct life_message *m) {
    struct life_object *o = life_find(l, m->rref);
    switch (m->kind) {
    case LIFE_HOLD:
        life_count(l, m->rref, m->worker);
        emit(l, from, LIFE_HELD, m->rref, m->worker);
        break;
    case LIFE_HELD: l->confirmed[from] += l->confirmed[from] < l->asked[from]; break;
    case LIFE_DROP:
        if (!o || !o->count[m->worker]) break; /* it holds no reference */
        o->count[m->worker]--;
        check_end(l, o);
    }
}

void life_gone(struct life *l, int worker) {
    l->gone |= (uint64_t)1 << worker;
    for (int i = l->objects - 1; i >= 0; i--)
        if (l->object[i].count[worker]) {
            l->object[i].count[worker] = 0;
            check_end(l, &l->object[i]);
        }
}
