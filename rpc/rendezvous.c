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

enum { DIAL_MS = 5, LEAST_SECRET = 16, ADDRESS_BYTES = 320 };

/* ---- what the links tell ---- */

static void *on_link(void *context, struct link *link, const struct hello *hello) {
    duet_rpc *rpc = context;
    struct peer *peer = &rpc->peers[hello->rank];
    pthread_mutex_lock(&rpc->lock);
    int good = peer->state == PEER_ABSENT;
    if (!good)
        snprintf(rpc->wrong, sizeof rpc->wrong, "rpc: init: two workers have rank %d", hello->rank);
    for (int r = 0; r < rpc->world && good; r++)
        if (rpc->peers[r].state != PEER_ABSENT && !strcmp(rpc->peers[r].name, hello->name))
            snprintf(rpc->wrong, sizeof rpc->wrong,
                     "rpc: init: ranks %d and %d are both named '%s': each worker needs a name of "
                     "its own",
                     r, hello->rank, hello->name);
    if (good) {
        peer->link = link;
        peer->state = PEER_HERE;
        rpc->absent--;
        peer->heard = now_ns();
        snprintf(peer->name, sizeof peer->name, "%s", hello->name);
        snprintf(peer->place, sizeof peer->place, "%s", hello->place);
    }
    pthread_cond_broadcast(&rpc->changed);
    pthread_mutex_unlock(&rpc->lock);
    return good ? peer : NULL;
}

/* What may explain why a worker has not come. That nobody answers does not take the place of a
 * reason. */
static void keep_hint(duet_rpc *rpc, int reason) {
    pthread_mutex_lock(&rpc->lock);
    if (reason || !rpc->hint[0]) snprintf(rpc->hint, sizeof rpc->hint, "%s", error_message());
    pthread_mutex_unlock(&rpc->lock);
}

/* A peer that knows the secret is believed; else who has connected may be a stranger, so this ends
 * nothing. */
static void on_refused(void *context, int proved) {
    duet_rpc *rpc = context;
    keep_hint(rpc, !strstr(error_message(), "before its hello"));
    if (!proved) return;
    pthread_mutex_lock(&rpc->lock);
    snprintf(rpc->wrong, sizeof rpc->wrong, "%s", error_message());
    pthread_cond_broadcast(&rpc->changed);
    pthread_mutex_unlock(&rpc->lock);
}

