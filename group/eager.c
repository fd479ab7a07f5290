/* Eager calls are calls whose blocks fit into a slot. group/plans/slots.c has their plan. The
 * announcement, the plans and the signature are made once for each kind of call, so that a call
 * costs little more than its plan.
 *
 * All ranks must make the same calls. Each announcement is in another core's cache, so reading
 * those of all peers would cost more than the call itself. So an eager call only records what it
 * is. A mismatch is found
 *
 *     at once     by a rank that takes from a slot, because the slot holds the call's signature
 *     in a wait   before a rank sleeps, it checks what its peers have recorded
 *     at a turn   each rank posts its tally, one number made from all its earlier calls, and
 *                 compares the tallies of the previous turn
 *     at the end  a rank that leaves the group checks once more
 *
 * So different calls are always reported, but a rank that waits for nobody may first make up to
 * SLOTS more calls. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "group/state.h"

/* In an eager allreduce each rank adds up all blocks: longer ones are better divided among them. */
enum { ALWAYS_SHORT = 4 << 10, MOST_ADDED = 128 << 10 };

static int has_parts(enum collective what) {
    return what == COLLECTIVE_SCATTER || what == COLLECTIVE_ALL_TO_ALL ||
           what == COLLECTIVE_REDUCE_SCATTER;
}

int is_eager(const struct group *g, const struct group_call *call) {
    size_t blocks = has_parts(call->what) ? (size_t)g->n : 1, bytes;
    if (g->n < 2 || call->what == COLLECTIVE_SEND || is_uneven(call)) return 0;
    if (!g->memory.sizes.slot || g->mpi) return 0;
    if (call->count > g->memory.sizes.slot) return 0;
    bytes = call->count * blocks * dtype_bytes(call->how.type);
    if (call->what == COLLECTIVE_ALL_REDUCE && bytes > ALWAYS_SHORT &&
        bytes * (size_t)g->n > MOST_ADDED)
        return 0;
    return bytes <= g->memory.sizes.slot;
}

/* ---- kept plans ---- */

static int is_of(const struct eager_call *brief, const struct group_call *call) {
    return brief->what == call->what && brief->count == call->count && brief->root == call->root &&
           brief->how.type == call->how.type && brief->how.op == call->how.op &&
           brief->average == call->average;
}

void release_eager(struct eager_call *brief) {
    if (!brief || --brief->users) return;
    plan_free(&brief->plans[0]);
    plan_free(&brief->plans[1]);
    free(brief);
}

static int make_eager(const struct group *g, const struct group_call *call,
                      struct eager_call **out) {
    struct window_request q = request_of(g, call);
    struct eager_call *brief = *out = calloc(1, sizeof *brief);
    char text[TOLD_TEXT];
    struct comm_call told;
    if (!brief) return fail(ERR_MEMORY, "process group: out of host memory for a plan: free some");
    *brief = (struct eager_call){.what = call->what,
                                 .how = call->how,
                                 .root = call->root,
                                 .average = call->average,
                                 .count = call->count,
                                 .users = 1};
    tell(call, &told, text);
    announced_fill(&brief->told, &told);
    brief->signature = announced_signature(&brief->told);
    if (call->what == COLLECTIVE_ALL_REDUCE) q.algorithm = ALLREDUCE_ONESHOT;
    q.slots = HALF_OF_SLOTS;
    q.window = g->memory.sizes.slot / dtype_bytes(call->how.type);
    for (q.turn = 0; q.turn < 2; q.turn++) {
        int code = plan_build_window(&brief->plans[q.turn], &q);
        if (!code) continue;
        release_eager(brief);
        return code;
    }
    return OK;
}

static size_t slot_of(const struct group_call *call) {
    size_t kind = call->count * 7 + (size_t)call->what * 5 + (size_t)call->root * 3 +
                  (size_t)call->how.type + (size_t)call->how.op * 11;
    return kind % KEPT_EAGER;
}

struct eager_call *kept_eager(const struct group *g, const struct group_call *call) {
    struct eager_call *kept = g->eagers[slot_of(call)];
    return kept && is_of(kept, call) && !is_uneven(call) ? kept : NULL;
}

static int find_eager(struct group *g, const struct group_call *call, struct eager_call **out) {
    struct eager_call **kept = &g->eagers[slot_of(call)];
    if (!*kept || !is_of(*kept, call)) {
        struct eager_call *made;
        CHECK(make_eager(g, call, &made));
        release_eager(*kept); /* running works may still use it */
        *kept = made;
    }
    *out = *kept;
    return OK;
}

/* ---- the call ---- */

static int tallies_differ(const struct work *work, int peer) {
    struct group *g = work->group;
    CHECK(announcer_look_back(&g->announcer, work->number));
    CHECK(comm_check(g->job->comm)); /* fails if the peer has already named both calls */
    int code = fail(ERR_FAILED,
                    "rank %d: before %s #%llu rank %d has made other calls: all ranks must make "
                    "the same calls in the same order",
                    g->ranks[g->rank], window_name(work->call.what),
                    (unsigned long long)work->number, g->ranks[peer]);
    comm_abort(g->job->comm, code, error_message());
    return code;
}

/* All ranks have passed the previous turn, and none is beyond the next: four tallies are enough. */
static int compare_tallies(const struct work *work) {
    const struct group *g = work->group;
    uint64_t turn = work->base / HALF_OF_SLOTS, slot = (turn - 1) % TALLIES;
    for (int r = 0; r < g->n && turn; r++)
        if (memcmp(&g->memory.tallies[r][slot], &g->memory.tallies[g->rank][slot],
                   sizeof(struct tally)))
            return tallies_differ(work, r);
    return OK;
}

static int run_eager(struct runner *runner, struct work *work) {
    const struct group *g = work->group;
    const struct group_call *call = &work->call;
    int turn = work->base % HALF_OF_SLOTS == 0;
    if (turn) g->memory.tallies[g->rank][work->base / HALF_OF_SLOTS % TALLIES] = work->tally;
    CHECK(check_job(runner));
    if (turn) CHECK(comm_check(g->job->comm)); /* counts as a sign of life */
    struct executor_call *part = &runner->part;
    part->plan = &work->brief->plans[turn];
    part->count = call->count;
    part->base = work->base;
    part->half = (int)(work->base % SLOTS);
    part->scale = call->average ? 1.0 / g->n : 1;
    part->how = call->how;
    part->past_caches = 0;
    part->input = call->input;
    part->output = call->output;
    part->signature = work->brief->signature ^ work->number << 32;
    CHECK(host_execute(&runner->slots, part));
    return turn ? compare_tallies(work) : OK;
}

int begin_eager(struct work *work) {
    struct group *g = work->group;
    struct eager_call *brief = work->brief;
    if (!brief) CHECK(find_eager(g, &work->call, &brief));
    brief->users++;
    work->run = run_eager;
    work->brief = brief;
    work->tally = (struct tally){g->announcer.tally, g->announcer.number};
    announcer_note(&g->announcer, &brief->told, brief->signature);
    work->number = g->announcer.number;
    work->base = g->eager_calls++;
    return OK;
}
