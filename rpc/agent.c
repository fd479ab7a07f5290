/* A worker begins and ends, and knows the others.
 *
 * Every worker listens at an abstract socket whose name is made of the user, the job and its rank,
 * and dials all workers of lower rank until they are there. So each pair has one stream, and init
 * returns when all workers have a good hello of all others. */
#include "rpc/autograd.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "comm/environment.h"
#include "rpc/table.h"

static const double TIMEOUT_S = 60, SILENCE_S = 30;
static const int64_t LOOK_NS = 1000000000;
enum { THREADS = 16, DIAL_MS = 5, FLUSH_MS = 2000 };

uint64_t new_id(duet_rpc *rpc) {
    return (uint64_t)rpc->rank << ID_BITS | ++rpc->ids;
}

/* ---- waiting ---- */

void cond_open(pthread_cond_t *cond) {
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &clock);
    pthread_condattr_destroy(&clock);
}

int timed_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline) {
    int look = 0;
    /* Without a deadline the caller still looks every second at what it waits for, and at `stop`:
     * all waits stand in loops. */
    if (!deadline) deadline = now_ns() + LOOK_NS, look = 1;
    struct timespec t = {deadline / 1000000000, deadline % 1000000000};
    return pthread_cond_timedwait(cond, lock, &t) && !look && now_ns() >= deadline ? ERR_TIMEOUT
                                                                                   : OK;
}

int wait_changed(duet_rpc *rpc, int64_t deadline) {
    return timed_wait(&rpc->changed, &rpc->lock, deadline);
}

struct device_lock *lock_of(duet_rpc *rpc, const duet_device *device) {
    struct device_lock *found = NULL;
    pthread_mutex_lock(&rpc->lock);
    for (int i = 0; device && i < rpc->lock_count && !found; i++)
        if (rpc->locks[i].device == device) found = &rpc->locks[i];
    if (device && !found && rpc->lock_count < DUET_MAX_DEVICES) {
        found = &rpc->locks[rpc->lock_count++];
        device_lock_open(found, (duet_device *)device);
    }
    pthread_mutex_unlock(&rpc->lock);
    return found;
}

struct pause pause_begin(duet_rpc *rpc) {
    struct pause pause = {NULL};
    for (int i = 0; i < rpc->lock_count && !pause.lock; i++)
        if (device_lock_is_mine(&rpc->locks[i])) pause.lock = &rpc->locks[i];
    if (pause.lock) device_lock_give(pause.lock);
    pool_pause(&rpc->pool);
    return pause;
}

void pause_end(duet_rpc *rpc, struct pause pause) {
    pool_resume(&rpc->pool);
    if (pause.lock) device_lock_take(pause.lock);
}

int duet_rpc_take_device(duet_rpc *rpc, duet_device *device) {
    struct device_lock *l = rpc && device ? lock_of(rpc, device) : NULL;
    if (!l) return fail(ERR_USAGE, "rpc: take device: no %s was given", rpc ? "device" : "worker");
    for (int i = 0; i < rpc->lock_count; i++)
        if (device_lock_is_mine(&rpc->locks[i]))
            return fail(ERR_USAGE, "rpc: take device: this thread has %s already: it may have one",
                        duet_device_name(rpc->locks[i].device));
    device_lock_take(l);
    return OK;
}

void duet_rpc_give_device(duet_rpc *rpc, duet_device *device) {
    struct device_lock *l = rpc && device ? lock_of(rpc, device) : NULL;
    if (l && device_lock_is_mine(l)) device_lock_give(l);
}

/* ---- the other workers ---- */

static int check_name(const char *name) {
    size_t length = name ? strlen(name) : 0;
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("_:-", name[i])) length = 0;
    if (length && length < NAME_BYTES) return OK;
    return fail(ERR_USAGE,
                "rpc: worker name '%.140s': give 1 to %d letters, digits, '_', ':' or '-'",
                name ? name : "", NAME_BYTES - 1);
}

