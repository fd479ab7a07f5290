/* Tests a group's errors: ranks make different calls, do not join, die, or send something
 * unexpected. Each message names rank, call and number. */
#include <signal.h>
#include <pthread.h>
#include <sys/resource.h>

#include "tests/group/shared.h"

#include "comm/comm.h"

struct fault {
    struct page *page;
    int kind;
    double timeout_s;
};

enum kind {
    OTHER_CALL,
    OTHER_COUNT,
    AFTER_MANY,
    OTHER_TYPE,
    OTHER_OP,
    OTHER_ROOT,
    ABSENT,
    KILLED,
    LEAVES,
    OTHER_MESSAGE,
    NO_MESSAGE,
    NO_THREAD,
    OTHER_LIST,
    ALL_ROOTS,
    ALL_ROOTS_AND_ON,
    SHORT_AND_LONG,
    LATE_AND_ABSENT
};

static int call_of(struct group *g, enum collective what, size_t count, int root,
                   struct arithmetic how) {
    static char memory[2][8192];
    struct group_call call = {.what = what,
                              .count = count,
                              .root = root,
                              .how = how,
                              .input = memory[0],
                              .output = memory[1]};
    return group_run(g, &call, NULL);
}

static int message(struct group *g, int receive, int peer, size_t count) {
    static float memory[64];
    struct group_call call = {.what = COLLECTIVE_SEND,
                              .count = count,
                              .peer = peer,
                              .receive = receive,
                              .input = memory,
                              .output = memory};
    return group_run(g, &call, NULL);
}

static void *wait_for_ever(void *nothing) {
    pause();
    return nothing;
}

/* A call that needs a thread, in a process that gets no more memory for its stack. The C library
 * may have kept one from before the fork, which another thread takes. */
static int without_memory(struct group *g) {
    pthread_t other;
    struct rlimit before, none = {.rlim_cur = 1 << 20};
    struct group_call barrier = {.what = COLLECTIVE_BARRIER};
    struct work *work;
    pthread_create(&other, NULL, wait_for_ever, NULL);
    getrlimit(RLIMIT_AS, &before);
    none.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_AS, &none);
    int code = group_run(g, &barrier, &work);
    setrlimit(RLIMIT_AS, &before);
    return code;
}

