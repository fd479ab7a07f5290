/* One thread serves all links of a worker: see links.h. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/descriptor.h"
#include "base/thread.h"
#include "rpc/link.h"
#include "rpc/pool.h"

enum { DIAL_MS = 2000, REST_MS = 100, MOST_LINKS = 2 * MOST_WORKERS + MOST_STRANGERS };

/* ---- strangers ---- */

static int is_stranger(const struct link *l) {
    return !l->user && l->fd >= 0 && l->role == ROLE_LISTENS;
}

/* The oldest stranger makes room. 0: there is none. */
static int end_oldest_stranger(struct links *all) {
    struct link *oldest = NULL;
    pthread_mutex_lock(&all->lock);
    for (struct link *l = all->first; l; l = l->next)
        if (is_stranger(l)) oldest = l;
    pthread_mutex_unlock(&all->lock);
    if (!oldest) return 0;
    fail(ERR_FAILED, "rpc: a connection made room for the next: it had not proved itself");
    link_end(oldest);
    return 1;
}

/* Under the lock: each of the others has come. */
static int is_complete(const struct links *all) {
    int proved = 0;
    for (const struct link *l = all->first; l; l = l->next)
        proved += l->user && l->fd >= 0;
    return proved == all->own.world - 1;
}

/* Those whose opening has taken too long, and all strangers once every peer has come. */
static void end_late(struct links *all) {
    for (int again = 1; again;) {
        struct link *late = NULL;
        int64_t now = now_ns();
        pthread_mutex_lock(&all->lock);
        int complete = is_complete(all);
        for (struct link *l = all->first; l && !late; l = l->next)
            if (!l->user && (l->deadline <= now || (complete && is_stranger(l)))) late = l;
        pthread_mutex_unlock(&all->lock);
        if ((again = late != NULL)) {
            fail(ERR_TIMEOUT, "rpc: a connection has not proved itself within %d s",
                 OPENING_MS / 1000);
            link_end(late);
        }
    }
}

/* ---- the beginning of a link ---- */

/* Takes the socket. */
static int link_new(struct links *all, int fd, enum proof_role role) {
    struct opening opening = {.magic = HELLO_MAGIC, .version = FRAME_VERSION};
    struct link *l = all->beyond || socket_of_this_user(fd) ? calloc(1, sizeof *l) : NULL;
    int strangers = 0, count = 0;
    if (!l || getentropy(opening.nonce, NONCE_BYTES)) {
        close(fd);
        free(l);
        return fail(ERR_FAILED, "rpc: a connection: another user's process is at the other end, or "
                                "there is no host memory");
    }
    l->all = all;
    l->fd = fd;
    l->role = role;
    l->deadline = deadline_after(OPENING_MS * 1e-3);
    memcpy(l->nonce, opening.nonce, sizeof l->nonce);
    link_say(l, &opening, sizeof opening); /* where it cannot be said the deadline will tell */
    pthread_mutex_lock(&all->lock);
    l->next = all->first;
    all->first = l;
    for (; l; count++, l = l->next)
        strangers += role == ROLE_LISTENS && is_stranger(l);
    pthread_mutex_unlock(&all->lock);
    if (role == ROLE_DIALS) /* the thread of the links has yet to hear of it */
        links_wake(all);
    else if (strangers > MOST_STRANGERS || count > MOST_LINKS)
        end_oldest_stranger(all);
    return OK;
}

static void accept_some(struct links *all) {
    for (int i = 0; i < READS; i++) {
        int fd = socket_accept(all->listener);
        if (fd >= 0) {
            if (link_new(all, fd, ROLE_LISTENS)) all->events.on_refused(all->events.context, 0);
            continue;
        }
        if (errno == EAGAIN) return;
        if (errno == EINTR || errno == ECONNABORTED) continue;
        fail_errno(ERR_FAILED, errno, "rpc: a connection has come, and cannot be accepted");
        all->events.on_refused(all->events.context, 0);
        if (end_oldest_stranger(all)) continue;
        all->accept_after = deadline_after(REST_MS * 1e-3);
        return;
    }
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
    all->listened = 1;
    pthread_mutex_unlock(&all->lock);
    links_wake(all);
    return OK;
}

int links_dial(struct links *all, const char *address, int listen_too) {
    char place[PLACE_BYTES];
    int fd, code = OK;
    CHECK(socket_dial(&fd, all->beyond, address, DIAL_MS));
    if (listen_too && !all->listened) {
        code = socket_place(fd, 1, place, sizeof place);
        if (!code) code = links_listen(all, place);
    }
    if (!code) return link_new(all, fd, ROLE_DIALS);
    close(fd);
    return code;
}

