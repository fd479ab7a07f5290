/* Ranks that share a core separate: after a few waits, the one with the higher number moves to a
 * core on which no rank was seen, and may still run on all cores. A rank whose core other programs
 * keep busy sleeps instead of yielding. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/rank.h"
#include "tests/harness/harness.h"

struct bed {
    struct comm comm;
    cpu_set_t allowed;
    int first, second; /* two cores */
};

/* This thread on the first core, free to run on all. 0: there is only one. */
static int two_cores(struct bed *bed) {
    cpu_set_t one;
    cr_assert_eq(sched_getaffinity(0, sizeof bed->allowed, &bed->allowed), 0);
    if (CPU_COUNT(&bed->allowed) < 2) return 0;
    while (!CPU_ISSET(bed->first, &bed->allowed))
        bed->first++;
    for (bed->second = bed->first + 1; !CPU_ISSET(bed->second, &bed->allowed);)
        bed->second++;
    CPU_ZERO(&one);
    CPU_SET(bed->first, &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    bed->comm.board = aligned_alloc(128, (sizeof *bed->comm.board + 127) / 128 * 128);
    cr_assert_not_null(bed->comm.board);
    memset(bed->comm.board, 0, sizeof *bed->comm.board);
    bed->comm.world = 2;
    return 1;
}

/* This thread, as rank `me`, waits many times for the other rank, which was seen on `core`. Returns
 * the core that it records in the end. */
static int wait_beside(struct bed *bed, int me, int core) {
    bed->comm.rank = me;
    bed->comm.board->cards[1 - me].core = (uint32_t)core + 1;
    for (int i = 0; i < 100; i++)
        leave_shared_core(&bed->comm, 1 - me);
    return (int)bed->comm.board->cards[me].core - 1;
}

Test(cores, who_may_run_on_one_core_stays) {
    struct bed bed = {0};
    if (!two_cores(&bed)) return;
    cr_assert_eq(wait_beside(&bed, 1, bed.first), bed.first);
    free(bed.comm.board);
}

/* The mask allows all cores, while the kernel sees no reason to move the thread. */
Test(cores, the_higher_rank_leaves_a_shared_core) {
    struct bed bed = {0};
    if (!two_cores(&bed)) return;
    cpu_set_t after;
    sched_setaffinity(0, sizeof bed.allowed, &bed.allowed);
    int core = sched_getcpu();
    int now = wait_beside(&bed, 1, core);
    cr_assert_neq(now, core, "rank 1 stays on core %d", core);
    sched_getaffinity(0, sizeof after, &after);
    cr_assert(CPU_EQUAL(&after, &bed.allowed), "it may run on all cores again");
    free(bed.comm.board);
}

/* ---- cores that other programs keep busy ---- */

struct sleeper {
    struct comm_flag flag;
    int slept;
};

/* Posts the flag once somebody sleeps on it, or after 20 s. */
static void *post_for_sleeper(void *argument) {
    struct sleeper *sleeper = argument;
    for (int64_t end = now_ns() + 20000000000; !sleeper->slept && now_ns() < end; sched_yield())
        sleeper->slept = __atomic_load_n(&sleeper->flag.sleepers, __ATOMIC_SEQ_CST) > 0;
    comm_post_flag(&sleeper->flag, 1);
    return NULL;
}

Test(cores, a_crowded_rank_sleeps_instead_of_yielding) {
    struct bed bed = {0};
    struct sleeper sleeper = {0};
    pthread_t thread;
    if (!two_cores(&bed)) return;
    bed.comm.timeout_ns = 100000000000;
    bed.comm.crowded = INT64_MAX;
    const struct comm_wait_reason reason = {
        .bucket = -1, .step = -1, .peer = 1, .spin_ns = 60000000000};
    cr_assert_eq(pthread_create(&thread, NULL, post_for_sleeper, &sleeper), 0);
    cr_expect_eq(comm_wait_flag(&bed.comm, &sleeper.flag, 1, &reason), OK);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_expect(sleeper.slept, "it yielded for 20 s");
    free(bed.comm.board);
}