/* Three calls that are right, then the fault of rank 1. */
static int faulty(struct group *g, struct fault *f) {
    int odd = group_rank(g) == 1, ranks[] = {0, odd ? 2 : 1}, all[] = {0, 1, 2};
    struct arithmetic floats = {0}, other = {DTYPE_I32, ELEMENT_SUM},
                      largest = {DTYPE_F32, ELEMENT_MAX};
    struct group *sub;
    for (int i = 0; i < 3; i++)
        CHECK(call_of(g, COLLECTIVE_ALL_REDUCE, 8, 0, floats));
    switch ((enum kind)f->kind) {
    case OTHER_CALL:
        return call_of(g, odd ? COLLECTIVE_ALL_GATHER : COLLECTIVE_ALL_REDUCE, 8, 0, floats);
    case OTHER_COUNT: return call_of(g, COLLECTIVE_ALL_REDUCE, odd ? 9 : 8, 0, floats);
    case AFTER_MANY: /* more calls than a rank shows: equal ones, then three kinds in turn */
        for (int i = 0; i < 200; i++)
            CHECK(call_of(g, COLLECTIVE_ALL_REDUCE, i < 130 ? 8 : 8 + (size_t)i % 3, 0, floats));
        return call_of(g, COLLECTIVE_ALL_REDUCE, odd ? 9 : 8, 0, floats);
    case OTHER_TYPE: return call_of(g, COLLECTIVE_ALL_REDUCE, 8, 0, odd ? other : floats);
    case OTHER_OP: return call_of(g, COLLECTIVE_ALL_REDUCE, 8, 0, odd ? largest : floats);
    case OTHER_ROOT: return call_of(g, COLLECTIVE_BROADCAST, 8, odd, floats);
    case ABSENT:
        while (odd && !comm_check(group_comm(g)))
            usleep(1000);
        return call_of(g, COLLECTIVE_BARRIER, 0, 0, floats);
    case KILLED:
        if (odd) kill(getpid(), SIGKILL);
        return call_of(g, COLLECTIVE_BROADCAST, 8, 1, floats);
    case LEAVES: return odd ? OK : call_of(g, COLLECTIVE_GATHER, 8, 0, floats);
    case OTHER_MESSAGE:
        if (odd) return message(g, 1, 0, 5);
        if (group_rank(g) == 0) CHECK(message(g, 0, 1, 6));
        return call_of(g, COLLECTIVE_BARRIER, 0, 0, floats); /* rank 0's message is on its way */
    case NO_MESSAGE:
        if (group_rank(g) == 0) return message(g, 1, ANY_SOURCE, 5);
        return call_of(g, COLLECTIVE_BARRIER, 0, 0, floats);
    case NO_THREAD:
        if (odd) return without_memory(g);
        return call_of(g, COLLECTIVE_BARRIER, 0, 0, floats);
    case ALL_ROOTS_AND_ON: /* each rank shows and none takes; later calls are right again */
    case ALL_ROOTS:
        CHECK(call_of(g, COLLECTIVE_BROADCAST, 8, group_rank(g), floats));
        for (int i = 0; i < 100 && f->kind == ALL_ROOTS_AND_ON; i++)
            CHECK(call_of(g, COLLECTIVE_BROADCAST, 8, i % 3, floats));
        return OK;
    case SHORT_AND_LONG: /* one rank waits for windows, the others show and go on */
        return call_of(g, COLLECTIVE_BROADCAST, odd ? 2000 : 8, 0, floats);
    case OTHER_LIST: return group_new(&sub, g, ranks, 2, 0);
    case LATE_AND_ABSENT: /* the others wait for it in an exchange, and then in something else */
        if (odd) usleep(200000);
        CHECK(group_new(&sub, g, all, 3, 0));
        group_close(sub);
        while (odd && !comm_check(group_comm(g)))
            usleep(1000);
        return message(g, 1, 1, 5);
    }
    return OK;
}

static int fault_entry(void *context) {
    struct fault *f = context;
    struct group *g;
    int code = group_open(&g, f->timeout_s);
    if (!code) code = faulty(g, f);
    return end_rank(g, f->page, code);
}

/* Runs the fault over three ranks; the job's text must have both words, or the second pair. */
static void must_say(enum kind kind, double timeout_s, const char *one, const char *two) {
    struct fault f = {share(sizeof(struct page)), kind, timeout_s};
    struct launch_result result = run_ranks(3, fault_entry, &f);
    const char *text = error_message();
    cr_assert(result.exit_status != 0, "fault %d is not found", kind);
    cr_assert(strstr(text, one) && strstr(text, two), "fault %d: %s", kind, text);
}

Test(group_fail, ranks_in_different_calls_are_told, .timeout = 60) {
    must_say(OTHER_CALL, 20, "Detected mismatch between collectives on ranks",
             "is running collective: #4 ALLGATHER, 8 elements, float32");
    must_say(OTHER_COUNT, 20, "#4 ALLREDUCE, 8 elements, float32 sum",
             "#4 ALLREDUCE, 9 elements, float32 sum");
    must_say(AFTER_MANY, 20, "#204 ALLREDUCE, 8 elements, float32 sum",
             "#204 ALLREDUCE, 9 elements, float32 sum");
    must_say(OTHER_TYPE, 20, "8 elements, float32 sum",
             "Rank 1 is running collective: #4 ALLREDUCE, "
             "8 elements, int32 sum");
    must_say(OTHER_OP, 20, "float32 sum", "float32 max");
    must_say(OTHER_ROOT, 20, "#4 BROADCAST, 8 elements, float32, root 0", "root 1");
    must_say(ALL_ROOTS, 20, "#4 BROADCAST, 8 elements, float32, root ", ", but Rank ");
    must_say(ALL_ROOTS_AND_ON, 20, "#4 BROADCAST, 8 elements, float32, root ", ", but Rank ");
    must_say(SHORT_AND_LONG, 20, "#4 BROADCAST, 2000 elements, float32, root 0",
             "#4 BROADCAST, 8 elements, float32, root 0");
    must_say(OTHER_LIST, 20, "new group: rank", "names other ranks");
}

