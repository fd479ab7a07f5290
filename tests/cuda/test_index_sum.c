/* The sums of an allreduce's steps (device/cuda/kernels/sum.h), run on the host block by block and
 * thread by thread, for all alignments, tails, numbers of sources, and parts. The bits must be
 * those of the fold order written out and of the host's own moves. Memory around a range, and in
 * other parts of it, must stay as it was. */
#include "device/cuda/kernels/sum.h"
#include "tests/cuda/index.h"

#include "allreduce/host/executor.h"
#include "base/fold.h"

static const float guard = 12345.678f;

struct case_of_sum {
    struct sum s;
    float *memory[2 * MAX_DEVICES]; /* sources, then those destinations that are no source */
    size_t room, first[2 * MAX_DEVICES];
    int count;
};

/* A range of `length` elements in memory of its own, between guards, that begins `shift` elements
 * behind a multiple of 16 bytes. */
static float *new_range(struct case_of_sum *c, int shift, uint64_t seed) {
    int i = c->count++;
    c->room = c->s.length + 16;
    c->memory[i] = aligned_alloc(64, (c->room * sizeof(float) + 63) / 64 * 64);
    cr_assert_not_null(c->memory[i]);
    for (size_t x = 0; x < c->room; x++)
        c->memory[i][x] = guard;
    c->first[i] = 4 + (size_t)shift;
    for (size_t x = 0; x < c->s.length; x++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        float whole = (float)((int)(seed >> 40) % 2001 - 1000);
        c->memory[i][c->first[i] + x] = whole * 1.2345e-3f * (float)(1 << (seed >> 33 & 15));
    }
    return c->memory[i] + c->first[i];
}

static void free_ranges(struct case_of_sum *c) {
    for (int i = 0; i < c->count; i++)
        free(c->memory[i]);
}

static void check_guards(const struct case_of_sum *c, const char *what) {
    for (int i = 0; i < c->count; i++)
        for (size_t x = 0; x < c->room; x++)
            if (x < c->first[i] || x >= c->first[i] + c->s.length)
                cr_assert(c->memory[i][x] == guard, "%s: range %d: element %zd was touched", what,
                          i, (ssize_t)x - (ssize_t)c->first[i]);
}

/* Destination k is source k while there are sources. shifts[k] is the shift of range k. One grid
 * for each of `parts` parts, in any order. */
static void check_sum(uint32_t sources, uint32_t dests, size_t length, const int *shifts,
                      float first_scale, float scale, uint32_t parts, struct grid grid) {
    struct case_of_sum c = {.s = {.length = length,
                                  .sources = sources,
                                  .dests = dests,
                                  .first_scale = first_scale,
                                  .scale = scale}};
    struct sum *s = &c.s;
    char what[128];
    snprintf(what, sizeof what,
             "%u sources, %u dests, %zu elements, shifts %d %d, %u parts, %u x %u", sources, dests,
             length, shifts[0], shifts[1], parts, grid.blocks, grid.threads);
    float *want = malloc(length * sizeof(float) + 1);
    for (uint32_t r = 0; r < sources; r++)
        s->source[r] = new_range(&c, shifts[r], r + 1);
    for (uint32_t d = 0; d < dests; d++)
        s->dest[d] =
            d < sources && d % 3 != 1 ? (float *)s->source[d] : new_range(&c, shifts[d], 77 + d);
    for (size_t x = 0; x < length; x++) {
        float term[MAX_DEVICES];
        for (uint32_t r = 0; r < sources; r++)
            term[r] = s->source[r][x] * (r ? scale : first_scale);
        want[x] = fold_sum_float(term, (int)sources);
    }
    sum_align(s);
    for (uint32_t i = 0; i < parts; i++) {
        /* 5 has no common factor with the numbers of parts used here, so every part comes once. */
        struct sum_part part = {(i * 5 + 3) % parts, parts};
        for (uint32_t b = 0; b < grid.blocks; b++)
            for (uint32_t t = 0; t < grid.threads; t++)
                sum_run(s, part, (struct place){b, grid.blocks, t, grid.threads});
    }
    for (uint32_t d = 0; d < dests; d++)
        for (size_t x = 0; x < length; x++)
            cr_assert_eq(bits_of(s->dest[d][x]), bits_of(want[x]),
                         "%s: dest %u, element %zu is %g, not %g", what, d, x,
                         (double)s->dest[d][x], (double)want[x]);
    check_guards(&c, what);
    free_ranges(&c);
    free(want);
}

/* All pointers equal modulo 16, and then one of them different. */
Test(cuda_sum, every_alignment_and_tail, .timeout = 120) {
    static const size_t lengths[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 33, 127, 129, 1021, 2050};
    static const struct grid grids[] = {{1, 1}, {1, 32}, {3, 33}, {2, 256}};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (uint32_t n = 1; n <= 9; n++)
            for (int shift = 0; shift < 4; shift++)
                for (int odd = 0; odd < 2; odd++) {
                    int shifts[MAX_DEVICES];
                    for (int k = 0; k < MAX_DEVICES; k++)
                        shifts[k] = shift;
                    if (odd) shifts[(n - 1) / 2] = (shift + 1) % 4;
                    check_sum(n, n % 3 == 0 ? 1 : n, lengths[l], shifts, .3f, l % 2 ? .3f : 1.0f, 1,
                              grids[(l + n) % 4]);
                }
}

