/* Frames leave over a stream of NNG.
 *
 * A link has a queue. One write takes up to four frames, header and payload each in place; a write
 * may end early, and then goes on where it stopped. The opening leaves at once, hello and proof as
 * soon as the peer's nonce is there, and frames behind them.
 *
 * Whoever sends writes what the stream takes at once, and the link's writer goes on with the
 * rest. */
#include "base/error.h"
#include "rpc/transport_nng.h"

enum { SEND_FRAMES = 4 };

void link_gone(struct link *l) {
    const struct transport_events *events = &l->carrier->events;
    pthread_mutex_lock(&l->lock);
    int before = l->gone;
    l->gone = 1;
    pthread_mutex_unlock(&l->lock);
    __atomic_store_n(&l->shares, 0, __ATOMIC_RELAXED);
    nng_stream_close(l->stream);
    regions_of_gone(&l->carrier->regions, l);
    if (!before && l->user) events->on_gone(events->context, l->user);
    if (!before && !l->user) events->on_refused(events->context, l->role == ROLE_DIALS);
}

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

/* One write has ended. 1: there is more to write. */
static int take_out(struct link *l) {
    nng_aio_wait(l->send);
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
    if (refused) link_gone(l);
    return more; /* a broken stream is seen by the reader */
}

static int add_part(nng_iov *parts, int n, const void *data, size_t bytes, size_t *skip) {
    size_t skipped = *skip < bytes ? *skip : bytes;
    *skip -= skipped;
    if (skipped == bytes) return n;
    parts[n].iov_buf = (char *)data + skipped;
    parts[n].iov_len = bytes - skipped;
    return n + 1;
}

static void write_once(struct link *l) {
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

void link_write(struct link *l) {
    do {
        write_once(l);
        if (nng_aio_count(l->send)) continue;
        pthread_mutex_lock(&l->lock); /* the stream is full, or broken */
        l->stuck = 1;
        pthread_cond_signal(&l->stuck_or_ending);
        pthread_mutex_unlock(&l->lock);
        return;
    } while (take_out(l));
}

/* Without a deadline: link_free ends it, and the end of the stream any write. */
void *link_writer(void *argument) {
    struct link *l = argument;
    pthread_mutex_lock(&l->lock);
    while (!l->ending) {
        int stuck = l->stuck;
        l->stuck = 0;
        if (!stuck) pthread_cond_wait(&l->stuck_or_ending, &l->lock);
        if (!stuck) continue;
        pthread_mutex_unlock(&l->lock);
        if (take_out(l)) link_write(l);
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

struct region *link_room(struct link *l, uint64_t bytes) {
    if (!__atomic_load_n(&l->shares, __ATOMIC_RELAXED)) return NULL;
    return region_take(&l->carrier->regions, bytes);
}

void link_send(struct link *l, struct frame *f) {
    f->next = NULL;
    pthread_mutex_lock(&l->lock);
    if (l->gone) {
        pthread_mutex_unlock(&l->lock);
        frame_free(f);
        return;
    }
    if (f->beside) region_give(&l->carrier->regions, f->beside, l, &f->header);
    f->beside = NULL;
    if (l->last)
        l->last->next = f;
    else
        l->first = f;
    l->last = f;
    int start = !l->busy;
    l->busy = 1;
    pthread_mutex_unlock(&l->lock);
    if (start) link_write(l);
}
