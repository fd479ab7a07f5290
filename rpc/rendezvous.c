/* Connects the workers of a job: afterwards each pair has one socket.
 *
 *     the others    listen, and dial rank 0                      ->  rank 0
 *     each side     opening: a random number  ->  hello and proof (proof.h)
 *     rank 0        when all have joined, or one is refused: the list of names and addresses, or
 *                   the reason for the failure                   ->  the others
 *     rank r        dials the lower ranks at their addresses, and waits for the higher ones
 *
 * On one machine the addresses are names made from the user, the job and the rank. With TCP rank 0
 * listens at MASTER_ADDR:MASTER_PORT, and each other worker where its route there begins.
 *
 * A secret from Duet's launcher or from the user distinguishes jobs. Without a secret a job is
 * identified by its environment variables. That is enough inside a machine, where the kernel
 * reports the user of a peer; over TCP a secret is required. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "comm/environment.h"
#include "rpc/agent.h"
#include "rpc/sockets.h"

enum { LEAST_SECRET = 16, ADDRESS_BYTES = 320 };
enum { OPENING_MS = 1000, DIAL_REST_MS = 5, LOOK_MS = 50 };

struct words { /* the second message of each side */
    struct hello hello;
    uint8_t proof[PROOF_BYTES];
};

struct roll {
    int32_t code; /* not OK: there is no job, for this reason */
    char text[ERROR_BYTES];
    struct hello worker[MOST_WORKERS];
};

struct meeting {
    duet_rpc *rpc;
    int listener; /* -1: not listening */
    int64_t deadline;
    char first[ADDRESS_BYTES]; /* where rank 0 listens */
    char hint[ERROR_BYTES];    /* a likely reason for a missing worker; "": none */
    struct roll roll;
};

/* ---- which transport, and the secret ---- */

int choose_transport(duet_rpc *rpc, const struct duet_rpc_options *o) {
    const char *transport = o->transport ? o->transport : getenv("DUET_RPC_TRANSPORT");
    const char *secret = getenv("DUET_RPC_SECRET"), *address, *port;
    rpc->beyond = transport && !strcmp(transport, "tcp");
    if (transport && !rpc->beyond && strcmp(transport, "abstract") != 0)
        return fail(ERR_USAGE, "rpc: transport '%.40s': give abstract or tcp", transport);
    if (secret && strlen(secret) >= SECRET_BYTES)
        return fail(ERR_USAGE, "rpc: DUET_RPC_SECRET: %zu bytes: give at most %d", strlen(secret),
                    SECRET_BYTES - 1);
    if (rpc->beyond && (!secret || strlen(secret) < LEAST_SECRET))
        return fail(ERR_USAGE,
                    "rpc: tcp: anybody can reach a port: set DUET_RPC_SECRET to %d characters "
                    "or more, the same for all workers",
                    LEAST_SECRET);
    if (secret)
        snprintf(rpc->secret, sizeof rpc->secret, "%s", secret);
    else
        describe_job(rpc->secret, sizeof rpc->secret, &address, &port);
    return OK;
}

static void name_inside(const duet_rpc *rpc, int rank, char *address, size_t bytes) {
    char job[32];
    proof_name(job, sizeof job, rpc->secret);
    snprintf(address, bytes, "duet-rpc-%u-%s-%d", (unsigned)geteuid(), job, rank);
}

/* Where rank 0 listens. */
static int find_first(struct meeting *m) {
    const char *host, *text;
    char job[SECRET_BYTES];
    int port = 29500;
    if (!m->rpc->beyond) {
        name_inside(m->rpc, 0, m->first, sizeof m->first);
        return OK;
    }
    describe_job(job, sizeof job, &host, &text);
    CHECK(environment_number("MASTER_PORT", 1, 65535, &port));
    snprintf(m->first, sizeof m->first, strchr(host, ':') ? "[%.200s]:%d" : "%.200s:%d", host,
             port);
    return OK;
}

/* ---- the opening: the side that dials introduces itself first ---- */

/* The end of a connection does not replace a known reason. */
static void keep_hint(struct meeting *m, int code) {
    if (code != ERR_PEER || !m->hint[0]) snprintf(m->hint, sizeof m->hint, "%s", error_message());
}

/* A failed send shows when no answer comes. The listener answers even a peer that it will refuse,
 * so that the peer learns who refused it: it may have the same name. */
