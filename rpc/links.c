/* Links carry messages from worker to worker. A link is the socket to one peer, which rendezvous.c
 * has opened. Two threads serve it:
 *
 *     read_frames     gives messages, and the end of the stream, to `deliver` (control.c)
 *     write_frames    writes what the socket did not take at once
 *
 * So a sender never waits for a peer. A message to the worker itself arrives at once. With TCP the
 * kernel ends the stream if for `silence_s` the peer's machine is silent, or its buffers full. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rpc/agent.h"
#include "rpc/sockets.h"

/* ---- sending ---- */

/* Writes as much of the frame as the socket takes. 1: all of it. */
static int write_some(struct peer *p, struct frame *f, int flags) {
    ssize_t n = send(p->fd, f->data + f->sent, f->bytes - f->sent, MSG_NOSIGNAL | flags);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        shutdown(p->fd, SHUT_RDWR); /* makes the reader stop */
    if (n > 0) f->sent += (size_t)n;
    return f->sent == f->bytes;
}

static void drop_first(struct peer *p) {
    struct frame *f = p->first;
    if (!(p->first = f->next)) pthread_cond_broadcast(&p->rpc->changed);
    frame_free(f);
}

void send_frame(duet_rpc *rpc, int to, struct frame *f) {
    struct peer *p = &rpc->peers[to];
    f->next = NULL;
    if (to == rpc->rank) {
        rpc->deliver(p, f);
    } else if (p->ended) {
        frame_free(f);
    } else if (p->first) {
        p->last = p->last->next = f;
    } else {
        p->first = p->last = f;
        if (write_some(p, f, MSG_DONTWAIT))
            drop_first(p);
        else
            pthread_cond_signal(&p->work);
    }
}

void tell_peer(duet_rpc *rpc, int to, const struct message *m) {
    struct wire_out w = {0};
    message_begin(&w, m);
    struct frame *f = message_end(&w);
    if (f) send_frame(rpc, to, f);
    free(w.data);
}

/* ---- the threads ---- */

static void *write_frames(void *peer) {
    struct peer *p = peer;
    duet_rpc *rpc = p->rpc;
    pthread_mutex_lock(&rpc->lock);
    while (!p->ended) {
        if (!p->first) {
            rpc_wait(rpc, &p->work, 0);
            continue;
        }
        struct frame *f = p->first;
        pthread_mutex_unlock(&rpc->lock);
        const int done = write_some(p, f, 0);
        pthread_mutex_lock(&rpc->lock);
        if (done) drop_first(p);
    }
    pthread_mutex_unlock(&rpc->lock);
    return NULL;
}

/* NULL: the stream has ended, or the bytes are not a message. */
static struct frame *read_frame(int fd) {
    struct message_header h;
    if (socket_read(fd, &h, sizeof h, 0) || !header_is_good(&h)) return NULL;
    struct frame *f = calloc(1, sizeof *f);
    if (f && (f->data = malloc(h.bytes))) {
        memcpy(f->data, &h, sizeof h);
        f->bytes = h.bytes;
        if (!socket_read(fd, f->data + sizeof h, h.bytes - sizeof h, 0)) return f;
    }
    frame_free(f);
    return NULL;
}

static void *read_frames(void *peer) {
    struct peer *p = peer;
    for (struct frame *f; (f = read_frame(p->fd));) {
        pthread_mutex_lock(&p->rpc->lock);
        p->rpc->deliver(p, f);
        pthread_mutex_unlock(&p->rpc->lock);
    }
    pthread_mutex_lock(&p->rpc->lock);
    p->ended = 1;
    shutdown(p->fd, SHUT_RDWR);
    p->rpc->deliver(p, NULL);
    pthread_cond_signal(&p->work);
    pthread_cond_broadcast(&p->rpc->changed);
    pthread_mutex_unlock(&p->rpc->lock);
    return NULL;
}

/* ---- beginning and end ---- */

/* The kernel asks the peer's each second whether the machine is still there. */
static void watch_machine(int fd, int silence_ms) {
    const int option[][3] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                             {IPPROTO_TCP, TCP_KEEPIDLE, 1},
                             {IPPROTO_TCP, TCP_KEEPINTVL, 1},
                             {IPPROTO_TCP, TCP_USER_TIMEOUT, silence_ms}};
    for (size_t i = 0; i < sizeof option / sizeof *option; i++)
        setsockopt(fd, option[i][0], option[i][1], &option[i][2], sizeof(int));
}

int links_start(duet_rpc *rpc) {
    for (int r = 0; r < rpc->world; r++) {
        struct peer *p = &rpc->peers[r];
        if (r == rpc->rank) continue;
        if (rpc->beyond) watch_machine(p->fd, rpc->silence_ms);
        int error = thread_start(&p->writes, write_frames, p);
        p->threads = !error;
        if (!error) error = thread_start(&p->reads, read_frames, p);
        p->threads += !error;
        if (error) return fail_errno(ERR_FAILED, error, "rpc: init: thread");
    }
    return OK;
}

static void close_link(struct peer *p) {
    pthread_mutex_lock(&p->rpc->lock);
    p->ended = 1;
    if (p->fd >= 0) shutdown(p->fd, SHUT_RDWR);
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->rpc->lock);
    if (p->threads > 0) pthread_join(p->writes, NULL);
    if (p->threads > 1) pthread_join(p->reads, NULL);
    if (p->fd >= 0) close(p->fd);
    while (p->first)
        drop_first(p);
    pthread_cond_destroy(&p->work);
}

void links_close(duet_rpc *rpc) {
    for (int r = 0; r < MOST_WORKERS; r++)
        close_link(&rpc->peers[r]);
}
