/* What happens to an allreduce when a rank dies, is stopped, or makes a different call. */
#include "tests/allreduce/lose.h"

/* Survivors know within a second; busy machines and sanitizers get five. If they only noticed by
 * the deadline, it would be 60. */
Test(allreduce_fail, survivors_of_a_killed_rank_know_at_once, .timeout = 120) {
    struct job job = {.page = share(sizeof(struct page)), .free_s = 5};
    for (int a = 0; a < ALGORITHMS; a++)
        for (int victim = 0; victim < 3; victim++) {
            job.algorithm = algorithms[a];
            kill_one(&job, victim, 5);
        }
}

Test(allreduce_fail, a_stopped_rank_is_named_at_the_deadline, .timeout = 120) {
    struct job job = {.page = share(sizeof(struct page)),
                      .free_s = 1}; /* shorter than the 1.5 s of a deadline */
    for (int a = 0; a < ALGORITHMS; a++) {
        job.algorithm = algorithms[a];
        stop_one(&job);
    }
}

/* ---- ranks that disagree ---- */

static int disagree_entry(void *context) {
    struct job *job = context;
    struct rank r;
    struct allreduce *ar = NULL;
    struct allreduce_config config = allreduce_config_default();
    int code = rank_open(&r, job, COUNT);
    if (job->victim == 0 && r.rank == 1) config.algorithm = ALLREDUCE_RING;
    if (job->victim == 1 && r.rank == 1) config.plan.slice = 99;
    if (!code) code = allreduce_init(&ar, r.comm, r.device, &config);
    if (!code) code = allreduce_register(ar, r.data, job->victim == 2 && r.rank == 1 ? 10 : 20);
    allreduce_free(ar);
    return rank_close(&r, code);
}

Test(allreduce_fail, ranks_that_disagree_are_told, .timeout = 30) {
    static const char *const words[] = {"ring", "slice", "10"};
    for (int what = 0; what < 3; what++) {
        struct job job = {.page = share(sizeof(struct page)), .victim = what, .timeout_s = 20};
        struct launch_result result;
        cr_assert_eq(launch_all(3, disagree_entry, &job, &result), ERR_USAGE, "%d: %s", what,
                     error_message());
        cr_assert_eq(result.exit_status, 2);
        cr_assert(strstr(error_message(), words[what]), "%s", error_message());
    }
}
