/* Explores every interleaving of the plans.
 *
 * A run of n ranks is a walk through states: how far each rank is, and what is in memory. A step
 * has two halves, begin (its flags have arrived, it starts to read and write) and end (all is
 * written, its flags are posted), so steps of different ranks can overlap. From every state the
 * explorer moves each rank that can move, and visits no state twice. So it visits every state that
 * a run can reach, and in each of them:
 *
 *   - no step overlaps another rank's step on a range that one of them writes   else: a race
 *   - some rank can move, unless all are at the end                             else: a deadlock
 *   - after a call each rank finds the right sum, and writes its next input     else: a wrong sum
 *
 * Three calls run in a row, because scratch alternates between two halves, on 2 to 4 ranks with 6
 * elements in one, two or three slices. Then the explorer itself is tested: it must find any wait
 * that is dropped from any plan. */
#include "tests/allreduce/explore.h"

/* ---- the plans as they are ---- */

static size_t check_sequence(int n, int slices, const struct kind *sequence) {
    struct model *m = model_new(n, slices, sequence);
    size_t states;
    char text[200];
    enum verdict verdict = explore(m, &states, text, sizeof text);
    cr_assert_eq(verdict, FINE, "%d ranks, %d slices, %s, %s, %s: %s: %s", n, slices,
                 kind_name(sequence[0]), kind_name(sequence[1]), kind_name(sequence[2]),
                 verdict_names[verdict], text);
    model_free(m);
    return states;
}

Test(protocol, every_interleaving_of_three_calls_is_right, .timeout = 240) {
    for (int n = 2; n <= RANKS; n++) {
        for (int slices = 1; slices <= 3; slices++) {
            if (n == 4 && test_short()) continue;
            for (int a = 0; a < ALGORITHMS; a++) {
                struct kind sequence[CALLS] = {algorithms[a], algorithms[a], algorithms[a]};
                size_t states = check_sequence(n, slices, sequence);
                if (getenv("DUET_SHOW"))
                    printf("%d ranks, %d slices, %s: %zu states\n", n, slices,
                           kind_name(algorithms[a]), states);
            }
        }
    }
}

/* One communicator serves calls of any algorithm one after another: every ordered triple. */
Test(protocol, algorithms_may_follow_each_other, .timeout = 240) {
    for (int a = 0; a < ALGORITHMS; a++) {
        for (int b = 0; b < ALGORITHMS; b++) {
            for (int c = 0; c < ALGORITHMS; c++) {
                struct kind sequence[CALLS] = {algorithms[a], algorithms[b], algorithms[c]};
                for (int slices = 1; slices <= 2; slices++) {
                    check_sequence(2, slices, sequence);
                    if (!test_short()) check_sequence(3, slices, sequence);
                }
            }
        }
    }
}

/* The collectives that only copy, alone and between allreduces of any algorithm. */
Test(protocol, copies_may_stand_anywhere, .timeout = 240) {
    for (int a = 0; a < COPIES; a++) {
        for (int n = 2; n <= (test_short() ? 3 : RANKS); n++)
            check_sequence(n, 1, (struct kind[]){copies[a], copies[a], copies[a]});
        for (int b = 0; b < ALGORITHMS; b++)
            for (int n = 2; n <= 3; n++) {
                struct kind c = copies[a], x = algorithms[b], y = copies[1 - a];
                check_sequence(n, 2, (struct kind[]){x, c, x});
                check_sequence(n, 2, (struct kind[]){c, x, c});
                check_sequence(n, 2, (struct kind[]){x, c, y});
            }
    }
}

/* ---- the explorer must find bugs ---- */

/* Drops, in all calls, rank `rank`'s wait for `peer` at step i. */
static enum verdict explore_without(struct kind kind, int n, int rank, int i, int peer) {
    struct model *m = model_new(n, 2, (struct kind[CALLS]){kind, kind, kind});
    for (int call = 0; call < CALLS; call++)
        m->plans[call][rank].steps[i].wait_ranks &= ~rank_bit(peer);
    enum verdict verdict = explore(m, NULL, NULL, 0);
    model_free(m);
    return verdict;
}

