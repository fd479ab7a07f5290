/* Failures inside a job of comm/: a rank is killed, is stopped, fails, leaves, or does not join.
 * Every survivor gets an error code, the launcher reports the root cause, and no process is
 * left. */
#include <fcntl.h>

#include "tests/core/comm/shared.h"

/* A job promises to end within a second; slow machines and sanitizers get longer. */
static const double SECONDS_TO_END = 5;
/* For jobs that must end by a death: so long that a deadline cannot be what ends them. */
static const double LONG_TIMEOUT_S = 60;
/* For jobs that must end by their deadline. The same deadline holds for the rendezvous and for the
 * healthy ranks, which a busy machine may hold up for some tenths of a second. */
static const double SHORT_TIMEOUT_S = 1;

enum { WORLD = 3 };
enum phase {
    BEFORE_RENDEZVOUS,
    IN_RENDEZVOUS,
    BETWEEN,
    IN_BARRIER,
    IN_GATHER,
    IN_EXCHANGE,
    IN_FLAG,
    IN_DISTANT,
    PHASES,
    DISTANT_IS_LATE
};
static const char *const PHASE_NAMES[PHASES] = {
    "before rendezvous", "in rendezvous", "between", "in barrier",
    "in gather",         "in exchange",   "in flag", "in distant wait"};

struct kill_case {
    struct job_case job;    /* victim, phase; kind: the signal */
    struct comm_flag *flag; /* a flag that no rank ever posts */
};

/* What a rank does while its GPU waits: it looks now and then and does other work in between. */
static int look_after(struct comm *comm, const struct comm_wait_reason *why) {
    struct wait wait;
    int code = OK;
    comm_distant_begin(comm, &wait, why);
    while (!(code = comm_distant_look(&wait)))
        sleep_ms(2);
    return code;
}

static int call_of_phase(struct comm *comm, const struct kill_case *test) {
    struct comm_wait_reason why = {
        .collective = "allreduce", .bucket = 3, .step = 118, .peer = test->job.victim};
    int all[MAX_DEVICES] = {0};
    switch (test->job.phase) {
    case IN_GATHER: return comm_gather(comm, all, 0, all);
    case IN_EXCHANGE: return comm_pass_descriptors(comm, -1, NULL);
    case IN_FLAG: return comm_wait_flag(comm, test->flag, 1, &why);
    case IN_DISTANT: return look_after(comm, &why);
    case DISTANT_IS_LATE: return comm_distant_late(comm, &why, "tree: its step 5");
    default: return comm_barrier(comm, "kill test");
    }
}

static void wait_for_all(const struct page *page) {
    for (int r = 0; r < WORLD; r++)
        while (!__atomic_load_n(&page->pids[r], __ATOMIC_RELAXED))
            sleep_ms(1);
}

static int kill_entry(void *context) {
    const struct kill_case *test = context;
    struct page *page = test->job.page;
    int rank = atoi(getenv("RANK")), phase = test->job.phase, signal = test->job.kind;
    int victim = rank == test->job.victim, killer = rank == (test->job.victim + 1) % WORLD;
    struct comm *comm;
    __atomic_store_n(&page->pids[rank], (int)getpid(), __ATOMIC_RELAXED);
    if (victim && phase == BEFORE_RENDEZVOUS) {
        /* Else the job might end before the others have begun, and they could not report. */
        wait_for_all(page);
        raise(signal);
    }
    if (killer && phase == IN_RENDEZVOUS) {
        wait_for_all(page);
        sleep_ms(30); /* the victim waits in comm_open by now */
        kill(page->pids[test->job.victim], signal);
    }
    struct comm_options options = {.timeout_s = test->job.timeout_s};
    int code = page->codes[rank] = comm_open(&comm, &options);
    snprintf(page->texts[rank], sizeof page->texts[rank], "%s", code ? error_message() : "");
    if (code) return error_exit_status(code);
    if (victim && phase == BETWEEN) raise(signal);
    if (killer && phase > BETWEEN) {
        sleep_ms(30); /* the victim waits in its call by now */
        kill(page->pids[test->job.victim], signal);
    }
    while (!code)
        code = call_of_phase(comm, test);
    return fail_rank(comm, page, code);
}

static double seconds_since(int64_t start) {
    return (double)(now_ns() - start) * 1e-9;
}