static int exchange(const struct meeting *m, int fd, enum proof_role role, int64_t deadline,
                    struct hello *theirs) {
    struct opening own = {.magic = HELLO_MAGIC, .version = WIRE_VERSION}, peer;
    struct words said = {.hello = m->roll.worker[m->rpc->rank]}, heard;
    if (getentropy(own.nonce, NONCE_BYTES)) return fail(ERR_FAILED, "rpc: no random numbers");
    send(fd, &own, sizeof own, MSG_NOSIGNAL);
    CHECK(socket_read(fd, &peer, sizeof peer, deadline));
    CHECK(opening_check(&peer));
    const struct statement ours = {own, peer, role, said.hello};
    hmac_sha256(said.proof, m->rpc->secret, &ours, sizeof ours);
    if (role == ROLE_DIALS) send(fd, &said, sizeof said, MSG_NOSIGNAL);
    CHECK(socket_read(fd, &heard, sizeof heard, deadline));
    if (role == ROLE_LISTENS) send(fd, &said, sizeof said, MSG_NOSIGNAL);
    *theirs = heard.hello;
    const enum proof_role other_role = role == ROLE_DIALS ? ROLE_LISTENS : ROLE_DIALS;
    return proof_check(heard.proof, m->rpc->secret,
                       &(struct statement){peer, own, other_role, heard.hello});
}

/* ---- accepting: one connection after another, each with a second for its opening ---- */

/* At rank 0. ERR_USAGE: a peer that knows the secret does not fit this job. */
static int check_new(const struct meeting *m, const struct hello *hello) {
    const struct roll *roll = &m->roll;
    CHECK(hello_check(hello, &roll->worker[m->rpc->rank]));
    if (m->rpc->peers[hello->rank].fd >= 0 || hello->rank == 0)
        return fail(ERR_USAGE, "rpc: init: two workers have rank %d", hello->rank);
    for (int r = 0; r < m->rpc->world; r++)
        if (!strcmp(roll->worker[r].name, hello->name))
            return fail(ERR_USAGE,
                        "rpc: init: ranks %d and %d are both named '%s': each worker needs a name "
                        "of its own",
                        r, hello->rank, hello->name);
    return OK;
}

/* At the others. Returns 1 if it is a worker of the roll that is still awaited. */
static int is_awaited(const struct meeting *m, const struct hello *hello) {
    return hello->rank > m->rpc->rank && hello->rank < m->rpc->world &&
           m->rpc->peers[hello->rank].fd < 0 &&
           !memcmp(hello, &m->roll.worker[hello->rank], sizeof *hello);
}

static void refuse_job(struct meeting *m, int code) {
    m->roll.code = code;
    snprintf(m->roll.text, sizeof m->roll.text, "%s", error_message());
}

/* A peer that cannot prove that it knows the secret may be a stranger, and is ignored. Takes fd. */
static int let_in(struct meeting *m, int fd) {
    struct hello hello;
    int code = exchange(m, fd, ROLE_LISTENS, deadline_after(OPENING_MS * 1e-3), &hello);
    if (code) {
        keep_hint(m, code);
        code = OK;
    } else if (m->rpc->rank ? is_awaited(m, &hello) : !(code = check_new(m, &hello))) {
        m->roll.worker[hello.rank] = hello;
        m->rpc->peers[hello.rank].fd = fd;
        return OK;
    } else if (code) {
        refuse_job(m, code);
        send(fd, &m->roll, sizeof m->roll, MSG_NOSIGNAL);
    }
    close(fd);
    return code;
}

static int serve_door(struct meeting *m) {
    struct pollfd polled = {.fd = m->listener, .events = POLLIN};
    if (poll(&polled, 1, LOOK_MS) <= 0) return OK;
    int fd = socket_accept(m->listener, m->rpc->beyond);
    return fd < 0 ? OK : let_in(m, fd);
}

/* ---- dialing ---- */

/* Listens where the others will find this worker; it has reached rank 0 by this socket. */
static int listen_beside(struct meeting *m, int fd) {
    duet_rpc *rpc = m->rpc;
    char *address = m->roll.worker[rpc->rank].address;
    if (m->listener >= 0 || rpc->rank == rpc->world - 1) return OK;
    if (!rpc->beyond)
        name_inside(rpc, rpc->rank, address, HELLO_ADDRESS);
    else
        CHECK(socket_address(fd, 1, address, HELLO_ADDRESS));
    CHECK(socket_listen(&m->listener, rpc->beyond, address));
    return rpc->beyond ? socket_address(m->listener, 0, address, HELLO_ADDRESS) : OK;
}

