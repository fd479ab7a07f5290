/* Random programs whose ranks make different calls: only one rank makes a group's call or a pass of
 * duet_ddp. The job ends long before its deadline, and its error names that rank. */
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "tests/ddp/program_bed.h"

enum mischief { MORE_CALLS, FEWER_CALLS, MORE_PASSES, FEWER_PASSES, ENDS_EARLY, MISCHIEFS };

struct draw {
    enum mischief mischief;
    int world, odd, step, first; /* first: the group's call comes before the pass */
};

enum { STEPS = 4 };

static int total(struct rank *r) {
    duet_tensor *loss = duet_params_grad(r->alone, 1);
    return duet_all_reduce(r->group, loss, DUET_SUM, NULL);
}

static int times(const struct draw *d, int odd, enum mischief more, enum mischief fewer) {
    return 1 + (odd && d->mischief == more) - (odd && d->mischief == fewer);
}

static int train(struct rank *r, const struct draw *d) {
    int code = DUET_OK, rank = r->rank;
    for (int step = 0; step < STEPS; step++) {
        int odd = rank == d->odd && step == d->step;
        if (odd && d->mischief == ENDS_EARLY) break;
        for (int k = times(d, odd, MORE_CALLS, FEWER_CALLS); k > 0 && d->first; k--)
            TRY(total(r));
        for (int k = times(d, odd, MORE_PASSES, FEWER_PASSES); k > 0; k--)
            TRY(pass(r, r->ours, step, 0));
        TRY(duet_sgd(r->ours, 0.1, 1));
        for (int k = times(d, odd, MORE_CALLS, FEWER_CALLS); k > 0 && !d->first; k--)
            TRY(total(r));
    }
    TRY(duet_barrier(r->group, NULL));
out:
    return code;
}

static int misbehave(int number, void *context) {
    struct rank r;
    (void)number;
    int code = open_rank(&r, "cpu", NULL, EXTRA);
    if (!code) code = pass(&r, r.alone, 0, 0); /* the group's calls sum these */
    if (!code) code = train(&r, context);
    close_rank(&r);
    return code;
}

Test(api_guilty, fifty_of_fifty_name_the_rank, .timeout = 300) {
    unsigned long long seed = test_seed();
    struct rng from;
    rng_seed(&from, seed);
    for (int i = 0; i < 50; i++) {
        struct draw d = {.mischief = i % MISCHIEFS, .world = 2 + (int)rng_integer(&from, 0, 2)};
        char name[16];
        d.odd = (int)rng_integer(&from, 0, d.world), d.step = (int)rng_integer(&from, 0, STEPS);
        d.first = (int)rng_integer(&from, 0, 2);
        int64_t start = now_ns();
        int code = duet_spawn(d.world, misbehave, &d);
        double seconds = (double)(now_ns() - start) * 1e-9;
        snprintf(name, sizeof name, "ank %d", d.odd);
        cr_expect(
            code && seconds < 10 && strstr(duet_error(), name) &&
                strstr(duet_error(), "is running collective"),
            "seed %llu, draw %d: mischief %d of rank %d of %d at step %d, first %d, %.1f s: %s",
            seed, i, d.mischief, d.odd, d.world, d.step, d.first, seconds, duet_error());
    }
}

/* ---- a call under way, begun before something on rank 0 and after it on the others ---- */

enum between { A_PASS, A_PASS_OF_ANOTHER_GROUP, A_NEW_GROUP, A_MONITORED_BARRIER };

static int do_between(struct rank *r, enum between what, int step) {
    duet_group *made = NULL;
    if (what == A_MONITORED_BARRIER && r->rank) return duet_monitored_barrier(r->group, 20, 0);
    if (what != A_NEW_GROUP) return pass(r, r->ours, step, 0);
    int code = duet_group_new(&made, r->group, (int[]){1, 0}, 2, 0);
    duet_group_destroy(&made);
    return code;
}

