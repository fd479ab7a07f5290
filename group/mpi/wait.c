/* Waits for MPI. Its blocking calls have no deadline and do not notice that the job has failed. So
 * every call that may wait for a peer uses the nonblocking form and then tests it. Between two
 * tests the wait of comm/ checks the deadline and the abort word. */
#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/mpi/state.h"

int mpi_result(struct network *net, int result, const char *what) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (result == MPI_SUCCESS) return OK;
    net->mpi.Error_string(result, text, &length);
    return fail(ERR_FAILED, "rank %d: %s: %.*s: do all ranks give tensors of one size?",
                net->comm->rank, what ? what : "MPI", length, text);
}

void mpi_pause(const struct network *net, int64_t waited_ns) {
    const int64_t spin_ns = 50000, yield_ns = 10000000;
    if (waited_ns < spin_ns && net->comm->spin) return;
    if (waited_ns < yield_ns)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

int mpi_wait(struct network *net, int result, MPI_Request *request, struct wait *wait) {
    const int64_t look_ns = 1000000;
    int64_t start = now_ns(), next = start + look_ns;
    for (int done = 0; !result; mpi_pause(net, now_ns() - start)) {
        result = net->mpi.Test(request, &done, MPI_STATUS_IGNORE);
        if (result || done) break;
        if (now_ns() < next) continue;
        CHECK(comm_distant_look(wait));
        next = now_ns() + look_ns;
    }
    return mpi_result(net, result, wait->reason.collective);
}

int mpi_split(struct network *net, int member, int key, MPI_Comm *out) {
    int color = member ? 0 : MPI_UNDEFINED;
    return mpi_result(net, net->mpi.Comm_split(net->mpi.world, color, key, out), "MPI_Comm_split");
}
