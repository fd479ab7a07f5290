/* A rank with simulated peers: in every collective the peers contribute what the rank contributes.
 * No call waits or returns a descriptor. */
#include <limits.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/comm.h"
#include "tests/harness/harness.h"

Test(imagine, peers_say_what_it_says, .timeout = 10) {
    enum { WORLD = 5, RANK = 3 };
    struct comm *comm;
    int all[WORLD], fds[WORLD], mine = 42, stop = 1;
    cr_assert_eq(comm_imagine(&comm, RANK, WORLD), OK);
    cr_expect(comm_is_imagined(comm) && !comm_is_imagined(NULL));
    cr_expect_eq(comm_rank(comm), RANK);
    cr_expect_eq(comm_world_size(comm), WORLD);
    cr_assert_eq(comm_gather(comm, &mine, sizeof mine, all), OK);
    cr_assert_eq(comm_pass_descriptors(comm, STDIN_FILENO, fds), OK);
    for (int r = 0; r < WORLD; r++)
        cr_expect(all[r] == 42 && fds[r] == -1, "rank %d: %d, %d", r, all[r], fds[r]);
    all[RANK] = 7; /* its own place in the list */
    cr_assert_eq(comm_gather(comm, &all[RANK], sizeof mine, all), OK);
    for (int r = 0; r < WORLD; r++)
        cr_expect_eq(all[r], 7);
    cr_expect_eq(comm_barrier(comm, "nothing"), OK);
    cr_expect_eq(comm_announce(comm, &(struct comm_call){.collective = "ALLREDUCE", .bucket = -1}),
                 OK);
    cr_expect_eq(comm_look_for_stop(comm, &stop), OK);
    cr_expect_eq(stop, 0);
    comm_abort(comm, ERR_FAILED, "nobody hears it");
    cr_expect_eq(comm_check(comm), OK);
    comm_close(comm);
}