static int cross(int number, void *context) {
    const enum between what = *(const enum between *)context;
    struct rank r;
    duet_group *other = NULL;
    (void)number;
    int code = open_rank(&r, "cpu", NULL, EXTRA);
    if (!code) code = pass(&r, r.alone, 0, 0);
    if (!code) code = duet_group_new(&other, r.group, (int[]){0, 1}, 2, 0);
    if (!code && what == A_PASS_OF_ANOTHER_GROUP) {
        duet_ddp_free(r.ddp);
        code = duet_ddp_create(&r.ddp, other, r.ours, NULL);
    }
    for (int step = 0; step < STEPS && !code; step++) {
        duet_tensor *loss = duet_params_grad(r.alone, 1);
        duet_work *sum = NULL;
        int early = r.rank == 0 && what != A_MONITORED_BARRIER;
        if (early) code = duet_all_reduce(r.group, loss, DUET_SUM, &sum);
        if (!code) code = do_between(&r, what, step);
        if (!code && what == A_MONITORED_BARRIER)
            code = r.rank ? pass(&r, r.ours, step, 0) : duet_monitored_barrier(r.group, 20, 0);
        else if (!code && !early)
            code = duet_all_reduce(r.group, loss, DUET_SUM, &sum);
        if (!code && sum) code = duet_work_wait(sum);
        duet_work_free(sum);
    }
    close_rank(&r);
    duet_group_destroy(&other);
    return code;
}

static void must_differ(enum between what, const char *call) {
    int64_t start = now_ns();
    int code = duet_spawn(2, cross, &what);
    double seconds = (double)(now_ns() - start) * 1e-9;
    cr_expect(code && seconds < 10 && strstr(duet_error(), "is running collective: #") &&
                  strstr(duet_error(), call),
              "%d, %.1f s: %s", what, seconds, duet_error());
}

static void must_run(enum between what) {
    int code = duet_spawn(2, cross, &what);
    cr_expect(code == DUET_OK, "%d: %s", what, duet_error());
}

/* As over gloo: what the ranks do in another order is refused within a group, and may be done
 * between two groups. */
Test(api_guilty, calls_of_one_group_alone_are_one_order, .timeout = 60) {
    must_differ(A_PASS, "ALLREDUCE bucket 0 step 0");
    must_differ(A_MONITORED_BARRIER, "MONITORED_BARRIER");
    must_run(A_PASS_OF_ANOTHER_GROUP);
    must_run(A_NEW_GROUP);
}

/* ---- a call that is waited for, and a new_group or a monitored_barrier, in another order ---- */

enum crossing { SHORT_CALL, LONG_CALL, BARRIER, CROSSINGS };

static int wait_for_call(const struct rank *r, enum crossing which) {
    if (which == BARRIER) return duet_monitored_barrier(r->group, 20, 0);
    return duet_all_reduce(r->group, duet_params_grad(r->alone, which == LONG_CALL ? W1 : B2),
                           DUET_SUM, NULL);
}

static int cross_waiting(int number, void *context) {
    const enum crossing which = *(const enum crossing *)context;
    struct rank r;
    duet_group *made = NULL;
    (void)number;
    int code = open_rank(&r, "cpu", NULL, EXTRA);
    if (!code) code = pass(&r, r.alone, 0, 0);
    if (!code && r.rank == 1) code = wait_for_call(&r, which);
    if (!code) code = duet_group_new(&made, r.group, (int[]){0, 1}, 2, 0);
    if (!code && r.rank != 1) code = wait_for_call(&r, which);
    duet_group_destroy(&made);
    close_rank(&r);
    return code;
}

Test(api_guilty, a_call_that_is_waited_for_does_not_cross_a_new_group, .timeout = 60) {
    static const char *const says[] = {"#2 all_reduce,", "#2 all_reduce,", "#2 monitored_barrier,"};
    for (enum crossing which = 0; which < CROSSINGS; which++) {
        double start = duet_time();
        if (which == BARRIER) setenv("DUET_TRACE", "/dev/null/trace", 1); /* hides no error */
        MUST_FAIL(duet_spawn(3, cross_waiting, &which), DUET_FAILED,
                  "but Rank 0 is running collective: new_group");
        cr_expect(strstr(duet_error(), "Rank 1 is running") && strstr(duet_error(), says[which]),
                  "%s", duet_error());
        cr_expect_lt(duet_time() - start, 15, "that is at once");
    }
}

