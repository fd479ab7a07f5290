/* Starts and ends a worker. rendezvous.c describes how the workers find each other. */
#include "rpc/autograd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/environment.h"

static const double TIMEOUT_S = 60, SILENCE_S = 30, LONGEST_S = 2e6, FLUSH_S = 2;
enum { THREADS = 16 };

/* ---- called by the program ---- */

int duet_rpc_take_device(duet_rpc *rpc, duet_device *device) {
    if (!rpc || !device)
        return fail(ERR_USAGE, "rpc: take device: no %s was given", rpc ? "device" : "worker");
    const duet_device *mine = device_of_thread(rpc);
    if (mine)
        return fail(ERR_USAGE, "rpc: take device: this thread already has %s: it may have only one",
                    duet_device_name(mine));
    device_take(rpc, device);
    return OK;
}

void duet_rpc_give_device(duet_rpc *rpc, duet_device *device) {
    if (rpc && device && device_of_thread(rpc) == device) device_give(rpc, device);
}

/* ---- the beginning ---- */

/* In nanoseconds; at most LONGEST_S, also for INFINITY. */
static int64_t time_of(double seconds, double otherwise) {
    double s = seconds > 0 ? seconds : otherwise;
    return (int64_t)((s < LONGEST_S ? s : LONGEST_S) * 1e9);
}

static void set_up(duet_rpc *rpc, const struct duet_rpc_options *o) {
    rpc->timeout_ns = time_of(o->timeout_s, TIMEOUT_S);
    rpc->silence_ms = (int)(time_of(o->silence_s, SILENCE_S) / 1000000);
    rpc->device = o->device;
    rpc->lost = -1;
    pthread_mutex_init(&rpc->lock, NULL);
    cond_open(&rpc->changed);
    pool_open(&rpc->pool, o->threads > 0 ? o->threads : THREADS);
    rpc->deliver = take_frame;
    rpc->life = (struct life){.emit = life_emit, .free = life_free, .context = rpc};
    for (int r = 0; r < MOST_WORKERS; r++) {
        rpc->peers[r] = (struct peer){.rpc = rpc, .rank = r, .fd = -1};
        cond_open(&rpc->peers[r].work);
    }
}

/* Functions that still run here must find links to answer on, so they end first; messages received
 * meanwhile are dropped (take_frame). */
static void free_worker(duet_rpc *rpc) {
    pthread_mutex_lock(&rpc->lock);
    rpc->stop = 1;
    for (int r = 0; r < rpc->world; r++)
        futures_of_dead(rpc, r);
    pthread_cond_broadcast(&rpc->changed);
    pthread_mutex_unlock(&rpc->lock);
    pool_close(&rpc->pool);
    links_close(rpc);
    contexts_free_all(rpc);
    life_close(&rpc->life);
    free(rpc->functions);
    pthread_cond_destroy(&rpc->changed);
    pthread_mutex_lock(&rpc->lock);
    rpc->over = 1;
    unlock_or_end(rpc);
}

static int find_rank(duet_rpc *rpc, int rank, int world_size) {
    struct job_rank self = {rank, world_size, rank, world_size};
    const char *advice = "use duet_spawn or duet run, or give rank and world_size";
    if (rank < 0 || world_size <= 0)
        CHECK(rpc->beyond ? read_job_rank_anywhere(&self, advice) : read_job_rank(&self, advice));
    if (self.world < 1 || self.world > MOST_WORKERS || self.rank < 0 || self.rank >= self.world)
        return fail(ERR_USAGE, "rpc: rank %d of %d workers: give 0 to n - 1 of 1 to %d", self.rank,
                    self.world, MOST_WORKERS);
    rpc->rank = rpc->life.self = self.rank;
    rpc->world = self.world;
    return OK;
}

static int start(duet_rpc *rpc, int rank, int world_size, const struct duet_rpc_options *o) {
    CHECK(choose_transport(rpc, o));
    CHECK(find_rank(rpc, rank, world_size));
    CHECK(add_functions(rpc, o->functions, o->function_count));
    CHECK(rendezvous(rpc));
    CHECK(links_start(rpc));
    return rpc->device ? duet_rpc_take_device(rpc, rpc->device) : OK;
}