/* One kind of wait may be superfluous. A leaf of a tree posts only that it has entered the call,
 * and its parent may know that already, from the same rank's flag in the other tree. Which pairs
 * of ranks this concerns depends on n. The planner does not track it: to look at a flag that is
 * already there is cheaper than the rule would be. */
static int heard_before(const struct plan *plan, int i, int peer) {
    struct tree_node a = plan_tree_node(0, plan->n, peer), b = plan_tree_node(1, plan->n, peer);
    const struct plan_step *s = &plan->steps[i];
    int from_leaf = (s->wait_kind == PLAN_UP_A && a.children == 0) ||
                    (s->wait_kind == PLAN_UP_B && b.children == 0);
    for (int j = 0; plan->algorithm == ALLREDUCE_TREE && from_leaf && j < i; j++)
        if (plan->steps[j].wait_ranks >> peer & 1) return 1;
    return 0;
}

/* So no other wait is superfluous, and the explorer finds every one that is missing. */
Test(protocol, any_dropped_wait_is_found, .timeout = 240) {
    for (int n = 2; n <= 3; n++) {
        for (int a = 0; a < ALGORITHMS; a++) {
            struct plan_config config = tiny_config(2);
            int dropped = 0, spare = 0;
            for (int r = 0; r < n; r++) {
                struct plan plan;
                cr_assert_eq(plan_build(&plan, algorithms[a].algorithm, n, r, COUNT, &config), OK);
                for (int i = 0; i < plan.step_count; i++) {
                    for (int peer = 0; peer < n; peer++) {
                        if (!(plan.steps[i].wait_ranks >> peer & 1)) continue;
                        enum verdict verdict = explore_without(algorithms[a], n, r, i, peer);
                        dropped++;
                        spare += verdict == FINE;
                        cr_expect(
                            verdict == RACE || verdict == WRONG ||
                                (verdict == FINE && heard_before(&plan, i, peer)),
                            "%s, %d ranks: rank %d, step %d does without its wait for rank %d: %s",
                            kind_name(algorithms[a]), n, r, i, peer, verdict_names[verdict]);
                    }
                }
                plan_free(&plan);
            }
            cr_assert(dropped >= 2, "%s: every plan waits", kind_name(algorithms[a]));
            cr_assert(spare <= 1, "%s: %d of %d waits are superfluous", kind_name(algorithms[a]),
                      spare, dropped);
            if (getenv("DUET_SHOW"))
                printf("%d ranks, %s: %d waits, %d spare\n", n, kind_name(algorithms[a]), dropped,
                       spare);
        }
    }
}

/* The same for the collectives that only copy. */
Test(protocol, any_dropped_wait_of_a_copy_is_found, .timeout = 60) {
    for (int n = 2; n <= 3; n++) {
        for (int a = 0; a < COPIES; a++) {
            int dropped = 0;
            for (int r = 0; r < n; r++) {
                struct plan plan;
                cr_assert_eq(build(&plan, copies[a], n, r, NULL), OK, "%s", error_message());
                for (int i = 0; i < plan.step_count; i++)
                    for (int peer = 0; peer < n; peer++) {
                        if (!(plan.steps[i].wait_ranks >> peer & 1)) continue;
                        enum verdict verdict = explore_without(copies[a], n, r, i, peer);
                        dropped++;
                        cr_expect(verdict == RACE || verdict == WRONG,
                                  "%s, %d ranks: rank %d, step %d does without rank %d: %s",
                                  kind_name(copies[a]), n, r, i, peer, verdict_names[verdict]);
                    }
                plan_free(&plan);
            }
            cr_assert_geq(dropped, 2 * (n - 1));
        }
    }
}

