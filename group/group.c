/* Opens and closes a group, and makes groups from some ranks of another. */
#include "group/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/environment.h"
#include "group/mpi/mpi.h"

enum { USUAL_CACHE = 32 << 20 }; /* used if the machine does not report it */

static void release_job(struct membership *job) {
    if (!job || __atomic_sub_fetch(&job->users, 1, __ATOMIC_ACQ_REL) > 0) return;
    comm_close(job->comm);
    free(job);
}

/* If two ranks made different calls and waited for nobody, the one that leaves later reports it. */
static void look_back(struct group *g) {
    if (g->n < 2 || comm_is_aborted(g->job->comm)) return;
    announcer_show_all(&g->announcer);
    announcer_look_back(&g->announcer, g->announcer.number);
}

static void free_group(struct group *g) {
    int opened = g->collectives != NULL;
    runner_close(g->collectives);
    for (int r = 0; r < g->n; r++)
        runner_close(g->sends[r]);
    free_receives(g);
    if (opened && !g->mpi) look_back(g);
    if (g->mpi) group_by_mpi->close(g->mpi);
    call_trace_close(g->trace);
    for (int i = 0; i < KEPT_EAGER; i++)
        release_eager(g->eagers[i]);
    while (g->plans) {
        struct group_plan *next = g->plans->next;
        plan_free(&g->plans->plan);
        free(g->plans);
        g->plans = next;
    }
    unmap_memory(&g->memory);
    pthread_mutex_destroy(&g->mailbox_lock);
    release_job(g->job);
    free(g);
}

/* The values that all ranks must agree on when a group is made. */
struct agreement {
    int32_t n, ranks[MAX_DEVICES]; /* no padding, since the bytes are compared */
    struct group_sizes sizes;
    double timeout_s;
};

/* Bytes that tensors can have in the last cache, less some for windows and other programs. Asked
 * for once: the answer takes microseconds. */
static size_t room_in_caches(void) {
    long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return (bytes > 0 ? (size_t)bytes : USUAL_CACHE) / 4 * 3;
}

static void name_call(char name[CALL_NAME], const char *call, int number) {
    snprintf(name, CALL_NAME, number ? "%s of group %d" : "%s", call, number);
}

static void name_calls(struct call_names *names, int number) {
    for (int c = 0; c < COLLECTIVE_COUNT; c++)
        name_call(names->collectives[c], call_name((enum collective)c), number);
    name_call(names->recv, "recv", number);
    name_call(names->monitored, "monitored_barrier", number);
}

uint32_t group_mailbox_among(uint32_t mailbox, int n) {
    const uint32_t lines = 256; /* the bytes of its four slots together */
    return n > 16 ? mailbox / lines * 16 / (uint32_t)n * lines : mailbox;
}

static struct group *new_group(struct membership *job, const struct agreement *a) {
    struct group *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->job = job;
    name_calls(&g->names, job->made);
    __atomic_add_fetch(&job->users, 1, __ATOMIC_RELAXED);
    g->n = a->n;
    g->timeout_s = a->timeout_s;
    g->asked = g->memory.sizes = a->sizes;
    g->memory.sizes.mailbox = group_mailbox_among(a->sizes.mailbox, a->n);
    g->caches = a->sizes.caches ? a->sizes.caches : room_in_caches();
    g->rank = -1;
    for (int r = 0; r < g->n; r++) {
        g->ranks[r] = a->ranks[r];
        if (g->ranks[r] == comm_rank(job->comm)) g->rank = r;
    }
    pthread_mutex_init(&g->mailbox_lock, NULL);
    return g;
}

/* An algorithm's cost depends on the cores that a rank may use, and mpirun and taskset may give
 * each rank others. All use member 0's view, so that all choose alike. */
static int agree_on_link(struct group *g) {
    struct allreduce_link views[MAX_DEVICES], mine = allreduce_link_host(g->n);
    CHECK(comm_gather(g->job->comm, &mine, sizeof mine, views));
    g->link = views[g->ranks[0]];
    return OK;
}

static int open_group(struct group *g, const struct agreement *a) {
    CHECK(share_memory(&g->memory, g->job->comm, g->n, g->rank, a, sizeof *a));
    if (comm_is_spread(g->job->comm)) CHECK(group_by_mpi->open(&g->mpi, g));
    CHECK(agree_on_link(g));
    if (g->rank < 0) return OK;
    g->announcer = (struct announcer){.comm = g->job->comm,
                                      .shown = g->memory.announced,
                                      .n = g->n,
                                      .me = g->rank,
                                      .ranks = g->ranks,
                                      .numbered = 1};
    /* All slots of the group and of all mailboxes are free: `left` in plans/slots.c, `taken` in
     * plans/mailbox.c. */
    for (int r = 0; r < g->n; r++)
        comm_post_flag(&g->memory.flags[g->rank][PLAN_LEFT * g->n + r], HALF_OF_SLOTS);
    for (int r = 0; r < g->n; r++)
        comm_post_flag(&g->memory.flags[g->rank][PLAN_TAKEN * g->n + r], MAILBOX_PIECES);
    return runner_open(&g->collectives, g, RUNS_COLLECTIVES);
}

