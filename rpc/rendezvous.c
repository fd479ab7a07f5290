/* How the workers of a job find each other. Each pair has one stream: a worker dials all of lower
 * rank until they are there.
 *
 *     abstract    every worker listens at a name made of the user, the job and its rank
 *     tcp         rank 0 listens at MASTER_ADDR:MASTER_PORT. Whoever dials it listens at the own
 *                 address that leads there, at any port, and says so in its hello; when all have
 *                 come rank 0 tells everybody all places, and they dial each other
 *
 * A job that Duet's launcher, or the user, gave a secret is told from others by it. Without one it
 * is what the environment says of the job: inside a machine that will do, where the kernel's word
 * on the user is the guard, and over TCP it will not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/environment.h"
#include "rpc/agent.h"
#include "rpc/proof.h"

enum { DIAL_MS = 5, LEAST_SECRET = 16, ADDRESS_BYTES = 320 };

/* ---- what the links tell ---- */

/* Who has dialed may be taken for a stranger while its proof is on its way, and must make room: it
 * counts a peer as met once it has a first frame of it (on_frame). */
static void welcome(struct peer *peer) {
    struct frame *f = frame_new(FRAME_PING, 0);
    peer->state = PEER_HERE;
    if (f) link_send(peer->link, f);
}

static void *on_link(void *context, struct link *link, const struct hello *hello) {
    duet_rpc *rpc = context;
    struct peer *peer = &rpc->peers[hello->rank];
    pthread_mutex_lock(&rpc->lock);
    int good = peer->state == PEER_ABSENT;
    if (!good) snprintf(rpc->wrong, sizeof rpc->wrong, "two workers have rank %d", hello->rank);
    for (int r = 0; r < rpc->world && good; r++)
        if (rpc->peers[r].state != PEER_ABSENT && !strcmp(rpc->peers[r].name, hello->name))
            snprintf(rpc->wrong, sizeof rpc->wrong,
                     "ranks %d and %d are both named '%s': each worker needs a name of its own", r,
                     hello->rank, hello->name);
    if (good) {
        peer->link = link;
        if (peer->rank > rpc->rank) welcome(peer);
        __atomic_store_n(&peer->heard, now_ns(), __ATOMIC_RELAXED);
        snprintf(peer->name, sizeof peer->name, "%s", hello->name);
        snprintf(peer->place, sizeof peer->place, "%s", hello->place);
    }
    pthread_cond_broadcast(&rpc->changed);
    pthread_mutex_unlock(&rpc->lock);
    return good ? peer : NULL;
}

/* What may explain why a worker has not come. That nobody answers does not take the place of a
 * reason. Under the lock. */
static void keep_hint(duet_rpc *rpc, const char *why, int reason) {
    if (reason || !rpc->hint[0]) snprintf(rpc->hint, sizeof rpc->hint, "%s", why);
}

/* Whoever has connected may be a stranger, so this ends nothing. */
static void on_refused(void *context, int dialed) {
    duet_rpc *rpc = context;
    pthread_mutex_lock(&rpc->lock);
    if (*error_message())
        keep_hint(rpc, error_message(), 1);
    else
        keep_hint(rpc, "rpc: a connection has ended before its hello", 0);
    rpc->lost += dialed;
    pthread_cond_broadcast(&rpc->changed);
    pthread_mutex_unlock(&rpc->lock);
}

static int on_gone(void *context, void *user) {
    duet_rpc *rpc = context;
    struct peer *peer = user;
    pthread_mutex_lock(&rpc->lock);
    if (peer->state == PEER_ABSENT) { /* without a welcome: it is dialed again */
        peer->link = NULL;
        rpc->lost++;
        pthread_cond_broadcast(&rpc->changed);
    }
    peer_ends(rpc, peer, PEER_GONE, "its process has ended");
    int stays = peer->link != NULL;
    pthread_mutex_unlock(&rpc->lock);
    return stays;
}

/* ---- which transport, and the secret ---- */

static const char *option_or_environment(const char *given, const char *variable) {
    return given ? given : getenv(variable);
}

