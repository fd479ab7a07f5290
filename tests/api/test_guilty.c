/* Programs whose ranks make different calls, drawn at random: a group's call or a pass of duet_ddp
 * on one rank alone. The job ends long before its deadline, and its error names that rank. */
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "tests/api/ddp_bed.h"

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
    if (!code) code = pass(&r, r.alone, 0, 0); /* what the calls of the group sum up */
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

/* ---- a call under way, begun before something on rank 0 and behind it on the others ---- */

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

/* Rank 1 is late for a step. That is no failure. */
static int be_late(int number, void *context) {
    struct rank r;
    (void)number, (void)context;
    int code = open_rank(&r, "cpu", NULL, EXTRA);
    if (r.rank == 1) sleep(11);
    if (!code) code = pass(&r, r.ours, 0, 0);
    close_rank(&r);
    return code;
}

Test(api_guilty, a_wait_of_ten_seconds_is_told_once, .timeout = 120) {
    if (test_short()) cr_skip_test("short form: a wait of ten seconds");
    char text[4096] = "";
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);
    cr_assert(file && before >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    int code = duet_spawn(3, be_late, NULL);
    dup2(before, STDERR_FILENO);
    cr_assert_eq(code, DUET_OK, "%s", duet_error());
    ssize_t got = pread(fileno(file), text, sizeof text - 1, 0);
    cr_assert_gt(got, 0, "no warning");
    const char *warning = strstr(text, "for 10 s no word from rank 1");
    cr_expect(warning && strstr(text, "; rank 1 waits for nobody"), "%s", text);
    cr_expect(strstr(text, "has waited"), "what the third rank is in: %s", text);
    cr_expect(warning && !strstr(warning + 12, "no word"), "once is enough: %s", text);
    fclose(file);
    close(before);
}
