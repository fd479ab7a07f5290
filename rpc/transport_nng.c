/* Frames over NNG's byte streams.
 *
 * Receiving: one read takes what is there, up to RING_BYTES, and often several frames. Where a
 * payload is longer than what has come, the rest is read straight into it.
 *
 *     |hello|   then   |header payload|header payload|header pay...      -> on_frame, on_frame
 *
 * Sending: a link has a queue. One write takes up to four frames, header and payload each in place;
 * a write may end early, and then goes on where it stopped.
 *
 * Callbacks run on NNG's threads. They hold no lock while they call NNG, which may run the next
 * callback at once. */
#include <nng/nng.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "rpc/transport.h"

enum { RING_BYTES = 64 << 10, SEND_FRAMES = 4, MOST_LINKS = 4 * MOST_WORKERS };

struct link {
    struct carrier *carrier;
    nng_stream *stream;
    nng_aio *receive, *send;
    void *user; /* NULL: no good hello yet */
    /* receiving: used by its callback alone */
    uint8_t ring[RING_BYTES];
    size_t start, end;      /* what has come and was not taken: ring[start .. end) */
    struct frame *incoming; /* its payload is being read straight into it */
    uint64_t got;           /* bytes of that payload */
    /* sending */
    pthread_mutex_t lock;
    struct frame *first, *last; /* the queue; the first ones are being written */
    size_t written;             /* bytes of `first` that have left */
    struct hello hello;         /* leaves before them */
    size_t hello_left;
    int busy, gone;
};

struct carrier {
    struct transport_events events;
    struct hello own;
    nng_stream_listener *listener;
    nng_aio *accept;
    pthread_mutex_t lock;
    struct link *links[MOST_LINKS];
    int count, closing;
};

static void read_more(struct link *l);
static void write_more(struct link *l);

/* ---- a link ---- */

static void link_free(struct link *l) {
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
    pthread_mutex_lock(&l->lock);
    int before = l->gone;
    l->gone = 1;
    pthread_mutex_unlock(&l->lock);
    nng_stream_close(l->stream);
    if (!before && l->user) l->carrier->events.on_gone(l->carrier->events.context, l->user);
}

/* ---- receiving ---- */

/* The peer's hello: 1 once it is there and good, 0 not yet, -1 it is none. */
static int take_hello(struct link *l) {
    struct hello hello;
    if (l->user) return 1;
    if (l->end - l->start < sizeof hello) return 0;
    memcpy(&hello, l->ring + l->start, sizeof hello);
    l->start += sizeof hello;
    if (hello_check(&hello, &l->carrier->own)) return -1;
    l->user = l->carrier->events.on_link(l->carrier->events.context, l, &hello);
    return l->user ? 1 : -1;
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
        struct frame *f = frame_new(FRAME_CALL, h.bytes);
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
    int good = take_hello(l);
    if (good < 0 || (good && take_frames(l))) {
        gone(l);
        return;
    }
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
    nng_aio_set_iov(l->receive, 1, &part);
    nng_stream_recv(l->stream, l->receive);
}

/* ---- sending ---- */

/* Takes `count` bytes off the front of the hello and the queue. */
static struct frame *take_written(struct link *l, size_t count) {
    struct frame *done = NULL;
    size_t hello = count < l->hello_left ? count : l->hello_left;
    l->hello_left -= hello;
    l->written += count - hello;
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
    int more = !bad && !l->gone && (l->first || l->hello_left);
    l->busy = more;
    pthread_mutex_unlock(&l->lock);
    for (struct frame *next; done; done = next) {
        next = done->next;
        frame_free(done);
    }
    if (more) write_more(l); /* a broken stream is seen by the reader */
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
    if (l->hello_left) {
        parts[n].iov_buf = (char *)&l->hello + sizeof l->hello - l->hello_left;
        parts[n++].iov_len = l->hello_left;
    }
    for (struct frame *f = l->first; f && n <= 2 * SEND_FRAMES - 2; f = f->next) {
        n = add_part(parts, n, &f->header, sizeof f->header, &skip);
        n = add_part(parts, n, f->payload, f->header.bytes, &skip);
    }
    pthread_mutex_unlock(&l->lock);
    nng_aio_set_iov(l->send, (unsigned)n, parts);
    nng_stream_send(l->stream, l->send);
}