int choose_transport(duet_rpc *rpc, const struct duet_rpc_options *o) {
    const char *transport = option_or_environment(o->transport, "DUET_RPC_TRANSPORT");
    const char *secret = getenv("DUET_RPC_SECRET"), *address, *port;
    rpc->beyond = transport && !strcmp(transport, "tcp");
    if (transport && !rpc->beyond && strcmp(transport, "abstract") != 0)
        return fail(ERR_USAGE, "rpc: transport '%.40s': give abstract or tcp", transport);
    if (secret && strlen(secret) >= SECRET_BYTES)
        return fail(ERR_USAGE, "rpc: DUET_RPC_SECRET: %zu bytes: give at most %d", strlen(secret),
                    SECRET_BYTES - 1);
    if (rpc->beyond && (!secret || strlen(secret) < LEAST_SECRET))
        return fail(ERR_USAGE,
                    "rpc: tcp: anybody may knock at a port: set DUET_RPC_SECRET to %d characters "
                    "or more, the same for all workers",
                    LEAST_SECRET);
    if (secret)
        snprintf(rpc->secret, sizeof rpc->secret, "%s", secret);
    else
        describe_job(rpc->secret, sizeof rpc->secret, &address, &port);
    return OK;
}

/* ---- coming together ---- */

/* Dials until the worker is here, or cannot be any more: then all_here says why. A connection that
 * ends before its hello is made again. */
static int dial_until_met(duet_rpc *rpc, int rank, const char *address, int listen_too,
                          int64_t deadline) {
    for (int over = 0; !over;) {
        pthread_mutex_lock(&rpc->lock);
        const int before = rpc->lost;
        pthread_mutex_unlock(&rpc->lock);
        int code = links_dial(rpc->links, address, listen_too), late = 0;
        if (code && code != ERR_PEER) return code;
        pthread_mutex_lock(&rpc->lock);
        if (code && rpc->beyond) keep_hint(rpc, error_message(), 0);
        while (!code && !late && rpc->peers[rank].state == PEER_ABSENT && !rpc->wrong[0] &&
               rpc->lost == before)
            late = wait_changed(rpc, deadline);
        over = rpc->peers[rank].state != PEER_ABSENT || rpc->wrong[0] || now_ns() >= deadline;
        pthread_mutex_unlock(&rpc->lock);
        if (!over) nanosleep(&(struct timespec){.tv_nsec = DIAL_MS * 1000000}, NULL);
    }
    return OK;
}

static int meet_inside(duet_rpc *rpc, int64_t deadline) {
    char address[ADDRESS_BYTES], job[32];
    proof_name(job, sizeof job, rpc->secret);
    const char *format = "duet-rpc-%u-%s-%d";
    snprintf(address, sizeof address, format, (unsigned)geteuid(), job, rpc->rank);
    CHECK(links_listen(rpc->links, address));
    for (int r = 0; r < rpc->rank; r++) {
        snprintf(address, sizeof address, format, (unsigned)geteuid(), job, r);
        CHECK(dial_until_met(rpc, r, address, 0, deadline));
    }
    return OK;
}

/* Waits until all workers are here; the ranks that are not. */
static int wait_for_peers(duet_rpc *rpc, int64_t deadline, char *missing, size_t room) {
    int left, late = 0;
    missing[0] = 0;
    pthread_mutex_lock(&rpc->lock);
    for (;;) {
        left = 0;
        for (int r = 0; r < rpc->world; r++)
            left += rpc->peers[r].state == PEER_ABSENT;
        if (!left || late || rpc->wrong[0]) break;
        late = wait_changed(rpc, deadline);
    }
    for (int r = 0; r < rpc->world && left; r++)
        if (rpc->peers[r].state == PEER_ABSENT)
            snprintf(missing + strlen(missing), room - strlen(missing), "%s%d",
                     missing[0] ? ", " : "", r);
    pthread_mutex_unlock(&rpc->lock);
    return left;
}

