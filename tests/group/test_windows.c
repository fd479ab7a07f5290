/* Checks the plans of process groups in one thread: every collective for every number of ranks and
 * every root, with counts around every boundary of windows and pieces, in every type. The expected
 * results are computed separately, without any plan. */
#include "group/plans/windows.h"

#include <math.h>

#include "tests/allreduce/reference.h"
#include "base/error.h"
#include "tests/allreduce/kinds.h"
#include "tests/group/expected.h"
#include "tests/harness/harness.h"

enum { WINDOW = 96 };

static const struct kind whats[] = {IT(BROADCAST), IT(REDUCE),  IT(ALL_GATHER), IT(REDUCE_SCATTER),
                                    IT(GATHER),    IT(SCATTER), IT(ALL_TO_ALL), IT(SEND),
                                    BY(NAIVE),     BY(ONESHOT), BY(DIRECT),     BY(FUSED)};
enum { WHATS = sizeof whats / sizeof *whats };

/* ---- one world: inputs, outputs, windows, mailboxes ---- */

struct world {
    struct window_request q;
    struct expected expected;
    char *input[MAX_DEVICES], *output[MAX_DEVICES], *data[MAX_DEVICES], *scratch[MAX_DEVICES];
};

static char *memory_of(size_t elements, size_t bytes) {
    char *memory = malloc(elements * bytes + 1);
    cr_assert_not_null(memory);
    memset(memory, 0xff, elements * bytes); /* NaN, or -1, so that unwritten elements show */
    return memory;
}

static void make_world(struct world *w, int in_place) {
    const struct expected *e = &w->expected;
    size_t bytes = dtype_bytes(e->how.type);
    for (int r = 0; r < w->q.n; r++) {
        w->input[r] = memory_of(expected_input(e), bytes);
        expected_fill(e, w->input[r], r);
        w->output[r] = in_place ? w->input[r] : memory_of(expected_output(e), bytes);
        w->data[r] = memory_of(w->q.window, bytes);
        w->scratch[r] = memory_of((size_t)w->q.n * WINDOW, bytes);
    }
}

static void free_world(struct world *w) {
    for (int r = 0; r < w->q.n; r++) {
        if (w->output[r] != w->input[r]) free(w->output[r]);
        free(w->input[r]);
        free(w->data[r]);
        free(w->scratch[r]);
    }
}

static void judge(const struct world *w, int in_place) {
    const struct expected *e = &w->expected;
    char untouched[WIDEST];
    memset(untouched, 0xff, sizeof untouched);
    for (int r = 0; r < e->n; r++) {
        long wrong = expected_wrong(e, w->output[r], r, in_place ? NULL : untouched);
        cr_assert(wrong < 0, "%s of %zu %s by %s over %d ranks, root %d: rank %d, element %ld",
                  collective_name(e->what), e->count, dtype_name(e->how.type),
                  element_op_name(e->how.op), e->n, e->root, r, wrong);
    }
}

/* Calls in a row use the same windows, and messages the same mailboxes. */
static void run(struct world *w, int in_place) {
    struct plan plans[MAX_DEVICES];
    const struct expected *e = &w->expected;
    make_world(w, in_place);
    for (int r = 0; r < w->q.n; r++) {
        w->q.rank = r;
        cr_assert_eq(plan_build_window(&plans[r], &w->q), OK, "%s", error_message());
    }
    struct reference_memory memory = {.how = e->how,
                                      .data = (void *const *)w->data,
                                      .scratch = (void *const *)w->scratch,
                                      .input = (const void *const *)w->input,
                                      .output = (void *const *)w->output,
                                      .scale = e->scale};
    cr_assert_eq(plan_check(plans, w->q.n, (size_t)w->q.n * WINDOW), OK, "%s", error_message());
    cr_assert_eq(reference_run(plans, w->q.n, &memory), OK, "%s", error_message());
    judge(w, in_place);
    for (int r = 0; r < w->q.n; r++)
        plan_free(&plans[r]);
    free_world(w);
}

static struct world world_of(struct kind kind, int n, int root, size_t count) {
    struct world w = {.q = {.what = kind.what,
                            .algorithm = kind.algorithm,
                            .n = n,
                            .root = root,
                            .peer = (root + 1) % n,
                            .count = count,
                            .stride = count + 3,
                            .window = WINDOW,
                            .config = plan_config_default()},
                      .expected = {.what = kind.what,
                                   .n = n,
                                   .root = root,
                                   .peer = (root + 1) % n,
                                   .count = count,
                                   .stride = count + 3,
                                   .scale = 1}};
    w.q.config.align = 4;
    w.q.config.scratch = (size_t)(n > 8 ? n : 8) * 2;
    return w;
}

