/* What a worker does beside calls: it takes frames, and it looks after time. Nothing here waits or
 * runs a function of the user, so answers and deadlines come even when all threads of the pool are
 * busy.
 *
 * Every second the control thread says "I am here" to the others. A worker from which nothing has
 * come for `silence_s` counts as gone: it is stopped, or its machine is. It is told so, in case it
 * goes on, and nothing that comes from it later is served. One whose process ends is known at once,
 * by the end of its stream; a BYE before that says it was meant. */
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

/* ---- what has come ---- */

static void take_places(duet_rpc *rpc, const struct frame *f) {
    if (rpc->places || !(rpc->places = malloc(f->header.bytes))) return;
    memcpy(rpc->places, f->payload, f->header.bytes);
    pthread_cond_broadcast(&rpc->changed);
}

void release_call(duet_rpc *rpc, struct message *m) {
    if (m->makes) life_release_object(&rpc->life, m->makes);
    if (m->holds) life_release_object(&rpc->life, m->holds);
    if (m->context) context_leave(m->context);
    m->makes = m->holds = 0;
    m->context = NULL;
}

static void serve_message(void *context) {
    struct message *m = context;
    duet_rpc *rpc = m->rpc;
    pthread_mutex_lock(&rpc->lock);
    int stop = rpc->stop; /* nobody waits for the answer any more */
    pthread_mutex_unlock(&rpc->lock);
    if (!stop) serve_call(rpc, m);
    pthread_mutex_lock(&rpc->lock);
    release_call(rpc, m);
    rpc->serving--;
    pthread_cond_broadcast(&rpc->ended);
    pthread_mutex_unlock(&rpc->lock);
    message_free(m);
}

/* What `remote` makes is there for references from this moment on, and the context of a call for
 * its end, in the order of the stream. The object of a method stays until the method has ended: its
 * caller may give up or die meanwhile, and with it the last reference. */
static int set_aside(duet_rpc *rpc, struct message *m) {
    const struct call_head *h = &m->head;
    if (h->context) m->context = context_enter(rpc, h->context, m->from, h->pass != 0);
    if (h->self && owned_find(rpc, h->self)) {
        m->holds = h->self;
        life_hold(&rpc->life, m->holds);
    }
    if (!h->rref) return OK;
    if (owned_find(rpc, h->rref)) return fail(ERR_USAGE, "the reference that it makes is there");
    struct owned *o = owned_new(rpc, h->rref, m->function);
    if (!o) return fail(ERR_MEMORY, "no host memory for the value");
    if (m->frame->header.timeout) o->deadline = m->frame->came + (int64_t)m->frame->header.timeout;
    m->makes = h->rref;
    life_hold(&rpc->life, h->rref); /* until the function has ended */
    if (m->from == rpc->rank) return OK;
    life_know(&rpc->life, h->rref, h->fork, m->from);
    life_emit(rpc, m->from, &(struct life_message){LIFE_FORK_ACK, 0, h->rref, h->fork});
    return OK;
}

/* code: that of message_read. */
static void take_call(duet_rpc *rpc, struct message *m, int code) {
    if (!code) code = set_aside(rpc, m);
    if (code) snprintf(m->text, sizeof m->text, "%s", error_message());
    m->rpc = rpc;
    m->code = code;
    rpc->serving++;
    if (!pool_run(&rpc->pool, serve_message, m)) return;
    rpc->serving--;
    release_call(rpc, m);
    message_free(m);
}

/* Takes the message, under the lock. */
static void take_message(duet_rpc *rpc, struct peer *peer, struct message *m, int code) {
    if (m->kind == FRAME_CALL) {
        take_call(rpc, m, code);
        return;
    }
    if (m->kind == FRAME_ANSWER) {
        future_answer(rpc, m);
        return;
    }
    switch (code ? FRAME_PING : m->kind) {
    case FRAME_LIFE:
        life_deliver(&rpc->life, peer->rank, &m->life);
        pthread_cond_broadcast(&rpc->changed);
        break;
    case FRAME_PLACES: take_places(rpc, m->frame); break;
    case FRAME_CONTEXT_END: context_end(rpc, m->frame->header.call, peer->rank); break;
    case FRAME_GIVEN_UP:
        peer_ends(
            rpc, peer, PEER_GONE,
            "it has given this worker up, which had said nothing for too long: was it stopped?");
        break;
    case FRAME_BYE: peer_ends(rpc, peer, PEER_LEFT, "it has left"); break;
    default: break; /* a ping: it was heard */
    }
    message_free(m);
}

void on_frame(void *context, void *user, struct frame *f) {
    duet_rpc *rpc = context;
    struct peer *peer = user;
    struct message *m = malloc(sizeof *m);
    __atomic_store_n(&peer->heard, f->came, __ATOMIC_RELAXED);
    if (!m) {
        frame_free(f);
        return;
    }
    int code = message_read(m, f, peer->rank, rpc->rank, rpc->world);
    pthread_mutex_lock(&rpc->lock);
    if (peer->state == PEER_ABSENT) { /* its welcome */
        peer->state = PEER_HERE;
        pthread_cond_broadcast(&rpc->changed);
    }
    if (rpc->stop || peer->state == PEER_GONE)
        message_free(m);
    else
        take_message(rpc, peer, m, code);
    pthread_mutex_unlock(&rpc->lock);
}

/* ---- time ---- */

static void send_empty(const struct peer *p, enum frame_kind kind) {
    struct frame *f = frame_new(kind, 0);
    if (f) send_frame(p->rpc, p->rank, f);
}

/* late: by how much this comes too late. After half of silence_s it is this worker that was
 * stopped, and of what others have said meanwhile nothing was heard. */
static void look_after_peers(duet_rpc *rpc, int64_t now, int64_t late) {
    char why[128];
    for (int r = 0; r < rpc->world; r++) {
        struct peer *p = &rpc->peers[r];
        if (r == rpc->rank || p->state != PEER_HERE) continue;
        send_empty(p, FRAME_PING);
        if (late > rpc->silence_ns / 2) __atomic_store_n(&p->heard, now, __ATOMIC_RELAXED);
        int64_t silent = now - __atomic_load_n(&p->heard, __ATOMIC_RELAXED);
        if (silent < rpc->silence_ns) continue;
        snprintf(why, sizeof why, "it has said nothing for %.0f s: is it stopped?",
                 (double)silent * 1e-9);
        peer_ends(rpc, p, PEER_GONE, why);
        send_empty(p, FRAME_GIVEN_UP);
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
            tick = now + TICK_NS;
        }
        rpc->control_at = next && next < tick ? next : tick;
        timed_wait(&rpc->control_wakes, &rpc->lock, rpc->control_at);
    }
    pthread_mutex_unlock(&rpc->lock);
    return NULL;
}
