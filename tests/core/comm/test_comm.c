/* comm/ when all goes well: rendezvous, exchange of descriptors, barrier, gather, flags,
 * the environment of a rank, two jobs at once. */
#include <fcntl.h>
#include <pthread.h>

#include "tests/core/comm/shared.h"

static const int WORLDS[] = {1, 2, 3, 5, 8, 64};
enum { WORLD_COUNT = sizeof WORLDS / sizeof *WORLDS };

static int too_many(int world) {
    return test_short() && world > 4;
}

/* ---- gather, and descriptors ---- */

/* Byte i of what `rank` brings to round `round`. */
static unsigned char pattern(int rank, int round, size_t i) {
    return (unsigned char)(rank * 31 + round * 7 + (int)(i % 251) * 3 + 1);
}

static int bytes_entry(void *context) {
    enum { MOST = 3 * COMM_BOX_BYTES + 5 }; /* four pieces */
    static const size_t SIZES[] = {0, 1, 8, 1000, COMM_BOX_BYTES, MOST, 2 * COMM_BOX_BYTES};
    struct job_case *test = context;
    struct comm *comm = join(test);
    if (!comm) return 1;
    int rank = comm_rank(comm), world = comm_world_size(comm);
    char *mine = malloc(MOST), *all = malloc((size_t)world * MOST);
    for (int round = 0; round < 7; round++) {
        size_t bytes = SIZES[round], wrong = 0;
        if (world > 8 && bytes > COMM_BOX_BYTES) continue; /* smaller worlds test pieces */
        for (size_t i = 0; i < bytes; i++)
            mine[i] = (char)pattern(rank, round, i);
        memset(all, 0, (size_t)world * bytes);
        RANK_OK(comm, test->page, comm_gather(comm, mine, bytes, all));
        for (int r = 0; r < world; r++)
            for (size_t i = 0; i < bytes; i++)
                wrong += (unsigned char)all[(size_t)r * bytes + i] != pattern(r, round, i);
        RANK_CHECK(comm, test->page, wrong == 0, ": %zu of %zu bytes, round %d", wrong, bytes,
                   round);
    }
    free(mine);
    free(all);
    return end_rank(comm, OK);
}

Test(comm, gather_bytes, .timeout = 60) {
    struct job_case test = {.page = new_page(), .timeout_s = 50};
    for (int i = 0; i < WORLD_COUNT; i++)
        if (!too_many(WORLDS[i])) run_well(WORLDS[i], bytes_entry, &test);
}

/* Every rank but 1 brings a memfd. Each rank writes its mark into the memfds of all ranks; then
 * each must find the marks of all ranks in its own. */
static int descriptor_entry(void *context) {
    struct job_case *test = context;
    struct comm *comm = join(test);
    if (!comm) return 1;
    int rank = comm_rank(comm), world = comm_world_size(comm), fds[MAX_DEVICES], wrong = 0;
    int own = rank == 1 ? -1 : memfd_create("test", MFD_CLOEXEC);
    RANK_OK(comm, test->page, comm_pass_descriptors(comm, own, fds));
    for (int r = 0; r < world; r++) {
        RANK_CHECK(comm, test->page, (fds[r] >= 0) == (r != 1), ": rank %d", r);
        RANK_CHECK(comm, test->page, fds[r] < 0 || fcntl(fds[r], F_GETFD) == FD_CLOEXEC);
        if (fds[r] < 0) continue;
        char mark = (char)(rank + 1);
        wrong += pwrite(fds[r], &mark, 1, rank) != 1;
        close(fds[r]);
    }
    RANK_OK(comm, test->page, comm_barrier(comm, "marks written"));
    for (int r = 0; r < world && own >= 0; r++) {
        char mark = 0;
        wrong += pread(own, &mark, 1, r) != 1 || mark != (char)(r + 1);
    }
    RANK_CHECK(comm, test->page, wrong == 0, ": %d marks", wrong);
    /* descriptors that a receiver does not ask for must be closed */
    for (int i = 0; i < 20; i++)
        RANK_OK(comm, test->page, comm_pass_descriptors(comm, own, NULL));
    if (own >= 0) close(own);
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC); /* gets the lowest free number */
    close(next);
    RANK_CHECK(comm, test->page, next < 64 + 2 * world, ": descriptor %d: leaked", next);
    return end_rank(comm, OK);
}

Test(comm, exchange_descriptors, .timeout = 60) {
    struct job_case test = {.page = new_page(), .timeout_s = 50};
    for (int i = 0; i < WORLD_COUNT; i++)
        if (!too_many(WORLDS[i])) run_well(WORLDS[i], descriptor_entry, &test);
}

/* ---- barrier ---- */

/* Each rank writes the number of the round into its own cell, passes a barrier, checks that all
 * cells hold that number, and passes another barrier. A rank that the first barrier lets through
 * too early sees an old number; one that the second lets through too early makes others see a new
 * one. */
