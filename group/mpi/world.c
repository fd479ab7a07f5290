/* The job as MPI sees it: its beginning, its end, and the small collectives of comm/.
 *
 * MPI_Init and MPI_Finalize have no nonblocking form (wait.c). They run in their own thread, and
 * the caller gives up at the deadline.
 *
 * MPI_Finalize waits for all ranks. If the job has failed, some may be gone, so it gets only half a
 * second, in which mpirun learns that the process ends on its own. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/environment.h"
#include "group/mpi/mpi.h"
#include "group/mpi/state.h"

/* ---- calls that MPI has in blocking form only ---- */

/* *stuck 1: it has not returned; what it uses must stay, the worker as well. */
static int call_aside(struct network *net, int (*call)(void *net), int64_t limit_ns, int *stuck) {
    const int64_t deadline = now_ns() + limit_ns;
    struct worker *worker;
    net->aside = (struct task){.run = call, .context = net};
    CHECK(worker_new(&worker, 1));
    int code = worker_start(worker, 1, "MPI: a thread");
    if (code) return worker_free(worker, WORKER_NEVER), code;
    worker_give(worker, &net->aside);
    *stuck = !worker_free(worker, deadline);
    return *stuck ? ERR_TIMEOUT : task_end(&net->aside);
}

/* ---- the beginning ---- */

/* For a nonblocking in-place sum Open MPI chooses an algorithm that takes twice as long as its
 * MPI_Allreduce. Two ranks had better exchange all data; more halve it step by step. A choice of
 * the user's is kept. */
static int choose_sums(const struct job_rank *self) {
    const char *recursive_doubling = "4", *rabenseifner = "3";
    const char *best = self->world == 2 ? recursive_doubling : rabenseifner;
    if (!setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", best, 0)) return OK;
    return fail(ERR_MEMORY, "communicator: out of host memory: free some memory");
}

static int begin(void *context) {
    struct network *net = context;
    struct comm *comm = net->comm;
    struct mpi *mpi = &net->mpi;
    struct job_rank self;
    int initialized = 0, threads = MPI_THREAD_SINGLE;
    CHECK(read_job_rank_anywhere(&self, "start the ranks with mpirun"));
    CHECK(choose_sums(&self));
    mpi->Initialized(&initialized);
    if (initialized)
        mpi->Query_thread(&threads); /* the program initialised MPI itself */
    else
        CHECK(mpi_result(net, mpi->Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &threads),
                         "MPI_Init"));
    net->initialized = !initialized;
    if (threads < MPI_THREAD_MULTIPLE)
        return fail(ERR_USAGE, "MPI: this library does not support several threads "
                               "(MPI_THREAD_MULTIPLE): install Open MPI 4 or 5");
    mpi->Comm_set_errhandler(mpi->world, mpi->returns);
    mpi->Comm_rank(mpi->world, &comm->rank);
    mpi->Comm_size(mpi->world, &comm->world);
    if (self.world != comm->world)
        return fail(ERR_USAGE,
                    "MPI: %d ranks were started, and MPI knows of %d: srun --mpi=pmix, or the "
                    "mpirun of the same MPI",
                    self.world, comm->world);
    CHECK(environment_for_programs(&self));
    CHECK(mpi_split(net, 1, comm->rank, &net->job));
    return mpi_split(net, 1, comm->rank, &net->control);
}

static int may_begin(struct network *net) {
    int finalized = 0;
    CHECK(mpi_load(&net->mpi));
    net->mpi.Finalized(&finalized);
    return finalized ? fail(ERR_USAGE, "process group: MPI has ended: a process can join a job of "
                                       "several machines only once")
                     : OK;
}

static int open_world(struct network **out, struct comm *comm) {
    int stuck = 0, fd = -1;
    struct network *net = calloc(1, sizeof *net);
    if (!net) return fail(ERR_MEMORY, "communicator: out of host memory: free some memory");
    net->comm = comm;
    int code = may_begin(net);
    if (!code) code = call_aside(net, begin, comm->timeout_ns, &stuck);
    if (stuck)
        return fail(ERR_TIMEOUT,
                    "rank %s: MPI: not all ranks have joined after %g s: see the output of the "
                    "others, and whether each machine reaches all others",
                    getenv("RANK") ? getenv("RANK") : getenv("OMPI_COMM_WORLD_RANK"),
                    comm_timeout_s(comm));
    if (code) return free(net), code;
    *out = net;
    CHECK(board_create(&comm->board, &fd, comm->world));
    close(fd);
    return beats_start(net);
}

/* ---- the end ---- */

static int others_have_left(const struct comm *comm) {
    for (int r = 0; r < comm->world; r++)
        if (!__atomic_load_n(&comm->board->cards[r].left, __ATOMIC_ACQUIRE)) return 0;
    return 1;
}

/* 1: all ranks have left without failure. */
static int leave_together(struct network *net) {
    struct comm *comm = net->comm;
    const struct comm_wait_reason reason = {
        .collective = "end of the job", .bucket = -1, .step = -1, .peer = -1};
    struct wait wait;
    int code = OK;
    comm_distant_begin(comm, &wait, &reason);
    while (!code && !others_have_left(comm)) {
        code = comm_distant_look(&wait);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    comm_distant_end(&wait);
    return !code && !comm_is_aborted(comm);
}

static const int64_t FAILED_NS = 500000000;

static int finalize(void *context) {
    struct network *net = context;
    return mpi_result(net, net->mpi.Finalize(), "MPI_Finalize");
}

static void close_world(struct network *net) {
    struct failures before = {.code = OK};
    int stuck = 0;
    if (!net) return;
    failures_add(&before, ERR_FAILED); /* keeps the caller's error message */
    int together = net->beats.running && leave_together(net);
    beats_stop(net);
    int64_t limit_ns = together ? net->comm->timeout_ns : FAILED_NS;
    if (net->initialized) call_aside(net, finalize, limit_ns, &stuck);
    failures_end(&before);
    if (together && !stuck) free(net); /* otherwise MPI may still read it */
}

/* ---- collectives of comm/ ---- */

static int gather(struct network *net, const void *mine, size_t bytes, void *all,
                  struct wait *wait) {
    MPI_Request request;
    struct blocks one; /* as MPI requires if `mine` is its block of `all` */
    CHECK(line_blocks(&one, 1, &bytes, 1));
    const void *from = mine == (char *)all + (size_t)net->comm->rank * bytes ? MPI_IN_PLACE : mine;
    return mpi_wait(net,
                    net->mpi.Iallgather(from, one.count[0], net->mpi.byte, all, one.count[0],
                                        net->mpi.byte, net->job, &request),
                    &request, wait);
}

static const struct network_ops ops = {
    .open = open_world, .gather = gather, .close = close_world, .executors = &mpi_executors};
const struct network_ops *const network_by_mpi = &ops;
