/* Checks independently what `duet collective` draws. An interpreter that uses only the rules of
 * allreduce/hops.h replays the moves, and every rank must get the right result. The bytes are
 * counted again from the moves and compared with the textbook. */
#include "tests/harness/harness.h"

#include <math.h>

#include "base/error.h"
#include "report/collective/collective.h"

static void make(struct drawing *c, const char *word, int n, size_t count) {
    cr_assert_eq(collective_make(c, word, n, count), OK, "%s, %d ranks, %zu: %s", word, n, count,
                 error_message());
}

/* ---- the interpreter ---- */

enum { MOST = 8 };
struct memory {
    double *of[HOP_BUFFERS][MOST];
};

/* Integers below 2^20, whose sums are exact. */
static double term(int r, size_t i) {
    return (double)(((uint64_t)(r + 1) * 2654435761u + i * 40503u) >> 3 & 0xfffff);
}

static double *place(const struct memory *m, const struct drawing *c, int buffer, int rank,
                     uint64_t offset, uint64_t count) {
    cr_assert_leq(offset + count, c->hops.sizes[buffer], "buffer %d", buffer);
    return m->of[buffer][rank] + offset;
}

/* Carries out all moves, and counts the bytes that they bring into each rank. */
static void replay(const struct drawing *c, struct memory *m, uint64_t *in, uint64_t *out) {
    for (int k = 0; k < c->hops.move_count; k++) {
        const struct hop_move *v = &c->hops.moves[k];
        double *from = place(m, c, v->from_buffer, v->from, v->from_offset, v->count),
               *to = place(m, c, v->to_buffer, v->to, v->to_offset, v->count);
        cr_assert(v->count > 0 && v->hop <= c->hops.hops);
        for (uint64_t i = 0; i < v->count; i++)
            to[i] = v->action == HOP_REDUCE ? to[i] + from[i] : from[i];
        if (v->from == v->to) continue;
        out[v->from] += v->count * 4;
        in[v->to] += v->count * 4;
    }
}

static double *new_memory(size_t count) {
    double *x = malloc((count + 1) * sizeof *x);
    cr_assert_not_null(x);
    for (size_t i = 0; i < count; i++)
        x[i] = NAN;
    return x;
}

/* What must lie in element i of rank r's result; the collective's own definition. */
static double wanted(const char *word, int n, int r, size_t count, size_t i) {
    size_t share = (count + (size_t)n - 1) / (size_t)n;
    int owner = share ? (int)(i / share) : 0;
    double sum = 0;
    for (int q = 0; q < n; q++)
        sum += term(q, i);
    if (!strcmp(word, "all-gather")) return term(owner, i);
    if (!strcmp(word, "broadcast")) return term(0, i);
    if (!strcmp(word, "reduce-scatter") && owner != r) return term(r, i);
    return sum;
}

static void make_memory(struct memory *m, const struct drawing *c) {
    for (int b = 0; b < HOP_BUFFERS; b++)
        for (int r = 0; r < c->n; r++) {
            m->of[b][r] = new_memory(c->hops.sizes[b]);
            for (size_t i = 0; b == PLAN_DATA && i < c->hops.sizes[b]; i++)
                m->of[b][r][i] = term(r, i);
        }
}

static void check_replay(const char *word, int n, size_t count) {
    struct drawing c;
    struct memory m;
    uint64_t in[MOST] = {0}, out[MOST] = {0};
    make(&c, word, n, count);
    make_memory(&m, &c);
    replay(&c, &m, in, out);
    for (int r = 0; r < n; r++) {
        for (size_t i = 0; i < c.hops.sizes[PLAN_DATA]; i++) {
            double got = m.of[PLAN_DATA][r][i], want = wanted(word, n, r, count, i);
            cr_assert(got == want || (isnan(got) && isnan(want)),
                      "%s, %d ranks, %zu floats: rank %d, element %zu: %g for %g", word, n, count,
                      r, i, got, want);
        }
        cr_assert(collective_in(&c, r) == in[r] && collective_out(&c, r) == out[r]);
        cr_assert(c.formula[r].in == in[r] && c.formula[r].out == out[r], "%s, %d ranks, %zu", word,
                  n, count);
        for (int b = 0; b < HOP_BUFFERS; b++)
            free(m.of[b][r]);
    }
    collective_free(&c);
}

/* All-gather and reduce-scatter take whole blocks. */
static size_t taken(const char *word, int n, size_t count) {
    return strstr(word, "-gather") || strstr(word, "-scatter") ? count - count % (size_t)n : count;
}

/* Every collective that can be drawn, up to 8 ranks, and sizes around the ends of chunks (16 n) and
 * of shares (n). */
Test(report_collective, the_moves_replayed_give_the_result, .timeout = 60) {
    const char *word;
    for (int n = 1; n <= (test_short() ? 5 : MOST); n++) {
        size_t chunks = (size_t)n * 16,
               counts[] = {0, 1, chunks - 1, chunks, chunks + 1, 17 * 16, 333};
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            for (int i = 0; (word = collective_word(i)); i++)
                check_replay(word, n, taken(word, n, counts[k]));
    }
}

/* Rounds through scratch, and slices of a pipeline, which only larger data has. */
Test(report_collective, large_data_too, .timeout = 60) {
    check_replay("naive", 4, 140000);
    check_replay("oneshot", 3, 200001);
    check_replay("ring", 3, 262147);
    check_replay("tree", 3, 262147);
    check_replay("reduce-scatter", 3, 210003);
}

/* ---- bytes ---- */

/* Any ranks, any size: to the byte. Chunks of equal length also follow the textbook. */
Test(report_collective, bytes_are_those_of_the_formulas, .timeout = 60) {
    const char *word;
    for (int n = 1; n <= 64; n += n < 10 || test_short() ? 1 + 8 * test_short() : 7) {
        size_t even = (size_t)n * 16 * (size_t)(n > 2 ? n - 1 : 1) * 4;
        size_t counts[] = {0, 1, 15, 16, 17, 1000, 4097, even, 20 * even + 3};
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            for (int i = 0; (word = collective_word(i)); i++) {
                struct drawing c;
                size_t count = taken(word, n, counts[k]);
                make(&c, word, n, count);
                for (int r = 0; r < n; r++) {
                    const struct formula *f = &c.formula[r];
                    uint64_t in = collective_in(&c, r), out = collective_out(&c, r);
                    cr_assert(in == f->in && out == f->out, "%s, %d ranks, %zu floats, rank %d",
                              word, n, count, r);
                    if (f->at_most)
                        cr_assert(counts[k] != even || (double)in <= f->textbook_in);
                    else if (counts[k] == even)
                        cr_assert(fabs((double)in - f->textbook_in) < 0.5 &&
                                      fabs((double)out - f->textbook_out) < 0.5,
                                  "%s, %d ranks, %zu floats, rank %d: %g", word, n, count, r,
                                  f->textbook_in);
                }
                cr_assert(collective_is_equal(&c));
                c.traffic[n > 1 ? 1 : 0] += 4; /* a difference is noticed */
                cr_assert_not(collective_is_equal(&c));
                collective_free(&c);
            }
    }
}