/* Why init must fail: it has waited for `who` in vain. */
static int came_late(const struct meeting *m, const char *who) {
    return fail(ERR_TIMEOUT, "rpc: init: %s did not join within %g s: start all %d workers%s%s",
                who, (double)m->rpc->timeout_ns * 1e-9, m->rpc->world, m->hint[0] ? ": " : "",
                m->hint);
}

/* Repeats until a peer that knows the secret answers. */
static int dial(struct meeting *m, int rank) {
    const char *address = rank ? m->roll.worker[rank].address : m->first;
    char who[32];
    while (now_ns() < m->deadline) {
        struct hello theirs;
        int fd, code = socket_dial(&fd, m->rpc->beyond, address), opened = !code;
        if (code && code != ERR_PEER) return code;
        if (!code && !rank) CHECK_KEEP(listen_beside(m, fd), code);
        if (!code) code = exchange(m, fd, ROLE_DIALS, m->deadline, &theirs);
        if (!code) {
            m->rpc->peers[rank].fd = fd;
            return hello_check(&theirs, &m->roll.worker[m->rpc->rank]);
        }
        if (opened || m->rpc->beyond) keep_hint(m, code);
        if (opened) close(fd);
        nanosleep(&(struct timespec){.tv_nsec = DIAL_REST_MS * 1000000}, NULL);
    }
    snprintf(who, sizeof who, "rank %d", rank);
    return came_late(m, who);
}

/* ---- joining ---- */

/* All of higher rank. */
static int wait_for_higher(struct meeting *m) {
    const duet_rpc *rpc = m->rpc;
    for (int missing = 1; missing;) {
        char who[272] = "rank";
        missing = 0;
        for (int r = rpc->rank + 1; r < rpc->world; r++)
            if (rpc->peers[r].fd < 0)
                snprintf(who + strlen(who), sizeof who - strlen(who), "%s%d",
                         missing++ ? ", " : " ", r);
        if (missing && now_ns() >= m->deadline) return came_late(m, who);
        if (missing) CHECK(serve_door(m));
    }
    return OK;
}

static int host(struct meeting *m) {
    if (m->rpc->world == 1) return OK;
    CHECK(socket_listen(&m->listener, m->rpc->beyond, m->first));
    int code = wait_for_higher(m);
    if (code) refuse_job(m, code);
    for (int r = 1; r < m->rpc->world; r++)
        if (m->rpc->peers[r].fd >= 0)
            send(m->rpc->peers[r].fd, &m->roll, sizeof m->roll, MSG_NOSIGNAL);
    return code;
}

static int read_roll(struct meeting *m) {
    struct roll *roll = &m->roll;
    const struct hello own = roll->worker[m->rpc->rank];
    if (socket_read(m->rpc->peers[0].fd, roll, sizeof *roll, m->deadline))
        return now_ns() >= m->deadline
                   ? came_late(m, "one of the others")
                   : fail(ERR_PEER, "rpc: init: rank 0 has ended before all workers had joined");
    roll->text[sizeof roll->text - 1] = 0;
    if (roll->code)
        return fail(roll->code > OK && roll->code <= ERR_PEER ? roll->code : ERR_FAILED, "%s",
                    roll->text);
    for (int r = 0; r < m->rpc->world; r++)
        CHECK(hello_check(&roll->worker[r], &own));
    return OK;
}

static int come(struct meeting *m) {
    CHECK(dial(m, 0));
    CHECK(read_roll(m));
    for (int r = 1; r < m->rpc->rank; r++)
        CHECK(dial(m, r));
    return wait_for_higher(m);
}

static int meet(struct meeting *m) {
    duet_rpc *rpc = m->rpc;
    struct hello *own = &m->roll.worker[rpc->rank];
    *own = (struct hello){.rank = rpc->rank, .world = rpc->world};
    snprintf(own->name, sizeof own->name, "%s", rpc->name);
    CHECK(find_first(m));
    CHECK(rpc->rank ? come(m) : host(m));
    for (int r = 0; r < rpc->world; r++)
        memcpy(rpc->peers[r].name, m->roll.worker[r].name, sizeof rpc->peers[r].name);
    return OK;
}

/* Once all have joined, no worker listens any more. */
int rendezvous(duet_rpc *rpc) {
    struct meeting *m = calloc(1, sizeof *m);
    if (!m) return fail(ERR_MEMORY, "rpc: init: out of host memory");
    m->rpc = rpc;
    m->listener = -1;
    m->deadline = now_ns() + rpc->timeout_ns;
    int code = meet(m);
    if (m->listener >= 0) close(m->listener);
    free(m);
    return code;
}
