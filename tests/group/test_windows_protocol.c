/* Explores every interleaving of the collectives of process groups, as test_protocol.c does for the
 * allreduces: consecutive calls through the same windows and mailboxes, of one kind and mixed. It
 * must detect every removed wait. */
#include "tests/allreduce/explore.h"

static size_t check(int n, int root, int slices, const struct kind *sequence) {
    struct model *m = windowed_new(n, root, slices, sequence);
    size_t states;
    char text[200];
    enum verdict verdict = explore(m, &states, text, sizeof text);
    cr_assert_eq(verdict, FINE, "%d ranks, root %d, %d pieces, %s, %s, %s: %s: %s", n, root, slices,
                 kind_name(sequence[0]), kind_name(sequence[1]), kind_name(sequence[2]),
                 verdict_names[verdict], text);
    model_free(m);
    if (getenv("DUET_SHOW"))
        printf("%d ranks, root %d, %d pieces, %s, %s: %zu states\n", n, root, slices,
               kind_name(sequence[0]), kind_name(sequence[1]), states);
    return states;
}

Test(windows_protocol, every_interleaving_of_three_calls_is_right, .timeout = 120) {
    for (int n = 2; n <= 3; n++)
        for (int k = 0; k < WINDOWS; k++)
            for (int slices = 1; slices <= (n == 2 ? 4 : test_short() ? 1 : 2); slices++)
                check(n, n - 1, slices, (struct kind[]){windows[k], windows[k], windows[k]});
}

/* Blocks of lengths of their own, some of them empty, alone and between other calls. */
static const struct kind unevens[] = {IT(ALL_GATHER), IT(REDUCE_SCATTER), IT(GATHER), IT(SCATTER),
                                      IT(ALL_TO_ALL)};
enum { UNEVENS = sizeof unevens / sizeof *unevens };

Test(windows_protocol, blocks_may_have_lengths_of_their_own, .timeout = 120) {
    for (int n = 2; n <= 3; n++)
        for (int k = 0; k < UNEVENS; k++)
            for (int root = 0; root < n; root++)
                check(n, root, UNEVEN, (struct kind[]){unevens[k], unevens[k], unevens[k]});
    for (int a = 0; a < UNEVENS; a++)
        for (int b = 0; b < UNEVENS; b++)
            check(2, 0, UNEVEN, (struct kind[]){unevens[a], unevens[b], unevens[a]});
}

/* Any two collectives, and an allreduce that uses scratch on both sides of one that does not. */
Test(windows_protocol, collectives_may_follow_each_other, .timeout = 120) {
    for (int a = 0; a < WINDOWS - 1; a++) {
        for (int b = 0; b < WINDOWS - 1; b++)
            check(2, 0, 2, (struct kind[]){windows[a], windows[b], windows[a]});
        for (int n = 2; n <= 3; n++) {
            check(n, 1, 1, (struct kind[]){BY(ONESHOT), windows[a], BY(ONESHOT)});
            check(n, 1, 1, (struct kind[]){windows[a], BY(DIRECT), windows[a]});
            check(n, 0, 1, (struct kind[]){BY(NAIVE), windows[a], BY(ONESHOT)});
        }
    }
}

/* Eager calls, alone and mixed: two slots in turn, so that the third call takes that of the first
 * one. */
static const struct kind eagers[] = {IT(BROADCAST),      IT(REDUCE),  IT(ALL_GATHER),
                                     IT(REDUCE_SCATTER), IT(GATHER),  IT(SCATTER),
                                     IT(ALL_TO_ALL),     IT(BARRIER), BY(ONESHOT)};
enum { EAGERS = sizeof eagers / sizeof *eagers };

Test(windows_protocol, eager_calls_wait_for_free_slots, .timeout = 120) {
    for (int n = 2; n <= 3; n++)
        for (int root = 0; root < n; root++)
            for (int a = 0; a < EAGERS; a++)
                for (int b = 0; b < (n == 2 ? EAGERS : 1); b++)
                    check(n, root, SLOTS,
                          (struct kind[]){eagers[a], n == 2 ? eagers[b] : eagers[a], eagers[a]});
}

/* Where all ranks show and take, one kind of wait is superfluous. A rank takes piece j - 1 after
 * its show of piece j, so a rank that awaited its `done` of piece j - 1 knows that piece j is
 * shown. To look at a flag that is already there is cheaper than the rule would be. */
static int heard_before(const struct plan *plan, int i, int peer) {
    for (int j = 0; j < i; j++)
        if (plan->steps[j].wait_ranks >> peer & 1 && plan->steps[j].wait_kind == PLAN_DONE &&
            plan->steps[i].wait_kind == PLAN_READY &&
            plan->steps[j].wait_epoch + 1 >= plan->steps[i].wait_epoch)
            return 1;
    return 0;
}

/* In an eager call a turn's wait for a rank that does not read this rank's slot, or that this rank
 * hears in every call, is needed only between calls of different kinds. A rank that gives and takes
 * nothing waits at the end until the others make the same call: tests/group/test_uneven.c. */
static int heard_in_calls(const struct plan *plan, int i, int peer) {
    int reads = 0, heard = 0;
    if (plan->steps[i].op == PLAN_NONE && plan->steps[i].wait_kind == PLAN_SHOWN) return 1;
    if (plan->steps[i].wait_kind != PLAN_LEFT) return 0;
    for (int j = 0; j < plan->step_count; j++) {
        const struct plan_step *s = &plan->steps[j];
        reads |= s->post_kind == PLAN_SHOWN && s->post_ranks >> peer & 1;
        heard |= s->wait_kind == PLAN_SHOWN && s->wait_ranks >> peer & 1;
    }
    return !reads || heard;
}

/* Drops each wait of each rank in turn. Returns how many there were. */
static int drop_all(int n, int slices, struct kind kind) {
    const struct kind sequence[] = {kind, kind, kind};
    int dropped = 0;
    for (int r = 0; r < n; r++) {
        struct model *probe = windowed_new(n, 0, slices, sequence);
        const struct plan *plan = &probe->plans[0][r];
        for (int i = 0; i < plan->step_count; i++)
            for (int peer = 0; peer < n; peer++) {
                if (!(plan->steps[i].wait_ranks >> peer & 1)) continue;
                struct model *m = windowed_new(n, 0, slices, sequence);
                for (int call = 0; call < CALLS; call++)
                    m->plans[call][r].steps[i].wait_ranks &= ~rank_bit(peer);
                enum verdict verdict = explore(m, NULL, NULL, 0);
                cr_expect(verdict == RACE || verdict == WRONG ||
                              (verdict == FINE &&
                               (heard_before(plan, i, peer) || heard_in_calls(plan, i, peer))),
                          "%s, %d ranks: rank %d, step %d does without its wait for rank %d: %s",
                          kind_name(kind), n, r, i, peer, verdict_names[verdict]);
                model_free(m);
                dropped++;
            }
        model_free(probe);
    }
    return dropped;
}

/* So no other wait is superfluous, and the explorer finds every one that is missing. */
Test(windows_protocol, any_dropped_wait_is_found, .timeout = 120) {
    for (int n = 2; n <= 3; n++)
        for (int k = 0; k < WINDOWS; k++)
            cr_assert_geq(drop_all(n, n == 2 ? 3 : 1, windows[k]), n - 1, "%s",
                          kind_name(windows[k]));
    for (int n = 2; n <= 3; n++)
        for (int k = 0; k < EAGERS; k++)
            if (eagers[k].what != COLLECTIVE_BARRIER)
                cr_assert_geq(drop_all(n, SLOTS, eagers[k]), n - 1);
}
