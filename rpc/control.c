/* Handles messages from other workers. Nothing here waits or runs a user's function, so answers
 * arrive even when all threads of the pool are busy. The end of a worker's process is noticed at
 * once as the end of its stream; a BYE before it says that the worker left on purpose. */
#include <stdio.h>
#include <stdlib.h>

#include "rpc/autograd.h"

static void peer_ends(duet_rpc *rpc, struct peer *peer, enum peer_state state, const char *why) {
    if (peer->state != PEER_HERE) return;
    peer->state = state;
    const uint64_t both = (uint64_t)1 << peer->rank | (uint64_t)1 << rpc->rank;
    const int with_all = state == PEER_LEFT && (rpc->came & both) == both;
    if (!with_all && (rpc->lost < 0 || rpc->peers[rpc->lost].followed > peer->followed))
        rpc->lost = peer->rank;
    snprintf(peer->why, sizeof peer->why, "is gone: %s", why);
    futures_of_dead(rpc, peer->rank);
    /* at the stop all values end anyway, and the pool may be gone before the links */
    if (!rpc->stop) life_gone(&rpc->life, peer->rank);
    pthread_cond_broadcast(&rpc->changed);
}

void life_emit(void *context, int to, const struct life_message *m) {
    tell_peer(
        context, to,
        &(struct message){
            .kind = MESSAGE_LIFE, .code = m->kind, .rref = m->rref, .worker = (uint64_t)m->worker});
}

/* ---- received messages ---- */

/* Releases the entries reserved for it; under the lock. */
static void end_call(duet_rpc *rpc, struct message *m) {
    if (m->made) life_release(&rpc->life, m->made);
    if (m->holds) life_release(&rpc->life, m->holds);
    if (m->entered) context_leave(m->entered);
    message_drop(m);
    rpc->serving--;
    pthread_cond_broadcast(&rpc->changed);
}

static void serve_message(void *context) {
    struct message *m = context;
    duet_rpc *rpc = m->rpc;
    pthread_mutex_lock(&rpc->lock);
    int stop = rpc->stop; /* if 1, nobody waits for the answer any more */
    pthread_mutex_unlock(&rpc->lock);
    if (!stop) serve_call(rpc, m);
    pthread_mutex_lock(&rpc->lock);
    end_call(rpc, m);
    pthread_mutex_unlock(&rpc->lock);
}

/* The entry of what the call leaves. */
static int make_entry(duet_rpc *rpc, struct message *m) {
    if (owner_find(rpc, m->call))
        return fail(ERR_USAGE, "the reference that it makes exists already");
    if (!owner_new(rpc, m->call, m->text))
        return fail(ERR_MEMORY, "out of host memory for the value");
    m->made = m->call; /* held until the function has ended */
    if (m->from != rpc->rank) life_count(&rpc->life, m->made, m->from);
    return OK;
}

/* From now on references find what the call leaves. The object of a method stays until the method
 * has ended: its caller may give up or die meanwhile, and with it the last reference. */
static int set_aside(duet_rpc *rpc, struct message *m) {
    if (m->context) m->entered = context_enter(rpc, m->context, !m->leaves);
    if (m->context && m->leaves && !m->entered)
        return fail(ERR_MEMORY, "out of host memory for a context");
    if (m->self && owner_find(rpc, m->self)) {
        m->holds = m->self;
        life_hold(&rpc->life, m->holds);
    }
    if (m->leaves) CHECK(make_entry(rpc, m));
    /* The call would wait for its own result, or for a later call that waits for this one. */
    return m->self == m->holds ? OK : fail(ERR_USAGE, "the object of this reference is gone");
}

/* code: the result of message_read. Takes the message. */
static void take_call(duet_rpc *rpc, struct message *m, int code) {
    if (!code) code = set_aside(rpc, m);
    if (code) snprintf(m->why, sizeof m->why, "%s", error_message());
    m->wrong = code;
    rpc->serving++;
    if (pool_run(&rpc->pool, serve_message, m)) end_call(rpc, m);
}

static void take_message(duet_rpc *rpc, struct peer *peer, struct message *m) {
    switch (m->kind) {
    case MESSAGE_LIFE:
        life_deliver(&rpc->life, peer->rank,
                     &(struct life_message){(enum life_kind)m->code, (int)m->worker, m->rref});
        pthread_cond_broadcast(&rpc->changed);
        break;
    case MESSAGE_LEAVE:
        rpc->came |= (uint64_t)1 << peer->rank;
        pthread_cond_broadcast(&rpc->changed);
        break;
    case MESSAGE_BYE:
        peer->followed = m->code == ERR_PEER;
        peer_ends(rpc, peer, PEER_LEFT, "it has left");
        break;
    default: break;
    }
}

void take_frame(struct peer *peer, struct frame *f) {
    duet_rpc *rpc = peer->rpc;
    if (!f) {
        peer_ends(rpc, peer, PEER_GONE,
                  rpc->beyond ? "its process has ended, or its machine does not answer"
                              : "its process has ended");
        return;
    }
    struct message *m = malloc(sizeof *m);
    if (!m) {
        frame_free(f);
        return;
    }
    int code = message_read(m, f, rpc, peer->rank);
    if (rpc->stop) {
        message_drop(m);
    } else if (m->kind == MESSAGE_CALL) {
        take_call(rpc, m, code);
    } else if (m->kind == MESSAGE_ANSWER) {
        future_answer(rpc, m);
    } else {
        if (!code) take_message(rpc, peer, m);
        message_drop(m);
    }
}