Test(windows, every_collective_count_and_root, .timeout = 60) {
    static const size_t counts[] = {0,  1,  2,  3,  4,  5,  11, 12, 13,  23,
                                    24, 25, 47, 48, 49, 95, 96, 97, 193, 200};
    for (int n = 1; n <= 8; n++)
        for (int k = 0; k < WHATS; k++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                for (int root = 0; root < (is_rooted(whats[k].what) ? n : 1); root++) {
                    if (whats[k].what == COLLECTIVE_SEND && n == 1) continue;
                    if (whats[k].what == COLLECTIVE_ALL_REDUCE && counts[c] > WINDOW) continue;
                    struct world w = world_of(whats[k], n, root, counts[c]);
                    run(&w, 0);
                }
}

Test(windows, every_type_and_operation, .timeout = 60) {
    for (int k = 0; k < WHATS; k++)
        for (int type = 0; type < ELEMENT_TYPES; type++)
            for (int op = 0; op < (is_sum(whats[k].what) ? ELEMENT_OPS : 1); op++) {
                struct world w = world_of(whats[k], 5, 1, 61);
                w.expected.how = (struct arithmetic){(enum dtype)type, (enum element_op)op};
                run(&w, 0);
                if (!is_sum(whats[k].what) || op || !dtype_is_float((enum dtype)type)) continue;
                struct world average = world_of(whats[k], 3, 1, 61);
                average.expected.how = w.expected.how;
                average.expected.scale = 1.0 / 3;
                run(&average, 0);
            }
}

Test(windows, input_and_output_may_be_one, .timeout = 30) {
    for (int n = 1; n <= 5; n++)
        for (int k = 0; k < WHATS; k++) {
            int same_size = has_parts(whats[k].what) == has_stack(whats[k].what);
            if (!same_size || (whats[k].what == COLLECTIVE_SEND && n == 1)) continue;
            struct world w =
                world_of(whats[k], n, n - 1, whats[k].what == COLLECTIVE_ALL_REDUCE ? 96 : 145);
            run(&w, 1);
        }
}

/* An eager call: 16 slots of 96 elements a rank; with a turn or without. */
static void run_eager(struct kind kind, int n, int root, size_t count, int turn,
                      struct arithmetic how, double scale, int in_place) {
    struct world w = world_of(kind, n, root, count);
    w.q.slots = 8;
    w.q.turn = turn;
    w.q.stride = w.expected.stride = count;
    w.expected.how = how;
    w.expected.scale = scale;
    if (has_parts(kind.what) && count * (size_t)n > WINDOW) return;
    run(&w, in_place);
}

static const struct kind eagers[] = {IT(BROADCAST), IT(REDUCE),  IT(ALL_GATHER), IT(REDUCE_SCATTER),
                                     IT(GATHER),    IT(SCATTER), IT(ALL_TO_ALL), BY(ONESHOT)};
enum { EAGERS = sizeof eagers / sizeof *eagers };

Test(windows, short_calls_go_through_slots, .timeout = 60) {
    static const size_t counts[] = {0, 1, 3, 12, 13, 32, 95, 96};
    const struct arithmetic floats = {DTYPE_F32, ELEMENT_SUM};
    for (int n = 1; n <= 8; n++)
        for (int k = 0; k < EAGERS; k++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                for (int root = 0; root < (is_rooted(eagers[k].what) ? n : 1); root++)
                    run_eager(eagers[k], n, root, counts[c], (int)c % 2, floats, 1, 0);
    for (int k = 0; k < EAGERS; k++)
        for (int type = 0; type < ELEMENT_TYPES; type++)
            for (int op = 0; op < (is_sum(eagers[k].what) ? ELEMENT_OPS : 1); op++) {
                struct arithmetic how = {(enum dtype)type, (enum element_op)op};
                int averages = is_sum(eagers[k].what) && !op && dtype_is_float(how.type);
                run_eager(eagers[k], 5, 3, 17, 1, how, 1, 0);
                if (averages) run_eager(eagers[k], 3, 1, 17, 0, how, 1.0 / 3, 0);
                if (has_parts(eagers[k].what) == has_stack(eagers[k].what))
                    run_eager(eagers[k], 5, 3, 17, 0, how, 1, 1);
            }
}

/* Messages of one pair follow each other in the places of its mailbox. */
Test(windows, a_mailbox_is_used_in_turn) {
    size_t first = 0;
    for (size_t count = 0; count < 120; count += 17) {
        struct world w = world_of((struct kind)IT(SEND), 3, 2, count);
        struct plan plan;
        w.q.rank = 2, w.q.first = first;
        cr_assert_eq(plan_build_window(&plan, &w.q), OK, "%s", error_message());
        for (int i = 0; i < plan.step_count; i++)
            cr_assert_eq(plan.steps[i].dest_offset,
                         (size_t)w.q.peer * WINDOW +
                             (first + (size_t)i) % MAILBOX_PIECES * (WINDOW / MAILBOX_PIECES));
        cr_assert_eq(plan.epochs, (uint32_t)plan.step_count);
        first += plan.epochs;
        plan_free(&plan);
        run(&w, 0);
    }
}

/* Halves: each of the 65536 comes back; floats round to the nearest, ties to even. */
Test(windows, halves_are_ieees) {
    for (uint32_t h = 0; h < 65536; h++) {
        float x = float_of_f16((uint16_t)h), b = float_of_bf16((uint16_t)h);
        cr_assert_eq(x != x, (h & 0x7fff) > 0x7c00, "%x", h);
        cr_assert(x != x || f16_of_float(x) == h, "%x comes back as %x", h, f16_of_float(x));
        cr_assert(b != b || bf16_of_float(b) == h, "%x comes back as %x", h, bf16_of_float(b));
#if defined __FLT16_MAX__
        _Float16 ieee;
        uint16_t bits = (uint16_t)h;
        memcpy(&ieee, &bits, sizeof bits);
        cr_assert(x != x || x == (float)ieee, "%x is %g, not %g", h, (double)x, (double)ieee);
#endif
    }
    for (uint32_t i = 0; i < 2000000; i++) {
        uint32_t bits = i * 2147u;
        float x = float_of_bits(bits);
        if (x != x) continue;
#if defined __FLT16_MAX__
        _Float16 ieee = (_Float16)x;
        uint16_t want;
        memcpy(&want, &ieee, sizeof want);
        cr_assert_eq(f16_of_float(x), want, "%a: %x, not %x", (double)x, f16_of_float(x), want);
#endif
        float near = float_of_bf16(bf16_of_float(x));
        cr_assert(!isfinite(near) || fabsf(near - x) <= ldexpf(fabsf(x), -8) || bits << 1 < 1 << 24,
                  "%a is rounded to %a", (double)x, (double)near);
    }
}