static void kill_in_phase(int victim, int phase) {
    struct kill_case test = {{.page = new_page(),
                              .victim = victim,
                              .phase = phase,
                              .kind = SIGKILL,
                              .timeout_s = LONG_TIMEOUT_S},
                             NULL};
    char expected[100];
    int64_t start = now_ns();
    int code;
    test.flag = &test.job.page->never_posted;
    struct launch_result result = run_ranks(WORLD, kill_entry, &test.job, &code);
    const char *text = error_message(), *where = PHASE_NAMES[phase];
    struct page *page = test.job.page;
    cr_assert(nobody_left(0), "rank %d killed %s: a process is left", victim, where);
    cr_assert(seconds_since(start) < SECONDS_TO_END, "rank %d killed %s: %g s", victim, where,
              seconds_since(start));
    cr_assert(code == ERR_FAILED && result.exit_status == 137 && result.rank == victim &&
                  result.signal == 0,
              "rank %d killed %s: status %d, rank %d: %s", victim, where, result.exit_status,
              result.rank, text);
    snprintf(expected, sizeof expected, "rank %d (pid %d) ended by signal 9 (Killed)", victim,
             page->pids[victim]);
    cr_assert(!strncmp(text, expected, strlen(expected)), "rank %d killed %s: %s", victim, where,
              text);
    cr_assert((phase != IN_FLAG && phase != IN_DISTANT) ||
                  strstr(text, " was in allreduce bucket 3 step 118: "),
              "%s", text);
    snprintf(expected, sizeof expected, "a peer failed first: rank %d (pid %d)", victim,
             page->pids[victim]);
    for (int r = 0; r < WORLD; r++)
        cr_assert(r == victim || (page->codes[r] == ERR_PEER && strstr(page->texts[r], expected)),
                  "rank %d killed %s: rank %d: code %d: %s", victim, where, r, page->codes[r],
                  page->texts[r]);
}

Test(comm_fail, each_rank_killed_in_each_phase, .timeout = 60) {
    adopt_orphans();
    for (int victim = 0; victim < WORLD; victim++)
        for (int phase = 0; phase < PHASES; phase++)
            kill_in_phase(victim, phase);
}

/* A rank is stopped: the deadline of the others ends the job, the error names the stopped rank, and
 * the launcher kills it. */
static void stop_in_phase(int victim, int phase) {
    struct kill_case test = {{.page = new_page(),
                              .victim = victim,
                              .phase = phase,
                              .kind = SIGSTOP,
                              .timeout_s = SHORT_TIMEOUT_S},
                             NULL};
    char expected[100];
    int code, late = 0;
    int64_t start = now_ns();
    test.flag = &test.job.page->never_posted;
    struct launch_result result = run_ranks(WORLD, kill_entry, &test.job, &code);
    const char *text = error_message(), *where = PHASE_NAMES[phase];
    cr_assert(nobody_left(0), "rank %d stopped %s: a process is left", victim, where);
    cr_assert(seconds_since(start) < SHORT_TIMEOUT_S + SECONDS_TO_END, "rank %d stopped %s: %g s",
              victim, where, seconds_since(start));
    cr_assert(code == ERR_TIMEOUT && result.exit_status == 1 && result.rank != victim,
              "rank %d stopped %s: code %d, status %d, rank %d: %s", victim, where, code,
              result.exit_status, result.rank, text);
    snprintf(expected, sizeof expected, ": no word from rank %d after 1 s: ", victim);
    cr_assert(strstr(text, expected), "rank %d stopped %s: %s", victim, where, text);
    for (int r = 0; r < WORLD; r++) {
        int got = test.job.page->codes[r];
        late += r != victim && got == ERR_TIMEOUT;
        cr_assert(r == victim || got == ERR_TIMEOUT || got == ERR_PEER, "rank %d: code %d", r, got);
    }
    cr_assert_eq(late, 1, "%d ranks say that they were first", late);
}

