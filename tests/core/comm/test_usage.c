/* Wrong arguments to comm/: the size of a job, the environment of a rank, deadlines, blobs that are
 * too large. Each is refused with ERR_USAGE and the value, before anything starts. */
#include <signal.h>

#include "comm/environment.h"
#include "comm/rank.h"
#include "tests/core/comm/shared.h"

static int nothing_entry(void *context) {
    (void)context;
    return 0;
}

Test(comm_usage, launcher_refuses_wrong_arguments, .timeout = 30) {
    static const int SIZES[] = {0, -1, 65, 1 << 30};
    struct launch_result result;
    for (int i = 0; i < 4; i++) {
        struct launch launch = {.world_size = SIZES[i], .entry = nothing_entry};
        char size[20];
        snprintf(size, sizeof size, ": %d: ", SIZES[i]);
        cr_assert_eq(launch_ranks(&launch, &result), ERR_USAGE);
        cr_assert(result.exit_status == 2 && strstr(error_message(), size), "%s", error_message());
    }
    cr_assert_eq(launch_ranks(&(struct launch){.world_size = 1}, &result), ERR_USAGE);
}

Test(comm_usage, open_refuses_a_strange_environment, .timeout = 30) {
    static const char *const BAD[][4] = {
        /* RANK, WORLD_SIZE, DUET_SHARED_FD, the variable the error names */
        {"0", NULL, "0", "WORLD_SIZE"},
        {NULL, "2", "0", "RANK"},
        {"2", "2", "0", "RANK: 2"},
        {"-1", "2", "0", "RANK: -1"},
        {"1x", "2", "0", "1x"},
        {"0", "65", "0", "65"},
        {"0", "", "0", "WORLD_SIZE"},
        {"0", "2", NULL, "SHARED_FD"},
        {"0", "2", "0", "descriptor 0"},
        {"0", "2", "777", "777"},
        {"0", "2", "99999999999999999999", "SHARED_FD"},
    };
    struct comm *comm = (struct comm *)1;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        unsetenv("RANK"), unsetenv("WORLD_SIZE"), unsetenv("DUET_SHARED_FD");
        if (BAD[i][0]) setenv("RANK", BAD[i][0], 1);
        if (BAD[i][1]) setenv("WORLD_SIZE", BAD[i][1], 1);
        if (BAD[i][2]) setenv("DUET_SHARED_FD", BAD[i][2], 1);
        cr_assert_eq(comm_open(&comm, NULL), ERR_USAGE, "case %zu", i);
        cr_assert(comm == NULL && strstr(error_message(), BAD[i][3]), "case %zu: %s", i,
                  error_message());
    }
    static const double TIMEOUTS[] = {-1, NAN, INFINITY, 1e300};
    for (int i = 0; i < 4; i++)
        cr_assert_eq(comm_open(&comm, &(struct comm_options){.timeout_s = TIMEOUTS[i]}), ERR_USAGE);
    comm_close(NULL);
    comm_abort(NULL, ERR_FAILED, "nobody hears it");
}

/* srun says of all nodes how many tasks they have: what is on this one, or the line's words. */
Test(comm_usage, tasks_on_a_node_of_srun, .timeout = 30) {
    static const struct {
        const char *list, *node;
        int here; /* 0: refused */
    } table[] = {{"4", NULL, 4},  {"2(x3)", "2", 2}, {"2(x2),1", "1", 2}, {"2(x2),1", "2", 1},
                 {"3,1", "1", 1}, {"1,3", NULL, 0},  {"3,1", "2", 0},     {"2(x2,1", "1", 0},
                 {"", "0", 0},    {"0", "0", 0},     {"70", "0", 0}};
    setenv("SLURM_STEP_NUM_TASKS", "5", 1), setenv("SLURM_PROCID", "1", 1);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct job_rank self;
        unsetenv("SLURM_NODEID"), setenv("SLURM_STEP_TASKS_PER_NODE", table[i].list, 1);
        if (table[i].node) setenv("SLURM_NODEID", table[i].node, 1);
        int code = read_job_rank_anywhere(&self, "");
        cr_expect_eq(code, table[i].here ? OK : ERR_USAGE, "%s", table[i].list);
        if (code)
            cr_expect(strstr(error_message(), "SLURM_NODEID"), "%s", error_message());
        else
            cr_expect(self.local_world == table[i].here && self.world == 5 && self.rank == 1,
                      "%s: %d", table[i].list, self.local_world);
    }
}

/* A process joins its job once: the inherited descriptor is closed after that. */
static int join_twice_entry(void *context) {
    struct job_case *test = context;
    struct comm *comm = join(test), *again;
    if (!comm) return 1;
    RANK_CHECK(comm, test->page, comm_open(&again, NULL) == ERR_USAGE && !again);
    RANK_CHECK(comm, test->page, comm_check(comm) == OK);
    return end_rank(comm, OK);
}

Test(comm_usage, joined_once, .timeout = 30) {
    struct job_case test = {.page = new_page(), .timeout_s = 20};
    run_well(2, join_twice_entry, &test);
}

/* Without a launcher: rank 0 only computes and calls comm_check, which tells it of the death. */
Test(comm_usage, a_death_is_seen_without_a_wait, .timeout = 30) {
    struct comm_options options = {.timeout_s = 20, .name = "death", .rank = 1, .world = 2};
    struct comm *comm;
    pid_t child = fork();
    if (child == 0) {
        if (!comm_open(&comm, &options)) raise(SIGKILL);
        _exit(1);
    }
    options.rank = 0;
    cr_assert_eq(comm_open(&comm, &options), OK, "%s", error_message());
    const int64_t end = now_ns() + 5000000000;
    while (!comm_check(comm) && now_ns() < end)
        sleep_ms(1);
    cr_expect(strstr(error_message(), "rank 1 (pid"), "%s", error_message());
    comm_close(comm);
    cr_assert_eq(waitpid(child, NULL, 0), child);
}

/* Under `duet run`, whose board is closed here: a board of another job may have got its
 * descriptor. */
Test(comm_usage, its_own_board_is_not_the_inherited_one, .timeout = 30) {
    struct comm_options named = {.name = "other", .world = 1}, met = {.meet = 1};
    struct comm *other, *comm;
    char number[16];
    cr_assert_eq(comm_open(&other, &named), OK, "%s", error_message());
    snprintf(number, sizeof number, "%d", other->board_fd);
    setenv("DUET_SHARED_FD", number, 1), setenv("TORCHELASTIC_RUN_ID", "usage", 1);
    setenv("RANK", "0", 1), setenv("WORLD_SIZE", "1", 1);
    cr_assert_eq(comm_open(&comm, &met), OK, "%s", error_message());
    cr_expect(comm->board_fd >= 0 && comm->board_fd != other->board_fd, "%d", comm->board_fd);
    comm_close(comm);
    comm_close(other);
}