static int barrier_entry(void *context) {
    struct job_case *test = context;
    struct comm *comm = join(test);
    if (!comm) return 1;
    int rank = comm_rank(comm), world = comm_world_size(comm), *cells = test->page->codes;
    for (int round = 0; round < test->kind; round++) {
        __atomic_store_n(&cells[rank], round, __ATOMIC_RELAXED);
        RANK_OK(comm, test->page, comm_barrier(comm, "written"));
        int wrong = 0;
        for (int r = 0; r < world; r++)
            wrong += __atomic_load_n(&cells[r], __ATOMIC_RELAXED) != round;
        RANK_CHECK(comm, test->page, wrong == 0, ": %d cells, round %d", wrong, round);
        RANK_OK(comm, test->page, comm_barrier(comm, "read"));
    }
    return end_rank(comm, OK);
}

Test(comm, barrier_holds_everybody, .timeout = 60) {
    for (int i = 0; i < WORLD_COUNT; i++) {
        struct job_case test = {
            .page = new_page(), .timeout_s = 50, .kind = WORLDS[i] > 8 ? 20 : 500};
        if (!too_many(WORLDS[i])) run_well(WORLDS[i], barrier_entry, &test);
    }
}

/* A fast rank must not overwrite its box while a slow rank still reads it. */
static int gather_entry(void *context) {
    struct job_case *test = context;
    struct comm *comm = join(test);
    if (!comm) return 1;
    int rank = comm_rank(comm), world = comm_world_size(comm);
    for (long round = 0; round < 300; round++) {
        long all[MAX_DEVICES] = {0};
        all[rank] = round * 100 + rank; /* in place */
        RANK_OK(comm, test->page, comm_gather(comm, &all[rank], sizeof *all, all));
        for (int r = 0; r < world; r++)
            RANK_CHECK(comm, test->page, all[r] == round * 100 + r, ": %ld, round %ld rank %d",
                       all[r], round, r);
    }
    return end_rank(comm, OK);
}

Test(comm, gather_many_rounds, .timeout = 60) {
    struct job_case test = {.page = new_page(), .timeout_s = 50};
    for (int world = 1; world <= 4; world++)
        run_well(world, gather_entry, &test);
}

/* ---- flags ---- */

/* A token goes round the ranks: each waits for its predecessor's flag, checks the data that the
 * flag announces, and posts its own flag. The flags lie in a memfd that rank 0 brought. */
