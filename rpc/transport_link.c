/* One connection as a stream of NNG: its frames come and leave.
 *
 * Receiving: one read takes what is there, up to RING_BYTES, and often several frames. Where a
 * payload is longer than what has come, the rest is read straight into it.
 *
 *     |opening|hello|proof|   then   |header payload|header payload|...   -> on_frame, on_frame
 *
 * Sending: a link has a queue. One write takes up to four frames, header and payload each in place;
 * a write may end early, and then goes on where it stopped. The opening leaves at once, hello and
 * proof as soon as the peer's nonce is there, and frames behind them.
 *
 * Callbacks run on NNG's threads. They hold no lock while they call NNG, which may run the next
 * callback at once. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "rpc/transport_nng.h"

enum { SEND_FRAMES = 4, HELLO_MS = 10000 };

static void read_more(struct link *l);
static void write_more(struct link *l);

/* ---- a link ---- */

void link_free(struct link *l) {
    if (!l) return;
    if (l->stream) nng_stream_close(l->stream);
    if (l->receive) nng_aio_stop(l->receive);
    if (l->send) nng_aio_stop(l->send);
    if (l->receive) nng_aio_free(l->receive);
    if (l->send) nng_aio_free(l->send);
    if (l->stream) nng_stream_free(l->stream);
    for (struct frame *f = l->first, *next; f; f = next) {
        next = f->next;
        frame_free(f);
    }
    frame_free(l->incoming);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static void gone(struct link *l) {
    const struct transport_events *events = &l->carrier->events;
    pthread_mutex_lock(&l->lock);
    int before = l->gone;
    l->gone = 1;
    pthread_mutex_unlock(&l->lock);
    nng_stream_close(l->stream);
    if (!before && l->user) events->on_gone(events->context, l->user);
    if (!before && !l->user) events->on_refused(events->context, l->role == ROLE_DIALS);
    __atomic_store_n(&l->unread, 1, __ATOMIC_RELEASE); /* nothing of the reader comes any more */
}

/* A peer that is turned away still hears who does so: it may have the same name. */
static void turn_away(struct link *l) {
    pthread_mutex_lock(&l->lock);
    int later = l->refused = l->busy && l->opened;
    pthread_mutex_unlock(&l->lock);
    if (!later) gone(l);
}

/* ---- receiving ---- */

static int take(struct link *l, void *out, size_t bytes) {
    if (l->end - l->start < bytes) return 0;
    memcpy(out, l->ring + l->start, bytes);
    l->start += bytes;
    return 1;
}

/* Now that the peer's nonce is there, hello and proof may leave. */
static void say_hello(struct link *l) {
    const struct carrier *c = l->carrier;
    pthread_mutex_lock(&l->lock);
    l->first_words.hello = c->own;
    proof_make(l->first_words.proof, c->options.secret, l->role, l->first_words.opening.nonce,
               l->peer_nonce, &c->own);
    l->words_ready = sizeof l->first_words;
    int start = !l->busy;
    l->busy = 1;
    pthread_mutex_unlock(&l->lock);
    if (start) write_more(l);
}

/* The peer's first words: 1 once they are there and good, 0 not yet, -1 it is turned away. */
static int take_first_words(struct link *l) {
    struct carrier *c = l->carrier;
    struct opening opening;
    struct {
        struct hello hello;
        uint8_t proof[PROOF_BYTES];
    } said;
    if (l->user) return 1;
    if (!l->opened) {
        if (!take(l, &opening, sizeof opening)) return 0;
        if (opening_check(&opening)) return -1;
        memcpy(l->peer_nonce, opening.nonce, sizeof l->peer_nonce);
        l->opened = 1;
        say_hello(l);
    }
    if (!take(l, &said, sizeof said)) return 0;
    if (proof_check(said.proof, c->options.secret,
                    l->role == ROLE_DIALS ? ROLE_LISTENS : ROLE_DIALS, l->peer_nonce,
                    l->first_words.opening.nonce, &said.hello) ||
        hello_check(&said.hello, &c->own))
        return -1;
    l->user = c->events.on_link(c->events.context, l, &said.hello);
    if (!l->user) return -1;
    carrier_has_peer(c);
    return 1;
}

static void deliver(struct link *l, struct frame *f) {
    f->came = now_ns();
    l->carrier->events.on_frame(l->carrier->events.context, l->user, f);
}

/* Takes all whole frames out of the ring. -1: what came is no frame. */
static int take_frames(struct link *l) {
    struct frame_header h;
    while (!l->incoming && l->end - l->start >= sizeof h) {
        memcpy(&h, l->ring + l->start, sizeof h);
        if (frame_check(&h)) return -1;
        struct frame *f = frame_new_of(l->carrier->options.spare, FRAME_CALL, h.bytes);
        if (!f) return -1;
        f->header = h;
        l->start += sizeof h;
        size_t here = l->end - l->start;
        if (here > h.bytes) here = h.bytes;
        if (here) memcpy(f->payload, l->ring + l->start, here);
        l->start += here;
        if (here == h.bytes) {
            deliver(l, f);
        } else {
            l->incoming = f;
            l->got = here;
        }
    }
    return 0;
}

static void on_read(void *argument) {
    struct link *l = argument;
    size_t count = nng_aio_count(l->receive);
    if (nng_aio_result(l->receive)) {
        fail(ERR_FAILED, "rpc: a connection has ended before its hello");
        gone(l);
        return;
    }
    if (l->incoming) {
        l->got += count;
        if (l->got == l->incoming->header.bytes) {
            struct frame *f = l->incoming;
            l->incoming = NULL;
            deliver(l, f);
        }
    } else {
        l->end += count;
    }
    int good = take_first_words(l);
    if (good < 0)
        turn_away(l);
    else if (good && take_frames(l))
        gone(l);
    else
        read_more(l);
}

static void read_more(struct link *l) {
    nng_iov part;
    if (l->incoming) {
        part.iov_buf = l->incoming->payload + l->got;
        part.iov_len = l->incoming->header.bytes - l->got;
    } else {
        memmove(l->ring, l->ring + l->start, l->end - l->start);
        l->end -= l->start;
        l->start = 0;
        part.iov_buf = l->ring + l->end;
        part.iov_len = RING_BYTES - l->end;
    }
    nng_aio_set_timeout(l->receive, l->user ? NNG_DURATION_INFINITE : HELLO_MS);
    nng_aio_set_iov(l->receive, 1, &part);
    nng_stream_recv(l->stream, l->receive);
}

/* ---- sending ---- */

/* Takes `count` bytes off the front of the first words and the queue. */
static struct frame *take_written(struct link *l, size_t count) {
    struct frame *done = NULL;
    size_t left = l->words_ready - l->words_sent, words = count < left ? count : left;
    l->words_sent += words;
    l->written += count - words;
    while (l->first && l->written >= sizeof l->first->header + l->first->header.bytes) {
        struct frame *f = l->first;
        l->written -= sizeof f->header + f->header.bytes;
        l->first = f->next;
        if (!l->first) l->last = NULL;
        f->next = done;
        done = f;
    }
    return done;
}

static void on_written(void *argument) {
    struct link *l = argument;
    int bad = nng_aio_result(l->send) != 0;
    pthread_mutex_lock(&l->lock);
    struct frame *done = bad ? NULL : take_written(l, nng_aio_count(l->send));
    int more = !bad && !l->gone && (l->first || l->words_sent < l->words_ready);
    l->busy = more;
    int refused = l->refused && !more;
    pthread_mutex_unlock(&l->lock);
    for (struct frame *next; done; done = next) {
        next = done->next;
        frame_free(done);
    }
    if (more) write_more(l); /* a broken stream is seen by the reader */
    if (refused) gone(l);
}

static int add_part(nng_iov *parts, int n, const void *data, size_t bytes, size_t *skip) {
    size_t skipped = *skip < bytes ? *skip : bytes;
    *skip -= skipped;
    if (skipped == bytes) return n;
    parts[n].iov_buf = (char *)data + skipped;
    parts[n].iov_len = bytes - skipped;
    return n + 1;
}

/* Whoever has set `busy` calls it, without the lock. */
static void write_more(struct link *l) {
    nng_iov parts[2 * SEND_FRAMES];
    int n = 0;
    pthread_mutex_lock(&l->lock);
    size_t skip = l->written;
    if (l->words_sent < l->words_ready) {
        parts[n].iov_buf = (char *)&l->first_words + l->words_sent;
        parts[n++].iov_len = l->words_ready - l->words_sent;
    }
    for (struct frame *f = l->first; f && n <= 2 * SEND_FRAMES - 2; f = f->next) {
        n = add_part(parts, n, &f->header, sizeof f->header, &skip);
        n = add_part(parts, n, f->payload, f->header.bytes, &skip);
    }
    pthread_mutex_unlock(&l->lock);
    nng_aio_set_iov(l->send, (unsigned)n, parts);
    nng_stream_send(l->stream, l->send);
}

void link_send(struct link *l, struct frame *f) {
    f->next = NULL;
    pthread_mutex_lock(&l->lock);
    if (l->gone) {
        pthread_mutex_unlock(&l->lock);
        frame_free(f);
        return;
    }
    if (l->last)
        l->last->next = f;
    else
        l->first = f;
    l->last = f;
    int start = !l->busy;
    l->busy = 1;
    pthread_mutex_unlock(&l->lock);
    if (start) write_more(l);
}

/* ---- the beginning ---- */

int link_new(struct carrier *c, nng_stream *stream, enum proof_role role) {
    struct link *l = calloc(1, sizeof *l);
    if (!l) {
        nng_stream_free(stream);
        return fail(ERR_MEMORY, "rpc: no host memory for a connection");
    }
    l->carrier = c;
    l->stream = stream;
    l->role = role;
    l->first_words.opening = (struct opening){.magic = HELLO_MAGIC, .version = FRAME_VERSION};
    l->words_ready = sizeof l->first_words.opening;
    l->busy = 1;
    pthread_mutex_init(&l->lock, NULL);
    int code = getentropy(l->first_words.opening.nonce, NONCE_BYTES) ||
               nng_aio_alloc(&l->receive, on_read, l) || nng_aio_alloc(&l->send, on_written, l);
    if (code || carrier_keep(c, l)) {
        link_free(l);
        return fail(ERR_FAILED, "rpc: no room for another connection");
    }
    nng_aio_set_timeout(l->send, NNG_DURATION_INFINITE);
    write_more(l);
    read_more(l);
    return OK;
}

int link_is_busy(struct link *l) {
    pthread_mutex_lock(&l->lock);
    int busy = l->busy && !l->gone;
    pthread_mutex_unlock(&l->lock);
    return busy;
}

int link_is_over(struct link *l) {
    pthread_mutex_lock(&l->lock);
    int over = l->gone && !l->busy;
    pthread_mutex_unlock(&l->lock);
    return over && __atomic_load_n(&l->unread, __ATOMIC_ACQUIRE);
}

void link_hush(struct link *l) {
    pthread_mutex_lock(&l->lock);
    l->gone = 1;
    pthread_mutex_unlock(&l->lock);
}