/* A rank that is not a member only takes part in the creation. */
static int make_group(struct group **out, struct membership *job, const struct agreement *a) {
    struct group *g = new_group(job, a);
    if (!g) return fail(ERR_MEMORY, "process group: out of host memory: free some");
    int code = open_group(g, a), made = job->made++;
    if (!code && g->rank >= 0) g->trace = call_trace_open(job->name, made, g->rank, g->n);
    if (code || g->rank < 0)
        free_group(g);
    else
        *out = g;
    return code;
}

struct group_sizes group_sizes_default(void) {
    struct group_sizes sizes = {
        .window = 2 << 20, .half = 1 << 20, .mailbox = 1 << 20, .slot = 16 << 10};
    return sizes;
}

/* Joins a job; its group has all ranks. */
static int open_job(struct group **out, const struct comm_options *options,
                    const struct group_sizes *sizes) {
    struct agreement all = {.timeout_s = options->timeout_s, .sizes = *sizes};
    struct membership *job = calloc(1, sizeof *job);
    struct job_rank self;
    *out = NULL;
    if (!job) return fail(ERR_MEMORY, "process group: out of host memory: free some");
    int code = comm_open(&job->comm, options);
    if (code) {
        free(job);
        return code;
    }
    snprintf(job->name, sizeof job->name, "%s", options->name ? options->name : "world");
    job->local_rank = comm_rank(job->comm);
    if (!options->name && !read_job_rank_anywhere(&self, "")) job->local_rank = self.local_rank;
    all.n = comm_world_size(job->comm);
    for (int r = 0; r < all.n; r++)
        all.ranks[r] = r;
    job->users = 1; /* keeps the job open: a failure must be reported before the rank leaves */
    code = make_group(out, job, &all);
    if (code) comm_abort(job->comm, code, error_message());
    release_job(job);
    return code;
}

int group_open(struct group **out, double timeout_s) {
    struct group_sizes sizes = group_sizes_default();
    return group_open_sized(out, timeout_s, &sizes);
}

int group_open_sized(struct group **out, double timeout_s, const struct group_sizes *sizes) {
    struct comm_options options = {.timeout_s = timeout_s, .meet = 1, .by = network_by_mpi};
    return open_job(out, &options, sizes);
}

int group_join(struct group **out, const char *name, int rank, int n, double timeout_s) {
    struct comm_options options = {.timeout_s = timeout_s, .name = name, .rank = rank, .world = n};
    struct group_sizes sizes = group_sizes_default();
    return open_job(out, &options, &sizes);
}

static int check_ranks(const struct group *world, const int *ranks, int n) {
    if (n < 1 || n > world->n)
        return fail(ERR_USAGE, "new group: %d ranks: give 1 to %d", n, world->n);
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= world->n)
            return fail(ERR_USAGE, "new group: rank %d: give ranks 0 to %d", ranks[i],
                        world->n - 1);
        for (int j = 0; j < i; j++)
            if (ranks[i] == ranks[j])
                return fail(ERR_USAGE, "new group: rank %d twice: give each rank once", ranks[i]);
    }
    return OK;
}

int group_new(struct group **out, struct group *world, const int *ranks, int n, double timeout_s) {
    struct agreement some = {
        .n = n, .timeout_s = timeout_s > 0 ? timeout_s : world->timeout_s, .sizes = world->asked};
    *out = NULL;
    CHECK(check_ranks(world, ranks, n));
    if (world->n != comm_world_size(world->job->comm))
        return fail(ERR_USAGE,
                    "new group: the group has %d of %d ranks: call it on the group of all ranks",
                    world->n, comm_world_size(world->job->comm));
    CHECK(enter_group(world, "new group"));
    for (int i = 0; i < n; i++)
        some.ranks[i] = world->ranks[ranks[i]];
    begin_making(world);
    comm_name_gathers(world->job->comm, "new_group");
    int code = make_group(out, world->job, &some);
    comm_name_gathers(world->job->comm, NULL);
    if (code) comm_abort(world->job->comm, code, error_message());
    leave_group(world);
    return code;
}

void group_close(struct group *group) {
    if (group) free_group(group);
}

int group_rank(const struct group *group) {
    return group->rank;
}

int group_size(const struct group *group) {
    return group->n;
}

int group_local_rank(const struct group *group) {
    return group->job->local_rank;
}

struct announcer *group_order(struct group *group) {
    return group && group->n > 1 ? &group->announcer : NULL;
}

int group_announce(struct group *group, const char *what) {
    const struct comm_call call = {.collective = what, .bucket = -1, .step = -1};
    struct announcer *order = group_order(group);
    return order ? announcer_announce(order, &call) : OK;
}

struct comm *group_comm(const struct group *group) {
    if (group->n != comm_world_size(group->job->comm)) return NULL;
    for (int r = 0; r < group->n; r++)
        if (group->ranks[r] != r) return NULL;
    return group->job->comm;
}