/* ---- the thread ---- */

struct turn {
    int count; /* of `polled`: [0] the eventfd, [1] the listener, then links */
    struct pollfd polled[2 + MOST_LINKS + 1];
    struct link *link[2 + MOST_LINKS + 1];
    int wait_ms; /* -1: until something comes */
};

static void wait_until(struct turn *t, int64_t when) {
    int64_t ms = (when - now_ns()) / 1000000 + 1;
    if (ms < 0) ms = 0;
    if (t->wait_ms < 0 || ms < t->wait_ms) t->wait_ms = (int)ms;
}

/* What to wait for. 0: it is time to stop. */
static int gather(struct links *all, struct turn *t) {
    t->count = 2;
    t->wait_ms = -1;
    pthread_mutex_lock(&all->lock);
    if (all->listener >= 0 && is_complete(all)) { /* nobody else is to come */
        close(all->listener);
        all->listener = -1;
    }
    int rests = now_ns() < all->accept_after;
    if (rests) wait_until(t, all->accept_after);
    t->polled[0] = (struct pollfd){.fd = all->wake, .events = POLLIN};
    t->polled[1] = (struct pollfd){.fd = rests ? -1 : all->listener, .events = POLLIN};
    for (struct link *l = all->first; l && t->count < 2 + MOST_LINKS; l = l->next) {
        if (l->fd < 0) continue;
        if (!l->user) wait_until(t, l->deadline);
        t->link[t->count] = l;
        t->polled[t->count++] =
            (struct pollfd){.fd = l->fd, .events = (short)(POLLIN | (l->first ? POLLOUT : 0))};
    }
    int stop = all->stop;
    pthread_mutex_unlock(&all->lock);
    return !stop;
}

static void *links_thread(void *argument) {
    struct links *all = argument;
    struct turn t;
    uint64_t woken;
    while (gather(all, &t)) {
        poll(t.polled, (nfds_t)t.count, t.wait_ms);
        if (t.polled[0].revents) (void)!read(all->wake, &woken, sizeof woken);
        for (int i = 2; i < t.count; i++) {
            if (t.polled[i].revents & POLLOUT) {
                pthread_mutex_lock(&all->lock);
                link_write_some(t.link[i]);
                pthread_mutex_unlock(&all->lock);
            }
            if (t.polled[i].revents & ~POLLOUT) link_take_in(t.link[i]);
        }
        end_late(all);
        if (t.polled[1].revents) accept_some(all); /* it may end a link, so it comes last */
    }
    return NULL;
}

/* ---- beginning and end ---- */

void links_flush(struct links *all, int timeout_ms) {
    int64_t deadline = deadline_after(timeout_ms * 1e-3);
    pthread_mutex_lock(&all->lock);
    for (int busy = 1, late = 0; busy && !late;) {
        busy = 0;
        for (const struct link *l = all->first; l; l = l->next)
            busy |= l->first != NULL;
        if (busy) late = timed_wait(&all->sent, &all->lock, deadline);
    }
    pthread_mutex_unlock(&all->lock);
}

int links_open(struct links **out, const struct link_events *events, const struct hello *own,
               int beyond, const char *secret) {
    struct links *all = calloc(1, sizeof *all);
    *out = NULL;
    if (!all) return fail(ERR_MEMORY, "rpc: no host memory");
    *all = (struct links){.events = *events,
                          .own = *own,
                          .beyond = beyond,
                          .secret = secret,
                          .listener = -1,
                          .wake = above_streams(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))};
    pthread_mutex_init(&all->lock, NULL);
    cond_open(&all->sent);
    int error = all->wake < 0 ? errno : thread_start(&all->thread, links_thread, all);
    if (!error) {
        *out = all;
        return OK;
    }
    if (all->wake >= 0) close(all->wake);
    pthread_cond_destroy(&all->sent);
    pthread_mutex_destroy(&all->lock);
    free(all);
    return fail_errno(ERR_FAILED, error, "rpc: init: a thread for links");
}

void links_close(struct links *all) {
    if (!all) return;
    pthread_mutex_lock(&all->lock);
    all->stop = 1;
    pthread_mutex_unlock(&all->lock);
    links_wake(all);
    pthread_join(all->thread, NULL);
    for (struct link *l = all->first, *next; l; l = next) {
        next = l->next;
        if (l->fd >= 0) close(l->fd);
        link_drop_queue(l);
        frame_free(l->incoming);
        free(l);
    }
    if (all->listener >= 0) close(all->listener);
    close(all->wake);
    pthread_cond_destroy(&all->sent);
    pthread_mutex_destroy(&all->lock);
    free(all);
}