/* Strangers may still leave hints. */
static int nobody_came(duet_rpc *rpc, const char *who) {
    pthread_mutex_lock(&rpc->lock);
    int code =
        fail(ERR_TIMEOUT, "rpc: init: %s did not come within %g s: start all %d workers%s%s", who,
             (double)rpc->timeout_ns * 1e-9, rpc->world, rpc->hint[0] ? ": " : "", rpc->hint);
    pthread_mutex_unlock(&rpc->lock);
    return code;
}

static int check_wrong(duet_rpc *rpc) {
    pthread_mutex_lock(&rpc->lock);
    int code = rpc->wrong[0] ? fail(ERR_USAGE, "rpc: init: %s", rpc->wrong) : OK;
    pthread_mutex_unlock(&rpc->lock);
    return code;
}

static int all_here(duet_rpc *rpc, int64_t deadline) {
    char missing[256], who[272];
    int left = wait_for_peers(rpc, deadline, missing, sizeof missing);
    CHECK(check_wrong(rpc));
    snprintf(who, sizeof who, "rank %s", missing);
    return left ? nobody_came(rpc, who) : OK;
}

/* Until rank 0 has said where all are, so all have come to it. */
static int places_here(duet_rpc *rpc, int64_t deadline) {
    struct peer *first = &rpc->peers[0];
    int late = 0;
    pthread_mutex_lock(&rpc->lock);
    while (!rpc->places && !rpc->wrong[0] && !late &&
           (first->state == PEER_ABSENT || first->state == PEER_HERE))
        late = wait_changed(rpc, deadline);
    enum peer_state state = first->state;
    int told = rpc->places != NULL;
    pthread_mutex_unlock(&rpc->lock);
    CHECK(check_wrong(rpc));
    if (told) return OK;
    if (state == PEER_ABSENT) return nobody_came(rpc, "rank 0");
    return state == PEER_HERE ? nobody_came(rpc, "one of the others") : peer_error(rpc, 0, "init");
}

static int tell_places(duet_rpc *rpc) {
    for (int to = 1; to < rpc->world; to++) {
        struct frame *f = frame_new(FRAME_PLACES, (uint64_t)rpc->world * PLACE_BYTES);
        if (!f) return fail(ERR_MEMORY, "rpc: init: no host memory");
        for (int r = 0; r < rpc->world; r++)
            memcpy(f->payload + r * PLACE_BYTES, rpc->peers[r].place, PLACE_BYTES);
        send_frame(rpc, to, f);
    }
    return OK;
}

static int meet_beyond(duet_rpc *rpc, const char *host, int64_t deadline) {
    char address[ADDRESS_BYTES], job[SECRET_BYTES];
    const char *master, *text;
    int port = 29500;
    describe_job(job, sizeof job, &master, &text);
    CHECK(environment_number("MASTER_PORT", 1, 65535, &port));
    if (!host || rpc->rank) host = master;
    snprintf(address, sizeof address, strchr(host, ':') ? "[%.200s]:%d" : "%.200s:%d", host, port);
    if (rpc->rank == 0) {
        CHECK(links_listen(rpc->links, address));
        CHECK(all_here(rpc, deadline));
        return tell_places(rpc);
    }
    CHECK(dial_until_met(rpc, 0, address, rpc->rank < rpc->world - 1, deadline));
    CHECK(places_here(rpc, deadline));
    for (int r = 1; r < rpc->rank; r++)
        CHECK(dial_until_met(rpc, r, rpc->places[r], 0, deadline));
    return OK;
}

int rendezvous(duet_rpc *rpc, const struct duet_rpc_options *o) {
    struct hello own = {.rank = rpc->rank, .world = rpc->world};
    const struct link_events events = {on_link, on_refused, on_frame, on_gone, rpc};
    int64_t deadline = now_ns() + rpc->timeout_ns;
    snprintf(own.name, sizeof own.name, "%s", rpc->name);
    CHECK(links_open(&rpc->links, &events, &own, rpc->beyond, rpc->secret));
    if (rpc->beyond)
        CHECK(meet_beyond(rpc, option_or_environment(o->address, "DUET_RPC_ADDRESS"), deadline));
    else
        CHECK(meet_inside(rpc, deadline));
    return all_here(rpc, deadline);
}