static void *on_link(void *context, struct link *link, const struct hello *hello) {
    duet_rpc *rpc = context;
    struct peer *peer = &rpc->peers[hello->rank];
    pthread_mutex_lock(&rpc->lock);
    int good = hello->rank < rpc->world && peer->state == PEER_ABSENT;
    if (!good) snprintf(rpc->wrong, sizeof rpc->wrong, "two workers have rank %d", hello->rank);
    for (int r = 0; r < rpc->world && good; r++)
        if (rpc->peers[r].state != PEER_ABSENT && !strcmp(rpc->peers[r].name, hello->name))
            snprintf(rpc->wrong, sizeof rpc->wrong,
                     "ranks %d and %d are both named '%s': each worker needs a name of its own", r,
                     hello->rank, hello->name);
    if (good) {
        peer->link = link;
        peer->state = PEER_HERE;
        __atomic_store_n(&peer->heard, now_ns(), __ATOMIC_RELAXED);
        snprintf(peer->name, sizeof peer->name, "%s", hello->name);
    }
    pthread_cond_broadcast(&rpc->changed);
    pthread_mutex_unlock(&rpc->lock);
    return good ? peer : NULL;
}

static void on_gone(void *context, void *user) {
    duet_rpc *rpc = context;
    pthread_mutex_lock(&rpc->lock);
    peer_ends(rpc, user, PEER_GONE, "its process has ended");
    pthread_mutex_unlock(&rpc->lock);
}

void send_frame(duet_rpc *rpc, int to, struct frame *frame) {
    if (to == rpc->rank) {
        frame->came = now_ns();
        on_frame(rpc, &rpc->peers[to], frame);
    } else if (rpc->peers[to].link) {
        rpc->transport->send(rpc->peers[to].link, frame);
    } else {
        frame_free(frame);
    }
}

int find_worker(const duet_rpc *rpc, const char *name, int *rank) {
    for (*rank = 0; name && *rank < rpc->world; ++*rank)
        if (!strcmp(rpc->peers[*rank].name, name)) return OK;
    return fail(ERR_USAGE, "rpc: worker '%s': there is none of this name", name ? name : "");
}

int duet_rpc_rank(const duet_rpc *rpc, const char *name) {
    int rank;
    if (!rpc) return -1;
    return !name ? rpc->rank : find_worker(rpc, name, &rank) ? -1 : rank;
}

const char *duet_rpc_name(const duet_rpc *rpc, int rank) {
    return rpc && rank >= 0 && rank < rpc->world ? rpc->peers[rank].name : NULL;
}

int duet_rpc_world_size(const duet_rpc *rpc) {
    return rpc ? rpc->world : -1;
}

/* ---- the beginning ---- */

/* The job's name and its secret. A job that Duet's launcher, or the user, gave a secret is told
 * from others by it; by hand it is what the environment says, and the kernel's word on the user
 * guards it. */
