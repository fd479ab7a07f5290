/* Links open, carry messages and end: see links.h. */
#include "rpc/links.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "comm/wire.h"
#include "rpc/message.h"
#include "rpc/pool.h"

enum { DIAL_MS = 2000, REST_MS = 50 };

struct link {
    struct links *all;
    int fd; /* -1: it has ended; it and what follows is under the lock of all */
    int dialed, proved, cut, ended;
    void *user;                 /* NULL: no good hello yet */
    struct frame *first, *last; /* what is to be sent */
    pthread_cond_t work;
    struct link *next;
};

struct links {
    struct link_events events;
    struct hello own;
    int beyond;
    const char *secret;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a queue is empty, or a thread has ended */
    struct link *first;     /* the latest first */
    int listener, threads, stop;
};

/* ---- threads: nobody joins them, and links_close waits until there is none ---- */

static void *thread_ends(struct links *all) {
    pthread_mutex_lock(&all->lock);
    all->threads--;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

static int start_thread(struct links *all, void *(*run)(void *argument), void *argument) {
    pthread_t thread;
    pthread_mutex_lock(&all->lock);
    int error = thread_start(&thread, run, argument);
    all->threads += !error;
    pthread_mutex_unlock(&all->lock);
    if (!error) return pthread_detach(thread);
    return fail_errno(ERR_FAILED, error, "rpc: a thread for links");
}

/* ---- a link begins and ends ---- */

/* Takes the socket. */
static int link_new(struct link **out, struct links *all, int fd, int dialed) {
    struct link *l = *out = all->beyond || socket_of_this_user(fd) ? calloc(1, sizeof *l) : NULL;
    if (!l) {
        close(fd);
        return fail(ERR_FAILED, "rpc: a connection: another user's process is at the other end, or "
                                "there is no host memory");
    }
    *l = (struct link){.all = all, .fd = fd, .dialed = dialed};
    cond_open(&l->work);
    pthread_mutex_lock(&all->lock);
    l->next = all->first;
    all->first = l;
    if (all->stop) shutdown(fd, SHUT_RDWR);
    pthread_mutex_unlock(&all->lock);
    return OK;
}

static void link_free(struct link *l) {
    for (struct frame *f = l->first, *next; f; f = next) {
        next = f->next;
        frame_free(f);
    }
    pthread_cond_destroy(&l->work);
    free(l);
}

/* A stranger's link goes whole; a peer's memory stays, since others may still send to it. */
static void link_end(struct link *l) {
    struct links *all = l->all;
    struct link **at = &all->first;
    pthread_mutex_lock(&all->lock);
    close(l->fd);
    l->fd = -1;
    while (!l->user && *at != l)
        at = &(*at)->next;
    if (!l->user) *at = l->next;
    pthread_mutex_unlock(&all->lock);
    if (!l->user) link_free(l);
}

/* ---- the opening ---- */

struct words { /* the second thing that a side says */
    struct hello hello;
    uint8_t proof[PROOF_BYTES];
};

/* It is no stranger any more. With the last peer the door shuts, and strangers go. */
static int keep(struct link *l) {
    struct links *all = l->all;
    int left = all->own.world - 1;
    pthread_mutex_lock(&all->lock);
    const int proved = l->proved = !l->cut;
    for (const struct link *k = all->first; k; k = k->next)
        left -= k->proved;
    for (const struct link *k = all->first; k && !left; k = k->next)
        if (!k->proved) shutdown(k->fd, SHUT_RDWR);
    if (!left && all->listener >= 0) shutdown(all->listener, SHUT_RDWR);
    pthread_mutex_unlock(&all->lock);
    return proved ? OK : fail(ERR_PEER, "rpc: a connection made room for the next");
}

/* What cannot be said is seen where the answer does not come. A peer that is turned away has heard
 * by whom: it may have the same name. */
static int exchange(struct link *l, struct hello *hello, int *proved) {
    const struct links *all = l->all;
    const enum proof_role role = l->dialed ? ROLE_DIALS : ROLE_LISTENS,
                          theirs = l->dialed ? ROLE_LISTENS : ROLE_DIALS;
    const int64_t deadline = deadline_after(OPENING_MS * 1e-3);
    struct opening mine = {.magic = HELLO_MAGIC, .version = WIRE_VERSION}, other;
    struct words said = {.hello = all->own}, heard;
    if (getentropy(mine.nonce, NONCE_BYTES)) return fail(ERR_FAILED, "rpc: no random numbers");
    send(l->fd, &mine, sizeof mine, MSG_NOSIGNAL);
    CHECK(socket_read(l->fd, &other, sizeof other, deadline));
    CHECK(opening_check(&other));
    proof_make(said.proof, all->secret, role, mine.nonce, other.nonce, &said.hello);
    if (l->dialed) send(l->fd, &said, sizeof said, MSG_NOSIGNAL);
    CHECK(socket_read(l->fd, &heard, sizeof heard, deadline));
    int code = proof_check(heard.proof, all->secret, theirs, other.nonce, mine.nonce, &heard.hello);
    *proved = !code;
    *hello = heard.hello;
    if (!code) code = hello_check(hello, &all->own);
    if (!code) code = keep(l);
    if (!l->dialed) send(l->fd, &said, sizeof said, MSG_NOSIGNAL);
    return code;
}

static int link_open(struct link *l) {
    const struct link_events *events = &l->all->events;
    struct hello hello;
    int proved = 0, code = exchange(l, &hello, &proved);
    if (code)
        events->on_refused(events->context, proved);
    else if (!(l->user = events->on_link(events->context, l, &hello)))
        code = ERR_USAGE;
    return code;
}

/* ---- messages ---- */

/* NULL: the stream has ended, or what comes is no message. */
static struct frame *read_frame(int fd) {
    struct message_header h;
    if (socket_read(fd, &h, sizeof h, 0) || header_check(&h)) return NULL;
    struct frame *f = calloc(1, sizeof *f);
    if (f && (f->data = malloc(h.bytes))) {
        memcpy(f->data, &h, sizeof h);
        f->bytes = h.bytes;
        if (!socket_read(fd, f->data + sizeof h, h.bytes - sizeof h, 0)) {
            f->came = now_ns();
            return f;
        }
    }
    frame_free(f);
    return NULL;
}

/* What the socket takes of the first frame. 1: all of it, and the frame is out of the queue. */
static int write_first(struct link *l, int flags) {
    struct frame *f = l->first;
    ssize_t n = send(l->fd, f->data + f->sent, f->bytes - f->sent, MSG_NOSIGNAL | flags);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        shutdown(l->fd, SHUT_RDWR); /* so reading ends */
    if (n > 0) f->sent += (size_t)n;
    return f->sent == f->bytes;
}

static void drop_first(struct link *l) {
    struct frame *f = l->first;
    if (!(l->first = f->next)) l->last = NULL;
    frame_free(f);
    if (!l->first) pthread_cond_broadcast(&l->all->changed);
}

/* Goes on with what did not go at once. */
static void *write_frames(void *link) {
    struct link *l = link;
    pthread_mutex_t *lock = &l->all->lock;
    pthread_mutex_lock(lock);
    while (!l->ended) {
        if (!l->first) {
            timed_wait(&l->work, lock, 0);
            continue;
        }
        pthread_mutex_unlock(lock);
        int done = write_first(l, 0);
        pthread_mutex_lock(lock);
        if (done) drop_first(l);
    }
    pthread_mutex_unlock(lock);
    return NULL;
}

void link_send(struct link *l, struct frame *f) {
    struct links *all = l->all;
    f->next = NULL;
    pthread_mutex_lock(&all->lock);
    if (l->ended) {
        frame_free(f);
    } else if (l->first) {
        l->last = l->last->next = f;
    } else {
        l->first = l->last = f;
        if (write_first(l, MSG_DONTWAIT))
            drop_first(l);
        else
            pthread_cond_signal(&l->work);
    }
    pthread_mutex_unlock(&all->lock);
}

/* The thread of a link that is open. */
static void *read_frames(void *link) {
    struct link *l = link;
    struct links *all = l->all;
    const struct link_events *events = &all->events;
    pthread_t writer;
    int writes = !thread_start(&writer, write_frames, l);
    for (struct frame *f; writes && (f = read_frame(l->fd));)
        events->on_frame(events->context, l->user, f);
    pthread_mutex_lock(&all->lock);
    shutdown(l->fd, SHUT_RDWR);
    l->ended = 1;
    pthread_cond_signal(&l->work);
    pthread_cond_broadcast(&all->changed);
    int stop = all->stop;
    pthread_mutex_unlock(&all->lock);
    if (writes) pthread_join(writer, NULL);
    if (!stop) events->on_gone(events->context, l->user);
    link_end(l);
    return thread_ends(all);
}

/* ---- the door ---- */

static void *take_in(void *link) {
    struct link *l = link;
    struct links *all = l->all;
    if (!link_open(l)) return read_frames(l);
    link_end(l);
    return thread_ends(all);
}

/* Where there are more strangers than `most` the oldest makes room: as a rule it has gone when this
 * returns. */
static void cut_oldest(struct links *all, int most) {
    struct link *oldest = NULL;
    pthread_mutex_lock(&all->lock);
    for (struct link *l = all->first; l; l = l->next) {
        if (l->dialed || l->proved) continue;
        most--;
        if (!l->cut) oldest = l;
    }
    if (oldest && most < 0) {
        oldest->cut = 1;
        shutdown(oldest->fd, SHUT_RDWR);
    }
    if (most < 0) timed_wait(&all->changed, &all->lock, deadline_after(REST_MS * 1e-3));
    pthread_mutex_unlock(&all->lock);
}

static void accept_one(struct links *all) {
    struct link *l = NULL;
    int fd = socket_accept(all->listener), code;
    if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)) return;
    code = fd < 0 ? fail_errno(ERR_FAILED, errno, "rpc: a connection that has come: accept")
                  : link_new(&l, all, fd, 0);
    if (!code) code = start_thread(all, take_in, l);
    if (code && l) link_end(l);
    if (code) all->events.on_refused(all->events.context, 0);
    cut_oldest(all, code ? -1 : MOST_STRANGERS);
}

