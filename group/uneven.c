/* Collectives whose blocks differ in length. A rank knows the lengths that it sends and expects,
 * but not those between two other ranks. So such a call begins with an all_gather of these numbers,
 * the claims, through the same windows. Then every rank knows all claims, reports any mismatch, and
 * builds the plan.
 *
 *     claims of a rank    sends to rank 0 .. n-1 | expects from rank 0 .. n-1
 *
 * A call reserves its epochs when it is made, before any claim is known. So it reserves
 * UNEVEN_EPOCHS, more than any plan needs. */
#include <stdlib.h>

#include "base/error.h"
#include "group/mpi/mpi.h"

static size_t *claims_of(const struct group *g, const struct group_call *call) {
    size_t n = (size_t)g->n, *claims = calloc(2 * n, sizeof *claims), *gives = claims,
           *expects = claims + n;
    enum collective what = call->what;
    int is_root = g->rank == call->root;
    for (int r = 0; r < g->n && claims; r++) {
        int from_root = what != COLLECTIVE_SCATTER || r == call->root,
            to_root = what != COLLECTIVE_GATHER || r == call->root;
        if (what != COLLECTIVE_SCATTER || is_root)
            gives[r] = !to_root ? 0 : call->input_sizes ? call->input_sizes[r] : call->count;
        if (what != COLLECTIVE_GATHER || is_root)
            expects[r] = !from_root ? 0 : call->output_sizes ? call->output_sizes[r] : call->count;
    }
    return claims;
}

static struct group_call claims_call(const struct work *work, size_t *all) {
    return (struct group_call){.what = COLLECTIVE_ALL_GATHER,
                               .count = 2 * (size_t)work->group->n,
                               .how = {DTYPE_I64, ELEMENT_SUM},
                               .input = work->claims,
                               .output = all};
}

int plan_uneven(struct work *work) {
    struct group_call call = claims_call(work, NULL);
    struct window_request q = request_of(work->group, &call);
    work->claims = claims_of(work->group, &work->call);
    if (!work->claims) return fail(ERR_MEMORY, "process group: out of host memory: free some");
    work->parts = 1;
    if (work->group->mpi) return OK;
    return take_plan(work->group, &q, &work->last);
}

/* Different sizes may come from a different call, which is then named. */
static int differ(const struct work *work, int from, int to, size_t gives, size_t expects) {
    struct group *g = work->group;
    CHECK(announcer_look_back(&g->announcer, work->number));
    int code = fail(ERR_FAILED,
                    "rank %d: %s #%llu: rank %d sends rank %d %zu elements, but that rank expects "
                    "%zu: their split sizes must agree",
                    g->ranks[g->rank], window_name(work->call.what),
                    (unsigned long long)work->number, g->ranks[from], g->ranks[to], gives, expects);
    comm_abort(g->job->comm, code, error_message());
    return code;
}

/* Fills sizes[from * n + to] from the claims of all ranks. */
static int agree(const struct work *work, const size_t *claims, size_t *sizes) {
    int n = work->group->n;
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++) {
            size_t gives = claims[2 * from * n + to], expects = claims[2 * to * n + n + from];
            if (gives != expects) return differ(work, from, to, gives, expects);
            sizes[from * n + to] = gives;
        }
    return OK;
}

static struct executor_call part_of(const struct work *work, const struct plan *plan) {
    const struct group_call *call = &work->call;
    struct group *g = work->group;
    return (struct executor_call){.plan = plan,
                                  .data = g->memory.window,
                                  .count = plan->count,
                                  .base = work->base,
                                  .scale = call->average ? 1.0 / g->n : 1,
                                  .bucket = -1,
                                  .step = -1,
                                  .how = call->how,
                                  .input = call->input,
                                  .output = call->output};
}

static int exchange_claims(struct runner *runner, const struct work *work, size_t *all) {
    if (work->group->mpi)
        return group_by_mpi->run(
            runner, &(struct work){.group = work->group, .call = claims_call(work, all)});
    struct executor_call part = part_of(work, &work->last->plan);
    part.how = (struct arithmetic){DTYPE_I64, ELEMENT_SUM};
    part.scale = 1;
    part.input = work->claims;
    part.output = all;
    return host_execute(&runner->ranks, &part);
}

static int run_with(struct runner *runner, struct work *work, size_t *claims, size_t *sizes) {
    struct window_request q = request_of(work->group, &work->call);
    struct plan plan;
    CHECK(exchange_claims(runner, work, claims));
    CHECK(agree(work, claims, sizes));
    q.sizes = work->sizes = sizes;
    if (work->group->mpi) return group_by_mpi->run(runner, work);
    CHECK(plan_build_window(&plan, &q));
    struct executor_call part = part_of(work, &plan);
    part.base += work->last->plan.epochs;
    int code = host_execute(&runner->ranks, &part);
    plan_free(&plan);
    return code;
}

int run_uneven(struct runner *runner, struct work *work) {
    struct group *g = work->group;
    size_t n = (size_t)g->n, *claims = malloc(2 * n * n * sizeof *claims),
           *sizes = malloc(n * n * sizeof *sizes);
    int code = check_job(runner);
    if (!code && (!claims || !sizes))
        code = fail(ERR_MEMORY, "process group: out of host memory: free some");
    if (!code) code = run_with(runner, work, claims, sizes);
    if (code) comm_abort(g->job->comm, code, error_message()); /* otherwise the peers would wait */
    free(claims);
    free(sizes);
    return code;
}