Test(cuda_sum, up_to_64_sources, .timeout = 60) {
    static const int level[MAX_DEVICES] = {0};
    int skewed[MAX_DEVICES];
    for (int k = 0; k < MAX_DEVICES; k++)
        skewed[k] = k % 4;
    for (uint32_t n = 1; n <= 64; n++) {
        check_sum(n, n, 259, level, 1.0f / 3, 1.0f / 3, 1, (struct grid){2, 32});
        check_sum(n, 2, 67, skewed, 1, 1, 1, (struct grid){1, 32});
    }
}

/* Grids that share a range by parts move all of it, and each grid only its own granules. */
Test(cuda_sum, parts_are_apart_and_whole, .timeout = 120) {
    static const size_t lengths[] = {5, 1023, 1024, 1025, 4096, 9000};
    static const uint32_t parts[] = {1, 2, 3, 7, 32};
    for (size_t l = 0; l < 6; l++)
        for (int p = 0; p < 5; p++)
            for (int shift = 0; shift < 4; shift++) {
                int shifts[MAX_DEVICES] = {shift, shift, shift, shift, shift,
                                           shift, shift, shift, shift};
                check_sum(2, 2, lengths[l], shifts, 1, .5f, parts[p], (struct grid){1, 64});
                check_sum(9, 1, lengths[l], shifts, 1, 1, parts[p], (struct grid){1, 64});
                shifts[1] = (shift + 1) % 4;
                check_sum(3, 3, lengths[l], shifts, .5f, .5f, parts[p], (struct grid){2, 96});
                /* A part writes exactly the elements that sum_part_of assigns to it. */
                struct case_of_sum c = {
                    .s = {.length = lengths[l], .sources = 1, .dests = 1, .first_scale = 1}};
                c.s.source[0] = new_range(&c, shift, 5);
                c.s.dest[0] = new_range(&c, shift, 6);
                sum_align(&c.s);
                cr_assert_eq(c.s.skew, (uint32_t)shift);
                for (uint32_t mine = 0; mine < parts[p]; mine++) {
                    for (size_t x = 0; x < lengths[l]; x++)
                        c.s.dest[0][x] = guard;
                    for (uint32_t t = 0; t < 64; t++)
                        sum_run(&c.s, (struct sum_part){mine, parts[p]},
                                (struct place){0, 1, t, 64});
                    for (size_t x = 0; x < lengths[l]; x++)
                        cr_assert_eq(c.s.dest[0][x] != guard,
                                     sum_part_of(parts[p], c.s.skew, x) == mine,
                                     "part %u of %u, skew %d, element %zu of %zu", mine, parts[p],
                                     shift, x, lengths[l]);
                }
                check_guards(&c, "parts");
                free_ranges(&c);
            }
}

/* The bits of the host executor's moves. Copies keep every bit of a NaN. */
Test(cuda_sum, equals_the_moves_of_the_host, .timeout = 60) {
    enum { LENGTH = 777 };
    float *x[8], got[LENGTH], want[LENGTH], *to = want;
    struct sum s = {.length = LENGTH, .dests = 1, .dest = {got}};
    for (int r = 0; r < 8; r++) {
        x[r] = malloc(LENGTH * sizeof(float));
        s.source[r] = x[r];
        for (int i = 0; i < LENGTH; i++)
            x[r][i] = (float)sin(i * 1.7 + r) * (float)(1 << (i + r) % 20);
    }
    for (uint32_t n = 1; n <= 8; n++) {
        s.sources = n;
        s.first_scale = s.scale = 1.0f / (float)n;
        sum_align(&s);
        for (uint32_t t = 0; t < 32; t++)
            k_sum(&s, (struct place){0, 1, t, 32});
        move_fold(&to, 1, s.source, (int)n, s.scale, LENGTH);
        cr_assert_arr_eq(got, want, sizeof got, "sum of %u", n);
    }
    s.sources = 2, s.first_scale = .3f, s.scale = .7f;
    for (uint32_t t = 0; t < 32; t++)
        k_sum(&s, (struct place){0, 1, t, 32});
    move_reduce(&to, 1, x[0], .3f, x[1], .7f, LENGTH);
    cr_assert_arr_eq(got, want, sizeof got, "reduce");
    uint32_t signalling = 0x7f800123;
    memcpy(&x[0][9], &signalling, sizeof signalling);
    s.sources = 1, s.first_scale = 1;
    for (uint32_t t = 0; t < 32; t++)
        k_sum(&s, (struct place){0, 1, t, 32});
    cr_assert_arr_eq(got, x[0], sizeof got, "copy");
    for (int r = 0; r < 8; r++)
        free(x[r]);
}

/* A launch has enough blocks for the whole range, and not too many. */
Test(cuda_sum, grids, .timeout = 10) {
    struct sum s = {.sources = 4, .dests = 4};
    for (s.length = 1; s.length < (uint64_t)1 << 33; s.length = s.length * 3 + 1) {
        uint64_t tile = SUM_THREADS * sum_units(4), blocks = sum_blocks(&s);
        cr_assert(blocks >= 1 && blocks <= 132 * 64);
        cr_assert(blocks * tile * 4 >= s.length || blocks == 132 * 64);
        cr_assert((blocks - 1) * tile * 4 < s.length);
    }
}