int duet_rpc_init(duet_rpc **out, const char *name, int rank, int world_size,
                  const struct duet_rpc_options *options) {
    const struct duet_rpc_options none = {0};
    CHECK_OUT(out);
    CHECK(worker_name_check(name));
    duet_rpc *rpc = calloc(1, sizeof *rpc);
    if (!rpc) return fail(ERR_MEMORY, "rpc: init: out of host memory");
    snprintf(rpc->name, sizeof rpc->name, "%s", name);
    set_up(rpc, options ? options : &none);
    int code = start(rpc, rank, world_size, options ? options : &none);
    if (code)
        free_worker(rpc);
    else
        *out = rpc;
    return code;
}

/* ---- the end ---- */

/* Waits until no call is pending here. */
static int wait_idle(duet_rpc *rpc, int64_t deadline) {
    int code = OK;
    pthread_mutex_lock(&rpc->lock);
    while (!code && (rpc->pending || rpc->serving)) {
        code = wait_changed(rpc, deadline);
        futures_expire(rpc);
    }
    pthread_mutex_unlock(&rpc->lock);
    return code ? fail(ERR_TIMEOUT, "rpc: shutdown: calls are still running") : OK;
}

static void tell_all(duet_rpc *rpc, enum message_kind kind, int code) {
    for (int r = 0; r < rpc->world; r++)
        if (r != rpc->rank)
            tell_peer(rpc, r, &(struct message){.kind = kind, .code = (uint64_t)code});
}

/* The workers that have not reached the end. */
static int name_missing(const duet_rpc *rpc) {
    char names[256] = "";
    for (int r = 0; r < rpc->world; r++)
        if (!(rpc->came >> r & 1))
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s'%.100s'",
                     names[0] ? ", " : "", rpc->peers[r].name);
    return fail(ERR_TIMEOUT, "rpc: shutdown: worker %s did not shut down in time", names);
}

/* Says that this worker waits for the end, unless one has ended, and waits until all do, or until
 * one cannot: it has died or left. */
static int wait_all_came(duet_rpc *rpc, int64_t deadline) {
    const uint64_t all = ~(uint64_t)0 >> (MOST_WORKERS - rpc->world);
    int late = 0;
    pthread_mutex_lock(&rpc->lock);
    if (rpc->lost < 0) tell_all(rpc, MESSAGE_LEAVE, OK);
    rpc->came |= (uint64_t)1 << rpc->rank;
    while (rpc->lost < 0 && rpc->came != all && !late)
        late = wait_changed(rpc, deadline);
    const int code = rpc->lost >= 0     ? peer_error(rpc, rpc->lost, "shutdown")
                     : rpc->came != all ? name_missing(rpc)
                                        : OK;
    pthread_mutex_unlock(&rpc->lock);
    return code;
}

/* Each says that it waits for the end when it has no pending call, and serves the others' calls
 * until all have said so. Work that a call starts and nobody waits for may end later still. */
static int leave_together(duet_rpc *rpc, double timeout_s) {
    int64_t deadline = timeout_s > 0 ? now_ns() + time_of(timeout_s, 0) : 0;
    duet_device *paused = pause_begin(rpc);
    int code = wait_idle(rpc, deadline);
    if (!code) code = wait_all_came(rpc, deadline);
    CHECK_KEEP(wait_idle(rpc, deadline), code);
    pause_end(rpc, paused);
    return code;
}

/* Waits until the sockets have taken all messages, which may still be in transit then; `together`:
 * also until all others have said goodbye and so have all messages of this one. */
static void say_goodbye(duet_rpc *rpc, int code, int together) {
    const int64_t deadline = deadline_after(FLUSH_S);
    pthread_mutex_lock(&rpc->lock);
    tell_all(rpc, MESSAGE_BYE, code);
    for (int busy = 1, late = 0; busy && !late;) {
        busy = 0;
        for (int r = 0; r < rpc->world; r++) {
            const struct peer *p = &rpc->peers[r];
            busy |= !p->ended && (p->first || (together && p->state == PEER_HERE && p->fd >= 0));
        }
        if (busy) late = wait_changed(rpc, deadline);
    }
    pthread_mutex_unlock(&rpc->lock);
}

int duet_rpc_shutdown(duet_rpc **at, int graceful, double timeout_s) {
    if (!at || !*at) return OK;
    duet_rpc *rpc = *at;
    if (pool_has_this_thread(&rpc->pool)) /* this thread would wait for itself */
        return fail(ERR_USAGE, "rpc: shutdown: a function cannot end the worker that runs it: let "
                               "main do so");
    *at = NULL;
    int code = graceful ? leave_together(rpc, timeout_s) : OK;
    device_give(rpc, device_of_thread(rpc));
    const struct failures kept = failures_of(code);
    say_goodbye(rpc, code, graceful && !code);
    free_worker(rpc);
    return failures_end(&kept);
}