static int ring_entry(void *context) {
    struct ring {
        struct comm_flag flags[MAX_DEVICES];
        uint64_t data[MAX_DEVICES];
    } * ring;
    struct job_case *test = context;
    struct comm *comm = join(test);
    if (!comm) return 1;
    int rank = comm_rank(comm), world = comm_world_size(comm), fds[MAX_DEVICES];
    int own = rank == 0 ? memfd_create("ring", MFD_CLOEXEC) : -1;
    if (own >= 0 && ftruncate(own, sizeof *ring)) return 1;
    RANK_OK(comm, test->page, comm_pass_descriptors(comm, own, fds));
    ring = mmap(NULL, sizeof *ring, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
    close(fds[0]);
    if (own >= 0) close(own);
    int before = (rank + world - 1) % world;
    for (uint64_t epoch = 1; epoch <= 2000; epoch++) {
        struct comm_wait_reason why = {
            .collective = "token", .bucket = -1, .step = (long)epoch, .peer = before};
        uint64_t due = rank == 0 ? epoch - 1 : epoch;
        RANK_OK(comm, test->page, comm_wait_flag(comm, &ring->flags[before], due, &why));
        RANK_CHECK(comm, test->page,
                   due == 0 || ring->data[before] == due * 1000 + (uint64_t)before);
        ring->data[rank] = epoch * 1000 + (uint64_t)rank;
        comm_post_flag(&ring->flags[rank], epoch);
    }
    RANK_OK(comm, test->page, comm_wait_flag(comm, &ring->flags[before], 2000, NULL));
    RANK_OK(comm, test->page, comm_barrier(comm, "token home"));
    RANK_CHECK(comm, test->page, ring->flags[rank].sleepers == 0);
    munmap(ring, sizeof *ring);
    return end_rank(comm, OK);
}

Test(comm, flags_pass_a_token, .timeout = 60) {
    struct job_case test = {.page = new_page(), .timeout_s = 50};
    for (int world = 2; world <= 4; world++)
        run_well(world, ring_entry, &test);
}

/* The same between two threads of one rank, with plain data: here ThreadSanitizer sees both sides
 * and reports a flag that does not order the data. */
struct two_threads {
    struct comm *comm;
    struct comm_flag there, back;
    uint64_t question, answer;
    int code;
};

static void *answer_questions(void *argument) {
    struct two_threads *shared = argument;
    for (uint64_t epoch = 1; epoch <= 3000 && !shared->code; epoch++) {
        shared->code = comm_wait_flag(shared->comm, &shared->there, epoch, NULL);
        shared->answer = shared->question * 3;
        comm_post_flag(&shared->back, epoch);
    }
    return NULL;
}

static int threads_entry(void *context) {
    struct job_case *test = context;
    struct two_threads *shared;
    if (posix_memalign((void **)&shared, 128, sizeof *shared)) return 1;
    memset(shared, 0, sizeof *shared);
    if (!(shared->comm = join(test))) return 1;
    pthread_t thread;
    pthread_create(&thread, NULL, answer_questions, shared);
    int wrong = 0;
    for (uint64_t epoch = 1; epoch <= 3000; epoch++) {
        shared->question = epoch;
        comm_post_flag(&shared->there, epoch);
        RANK_OK(shared->comm, test->page, comm_wait_flag(shared->comm, &shared->back, epoch, NULL));
        wrong += shared->answer != 3 * epoch;
    }
    pthread_join(thread, NULL);
    struct comm *comm = shared->comm;
    RANK_CHECK(comm, test->page, wrong == 0 && shared->code == OK, ": %d", wrong);
    free(shared);
    return end_rank(comm, OK);
}

Test(comm, flags_order_the_data_of_two_threads, .timeout = 60) {
    struct job_case test = {.page = new_page(), .timeout_s = 50};
    run_well(1, threads_entry, &test);
}

/* ---- programs ---- */

Test(comm, programs_by_exec, .timeout = 30) {
    char number[20], *argv[] = {"rank", "word", number, NULL}, expected[4][200], got[4096] = {0};
    int ends[2], world = 4;
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    snprintf(number, sizeof number, "%d", ends[1]);
    unsetenv("OMP_NUM_THREADS");
    setenv("RANK", "77", 1); /* as if another job's rank started this one: the launcher's wins */
    struct launch launch = {.world_size = world,
                            .argv = argv,
                            .program = BUILD_DIR "/tests/core/comm/helper_comm",
                            .pass_fds = &ends[1],
                            .pass_count = 1};
    struct launch_result result;
    cr_assert_eq(launch_ranks(&launch, &result), OK, "%s", error_message());
    close(ends[1]);
    size_t used = 0;
    for (ssize_t n; (n = read(ends[0], got + used, sizeof got - 1 - used)) > 0;)
        used += (size_t)n;
    for (int r = 0; r < world; r++) {
        snprintf(
            expected[r], sizeof expected[r],
            "word %d/%d %d/%d 127.0.0.1 29500 omp 1 sockets 0 memfd 1 shm 0 death 9 blocked 0\n", r,
            world, r, world);
        cr_assert(strstr(got, expected[r]), "got\n%swithout\n%s", got, expected[r]);
    }
    cr_assert_eq(used, 4 * strlen(expected[0]), "got\n%s", got);
    close(ends[0]);
}

Test(comm, programs_without_communicator, .timeout = 30) {
    char *good[] = {"sh", "-c", "exit 0", NULL},
         *bad[] = {"sh", "-c", "exit $((RANK == 1 ? 5 : 0))", NULL};
    char *missing[] = {"duet-no-such-program", NULL};
    struct launch launch = {.world_size = 3, .argv = good, .program = "sh"};
    struct launch_result result;
    cr_assert_eq(launch_ranks(&launch, &result), OK, "%s", error_message());
    launch.argv = bad;
    cr_assert_eq(launch_ranks(&launch, &result), ERR_FAILED);
    cr_assert(result.exit_status == 5 && result.rank == 1, "status %d rank %d", result.exit_status,
              result.rank);
    launch.argv = missing;
    launch.program = missing[0];
    cr_assert_eq(launch_ranks(&launch, &result), ERR_FAILED);
    cr_assert_eq(result.exit_status, 127);
    cr_assert(strstr(error_message(), "could not start duet-no-such-program: No such file"), "%s",
              error_message());
}

/* ---- two jobs at once ---- */

static int job_number_entry(void *context) {
    struct job_case *test = context;
    struct comm *comm = join(test);
    if (!comm) return 1;
    int all[MAX_DEVICES];
    for (int round = 0; round < 100; round++) {
        RANK_OK(comm, test->page, comm_gather(comm, &test->kind, sizeof(int), all));
        for (int r = 0; r < comm_world_size(comm); r++)
            RANK_CHECK(comm, test->page, all[r] == test->kind, ": %d in job %d", all[r],
                       test->kind);
    }
    return end_rank(comm, OK);
}

Test(comm, two_jobs_at_once, .timeout = 30) {
    pid_t launchers[2];
    for (int job = 0; job < 2; job++) {
        struct job_case test = {.page = new_page(), .timeout_s = 20, .kind = 100 + job};
        launchers[job] = fork();
        if (launchers[job]) continue;
        int code;
        run_ranks(3, job_number_entry, &test, &code);
        if (code) fprintf(stderr, "%s\n", error_message());
        _exit(code != OK);
    }
    for (int job = 0; job < 2; job++) {
        int status;
        waitpid(launchers[job], &status, 0);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "job %d: status %x", job,
                  (unsigned)status);
    }
}
