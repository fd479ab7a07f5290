/* Stops a job properly: the launcher asks, and all ranks stop before the same step.
 *
 * Each rank checks at the same points of its program: check 0, 1, 2, ... A rank must not decide by
 * itself, since another rank may check a moment later and see something else. So rank 0 decides. It
 * writes the check at which the job stops, and then posts the number of the check that it has
 * decided on. The others wait for that post or a later one. Rank 0 never waits, and usually it has
 * posted before the others look. */
#include "base/error.h"
#include "comm/network.h"

int comm_look_for_stop(struct comm *comm, int *stop) {
    if (comm_is_imagined(comm)) return *stop = 0, OK;
    if (comm_is_spread(comm)) return network_look_for_stop(comm, stop);
    struct board *board = comm->board;
    uint64_t look = ++comm->looks; /* counted from 1 */
    if (comm->rank == 0) {
        int asked = __atomic_load_n(&board->asked, __ATOMIC_ACQUIRE) != 0;
        if (asked && !__atomic_load_n(&board->stop_at, __ATOMIC_RELAXED))
            __atomic_store_n(&board->stop_at, look, __ATOMIC_RELEASE);
        comm_post_flag(&board->looked, look);
    } else {
        const struct comm_wait_reason reason = {
            .collective = "look for a stop", .bucket = -1, .step = -1, .peer = 0};
        CHECK(comm_wait_flag(comm, &board->looked, look, &reason));
    }
    uint64_t at = __atomic_load_n(&board->stop_at, __ATOMIC_ACQUIRE);
    *stop = at && at <= look;
    return OK;
}