static void describe(struct hello *own, char *place, size_t bytes) {
    char job[768];
    const char *address, *port, *secret = getenv("DUET_RPC_SECRET");
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a, as in comm/rendezvous.c */
    describe_job(job, sizeof job / 2, &address, &port);
    if (secret) snprintf(job, sizeof job, "%s", secret);
    for (const char *c = job; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    snprintf(place, bytes, "abstract://duet-rpc-%u-%016llx", (unsigned)geteuid(),
             (unsigned long long)hash);
    for (size_t i = 0, n = strlen(job); i < n; i++) /* a short secret stands there as it is */
        own->secret[i % SECRET_BYTES] =
            (uint8_t)(own->secret[i % SECRET_BYTES] * 31 + (unsigned char)job[i]);
}

static int come_together(duet_rpc *rpc, const char *place, int64_t deadline) {
    char address[160];
    snprintf(address, sizeof address, "%s-%d", place, rpc->rank);
    CHECK(rpc->transport->listen(rpc->carrier, address));
    for (int r = 0; r < rpc->rank; r++) {
        snprintf(address, sizeof address, "%s-%d", place, r);
        while (rpc->transport->dial(rpc->carrier, address)) {
            pthread_mutex_lock(&rpc->lock);
            int wrong = rpc->wrong[0];
            pthread_mutex_unlock(&rpc->lock);
            if (now_ns() >= deadline || wrong) break;
            nanosleep(&(struct timespec){.tv_nsec = DIAL_MS * 1000000}, NULL);
        }
    }
    return OK;
}

static int all_here(duet_rpc *rpc, int64_t deadline) {
    char missing[256] = "";
    int here = 0, late = 0;
    pthread_mutex_lock(&rpc->lock);
    while (!rpc->wrong[0] && !late) {
        here = 0;
        for (int r = 0; r < rpc->world; r++)
            here += rpc->peers[r].state != PEER_ABSENT;
        if (here == rpc->world) break;
        late = wait_changed(rpc, deadline);
    }
    for (int r = 0; r < rpc->world; r++)
        if (rpc->peers[r].state == PEER_ABSENT)
            snprintf(missing + strlen(missing), sizeof missing - strlen(missing), "%s%d",
                     missing[0] ? ", " : "", r);
    pthread_mutex_unlock(&rpc->lock);
    if (rpc->wrong[0]) return fail(ERR_USAGE, "rpc: init: %s", rpc->wrong);
    if (here == rpc->world) return OK;
    return fail(ERR_TIMEOUT, "rpc: init: rank %s did not come within %g s: start all %d workers",
                missing, (double)rpc->timeout_ns * 1e-9, rpc->world);
}

static int set_up(duet_rpc *rpc, const struct duet_rpc_options *o) {
    rpc->timeout_ns = (int64_t)((o->timeout_s > 0 ? o->timeout_s : TIMEOUT_S) * 1e9);
    rpc->silence_ns = (int64_t)((o->silence_s > 0 ? o->silence_s : SILENCE_S) * 1e9);
    rpc->device = o->device;
    rpc->trace = rpc_trace_open(rpc->rank);
    pthread_mutex_init(&rpc->lock, NULL);
    cond_open(&rpc->changed);
    cond_open(&rpc->control_wakes);
    pool_open(&rpc->pool, o->threads > 0 ? o->threads : THREADS);
    rpc->life =
        (struct life){.self = rpc->rank, .emit = life_emit, .free = life_free, .context = rpc};
    for (int r = 0; r < MOST_WORKERS; r++)
        rpc->peers[r] = (struct peer){.rpc = rpc, .rank = r};
    struct peer *self = &rpc->peers[rpc->rank];
    self->state = PEER_HERE;
    memcpy(self->name, rpc->name, sizeof self->name);
    CHECK(register_internal(rpc));
    for (int i = 0; i < o->function_count; i++)
        CHECK(add_function(rpc, &o->functions[i], 0));
    return OK;
}

/* Functions that still run here must find links to answer on, so they end first; what comes in
 * meanwhile is dropped (on_frame). */
static void free_worker(duet_rpc *rpc) {
    pthread_mutex_lock(&rpc->lock);
    rpc->stop = 1;
    for (int r = 0; r < rpc->world; r++)
        futures_of_dead(rpc, r);
    pthread_cond_broadcast(&rpc->control_wakes);
    pthread_cond_broadcast(&rpc->changed);
    pthread_mutex_unlock(&rpc->lock);
    if (rpc->controlled) pthread_join(rpc->control, NULL);
    pool_close(&rpc->pool);
    if (rpc->carrier) rpc->transport->close(rpc->carrier);
    contexts_free_all(rpc);
    owned_free_all(rpc);
    life_close(&rpc->life);
    rpc_trace_close(rpc->trace, rpc);
    stat_free(rpc);
    for (struct function *f = rpc->functions, *next; f; f = next) {
        next = f->next;
        free(f);
    }
    for (int i = 0; i < rpc->lock_count; i++)
        device_lock_close(&rpc->locks[i]);
    pthread_cond_destroy(&rpc->changed);
    pthread_cond_destroy(&rpc->control_wakes);
    pthread_mutex_destroy(&rpc->lock);
    free(rpc);
}

static int start(duet_rpc *rpc) {
    struct hello own = {
        .magic = HELLO_MAGIC, .version = FRAME_VERSION, .rank = rpc->rank, .world = rpc->world};
    const struct transport_events events = {on_link, on_frame, on_gone, rpc};
    char place[128];
    int64_t deadline = now_ns() + rpc->timeout_ns;
    snprintf(own.name, sizeof own.name, "%s", rpc->name);
    describe(&own, place, sizeof place);
    CHECK(rpc->transport->open(&rpc->carrier, &events, &own));
    CHECK(come_together(rpc, place, deadline));
    CHECK(all_here(rpc, deadline));
    int error = thread_start(&rpc->control, control_thread, rpc);
    if (error) return fail_errno(ERR_FAILED, error, "rpc: init: thread");
    rpc->controlled = 1;
    /* Nobody begins before all are there: the first call may lead to others between any two. */
    CHECK(call_sync(rpc,
                    &(struct outgoing){
                        .function = "duet.begin",
                    },
                    NULL));
    return rpc->device ? duet_rpc_take_device(rpc, rpc->device) : OK;
}

static int find_place(duet_rpc *rpc, int rank, int world_size) {
    struct place place = {rank, world_size, rank};
    if (rank < 0 || world_size <= 0)
        CHECK(read_place(&place, "use duet_spawn or duet run, or give rank and world_size"));
    if (place.world < 1 || place.world > MOST_WORKERS || place.rank < 0 ||
        place.rank >= place.world)
        return fail(ERR_USAGE, "rpc: rank %d of %d workers: give 0 to n - 1 of 1 to %d", place.rank,
                    place.world, MOST_WORKERS);
    rpc->rank = place.rank;
    rpc->world = place.world;
    return OK;
}

int duet_rpc_init(duet_rpc **out, const char *name, int rank, int world_size,
                  const struct duet_rpc_options *options) {
    const struct duet_rpc_options none = {0};
    if (!out) return fail(ERR_USAGE, "rpc: init: no place for the worker was given");
    *out = NULL;
    CHECK(check_name(name));
    duet_rpc *rpc = calloc(1, sizeof *rpc);
    if (!rpc) return fail(ERR_MEMORY, "rpc: init: no host memory");
    snprintf(rpc->name, sizeof rpc->name, "%s", name);
    rpc->transport = transport_of_build();
    int code = rpc->transport ? find_place(rpc, rank, world_size) : ERR_FAILED;
    if (code) {
        free(rpc);
        return code;
    }
    code = set_up(rpc, options ? options : &none);
    if (!code) code = start(rpc);
    if (code)
        free_worker(rpc);
    else
        *out = rpc;
    return code;
}

/* ---- the end ---- */

/* Waits until nothing is under way here but the calls that wait for the end. */
static int wait_idle(duet_rpc *rpc, int64_t deadline) {
    int code = OK;
    pthread_mutex_lock(&rpc->lock);
    while (!code && (rpc->pending_count || rpc->serving > rpc->came[AT_END]))
        code = wait_changed(rpc, deadline);
    pthread_mutex_unlock(&rpc->lock);
    return code ? fail(ERR_TIMEOUT, "rpc: shutdown: calls are still under way") : OK;
}

/* Waits until this worker has nothing under way, and then for all others: rank 0 answers when all
 * have come (serve.c), and goes when its answers are out. */
static int leave_together(duet_rpc *rpc, double timeout_s) {
    int64_t deadline = timeout_s > 0 ? deadline_after(timeout_s) : 0;
    const struct outgoing leave = {.function = "duet.leave",
                                   .timeout_s = timeout_s > 0 ? timeout_s : -1};
    struct pause pause = pause_begin(rpc);
    int code = wait_idle(rpc, deadline);
    if (!code) code = call_sync(rpc, &leave, NULL);
    pthread_mutex_lock(&rpc->lock);
    rpc->came[AT_END] = 0;
    pthread_mutex_unlock(&rpc->lock);
    CHECK_KEEP(wait_idle(rpc, deadline), code);
    pause_end(rpc, pause);
    return code;
}

int duet_rpc_shutdown(duet_rpc **at, int graceful, double timeout_s) {
    if (!at || !*at) return OK;
    duet_rpc *rpc = *at;
    *at = NULL;
    int code = graceful ? leave_together(rpc, timeout_s) : OK;
    if (rpc->device) duet_rpc_give_device(rpc, rpc->device);
    for (int r = 0; r < rpc->world; r++) {
        struct frame *bye = r == rpc->rank ? NULL : frame_new(FRAME_BYE, 0);
        if (bye) send_frame(rpc, r, bye);
    }
    rpc->transport->flush(rpc->carrier, FLUSH_MS);
    char text[ERROR_BYTES];
    snprintf(text, sizeof text, "%s", error_message());
    free_worker(rpc);
    return code ? fail(code, "%s", text) : OK;
}