/* Rank 0's call is under way while it waits for a message, and may still cross the new_group. */
static int cross_behind_message(int number, void *context) {
    struct rank r;
    duet_group *made = NULL;
    duet_work *sum = NULL;
    (void)number, (void)context;
    int code = open_rank(&r, "cpu", NULL, EXTRA);
    duet_tensor *loss = duet_params_grad(r.alone, B2), *message = duet_params_value(r.alone, B2);
    if (!code) code = pass(&r, r.alone, 0, 0);
    if (!code && r.rank == 0) code = duet_all_reduce(r.group, loss, DUET_SUM, &sum);
    if (!code && r.rank == 0) code = duet_recv(r.group, message, 2, 0, NULL, NULL);
    if (!code && r.rank == 2) usleep(300000); /* longer than a wait sleeps between two looks */
    if (!code && r.rank == 2) code = duet_send(r.group, message, 0, 0, NULL);
    if (!code) code = duet_group_new(&made, r.group, (int[]){0, 1}, 2, 0);
    if (!code && r.rank) code = duet_all_reduce(r.group, loss, DUET_SUM, NULL);
    if (!code && sum) code = duet_work_wait(sum);
    duet_work_free(sum);
    duet_group_destroy(&made);
    close_rank(&r);
    return code;
}

Test(api_guilty, a_call_under_way_crosses_a_new_group_behind_a_message, .timeout = 60) {
    int code = duet_spawn(3, cross_behind_message, NULL);
    cr_expect(code == DUET_OK, "%s", duet_error());
}

/* ---- waits, which are reported after a while ---- */

/* The ranks' output on stderr meanwhile, as a text; MOST_TOLD of it. */
enum { MOST_TOLD = 4096 };
static int spawn_and_read(int n, int (*work)(int number, void *context), void *context,
                          char text[MOST_TOLD]) {
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);
    cr_assert(file && before >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    int code = duet_spawn(n, work, context);
    dup2(before, STDERR_FILENO);
    ssize_t got = pread(fileno(file), text, MOST_TOLD - 1, 0);
    text[got > 0 ? got : 0] = 0;
    fclose(file);
    close(before);
    return code;
}

/* Rank 1 is late for a step. That is no failure. */
static int be_late(int number, void *context) {
    struct rank r;
    (void)number, (void)context;
    int code = open_rank(&r, "cpu", NULL, EXTRA);
    if (r.rank == 1) sleep(3);
    if (!code) code = pass(&r, r.ours, 0, 0);
    close_rank(&r);
    return code;
}

Test(api_guilty, a_long_wait_is_told_once, .timeout = 120) {
    char text[MOST_TOLD];
    setenv("DUET_WARN_AFTER", "1", 1);
    cr_assert_eq(spawn_and_read(3, be_late, NULL, text), DUET_OK, "%s", duet_error());
    const char *warning = strstr(text, "for 1 s no word from rank 1");
    cr_expect(warning && strstr(text, "; rank 1 waits for nobody"), "%s", text);
    cr_expect(strstr(text, "has waited"), "what the third rank is in: %s", text);
    cr_expect(warning && !strstr(warning + 12, "no word"), "once is enough: %s", text);
    setenv("DUET_WARN_AFTER", "soon", 1);
    MUST_FAIL(duet_spawn(2, be_late, NULL), DUET_USAGE, "DUET_WARN_AFTER: soon: expected a");
}

/* Two groups of all ranks, the passes of duet_ddp in the one and calls of the other. One rank makes
 * one call more of the other group, or one fewer, or one in a group of two whose other member does
 * not make it, or has so large a batch that nobody waits so long. */
enum drift { MORE_OF_OTHER, FEWER_OF_OTHER, PAIR, LARGE_BATCH, DRIFTS };
static const double LET_GO_S = 3; /* deadline of the other group's calls */

struct drifting {
    enum drift drift;
    int world, odd, step;
};

static int call_of(const struct rank *r, duet_group *group) {
    return duet_all_reduce(group, duet_params_grad(r->alone, B2), DUET_SUM, NULL);
}

