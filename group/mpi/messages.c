/* Messages over MPI, from rank to rank, with tags. Each is one MPI message with a header and the
 * elements. An MPI type describes where both are in memory, so neither is copied. The header has
 * the number and type of the elements, so that a receive can report a mismatch. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/mpi/mpi.h"
#include "group/mpi/state.h"

enum { SIGNAL = 1 }; /* a tag that no collective uses */

static int describe_message(struct line *line, struct mailbox_head *head, const void *data,
                            size_t bytes, MPI_Datatype *type) {
    struct mpi *mpi = &line->net->mpi;
    struct blocks all;
    CHECK(line_blocks(&all, 1, &bytes, 1));
    const MPI_Aint displacements[] = {(MPI_Aint)head, (MPI_Aint)data};
    const MPI_Datatype types[] = {mpi->byte, mpi->byte};
    int lengths[] = {sizeof *head, all.count[0]};
    CHECK(mpi_result(line->net, mpi->Type_create_struct(2, lengths, displacements, types, type),
                     "MPI"));
    return mpi_result(line->net, mpi->Type_commit(type), "MPI");
}

static int send(struct line *line, struct work *work, struct wait *wait) {
    const struct group_call *call = &work->call;
    struct mailbox_head head = {call->count, (uint32_t)call->how.type, call->tag};
    MPI_Datatype type;
    MPI_Request request;
    struct mpi *mpi = &line->net->mpi;
    CHECK(describe_message(line, &head, call->input, call->count * dtype_bytes(call->how.type),
                           &type));
    int result = mpi->Isend(MPI_BOTTOM, 1, type, call->peer, call->tag, line->comm, &request);
    mpi->Type_free(&type);
    return mpi_wait(line->net, result, &request, wait);
}

/* Waits for the next message of the tag. */
static int await(struct line *line, const struct group_call *call, struct wait *wait,
                 MPI_Message *message, MPI_Status *status) {
    int64_t start = now_ns();
    int source = call->peer == ANY_SOURCE ? MPI_ANY_SOURCE : call->peer;
    for (int come = 0;;) {
        CHECK(mpi_result(
            line->net,
            line->net->mpi.Improbe(source, call->tag, line->comm, &come, message, status), "recv"));
        if (come) return OK;
        CHECK(comm_distant_look(wait));
        mpi_pause(line->net, now_ns() - start);
    }
}

static int receive(struct line *line, struct work *work, struct wait *wait) {
    struct group_call *call = &work->call;
    struct mpi *mpi = &line->net->mpi;
    struct mailbox_head head;
    MPI_Message message;
    MPI_Status status;
    MPI_Datatype type;
    MPI_Request request;
    int bytes = 0;
    CHECK(await(line, call, wait, &message, &status));
    mpi->Get_count(&status, mpi->byte, &bytes);
    size_t came = (size_t)bytes - sizeof head;
    int fits = came == call->count * dtype_bytes(call->how.type);
    void *other = fits ? NULL : malloc(came + 1);
    if (!fits && !other) return fail(ERR_MEMORY, "recv: out of host memory: free some");
    int code = describe_message(line, &head, fits ? call->output : other, came, &type);
    if (!code) {
        int result = mpi->Imrecv(MPI_BOTTOM, 1, type, &message, &request);
        mpi->Type_free(&type);
        code = mpi_wait(line->net, result, &request, wait);
    }
    work->source = status.MPI_SOURCE;
    if (!code) code = judge_message(work, &head, work->source);
    if (!code) free(other); /* after an error MPI may still write to it */
    return code;
}

int line_message(struct line *line, struct work *work, struct wait *wait) {
    return work->call.receive ? receive(line, work, wait) : send(line, work, wait);
}

/* ---- monitored_barrier ---- */

int signal_by_mpi(struct group *g, int to, uint64_t epoch) {
    struct line *line = &g->mpi->calls;
    struct mpi *mpi = &line->net->mpi;
    const struct comm_wait_reason reason = {
        .collective = g->names.monitored, .bucket = -1, .step = -1, .peer = -1};
    struct wait wait;
    MPI_Request request;
    comm_distant_begin(g->job->comm, &wait, &reason);
    int result = mpi->Isend(&epoch, sizeof epoch, mpi->byte, to, SIGNAL, line->comm, &request);
    int code = mpi_wait(line->net, result, &request, &wait);
    comm_distant_end(&wait);
    return code;
}

/* Each message replaces the flag that its sender would post on one machine. */
int take_signals_by_mpi(struct group *g, struct wait *wait) {
    struct line *line = &g->mpi->calls;
    struct mpi *mpi = &line->net->mpi;
    for (int come = 1; come;) {
        MPI_Message message;
        MPI_Status status;
        MPI_Request request;
        uint64_t epoch = 0;
        int code = mpi->Improbe(MPI_ANY_SOURCE, SIGNAL, line->comm, &come, &message, &status);
        if (code || !come) return mpi_result(line->net, code, "monitoredBarrier");
        code = mpi->Imrecv(&epoch, sizeof epoch, mpi->byte, &message, &request);
        CHECK(mpi_wait(line->net, code, &request, wait));
        int kind = g->rank ? PLAN_DONE : PLAN_READY;
        comm_post_flag(&g->memory.flags[g->rank][kind * g->n + status.MPI_SOURCE], epoch);
    }
    return OK;
}