/* No post is superfluous either: without it somebody waits for ever. */
Test(protocol, any_dropped_post_is_found, .timeout = 240) {
    for (int n = 2; n <= 3; n++) {
        for (int a = 0; a < ALGORITHMS; a++) {
            struct kind sequence[CALLS] = {algorithms[a], algorithms[a], algorithms[a]};
            for (int r = 0; r < n; r++) {
                struct model *probe = model_new(n, 2, sequence);
                for (int i = 0; i < probe->plans[0][r].step_count; i++) {
                    if (!probe->plans[0][r].steps[i].post_ranks) continue;
                    struct model *m = model_new(n, 2, sequence);
                    /* in the last call, so that no later post makes up for it */
                    m->plans[CALLS - 1][r].steps[i].post_ranks = 0;
                    int last_of_kind = 1;
                    for (int j = i + 1; j < probe->plans[0][r].step_count; j++)
                        last_of_kind &= !(probe->plans[0][r].steps[j].post_ranks &
                                              probe->plans[0][r].steps[i].post_ranks &&
                                          probe->plans[0][r].steps[j].post_kind ==
                                              probe->plans[0][r].steps[i].post_kind);
                    enum verdict verdict = explore(m, NULL, NULL, 0);
                    /* The post of the next slice makes up for an earlier one: slower, but right. */
                    cr_expect(verdict == DEADLOCK || (!last_of_kind && verdict == FINE),
                              "%s, %d ranks: rank %d, step %d: %s", kind_name(algorithms[a]), n, r,
                              i, verdict_names[verdict]);
                    model_free(m);
                }
                model_free(probe);
            }
        }
    }
}

/* A flag that promises one slice more than is there. */
Test(protocol, a_post_too_far_is_found, .timeout = 120) {
    static const struct kind sliced[] = {BY(ONESHOT), BY(RING), BY(TREE)};
    for (int a = 0; a < 3; a++) {
        struct model *m = model_new(3, 2, (struct kind[CALLS]){sliced[a], sliced[a], sliced[a]});
        int planted = 0;
        for (int r = 0; r < 3 && !planted; r++) {
            for (int i = 0; i + 1 < m->plans[0][r].step_count && !planted; i++) {
                struct plan_step *s = &m->plans[0][r].steps[i];
                if (s->op == PLAN_NONE || !s->post_ranks || s->post_epoch >= m->plans[0][r].epochs)
                    continue;
                s->post_epoch++;
                planted = 1;
            }
        }
        cr_assert(planted);
        enum verdict verdict = explore(m, NULL, NULL, 0);
        cr_assert(verdict == RACE || verdict == WRONG, "%s: %s", kind_name(sliced[a]),
                  verdict_names[verdict]);
        model_free(m);
    }
}

/* Scratch must alternate between calls: oneshot depends on it. */
Test(protocol, scratch_that_does_not_alternate_is_found, .timeout = 60) {
    for (int n = 2; n <= 3; n++) {
        struct model *m =
            model_new(n, 1, (struct kind[CALLS]){BY(ONESHOT), BY(ONESHOT), BY(ONESHOT)});
        m->same_half = 1;
        enum verdict verdict = explore(m, NULL, NULL, 0);
        cr_assert(verdict == RACE || verdict == WRONG, "%d ranks: %s", n, verdict_names[verdict]);
        model_free(m);
    }
}

/* One step reads the wrong slice: flags and order are right, the sum is not. */
Test(protocol, swapped_slices_are_found, .timeout = 60) {
    static const struct kind pulled[] = {BY(DIRECT), BY(RING), BY(TREE)};
    for (int a = 0; a < 3; a++) {
        struct model *m = model_new(3, 2, (struct kind[CALLS]){pulled[a], pulled[a], pulled[a]});
        for (int i = 0; i < m->plans[1][1].step_count; i++) {
            struct plan_step *s = &m->plans[1][1].steps[i];
            if (s->op == PLAN_NONE) continue;
            s->source_offset = s->source_offset > 0 ? 0 : COUNT - s->length;
            break;
        }
        enum verdict verdict = explore(m, NULL, NULL, 0);
        cr_assert(verdict == RACE || verdict == WRONG, "%s: %s", kind_name(pulled[a]),
                  verdict_names[verdict]);
        model_free(m);
    }
}
