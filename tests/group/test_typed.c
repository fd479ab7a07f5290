/* Compares the fast loops for every type and operation with the simplest code. The bits must be
 * equal for all numbers: infinities, subnormal numbers, integers that wrap around. Any NaN equals
 * any other, because the compiler chooses which one a sum of two returns. */
#include <stdlib.h>

#include "allreduce/host/executor.h"
#include "group/typed.h"
#include "tests/allreduce/reference.h"
#include "base/error.h"
#include "tests/harness/harness.h"

enum { MOST = 600, BYTES = 8 };

static int is_nan(enum dtype type, const char *x) {
    double d;
    float f;
    uint16_t h;
    memcpy(&d, x, sizeof d);
    memcpy(&f, x, sizeof f);
    memcpy(&h, x, sizeof h);
    switch (type) {
    case DTYPE_F32: return f != f;
    case DTYPE_F64: return d != d;
    case DTYPE_F16: return (h & 0x7fff) > 0x7c00;
    case DTYPE_BF16: return (h & 0x7fff) > 0x7f80;
    default: return 0;
    }
}

/* Arbitrary bits, sometimes of numbers near one, where sums round. */
static void fill(char *x, uint64_t *seed) {
    for (size_t i = 0; i < MOST * BYTES; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (char)(*seed >> 56);
        if (i % BYTES % 2 && *seed >> 40 & 1) x[i] = (char)(0x3c + (*seed >> 41 & 3));
    }
}

static void try_step(struct arithmetic how, int op, int n, size_t length, double scale,
                     uint64_t *seed) {
    static char x[64][MOST * BYTES + BYTES], want[64][MOST * BYTES + BYTES];
    void *data[64], *reference[64];
    size_t bytes = dtype_bytes(how.type), start = length % 5;
    struct plan plan = {.n = n, .rank = n / 2, .count = MOST, .data = MOST};
    struct plan_step step = {.op = (uint8_t)op,
                             .scale = PLAN_SCALE_SOURCE | (length % 2 ? PLAN_SCALE_DEST : 0),
                             .source_offset = start,
                             .dest_offset = start,
                             .length = length,
                             .dest_ranks = op == PLAN_REDUCE ? rank_bit(n / 2) : rank_all(n)};
    for (int r = 0; r < n; r++) {
        fill(x[r], seed);
        memcpy(want[r], x[r], sizeof x[r]);
        data[r] = x[r];
        reference[r] = want[r];
    }
    plan.steps = &step;
    plan.step_count = 1;
    struct host_ranks all = {.all = {.n = n, .rank = n / 2}, .move = typed_move};
    struct executor_call call = {
        .plan = &plan, .data = (float *const *)data, .scale = scale, .how = how};
    struct reference_memory memory = {.how = how, .data = reference, .scale = scale};
    cr_assert_eq(host_execute(&all, &call), OK);
    reference_step(&plan, &step, &memory);
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < MOST; i++) {
            const char *a = x[r] + i * bytes, *b = want[r] + i * bytes;
            cr_assert(!memcmp(a, b, bytes) || (is_nan(how.type, a) && is_nan(how.type, b)),
                      "%s %s, step %d of %d ranks, %zu elements, scale %g: rank %d, element %zu",
                      dtype_name(how.type), element_op_name(how.op), op, n, length, scale, r, i);
        }
}

Test(typed, fast_loops_give_the_reference_bits, .timeout = 60) {
    static const size_t lengths[] = {0, 1, 7, 31, 255, 256, 257, 520};
    static const int ranks[] = {1, 2, 3, 5, 8};
    uint64_t seed = 1;
    for (int type = 0; type < ELEMENT_TYPES; type++)
        for (int op = 0; op < ELEMENT_OPS; op++)
            for (int step = PLAN_COPY; step <= PLAN_SUM; step++)
                for (int w = 0; w < 5; w++)
                    for (int l = 0; l < 8; l++) {
                        struct arithmetic how = {(enum dtype)type, (enum element_op)op};
                        try_step(how, step, ranks[w], lengths[l], l % 2 ? 1 : 1.0 / 3, &seed);
                    }
}

/* The largest possible number of ranks. */
Test(typed, sixty_four_ranks) {
    uint64_t seed = 7;
    for (int type = 0; type < ELEMENT_TYPES; type++)
        try_step((struct arithmetic){(enum dtype)type, ELEMENT_SUM}, PLAN_SUM, 64, 300, 1, &seed);
}