static void link_send(struct link *l, struct frame *f) {
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

/* ---- connections ---- */

static int of_this_user(nng_stream *stream) {
    uint64_t uid = 0;
    return !nng_stream_get_uint64(stream, NNG_OPT_IPC_PEER_UID, &uid) && uid == geteuid();
}

/* Takes the stream. Another user's process is turned away unheard. */
static int link_new(struct carrier *c, nng_stream *stream) {
    struct link *l = of_this_user(stream) ? calloc(1, sizeof *l) : NULL;
    if (!l) {
        nng_stream_free(stream);
        return fail(ERR_FAILED, "rpc: another user's process is at the other end");
    }
    l->carrier = c;
    l->stream = stream;
    l->hello = c->own;
    l->hello_left = sizeof l->hello;
    l->busy = 1;
    pthread_mutex_init(&l->lock, NULL);
    int code = nng_aio_alloc(&l->receive, on_read, l) || nng_aio_alloc(&l->send, on_written, l);
    pthread_mutex_lock(&c->lock);
    int room = !code && !c->closing && c->count < MOST_LINKS;
    if (room) c->links[c->count++] = l;
    pthread_mutex_unlock(&c->lock);
    if (!room) {
        link_free(l);
        return fail(ERR_FAILED, "rpc: no room for another connection");
    }
    nng_aio_set_timeout(l->receive, NNG_DURATION_INFINITE);
    nng_aio_set_timeout(l->send, NNG_DURATION_INFINITE);
    write_more(l);
    read_more(l);
    return OK;
}

static void on_accept(void *argument) {
    struct carrier *c = argument;
    int error = nng_aio_result(c->accept);
    if (error == NNG_ECLOSED || error == NNG_ECANCELED) return;
    if (!error) link_new(c, nng_aio_get_output(c->accept, 0));
    nng_stream_listener_accept(c->listener, c->accept);
}

static int carrier_listen(struct carrier *c, const char *address) {
    int error = nng_stream_listener_alloc(&c->listener, address);
    if (!error) error = nng_stream_listener_listen(c->listener);
    if (!error) error = nng_aio_alloc(&c->accept, on_accept, c);
    if (error)
        return fail(ERR_FAILED,
                    "rpc: listen at %s: %s: is another job of yours running with this "
                    "MASTER_PORT?",
                    address, nng_strerror(error));
    nng_aio_set_timeout(c->accept, NNG_DURATION_INFINITE);
    nng_stream_listener_accept(c->listener, c->accept);
    return OK;
}

static int carrier_dial(struct carrier *c, const char *address) {
    nng_stream_dialer *dialer = NULL;
    nng_aio *aio = NULL;
    int error = nng_stream_dialer_alloc(&dialer, address);
    if (!error) error = nng_aio_alloc(&aio, NULL, NULL);
    if (!error) {
        nng_aio_set_timeout(aio, 2000);
        nng_stream_dialer_dial(dialer, aio);
        nng_aio_wait(aio);
        error = nng_aio_result(aio);
    }
    nng_stream *stream = error ? NULL : nng_aio_get_output(aio, 0);
    if (aio) nng_aio_free(aio);
    if (dialer) nng_stream_dialer_free(dialer);
    if (error) return fail(ERR_PEER, "rpc: %s: %s", address, nng_strerror(error));
    return link_new(c, stream);
}

static int carrier_open(struct carrier **out, const struct transport_events *events,
                        const struct hello *own) {
    struct carrier *c = *out = calloc(1, sizeof *c);
    if (!c) return fail(ERR_MEMORY, "rpc: no host memory");
    c->events = *events;
    c->own = *own;
    pthread_mutex_init(&c->lock, NULL);
    return OK;
}

static int is_busy(struct carrier *c) {
    int busy = 0;
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->count; i++) {
        pthread_mutex_lock(&c->links[i]->lock);
        busy |= c->links[i]->busy && !c->links[i]->gone;
        pthread_mutex_unlock(&c->links[i]->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return busy;
}

static void carrier_flush(struct carrier *c, int timeout_ms) {
    int64_t deadline = deadline_after(timeout_ms * 1e-3);
    while (is_busy(c) && now_ns() < deadline)
        usleep(200);
}

static void carrier_close(struct carrier *c) {
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->closing = 1;
    pthread_mutex_unlock(&c->lock);
    if (c->listener) nng_stream_listener_close(c->listener);
    if (c->accept) nng_aio_stop(c->accept);
    if (c->accept) nng_aio_free(c->accept);
    if (c->listener) nng_stream_listener_free(c->listener);
    for (int i = 0; i < c->count; i++) {
        pthread_mutex_lock(&c->links[i]->lock);
        c->links[i]->gone = 1;
        pthread_mutex_unlock(&c->links[i]->lock);
    }
    for (int i = 0; i < c->count; i++)
        link_free(c->links[i]);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

const struct transport *transport_of_build(void) {
    static const struct transport nng = {.name = "nng",
                                         .open = carrier_open,
                                         .listen = carrier_listen,
                                         .dial = carrier_dial,
                                         .send = link_send,
                                         .flush = carrier_flush,
                                         .close = carrier_close};
    return &nng;
}