static void *keep_door(void *links) {
    struct links *all = links;
    for (int open = 1; open;) {
        struct pollfd polled = {.fd = all->listener, .events = POLLIN};
        if (poll(&polled, 1, -1) > 0 && !(open = !(polled.revents & ~POLLIN))) break;
        accept_one(all);
    }
    pthread_mutex_lock(&all->lock);
    close(all->listener);
    all->listener = -1;
    pthread_mutex_unlock(&all->lock);
    return thread_ends(all);
}

int links_listen(struct links *all, const char *address) {
    int fd;
    CHECK(socket_listen(&fd, all->beyond, address));
    int code = all->beyond ? socket_place(fd, 0, all->own.place, sizeof all->own.place) : OK;
    if (code) {
        close(fd);
        return code;
    }
    pthread_mutex_lock(&all->lock);
    all->listener = fd;
    pthread_mutex_unlock(&all->lock);
    return start_thread(all, keep_door, all);
}

int links_dial(struct links *all, const char *address, int listen_too) {
    char place[PLACE_BYTES];
    struct link *l;
    int fd, code = OK;
    CHECK(socket_dial(&fd, all->beyond, address, DIAL_MS));
    if (listen_too && !all->own.place[0]) {
        code = socket_place(fd, 1, place, sizeof place);
        if (!code) code = links_listen(all, place);
    }
    if (code) {
        close(fd);
        return code;
    }
    CHECK(link_new(&l, all, fd, 1));
    if (link_open(l)) {
        link_end(l);
        return ERR_PEER;
    }
    return start_thread(all, read_frames, l);
}

