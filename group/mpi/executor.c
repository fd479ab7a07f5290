/* The executor of ranks on several machines, for emulated devices (allreduce/executor.h). A call is
 * a function on a stream, and waits there for MPI. So DDP's allreduces run on the communication
 * stream, overlapped with backward. Each object has its own communicator, because streams of
 * several objects run at the same time. */
#include <stdlib.h>

#include "allreduce/host/executor.h"
#include "base/error.h"
#include "group/mpi/state.h"

struct executor {
    const struct executor_ranks *ranks;
    struct line line;
};

struct queued {
    struct executor *executor;
    struct executor_call call;
};

/* Block b comes from rank b mod n, in rows of n blocks. */
static int all_gather(struct executor *e, const struct executor_call *call, float *data,
                      struct wait *wait) {
    struct mpi *mpi = &e->line.net->mpi;
    size_t n = (size_t)e->line.n, blocks = call->count / call->block;
    for (size_t first = 0; first < blocks; first += n) {
        size_t sizes[MAX_DEVICES];
        struct blocks row;
        MPI_Request request;
        for (size_t r = 0; r < n; r++)
            sizes[r] = first + r < blocks ? call->block : 0;
        CHECK(line_blocks(&row, e->line.n, sizes, sizeof *data));
        CHECK(mpi_wait(e->line.net,
                       mpi->Iallgatherv(MPI_IN_PLACE, 0, mpi->byte, data + first * call->block,
                                        row.count, row.at, mpi->byte, e->line.comm, &request),
                       &request, wait));
    }
    return OK;
}

static int reduce_scatter(struct executor *e, const struct executor_call *call, float *data,
                          struct wait *wait) {
    const struct arithmetic floats = {DTYPE_F32, ELEMENT_SUM};
    size_t sizes[MAX_DEVICES];
    for (int r = 0; r < e->line.n; r++)
        sizes[r] = call->block;
    return line_sum_block(&e->line, floats, call->scale, data,
                          data + (size_t)e->line.rank * call->block, sizes, wait);
}

/* --allreduce mpi: MPI adds, in its own order. */
static int sum_by_mpi(struct executor *e, float *data, size_t count, float scale,
                      struct wait *wait) {
    struct mpi *mpi = &e->line.net->mpi;
    struct blocks all;
    MPI_Request request;
    CHECK(line_blocks(&all, 1, &count, sizeof *data));
    for (size_t i = 0; scale != 1 && i < count; i++)
        data[i] *= scale;
    return mpi_wait(
        e->line.net,
        mpi->Iallreduce(MPI_IN_PLACE, data, (int)count, mpi->f32, mpi->sum, e->line.comm, &request),
        &request, wait);
}

static int run(struct executor *e, const struct executor_call *call, struct wait *wait) {
    const struct arithmetic floats = {DTYPE_F32, ELEMENT_SUM};
    float *data = call->data[e->line.rank] + call->offset;
    if (call->what == COLLECTIVE_BROADCAST)
        return line_broadcast(&e->line, data, call->count * sizeof *data, 0, wait);
    if (call->what == COLLECTIVE_ALL_GATHER) return all_gather(e, call, data, wait);
    if (call->what == COLLECTIVE_REDUCE_SCATTER) return reduce_scatter(e, call, data, wait);
    if (e->ranks->asked == ALLREDUCE_MPI)
        return sum_by_mpi(e, data, call->count, (float)call->scale, wait);
    return line_sum(&e->line, floats, call->scale, data, data, call->count, wait);
}

static int run_queued(void *context) {
    struct queued *q = context;
    struct comm *comm = q->executor->ranks->comm;
    struct comm_wait_reason reason = {.collective = q->call.what == COLLECTIVE_ALL_REDUCE
                                                        ? "allreduce"
                                                        : collective_name(q->call.what),
                                      .bucket = q->call.bucket,
                                      .step = q->call.step,
                                      .peer = -1,
                                      .among = UINT64_MAX};
    struct wait wait;
    CHECK(comm_check_call(comm, &reason));
    comm_distant_begin(comm, &wait, &reason);
    int code = run(q->executor, &q->call, &wait);
    comm_distant_end(&wait);
    return code;
}

/* The bytes that this rank receives from each other rank. */
static void charge(const struct executor *e, const struct executor_call *call) {
    const struct executor_ranks *ranks = e->ranks;
    for (int r = 0; r < ranks->n && ranks->traffic; r++) {
        size_t takes = call->what == COLLECTIVE_ALL_REDUCE
                           ? line_sum_takes(&e->line, call->count, sizeof(float), r)
                       : call->what == COLLECTIVE_BROADCAST ? (r ? 0 : call->count)
                                                            : call->count / (size_t)ranks->n;
        if (r != ranks->rank)
            traffic_add(ranks->traffic, ranks->link[r], ranks->link[ranks->rank],
                        takes * sizeof(float));
    }
}

static int enqueue(struct executor *e, struct stream *stream, const struct executor_call *call,
                   const char *span_name) {
    struct queued queued = {.executor = e, .call = *call};
    size_t n = (size_t)e->ranks->n, bytes = call->count * sizeof(float);
    charge(e, call);
    return stream_call_host(stream, span_name, 2 * bytes * (n - 1) / n, run_queued, &queued,
                            sizeof queued);
}

static int open_executor(struct executor **out, const struct executor_ranks *ranks) {
    struct executor *e = calloc(1, sizeof *e);
    if (!e) return fail(ERR_MEMORY, "allreduce: out of host memory: free some");
    e->ranks = ranks;
    int code = line_open(&e->line, ranks->comm->network, 1, ranks->rank, ranks->n);
    if (code)
        free(e);
    else
        *out = e;
    return code;
}

static void close_executor(struct executor *e) {
    line_close(&e->line);
    free(e);
}

static const struct executor_ops mpi_ops = {.name = "mpi",
                                            .itself = ALLREDUCE_DIRECT,
                                            .open = open_executor,
                                            .enqueue = enqueue,
                                            .close = close_executor};

static int choose(const struct executor_question *q, const struct executor_ops **ops,
                  struct allreduce_link *link) {
    (void)link;
    enum allreduce_algorithm a = q->algorithm;
    if (a != ALLREDUCE_AUTO && a != ALLREDUCE_DIRECT && a != ALLREDUCE_MPI)
        return fail(ERR_USAGE,
                    "allreduce %s: it runs on one machine only: over several give auto or mpi",
                    allreduce_algorithm_name(a));
    *ops = &mpi_ops;
    return OK;
}

const struct executor_kind mpi_executors = {
    .flags_bytes = host_flags_bytes, .clear = host_clear, .choose = choose};
