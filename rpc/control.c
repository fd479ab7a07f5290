/* What a worker does beside calls: it takes frames, and it looks after time. Nothing here waits or
 * runs a function of the user, so answers and deadlines come even when all threads of the pool are
 * busy.
 *
 * Every second the control thread says "I am here" to the others, and asks again for what the
 * protocol of references waits for. A worker from which nothing has come for `silence_s` counts as
 * gone: it is stopped, or its machine is. It is told so, in case it goes on, and nothing that comes
 * from it later is served. One whose process ends is known at once, by the end of
 * its stream; a BYE before that says it was meant. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/autograd.h"

static const int64_t TICK_NS = 1000000000;

void peer_ends(duet_rpc *rpc, struct peer *peer, enum peer_state state, const char *why) {
    if (peer->state != PEER_HERE) return;
    peer->state = state;
    snprintf(peer->why, sizeof peer->why, "is gone: %s", why);
    futures_of_dead(rpc, peer->rank);
    if (!rpc->stop) { /* all of it ends then, and the pool may be gone before the links */
        life_gone(&rpc->life, peer->rank);
        contexts_of_dead(rpc, peer->rank);
    }
    pthread_cond_broadcast(&rpc->changed);
}

/* ---- frames ---- */

static void take_life(duet_rpc *rpc, int from, const struct frame *f) {
    struct life_message m;
    if (f->header.bytes != sizeof m) return;
    memcpy(&m, f->payload, sizeof m);
    life_deliver(&rpc->life, from, &m);
    pthread_cond_broadcast(&rpc->changed);
}

static void take_places(duet_rpc *rpc, int from, const struct frame *f) {
    size_t bytes = (size_t)rpc->world * sizeof *rpc->places;
    if (from || rpc->places || f->header.bytes != bytes || !(rpc->places = malloc(bytes))) return;
    memcpy(rpc->places, f->payload, bytes);
    for (int r = 0; r < rpc->world; r++)
        rpc->places[r][PLACE_BYTES - 1] = 0;
    pthread_cond_broadcast(&rpc->changed);
}

static void serve_frame(void *context);

struct served {
    duet_rpc *rpc;
    struct frame *frame;
};

static void serve_frame(void *context) {
    struct served s = *(struct served *)context;
    free(context);
    pthread_mutex_lock(&s.rpc->lock);
    int stop = s.rpc->stop; /* nobody waits for the answer any more */
    if (stop && s.frame->context) context_leave(s.frame->context);
    pthread_mutex_unlock(&s.rpc->lock);
    if (stop)
        frame_free(s.frame);
    else
        serve_call(s.rpc, s.frame);
    pthread_mutex_lock(&s.rpc->lock);
    s.rpc->serving--;
    pthread_cond_broadcast(&s.rpc->ended);
    pthread_mutex_unlock(&s.rpc->lock);
}

/* What `remote` makes is there for references from this moment on, and the context of a call for
 * its end, in the order of the stream. The object of a method stays until the method has ended: its
 * caller may give up or die meanwhile, and with it the last reference. */
static void take_call(duet_rpc *rpc, struct frame *f) {
    struct call_head head;
    struct wire_in in = wire_in_of(f);
    const char *name;
    int good = !wire_get(&in, &head, sizeof head) && !wire_get_text(&in, &name);
    if (good && head.context)
        f->context = context_enter(rpc, head.context, f->from, head.pass != 0);
    if (good && head.self && owned_find(rpc, head.self)) {
        f->self = head.self;
        life_hold(&rpc->life, f->self);
    }
    if (good && f->header.flags & CALL_REMOTE) {
        owned_new(rpc, head.rref, name);
        life_hold(&rpc->life, head.rref); /* until the function has ended */
        if (f->from != rpc->rank) {
            life_know(&rpc->life, head.rref, head.fork, f->from);
            const struct life_message ack = {LIFE_FORK_ACK, 0, head.rref, head.fork};
            life_emit(rpc, f->from, &ack);
        }
    }
    struct served *s = malloc(sizeof *s);
    if (s) {
        *s = (struct served){rpc, f};
        rpc->serving++;
        if (!pool_run(&rpc->pool, serve_frame, s)) return;
        rpc->serving--;
    }
    if (f->context) context_leave(f->context);
    if (f->self) life_release_object(&rpc->life, f->self);
    frame_free(f);
    free(s);
}

void on_frame(void *context, void *user, struct frame *f) {
    duet_rpc *rpc = context;
    struct peer *peer = user;
    __atomic_store_n(&peer->heard, f->came, __ATOMIC_RELAXED);
    f->from = peer->rank;
    pthread_mutex_lock(&rpc->lock);
    if (rpc->stop || peer->state == PEER_GONE) f->header.kind = FRAME_PING;
    switch (f->header.kind) {
    case FRAME_CALL:
        take_call(rpc, f);
        f = NULL;
        break;
    case FRAME_ANSWER:
        future_answer(rpc, f);
        f = NULL;
        break;
    case FRAME_LIFE: take_life(rpc, peer->rank, f); break;
    case FRAME_PLACES: take_places(rpc, peer->rank, f); break;
    case FRAME_CONTEXT_END: context_end(rpc, f->header.call); break;
    case FRAME_GIVEN_UP:
        peer_ends(
            rpc, peer, PEER_GONE,
            "it has given this worker up, which had said nothing for too long: was it stopped?");
        break;
    case FRAME_BYE: peer_ends(rpc, peer, PEER_LEFT, "it has left"); break;
    default: break; /* a ping: it was heard */
    }
    pthread_mutex_unlock(&rpc->lock);
    frame_free(f);
}

/* ---- time ---- */

static void send_empty(duet_rpc *rpc, const struct peer *p, enum frame_kind kind) {
    struct frame *f = frame_new(kind, 0);
    if (f) rpc->transport->send(p->link, f);
}

/* late: by how much this comes too late. After half of silence_s it is this worker that was
 * stopped, and of what others have said meanwhile nothing was heard. */
static void look_after_peers(duet_rpc *rpc, int64_t now, int64_t late) {
    char why[128];
    for (int r = 0; r < rpc->world; r++) {
        struct peer *p = &rpc->peers[r];
        if (r == rpc->rank || p->state != PEER_HERE) continue;
        send_empty(rpc, p, FRAME_PING);
        if (late > rpc->silence_ns / 2) __atomic_store_n(&p->heard, now, __ATOMIC_RELAXED);
        int64_t silent = now - __atomic_load_n(&p->heard, __ATOMIC_RELAXED);
        if (silent < rpc->silence_ns) continue;
        snprintf(why, sizeof why, "it has said nothing for %.0f s: is it stopped?",
                 (double)silent * 1e-9);
        peer_ends(rpc, p, PEER_GONE, why);
        send_empty(rpc, p, FRAME_GIVEN_UP);
    }
}

void *control_thread(void *argument) {
    duet_rpc *rpc = argument;
    int64_t tick = now_ns() + TICK_NS;
    pthread_mutex_lock(&rpc->lock);
    while (!rpc->stop) {
        int64_t now = now_ns(), next = futures_expire(rpc, now);
        if (now >= tick) {
            look_after_peers(rpc, now, now - tick);
            if (life_waits(&rpc->life)) life_resend(&rpc->life);
            tick = now + TICK_NS;
        }
        rpc->control_at = next && next < tick ? next : tick;
        timed_wait(&rpc->control_wakes, &rpc->lock, rpc->control_at);
    }
    pthread_mutex_unlock(&rpc->lock);
    return NULL;
}
