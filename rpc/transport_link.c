/* One connection as a stream of NNG: it begins, its frames come, it ends.
 *
 * Receiving: one read takes what is there, up to RING_BYTES, and often several frames. Where a
 * payload is longer than what has come, the rest is read straight into it.
 *
 *     |opening|hello|proof|   then   |header payload|header payload|...   -> on_frame, on_frame
 *
 * transport_send.c is the other half. No operation has a callback, which would cost a thread's
 * wakeup each. What comes is taken in by the link's reader, or by a thread that waits for it and
 * looks (link_look) while the reader naps:
 *
 *     nobody looks    NNG's poller -> reader -> the thread that the frame is for
 *     it looks        NNG's poller -> the thread that the frame is for, which never slept */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "rpc/transport_nng.h"

enum { HELLO_MS = 10000, NAP_NS = 100000 };

static void read_more(struct link *l);

/* ---- a link ---- */

void link_free(struct link *l) {
    if (!l) return;
    if (l->stream) nng_stream_close(l->stream);
    if (l->receive) nng_aio_stop(l->receive);
    if (l->send) nng_aio_stop(l->send);
    pthread_mutex_lock(&l->lock);
    l->ending = 1;
    pthread_cond_signal(&l->stuck_or_ending);
    pthread_mutex_unlock(&l->lock);
    if (l->has_reader) pthread_join(l->reader, NULL);
    if (l->has_writer) pthread_join(l->writer, NULL);
    if (l->receive) nng_aio_free(l->receive);
    if (l->send) nng_aio_free(l->send);
    if (l->stream) nng_stream_free(l->stream);
    for (struct frame *f = l->first, *next; f; f = next) {
        next = f->next;
        frame_free(f);
    }
    frame_free(l->incoming);
    guests_close(&l->guests);
    pthread_cond_destroy(&l->stuck_or_ending);
    pthread_mutex_destroy(&l->reading);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* A peer that is turned away still hears who does so: it may have the same name. */
static void turn_away(struct link *l) {
    pthread_mutex_lock(&l->lock);
    int later = l->refused = l->busy && l->opened;
    pthread_mutex_unlock(&l->lock);
    if (!later) link_gone(l);
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
    if (start) link_write(l);
}

/* region 0: what the peer shares can be opened here; else that one cannot. */
static void say_shares(struct link *l, uint64_t region) {
    struct frame *f = frame_new(FRAME_SHARES, 0);
    if (!f) return;
    f->header.region = region;
    link_send(l, f);
}

static void count_peer(struct carrier *c) {
    pthread_mutex_lock(&c->lock);
    int all = ++c->peers == c->own.world - 1;
    pthread_mutex_unlock(&c->lock);
    if (all && c->listener) nng_stream_listener_close(c->listener);
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
    count_peer(c);
    if (guests_open(&l->guests, &said.hello)) say_shares(l, 0);
    return 1;
}

/* Something comes at least once a second, so this is also when to look for regions that nobody
 * uses any more. */
static void deliver(struct link *l, struct frame *f) {
    f->came = now_ns();
    regions_trim(&l->carrier->regions, f->came);
    guests_trim(&l->guests, f->came);
    if (f->header.kind == FRAME_SHARES) {
        if (f->header.region)
            regions_back(&l->carrier->regions, f->header.region, l);
        else
            __atomic_store_n(&l->shares, 1, __ATOMIC_RELAXED);
        frame_free(f);
        return;
    }
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
        if (h.beside && guests_find(&f->beside, &l->guests, &h, now_ns()))
            f->header.kind = FRAME_PING; /* the message is lost with its owner */
        if (h.beside && !f->beside) say_shares(l, h.region);
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

/* One read has ended; `reading` is held. */
static void take_in(struct link *l) {
    nng_aio_wait(l->receive);
    size_t count = nng_aio_count(l->receive);
    l->deaf = 1;
    l->reads = 0;
    if (nng_aio_result(l->receive)) {
        fail(OK, "%s", ""); /* the peer has not said why */
        link_gone(l);
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
        link_gone(l);
    else
        l->deaf = 0;
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
    l->reads = 1;
    nng_stream_recv(l->stream, l->receive);
}

/* Takes in what has come; `reading` is held. Count and result are 0 until a read ends, or is about
 * to. A thread that looks leaves the next read to the next look: it has other things to do first,
 * and what has come by then needs no poller. */
static int look(struct link *l) {
    if (!l->reads && !l->deaf) read_more(l);
    int came = l->reads && (nng_aio_count(l->receive) || nng_aio_result(l->receive));
    if (came) take_in(l);
    return came;
}

int link_look(struct link *l) {
    __atomic_store_n(&l->looked, now_ns(), __ATOMIC_RELAXED);
    if (pthread_mutex_trylock(&l->reading)) return 0;
    int came = look(l);
    pthread_mutex_unlock(&l->reading);
    return came;
}

/* It does not wait for the same read as a thread that looks: NNG would wake it each time. */
static void *reader(void *argument) {
    struct link *l = argument;
    for (int deaf = 0; !deaf;) {
        if (now_ns() - __atomic_load_n(&l->looked, __ATOMIC_RELAXED) < NAP_NS) {
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
            continue;
        }
        pthread_mutex_lock(&l->reading);
        while (look(l))
            ;
        deaf = l->deaf;
        pthread_mutex_unlock(&l->reading);
        if (!deaf) nng_aio_wait(l->receive);
    }
    return NULL;
}

/* ---- the beginning ---- */

static int is_over(struct link *l) {
    pthread_mutex_lock(&l->lock);
    int over = l->gone && !l->busy;
    pthread_mutex_unlock(&l->lock);
    return over;
}

/* Makes room by what has ended. ERR_FAILED without a text: there is none. */
static int keep(struct carrier *c, struct link *l) {
    struct link *over[MOST_LINKS];
    int count = 0, kept = 0;
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->count; i++)
        if (is_over(c->links[i]) && !c->links[i]->user)
            over[count++] = c->links[i];
        else
            c->links[kept++] = c->links[i];
    c->count = kept;
    int room = !c->closing && c->count < MOST_LINKS;
    if (room) c->links[c->count++] = l;
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < count; i++)
        link_free(over[i]);
    return room ? OK : ERR_FAILED;
}

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
    pthread_mutex_init(&l->reading, NULL);
    pthread_cond_init(&l->stuck_or_ending, NULL);
    int code = getentropy(l->first_words.opening.nonce, NONCE_BYTES) ||
               nng_aio_alloc(&l->receive, NULL, NULL) || nng_aio_alloc(&l->send, NULL, NULL);
    l->has_writer = !code && !thread_start(&l->writer, link_writer, l);
    if (!l->has_writer || keep(c, l)) {
        link_free(l);
        return fail(ERR_FAILED, "rpc: no room for another connection");
    }
    nng_aio_set_timeout(l->send, NNG_DURATION_INFINITE);
    link_write(l);
    pthread_mutex_lock(&l->lock); /* until it counts as gone it stays */
    l->has_reader = !thread_start(&l->reader, reader, l);
    int deaf = !l->has_reader;
    pthread_mutex_unlock(&l->lock);
    if (deaf) link_gone(l);
    return OK;
}

int link_is_busy(struct link *l) {
    pthread_mutex_lock(&l->lock);
    int busy = l->busy && !l->gone;
    pthread_mutex_unlock(&l->lock);
    return busy;
}

void link_hush(struct link *l) {
    pthread_mutex_lock(&l->lock);
    l->gone = 1;
    pthread_mutex_unlock(&l->lock);
}
