/* Dropout in N16. It has the same mask as the PLAIN tensor, from base/philox.h for LANES samples at
 * once.
 *
 * A sample draws for each of its elements, or for each of its planes: draw i of sample n has the
 * number n * draws + i, and one Philox call serves four numbers in a row. Each lane runs the
 * generator for its own sample. If a sample has a multiple of four draws, one call makes the four
 * words for draws i .. i + 3; otherwise each draw is a call, and each lane takes its word. */

struct philox_lanes {
    uvec word[4];
};

/* The high half of m * v, lane by lane, from 64-bit products of the even and of the odd lanes. */
INLINE uvec multiply_high(uvec v, uint32_t m) {
    uvec64 even = ((uvec64)v & 0xffffffffu) * m, odd = ((uvec64)v >> 32) * m;
    return (uvec)((even >> 32) | (odd & 0xffffffff00000000u));
}

/* philox4x32 of base/philox.h, lane by lane. */
INLINE struct philox_lanes philox_of(struct philox_lanes c, uint32_t key0, uint32_t key1) {
    for (int round = 0; round < 10; round++) {
        uvec a = multiply_high(c.word[0], 0xd2511f53u), b = multiply_high(c.word[2], 0xcd9e8d57u);
        struct philox_lanes next = {{b ^ c.word[1] ^ key0, c.word[2] * 0xcd9e8d57u,
                                     a ^ c.word[3] ^ key1, c.word[0] * 0xd2511f53u}};
        c = next;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    return c;
}

/* Word `which` of each lane. */
INLINE uvec word_of(const struct philox_lanes *four, uvec which) {
    uvec word = {0};
    for (uint32_t j = 0; j < 4; j++)
        word |= four->word[j] & (uvec)(which == j);
    return word;
}

static void n16_dropout(const struct op_args *a) {
    const struct tensor *y = &a->out[0];
    const struct dropout_args d = a->p.dropout;
    const size_t count = tensor_sample_count(y), draws = d.planes ? (size_t)y->dims[1] : count,
                 pixels = count / draws;
    const uint64_t threshold = philox_threshold(1.0 - (double)d.p);
    if (threshold >> 32 || (size_t)y->dims[0] * draws >> 32) {
        reference_dropout(a);
        return;
    }
    const uint32_t together = draws % 4 ? 1 : 4;
    const uvec limit = (uint32_t)threshold - (uvec){0};
    const float scale = 1.0f / (1.0f - d.p), *from = tensor_f32(&a->in[0]);
    for (int n = 0; n < y->groups * GROUP; n += LANES) {
        size_t at = (size_t)n / GROUP * count * GROUP + (size_t)n % GROUP;
        uvec number;
        for (int lane = 0; lane < LANES; lane++)
            number[lane] = (uint32_t)((size_t)(n + lane) * draws);
        for (size_t i = 0; i < draws; i += together, number += together) {
            struct philox_lanes four = {{number >> 2, (uint32_t)d.layer - (uvec){0},
                                         (uint32_t)a->step->step - (uvec){0},
                                         (uint32_t)d.v - (uvec){0}}};
            four = philox_of(four, (uint32_t)a->step->seed, (uint32_t)(a->step->seed >> 32));
            for (uint32_t j = 0; j < together; j++) {
                uvec word = together == 4 ? four.word[j] : word_of(&four, number & 3);
                vec mask = select_vec((ivec)(word < limit), splat(scale), splat(0));
                for (size_t k = 0; k < pixels; k++, at += GROUP)
                    store(tensor_f32(y) + at, load(from + at) * mask);
            }
        }
    }
}