static int train_drifting(struct rank *r, duet_group *other, duet_group *pair,
                          const struct drifting *d) {
    int code = DUET_OK;
    for (int step = 0; step < STEPS; step++) {
        int odd = r->rank == d->odd && step == d->step;
        if (odd && d->drift == MORE_OF_OTHER) TRY(call_of(r, other));
        if (odd && d->drift == PAIR) TRY(call_of(r, pair));
        TRY(pass(r, r->ours, step, 0));
        if (odd && d->drift == LARGE_BATCH) sleep((unsigned)LET_GO_S + 2);
        if (!odd || d->drift != FEWER_OF_OTHER) TRY(call_of(r, other));
    }
    TRY(duet_barrier(r->group, NULL));
out:
    return code;
}

static int drift(int number, void *context) {
    const struct drifting *d = context;
    int all[] = {0, 1, 2, 3}, two[] = {d->odd, (d->odd + 1) % d->world};
    duet_group *other = NULL, *pair = NULL;
    struct rank r;
    (void)number;
    int code = open_rank(&r, "cpu", NULL, EXTRA);
    if (!code) code = pass(&r, r.alone, 0, 0);
    if (!code) code = duet_group_new(&other, r.group, all, d->world, LET_GO_S);
    if (!code) code = duet_group_new(&pair, r.group, two, 2, LET_GO_S);
    if (!code) code = train_drifting(&r, other, pair, d);
    close_rank(&r);
    duet_group_destroy(&other);
    duet_group_destroy(&pair);
    return code;
}

enum place { NOWHERE, ELSEWHERE, IN_OTHER };

/* The place that a warning or an error gives for the rank: in a call of a duet_group_new's group?
 * "rank 1: all_reduce of group 1 #2: for 2 s no word from rank 0; rank 0 has waited 2 s in
 * allreduce bucket 0 step 3; rank 2 waits for nobody" */
static enum place place_of(const char *text, int rank) {
    char speaks[24], waits[32], where[128];
    snprintf(speaks, sizeof speaks, "rank %d: ", rank);
    snprintf(waits, sizeof waits, "; rank %d has waited ", rank);
    const char *first = strstr(text, speaks),
               *at = first ? first + strlen(speaks) : strstr(text, waits);
    if (!at) return NOWHERE;
    if (!first) at += strlen(waits);
    snprintf(where, sizeof where, "%.*s", (int)strcspn(at, first ? ":" : ";\n"), at);
    return strstr(where, " of group ") ? IN_OTHER : ELSEWHERE;
}

/* Only the odd rank is there. */
static int names_the_odd(const char *text, const struct drifting *d) {
    static const enum place odd[] = {IN_OTHER, ELSEWHERE, IN_OTHER, NOWHERE},
                            others[] = {ELSEWHERE, IN_OTHER, ELSEWHERE, IN_OTHER};
    int named = 1;
    for (int r = 0; r < d->world; r++)
        named &= place_of(text, r) == (r == d->odd ? odd : others)[d->drift];
    return named;
}

static void draw_drift(struct rng *from, unsigned long long seed, int i) {
    char text[MOST_TOLD], what[128];
    struct drifting d = {.drift = i % DRIFTS, .world = 2 + (int)rng_integer(from, 0, 3)};
    d.odd = (int)rng_integer(from, 0, d.world), d.step = (int)rng_integer(from, 0, STEPS);
    int code = spawn_and_read(d.world, drift, &d, text);
    const char *warning = strstr(text, ": for 2 s no word from ");
    snprintf(what, sizeof what, "seed %llu, draw %d: drift %d of rank %d of %d at step %d", seed, i,
             d.drift, d.odd, d.world, d.step);
    cr_expect(warning && names_the_odd(text, &d), "%s: warning: %s", what, text);
    cr_expect(code == DUET_TIMEOUT && names_the_odd(duet_error(), &d), "%s: code %d: %s", what,
              code, duet_error());
}

/* DUET_DRAWS=50 draws more of them. */
Test(api_guilty, waits_between_groups_say_who_is_where, .timeout = 600) {
    unsigned long long seed = test_seed();
    const char *draws = getenv("DUET_DRAWS");
    struct rng from;
    rng_seed(&from, seed);
    setenv("DUET_WARN_AFTER", "2", 1);
    for (int i = 0; i < (draws ? atoi(draws) : test_short() ? 1 : DRIFTS); i++)
        draw_drift(&from, seed, i);
}
