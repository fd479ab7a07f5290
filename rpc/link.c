/* One link: it opens, its frames come and leave, it ends.
 *
 *     each side    |opening|  ->  |hello|proof|   then   |header payload|header payload|...
 *
 * Reading: one read takes what is there, up to IN_BYTES, and often several frames. Where a payload
 * is longer than what has come, the rest is read straight into it.
 *
 * Writing: whoever sends writes what the socket takes at once; the thread of the links goes on with
 * the rest. */
#include "rpc/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

enum { ONE_WRITE = 1 << 20 };

struct words { /* the second thing that a side says */
    struct hello hello;
    uint8_t proof[PROOF_BYTES];
};

void links_wake(struct links *all) {
    const uint64_t one = 1;
    (void)!write(all->wake, &one, sizeof one);
}

/* ---- the end of a link ---- */

void link_drop_queue(struct link *l) {
    for (struct frame *f = l->first, *next; f; f = next) {
        next = f->next;
        frame_free(f);
    }
    l->first = l->last = NULL;
    l->written = 0;
    pthread_cond_broadcast(&l->all->sent);
}

void link_end(struct link *l) {
    struct links *all = l->all;
    pthread_mutex_lock(&all->lock);
    close(l->fd);
    l->fd = -1;
    link_drop_queue(l);
    frame_free(l->incoming);
    l->incoming = NULL;
    pthread_mutex_unlock(&all->lock);
    if (l->user && all->events.on_gone(all->events.context, l->user)) return;
    if (!l->user) all->events.on_refused(all->events.context, l->role == ROLE_DIALS);
    pthread_mutex_lock(&all->lock);
    struct link **at = &all->first;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    pthread_mutex_unlock(&all->lock);
    free(l);
}

/* ---- writing ---- */

void link_write_some(struct link *l) {
    for (ssize_t sum = 0, n; l->first && l->fd >= 0 && sum < ONE_WRITE; sum += n) {
        struct frame *f = l->first;
        struct iovec parts[2] = {{&f->header, sizeof f->header}, {f->payload, f->header.bytes}};
        size_t whole = sizeof f->header + f->header.bytes, at = l->written;
        for (int i = 0; i < 2; i++) {
            size_t skip = at < parts[i].iov_len ? at : parts[i].iov_len;
            parts[i].iov_base = skip ? (char *)parts[i].iov_base + skip : parts[i].iov_base;
            parts[i].iov_len -= skip;
            at -= skip;
        }
        const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        n = sendmsg(l->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) link_drop_queue(l);
        if (n < 0) return;
        l->written += (size_t)n;
        if (l->written < whole) continue;
        l->written = 0;
        l->first = f->next;
        if (!l->first) l->last = NULL;
        frame_free(f);
    }
    if (!l->first) pthread_cond_broadcast(&l->all->sent);
}

void link_send(struct link *l, struct frame *f) {
    struct links *all = l->all;
    f->next = NULL;
    pthread_mutex_lock(&all->lock);
    if (l->fd < 0) {
        pthread_mutex_unlock(&all->lock);
        frame_free(f);
        return;
    }
    int alone = !l->first;
    if (l->last)
        l->last->next = f;
    else
        l->first = f;
    l->last = f;
    if (alone) link_write_some(l);
    int left = alone && l->first;
    pthread_mutex_unlock(&all->lock);
    if (left) links_wake(all);
}

/* ---- the opening ---- */

int link_say(struct link *l, const void *data, size_t bytes) {
    return send(l->fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)bytes;
}

static int take_bytes(struct link *l, void *out, size_t bytes) {
    if (l->end - l->start < bytes) return 0;
    memcpy(out, l->in + l->start, bytes);
    l->start += bytes;
    return 1;
}

/* Now that the peer's nonce is there. A peer that is turned away later has heard who does so: it
 * may have the same name. */
static int say_hello(struct link *l) {
    struct words words = {.hello = l->all->own};
    proof_make(words.proof, l->all->secret, l->role, l->nonce, l->peer_nonce, &words.hello);
    return link_say(l, &words, sizeof words);
}

/* The peer's first words: 1 once they are there and good, 0 not yet, -1 it is turned away. */
static int take_first_words(struct link *l) {
    struct links *all = l->all;
    struct opening opening;
    struct words words;
    if (l->user) return 1;
    if (!l->opened) {
        if (!take_bytes(l, &opening, sizeof opening)) return 0;
        if (opening_check(&opening)) return -1;
        memcpy(l->peer_nonce, opening.nonce, sizeof l->peer_nonce);
        l->opened = 1;
        if (!say_hello(l)) return -1;
    }
    if (!take_bytes(l, &words, sizeof words)) return 0;
    enum proof_role theirs = l->role == ROLE_DIALS ? ROLE_LISTENS : ROLE_DIALS;
    if (proof_check(words.proof, all->secret, theirs, l->peer_nonce, l->nonce, &words.hello) ||
        hello_check(&words.hello, &all->own))
        return -1;
    l->user = all->events.on_link(all->events.context, l, &words.hello);
    return l->user ? 1 : -1;
}

/* ---- reading ---- */

/* Takes all whole frames out of what has come. -1: what came is no frame. */
static int take_frames(struct link *l) {
    const struct link_events *events = &l->all->events;
    struct frame_header h;
    while (!l->incoming && take_bytes(l, &h, sizeof h)) {
        if (frame_check(&h)) return -1;
        if (!(l->incoming = frame_new(FRAME_PING, h.bytes))) return -1;
        l->incoming->header = h;
        size_t here = l->end - l->start;
        if (here > h.bytes) here = h.bytes;
        if (here) take_bytes(l, l->incoming->payload, here);
        l->got = here;
        if (here < h.bytes) break;
        struct frame *f = l->incoming;
        l->incoming = NULL;
        f->came = now_ns();
        events->on_frame(events->context, l->user, f);
    }
    return 0;
}

static ssize_t read_some(struct link *l) {
    if (l->incoming)
        return recv(l->fd, l->incoming->payload + l->got, l->incoming->header.bytes - l->got, 0);
    memmove(l->in, l->in + l->start, l->end - l->start);
    l->end -= l->start;
    l->start = 0;
    return recv(l->fd, l->in + l->end, IN_BYTES - l->end, 0);
}

/* Takes in what has come, though not all of one peer's before the others'. */
void link_take_in(struct link *l) {
    const struct link_events *events = &l->all->events;
    for (int i = 0; i < READS; i++) {
        ssize_t n = read_some(l);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        fail(OK, "%s", ""); /* a peer that ends has not said why */
        if (n <= 0) {
            link_end(l);
            return;
        }
        if (l->incoming && (l->got += (size_t)n) == l->incoming->header.bytes) {
            struct frame *f = l->incoming;
            l->incoming = NULL;
            f->came = now_ns();
            events->on_frame(events->context, l->user, f);
        } else if (!l->incoming) {
            l->end += (size_t)n;
        }
        int good = take_first_words(l);
        if (good < 0 || (good && take_frames(l))) {
            link_end(l);
            return;
        }
    }
}