Test(comm_fail, ranks_stopped, .timeout = 60) {
    adopt_orphans();
    static const int CASES[][2] = {
        {0, BEFORE_RENDEZVOUS}, {1, BETWEEN}, {2, IN_BARRIER}, {0, IN_EXCHANGE}, {1, IN_FLAG}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        stop_in_phase(CASES[i][0], CASES[i][1]);
}

/* ---- ranks that fail by themselves ---- */

enum kind {
    OWN_STATUS,     /* exits with 7 and reports nothing */
    OWN_ERROR,      /* calls comm_abort, exits with 3 */
    ABORT_ONLY,     /* calls comm_abort, then runs forever */
    ENDS_UNNOTICED, /* exits with 0 without comm_close */
    LEAVES,         /* calls comm_close and exits with 0 while the others wait for it */
    NEVER_JOINS,    /* exits with 0 without comm_open */
    ALL_AT_ONCE,    /* every rank fails with its own error */
    GATHER_BYTES,   /* passes another size to comm_gather than the others */
    COMES_LATE,     /* joins the rendezvous after the others' deadline */
    OPEN_FAILS,     /* cannot join: its environment is wrong */
};

static int bring(struct comm *comm, int bytes) {
    char mine[64] = {0}, all[64 * MAX_DEVICES];
    return comm_gather(comm, mine, (size_t)bytes, all);
}

static int failing_entry(void *context) {
    const struct job_case *test = context;
    int rank = atoi(getenv("RANK")), kind = test->kind, code = OK;
    int victim = rank == test->victim;
    if (victim && kind == NEVER_JOINS) return 0;
    if (victim && kind == COMES_LATE) sleep_ms(20000);
    if (victim && kind == OPEN_FAILS) setenv("DUET_SHARED_FD", "1000", 1);
    struct comm *comm = join(test);
    if (!comm) return kind == OPEN_FAILS ? 2 : 1;
    if (victim && kind == OWN_STATUS) return 7;
    if (victim && kind == ENDS_UNNOTICED) return 0;
    if (victim && kind == LEAVES) return end_rank(comm, OK);
    if (victim && kind == OWN_ERROR)
        return fail_rank(comm, test->page, fail(ERR_CHECK, "loss: nan: lower --lr"));
    if (victim && kind == ABORT_ONLY) {
        comm_abort(comm, ERR_MEMORY, "out of memory on device 1");
        if (comm_check(comm) != ERR_MEMORY) return 9;
        for (;;)
            sleep_ms(1000);
    }
    if (kind == ALL_AT_ONCE) {
        comm_barrier(comm, "ready");
        fail(ERR_FAILED, "failure of rank number %d", rank);
        comm_abort(comm, ERR_FAILED, error_message());
        comm_close(comm);
        /* At once, without end_rank, which may take long under a sanitizer: a rank that takes more
         * than half a second is signalled, and its status is then not its own. */
        return 10 + rank;
    }
    if (kind == GATHER_BYTES) code = bring(comm, victim ? 16 : 8);
    while (!code)
        /* rank 0 does not wait: it polls the abort word */
        code = rank == 0 ? comm_check(comm) : comm_barrier(comm, "work");
    return fail_rank(comm, test->page, code);
}

static struct launch_result run_failing(struct job_case *test, int kind, int *code) {
    *test = (struct job_case){.page = new_page(),
                              .victim = 1,
                              .kind = kind,
                              .timeout_s = kind == COMES_LATE ? 1 : LONG_TIMEOUT_S};
    struct launch launch = {.world_size = WORLD, .entry = failing_entry, .context = test};
    struct launch_result result;
    int64_t start = now_ns();
    *code = launch_ranks(&launch, &result);
    cr_assert(nobody_left(0), "case %d: a process is left", kind);
    cr_assert(seconds_since(start) < SECONDS_TO_END, "case %d: %g s", kind, seconds_since(start));
    return result;
}

Test(comm_fail, root_causes, .timeout = 60) {
    static const struct {
        int kind, code, status;
        const char *text;  /* part of the launcher's */
        const char *peers; /* part of each survivor's message; NULL: not checked */
    } CASES[] = {
        {OWN_STATUS, ERR_FAILED, 7, ") ended with status 7", "a peer failed first: rank 1"},
        {OWN_ERROR, ERR_CHECK, 3, "rank 1: loss: nan: lower --lr",
         "a peer failed first: rank 1, whose error says why"},
        {ABORT_ONLY, ERR_MEMORY, 1, "rank 1: out of memory on device 1",
         "a peer failed first: rank 1, whose error says why"},
        {ENDS_UNNOTICED, ERR_FAILED, 1, "ended with status 0 without leaving",
         "a peer failed first: rank 1"},
        {LEAVES, ERR_FAILED, 1, "rank 2: barrier (work): rank 1 has left", "rank 1 has left"},
        {NEVER_JOINS, ERR_FAILED, 1, "ended with status 0 without leaving", NULL},
        {COMES_LATE, ERR_TIMEOUT, 1, "rendezvous: no word from rank 1 after 1 s", NULL},
        {OPEN_FAILS, ERR_FAILED, 2, ") ended with status 2", NULL},
    };
    adopt_orphans();
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct job_case test;
        int code;
        struct launch_result result = run_failing(&test, CASES[i].kind, &code);
        const char *text = error_message();
        cr_assert(code == CASES[i].code && result.exit_status == CASES[i].status &&
                      strstr(text, CASES[i].text),
                  "case %d: code %d, status %d: %s", CASES[i].kind, code, result.exit_status, text);
        cr_assert((result.rank == 1) == (CASES[i].kind != COMES_LATE), "case %d: rank %d",
                  CASES[i].kind, result.rank);
        for (int r = 0; CASES[i].peers && r < WORLD; r += 2)
            cr_assert(test.page->codes[r] == ERR_PEER &&
                          strstr(test.page->texts[r], CASES[i].peers),
                      "case %d: rank %d: code %d: %s", CASES[i].kind, r, test.page->codes[r],
                      test.page->texts[r]);
    }
}