static void on_gone(void *context, void *user) {
    duet_rpc *rpc = context;
    pthread_mutex_lock(&rpc->lock);
    peer_ends(rpc, user, PEER_GONE, "its process has ended");
    pthread_mutex_unlock(&rpc->lock);
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

/* Why init must end, under the lock. who: whom it has waited for in vain; NULL: nobody. */
static int verdict(const duet_rpc *rpc, const char *who) {
    if (rpc->wrong[0]) return fail(ERR_USAGE, "%s", rpc->wrong);
    return who ? fail(ERR_TIMEOUT,
                      "rpc: init: %s did not come within %g s: start all %d workers%s%s", who,
                      (double)rpc->timeout_ns * 1e-9, rpc->world, rpc->hint[0] ? ": " : "",
                      rpc->hint)
               : OK;
}

/* Dials until somebody is there, or it is too late: then who waits says why. */
static int dial(duet_rpc *rpc, const char *address, int listen_too, int64_t deadline) {
    for (int over = 0; !over;) {
        int code = links_dial(rpc->links, address, listen_too);
        if (code != ERR_PEER) return code;
        if (rpc->beyond) keep_hint(rpc, 0);
        nanosleep(&(struct timespec){.tv_nsec = DIAL_MS * 1000000}, NULL);
        pthread_mutex_lock(&rpc->lock);
        over = rpc->wrong[0] || now_ns() >= deadline;
        pthread_mutex_unlock(&rpc->lock);
    }
    return OK;
}

static int all_here(duet_rpc *rpc, int64_t deadline) {
    char who[272] = "rank";
    int late = 0;
    pthread_mutex_lock(&rpc->lock);
    while (rpc->absent && !late && !rpc->wrong[0])
        late = wait_changed(rpc, deadline);
    for (int r = 0; r < rpc->world; r++)
        if (rpc->peers[r].state == PEER_ABSENT)
            snprintf(who + strlen(who), sizeof who - strlen(who), "%s%d", who[4] ? ", " : " ", r);
    int code = verdict(rpc, rpc->absent ? who : NULL);
    pthread_mutex_unlock(&rpc->lock);
    return code;
}

static void name_inside(const duet_rpc *rpc, int rank, char address[ADDRESS_BYTES]) {
    char job[32];
    proof_name(job, sizeof job, rpc->secret);
    snprintf(address, ADDRESS_BYTES, "duet-rpc-%u-%s-%d", (unsigned)geteuid(), job, rank);
}

static int meet_inside(duet_rpc *rpc, int64_t deadline) {
    char address[ADDRESS_BYTES];
    name_inside(rpc, rpc->rank, address);
    if (rpc->world > 1) CHECK(links_listen(rpc->links, address));
    for (int r = 0; r < rpc->rank; r++) {
        name_inside(rpc, r, address);
        CHECK(dial(rpc, address, 0, deadline));
    }
    return OK;
}

/* Until rank 0 has said where all are, so all have come to it. */
static int places_here(duet_rpc *rpc, int64_t deadline) {
    const struct peer *first = &rpc->peers[0];
    int late = 0;
    pthread_mutex_lock(&rpc->lock);
    while (!rpc->placed && !rpc->wrong[0] && !late && first->state <= PEER_HERE)
        late = wait_changed(rpc, deadline);
    int code = verdict(rpc, rpc->placed || !late          ? NULL
                            : first->state == PEER_ABSENT ? "rank 0"
                                                          : "one of the others");
    if (!code && !rpc->placed) code = peer_error(rpc, 0, "init");
    pthread_mutex_unlock(&rpc->lock);
    return code;
}

static void tell_places(duet_rpc *rpc) {
    char all[MOST_WORKERS * (PLACE_BYTES + 1)] = "";
    for (int r = 0, at = 0; r < rpc->world; r++)
        at += snprintf(all + at, sizeof all - (size_t)at, "%s ",
                       rpc->peers[r].place[0] ? rpc->peers[r].place : "-");
    for (int to = 1; to < rpc->world; to++)
        tell_peer(rpc, to, &(struct message){.kind = MESSAGE_PLACES, .text = all});
}

void take_places(duet_rpc *rpc, const char *text) {
    int skip = 0;
    for (int r = 0; r < rpc->world && sscanf(text, "%63s%n", rpc->peers[r].place, &skip) == 1; r++)
        text += skip;
    rpc->placed = 1;
    pthread_cond_broadcast(&rpc->changed);
}

/* host NULL: MASTER_ADDR. */
static int name_beyond(const char *host, char address[ADDRESS_BYTES]) {
    char job[SECRET_BYTES];
    const char *master, *text;
    int port = 29500;
    describe_job(job, sizeof job, &master, &text);
    CHECK(environment_number("MASTER_PORT", 1, 65535, &port));
    if (!host) host = master;
    snprintf(address, ADDRESS_BYTES, strchr(host, ':') ? "[%.200s]:%d" : "%.200s:%d", host, port);
    return OK;
}

static int meet_beyond(duet_rpc *rpc, const char *host, int64_t deadline) {
    char address[ADDRESS_BYTES];
    CHECK(name_beyond(rpc->rank ? NULL : host, address));
    if (rpc->rank == 0) {
        if (rpc->world > 1) CHECK(links_listen(rpc->links, address));
        CHECK(all_here(rpc, deadline));
        tell_places(rpc);
        return OK;
    }
    CHECK(dial(rpc, address, rpc->rank < rpc->world - 1, deadline));
    CHECK(places_here(rpc, deadline));
    for (int r = 1; r < rpc->rank; r++)
        CHECK(dial(rpc, rpc->peers[r].place, 0, deadline));
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
