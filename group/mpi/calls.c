/* The collectives of a group, done with MPI's corresponding calls on bytes. line.c has the sums.
 * Duet allows input and output to overlap in some calls; MPI needs MPI_IN_PLACE for these. */
#include <stdlib.h>

#include "base/error.h"
#include "group/mpi/mpi.h"
#include "group/mpi/state.h"

/* ---- the beginning and the end ---- */

static int open_group(struct group_mpi **out, struct group *g) {
    struct network *net = g->job->comm->network;
    struct group_mpi *m = calloc(1, sizeof *m);
    if (!m) return fail(ERR_MEMORY, "process group: out of host memory: free some");
    int code = line_open(&m->calls, net, g->rank >= 0, g->rank, g->n);
    if (!code) code = line_open(&m->messages, net, g->rank >= 0, g->rank, g->n);
    if (code || g->rank < 0)
        free(m);
    else
        *out = m;
    return code;
}

static void close_group(struct group_mpi *m) {
    if (!m) return;
    line_close(&m->calls);
    free(m);
}

/* ---- one call ---- */

struct mpi_call {
    struct line *line;
    const struct group_call *call;
    size_t element;
    struct wait *wait;
    struct blocks gives, gets; /* sent to each rank, and received from it */
    int own;                   /* bytes of an input or output that is a single block */
};

/* The lengths of the blocks that this rank sends to each rank, or receives from it. */
static void lengths(const struct mpi_call *c, const size_t *sizes, int gives, size_t *out) {
    int n = c->line->n, me = c->line->rank;
    for (int r = 0; r < n; r++)
        out[r] = !sizes ? c->call->count : sizes[gives ? me * n + r : r * n + me];
}

static const void *in_place(const struct mpi_call *c, const void *one, const void *many,
                            const struct blocks *blocks) {
    return one == (const char *)many + blocks->at[c->line->rank] ? MPI_IN_PLACE : one;
}

static int gather_all(const struct mpi_call *c, MPI_Request *request) {
    const struct group_call *call = c->call;
    const struct mpi *mpi = &c->line->net->mpi;
    return mpi->Iallgatherv(in_place(c, call->input, call->output, &c->gets), c->own, mpi->byte,
                            call->output, c->gets.count, c->gets.at, mpi->byte, c->line->comm,
                            request);
}

static int gather(const struct mpi_call *c, MPI_Request *request) {
    const struct group_call *call = c->call;
    const struct mpi *mpi = &c->line->net->mpi;
    int is_root = c->line->rank == call->root;
    return mpi->Igatherv(is_root ? in_place(c, call->input, call->output, &c->gets) : call->input,
                         c->own, mpi->byte, call->output, c->gets.count, c->gets.at, mpi->byte,
                         call->root, c->line->comm, request);
}

static int scatter(const struct mpi_call *c, MPI_Request *request) {
    const struct group_call *call = c->call;
    const struct mpi *mpi = &c->line->net->mpi;
    int is_root = c->line->rank == call->root;
    const void *to = is_root ? in_place(c, call->output, call->input, &c->gives) : call->output;
    return mpi->Iscatterv(call->input, c->gives.count, c->gives.at, mpi->byte, (void *)to, c->own,
                          mpi->byte, call->root, c->line->comm, request);
}

static int all_to_all(const struct mpi_call *c, MPI_Request *request) {
    const struct group_call *call = c->call;
    const struct mpi *mpi = &c->line->net->mpi;
    return mpi->Ialltoallv(call->input == call->output ? MPI_IN_PLACE : call->input, c->gives.count,
                           c->gives.at, mpi->byte, call->output, c->gets.count, c->gets.at,
                           mpi->byte, c->line->comm, request);
}

static int barrier(const struct mpi_call *c, MPI_Request *request) {
    return c->line->net->mpi.Ibarrier(c->line->comm, request);
}

/* All ranks get the sum, and all but the root drop it. Reduce is rare, and the root's link carries
 * the same bytes. */
static int reduce(const struct mpi_call *c, double scale) {
    const struct group_call *call = c->call;
    int is_root = c->line->rank == call->root;
    void *to = is_root ? call->output : malloc(call->count * c->element + 1);
    if (!to) return fail(ERR_MEMORY, "reduce: out of host memory: free some");
    int code = line_sum(c->line, call->how, scale, call->input, to, call->count, c->wait);
    if (!is_root && !code) free(to); /* after an error MPI may still write to it */
    return code;
}

static int run(struct mpi_call *c, const size_t *sizes) {
    static int (*const begin[COLLECTIVE_COUNT])(const struct mpi_call *, MPI_Request *) = {
        [COLLECTIVE_BARRIER] = barrier,
        [COLLECTIVE_GATHER] = gather,
        [COLLECTIVE_SCATTER] = scatter,
        [COLLECTIVE_ALL_GATHER] = gather_all,
        [COLLECTIVE_ALL_TO_ALL] = all_to_all};
    const struct group_call *call = c->call;
    double scale = call->average ? 1.0 / c->line->n : 1;
    MPI_Request request;
    size_t gives[MAX_DEVICES], gets[MAX_DEVICES], bytes = call->count * c->element;
    lengths(c, sizes, 1, gives);
    lengths(c, sizes, 0, gets);
    switch (call->what) {
    case COLLECTIVE_ALL_REDUCE:
        return line_sum(c->line, call->how, scale, call->input, call->output, call->count, c->wait);
    case COLLECTIVE_REDUCE: return reduce(c, scale);
    case COLLECTIVE_REDUCE_SCATTER:
        return line_sum_block(c->line, call->how, scale, call->input, call->output, gives, c->wait);
    case COLLECTIVE_BROADCAST:
        return line_broadcast(c->line,
                              c->line->rank == call->root ? (void *)call->input : call->output,
                              bytes, call->root, c->wait);
    default: break;
    }
    CHECK(line_blocks(&c->gives, c->line->n, gives, c->element));
    CHECK(line_blocks(&c->gets, c->line->n, gets, c->element));
    c->own = (int)bytes; /* one rank's block only */
    return mpi_wait(c->line->net, begin[call->what](c, &request), &request, c->wait);
}

static int run_work(struct runner *runner, struct work *work) {
    struct group_mpi *mpi = runner->group->mpi;
    struct comm_wait_reason reason = runner_reason(runner);
    struct wait wait;
    CHECK(check_job(runner));
    comm_distant_begin(runner->group->job->comm, &wait, &reason);
    struct mpi_call c = {.line = &mpi->calls,
                         .call = &work->call,
                         .element = dtype_bytes(work->call.how.type),
                         .wait = &wait};
    int code = work->call.what == COLLECTIVE_SEND ? line_message(&mpi->messages, work, &wait)
                                                  : run(&c, work->sizes);
    comm_distant_end(&wait);
    if (code) comm_abort(runner->group->job->comm, code, error_message());
    return code;
}

static const struct group_network network = {.open = open_group,
                                             .close = close_group,
                                             .run = run_work,
                                             .signal = signal_by_mpi,
                                             .take_signals = take_signals_by_mpi};
const struct group_network *const group_by_mpi = &network;