Test(comm_fail, sizes_that_differ_in_a_gather, .timeout = 30) {
    struct job_case test;
    int code;
    run_failing(&test, GATHER_BYTES, &code);
    cr_assert(code == ERR_USAGE && strstr(error_message(), ": all must send the same"), "%d: %s",
              code, error_message());
}

/* The first of several failures wins, and all of it: text, rank and status are of the same rank. */
Test(comm_fail, several_failures_at_once, .timeout = 60) {
    for (int i = 0; i < 20; i++) {
        struct job_case test;
        char expected[100];
        int code;
        struct launch_result result = run_failing(&test, ALL_AT_ONCE, &code);
        snprintf(expected, sizeof expected, "rank %d: failure of rank number %d", result.rank,
                 result.rank);
        cr_assert(code == ERR_FAILED && result.exit_status == 10 + result.rank, "%d: %s", code,
                  error_message());
        cr_assert_str_eq(error_message(), expected);
    }
}

/* ---- deadlines ---- */

static int late_entry(void *context) {
    const struct job_case *test = context;
    struct kill_case call = {*test, &test->page->never_posted};
    struct comm *comm = join(test);
    if (!comm) return 1;
    if (comm_rank(comm) >= test->victim) { /* these never join, and leave when the job is aborted */
        while (!comm_check(comm))
            sleep_ms(5);
        return fail_rank(comm, test->page, ERR_PEER);
    }
    int code = OK;
    while (!code)
        code = call_of_phase(comm, &call);
    return fail_rank(comm, test->page, code);
}

Test(comm_fail, deadline_says_who_and_where, .timeout = 30) {
#define TOO_LATE(WHERE, WHO)               \
    "rank 0: " WHERE ": no word from " WHO \
    " after 1 s: it may be stopped or far behind: see its output, or give a longer timeout"
    static const struct {
        int phase, world;
        const char *text;
    } CASES[] = {
        {IN_FLAG, 2, TOO_LATE("allreduce bucket 3 step 118", "rank 1")},
        {IN_DISTANT, 2, TOO_LATE("allreduce bucket 3 step 118", "rank 1")},
        {DISTANT_IS_LATE, 2, TOO_LATE("allreduce (tree: its step 5) bucket 3 step 118", "rank 1")},
        {IN_BARRIER, 4, TOO_LATE("barrier (kill test)", "ranks 1, 2, 3")},
        {IN_GATHER, 3, TOO_LATE("gather", "ranks 1, 2")},
        {IN_EXCHANGE, 2, TOO_LATE("gather", "rank 1")},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct job_case test = {
            .page = new_page(), .victim = 1, .phase = CASES[i].phase, .timeout_s = SHORT_TIMEOUT_S};
        int code;
        struct launch_result result = run_ranks(CASES[i].world, late_entry, &test, &code);
        cr_assert_eq(code, ERR_TIMEOUT);
        cr_assert(result.exit_status == 1 && result.rank == 0, "status %d rank %d",
                  result.exit_status, result.rank);
        /* and after it what the others are in */
        cr_assert(!strncmp(error_message(), CASES[i].text, strlen(CASES[i].text)), "%s",
                  error_message());
        cr_assert_not_null(strstr(error_message(), "; rank 1 waits for nobody"), "%s",
                           error_message());
        cr_assert_str_eq(test.page->texts[0], error_message());
        cr_assert_eq(test.page->codes[0], ERR_TIMEOUT);
    }
}