/* ---- beginning and end ---- */

void links_flush(struct links *all, int timeout_ms) {
    int64_t deadline = deadline_after(timeout_ms * 1e-3);
    pthread_mutex_lock(&all->lock);
    for (int busy = 1, late = 0; busy && !late;) {
        busy = 0;
        for (const struct link *l = all->first; l; l = l->next)
            busy |= l->first && !l->ended;
        if (busy) late = timed_wait(&all->changed, &all->lock, deadline);
    }
    pthread_mutex_unlock(&all->lock);
}

int links_open(struct links **out, const struct link_events *events, const struct hello *own,
               int beyond, const char *secret) {
    struct links *all = *out = calloc(1, sizeof *all);
    if (!all) return fail(ERR_MEMORY, "rpc: no host memory");
    *all = (struct links){
        .events = *events, .own = *own, .beyond = beyond, .secret = secret, .listener = -1};
    pthread_mutex_init(&all->lock, NULL);
    cond_open(&all->changed);
    return OK;
}

void links_close(struct links *all) {
    if (!all) return;
    pthread_mutex_lock(&all->lock);
    all->stop = 1;
    for (struct link *l = all->first; l; l = l->next)
        if (l->fd >= 0) shutdown(l->fd, SHUT_RDWR);
    if (all->listener >= 0) shutdown(all->listener, SHUT_RDWR);
    while (all->threads)
        timed_wait(&all->changed, &all->lock, 0);
    pthread_mutex_unlock(&all->lock);
    for (struct link *l = all->first, *next; l; l = next) {
        next = l->next;
        link_free(l);
    }
    if (all->listener >= 0) close(all->listener);
    pthread_cond_destroy(&all->changed);
    pthread_mutex_destroy(&all->lock);
    free(all);
}