Test(group_fail, a_rank_that_does_not_come_is_named, .timeout = 60) {
    must_say(ABSENT, 0.5, "barrier #4: no word from rank 1 after 0.5 s", "give a longer timeout");
    must_say(KILLED, 20, "rank 1 (pid", "signal 9");
    must_say(LEAVES, 20, "gather #4: rank 1 has left", "rank ");
    must_say(NO_MESSAGE, 0.5, "#", "0.5 s");
    must_say(LATE_AND_ABSENT, 0.5, "no word from rank 1", " s in recv #1");
}

Test(group_fail, messages_must_fit, .timeout = 60) {
    must_say(OTHER_MESSAGE, 20, "rank 1: recv #1 from rank 0: it sent 6 elements of float32",
             "5 of float32 are expected");
}

/* The peers get the reason, not that this rank has left. Sanitizers need the memory themselves. */
Test(group_fail, a_call_that_cannot_begin_fails_the_job, .timeout = 60) {
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    must_say(NO_THREAD, 20, "rank 1: process group: a thread for running calls", "");
#endif
}

/* ---- the barrier that names who is missing ---- */

static int monitored_entry(void *context) {
    struct fault *f = context;
    struct group *g;
    int code = group_open(&g, 20), rank = g ? group_rank(g) : 0;
    for (int i = 0; i < 3 && !code; i++)
        code = group_monitored_barrier(g, 10, 1);
    if (!code && (rank == 1 || rank == 3))
        while (!(code = comm_check(group_comm(g))))
            usleep(1000);
    if (!code) code = group_monitored_barrier(g, 0.3, f->kind);
    return end_rank(g, f->page, code);
}

Test(group_fail, monitored_barrier_names_all_missing_ranks, .timeout = 60) {
    for (int all = 0; all < 2; all++) {
        struct fault f = {.page = share(sizeof(struct page)), .kind = all};
        cr_assert(run_ranks(4, monitored_entry, &f).exit_status == 1);
        cr_assert(strstr(error_message(), all ? "[Rank 0]: Ranks 1, 3 failed to pass "
                                                "monitoredBarrier #4 in 300 ms"
                                              : "[Rank 0]: Rank 1 failed to pass"),
                  "%s", error_message());
    }
}

/* ---- misuse that leaves the group as it was ---- */

static int misuse_entry(void *context) {
    struct group *g, *sub;
    struct page *page = context;
    int code = group_open(&g, 20);
#define REFUSED(call, word)                                               \
    if (!code && ((call) != ERR_USAGE || !strstr(error_message(), word))) \
    code = fail(ERR_CHECK, "%s: not refused by '%s': %s", #call, word, error_message())
    struct arithmetic floats = {0};
    REFUSED(call_of(g, COLLECTIVE_BROADCAST, 8, 2, floats), "root 2: give 0 to 1");
    REFUSED(message(g, 0, group_rank(g), 1), "send to rank");
    REFUSED(message(g, 0, ANY_SOURCE, 1), "send to rank -1");
    REFUSED(message(g, 1, 7, 1), "recv from rank 7");
    REFUSED(group_new(&sub, g, (int[]){0, 0}, 2, 0), "rank 0 twice");
    REFUSED(group_new(&sub, g, (int[]){2}, 1, 0), "rank 2");
    REFUSED(group_new(&sub, g, (int[]){0}, 3, 0), "3 ranks");
    struct group_call average = {
        .what = COLLECTIVE_ALL_REDUCE, .count = 1, .how = {DTYPE_I32, ELEMENT_SUM}, .average = 1};
    REFUSED(group_run(g, &average, NULL), "average of int32");
    if (!code) code = call_of(g, COLLECTIVE_BARRIER, 0, 0, floats);
    return end_rank(g, page, code);
}

Test(group_fail, misuse_is_refused_and_harmless, .timeout = 30) {
    struct page *page = share(sizeof(struct page));
    struct launch_result result = run_ranks(2, misuse_entry, page);
    cr_assert_eq(result.exit_status, 0, "%s; %s", page->text[0], page->text[1]);
}
