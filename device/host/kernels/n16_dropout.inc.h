/* Dropout in N16: the mask of the plain tensor, from base/philox.h for LANES samples at once.
 *
 * Element i of sample n has the number n * count + i, and one Philox call serves four numbers in a
 * row. Where a sample has a multiple of four elements, its elements i .. i + 3 are one call: each
 * lane runs the generator for its own sample, and the four words that it yields are the masks of
 * four vectors. Other shapes use the reference. */

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

static void n16_dropout(const struct op_args *a) {
    const struct tensor *y = &a->out[0];
    size_t count = tensor_sample_count(y);
    struct dropout_args d = a->p.dropout;
    uint64_t threshold = philox_threshold(1.0 - (double)d.p);
    if (y->layout == LAYOUT_PLAIN || count % 4 || threshold >> 32) {
        reference_dropout(a);
        return;
    }
    uvec limit = (uint32_t)threshold - (uvec){0};
    float scale = 1.0f / (1.0f - d.p);
    uint32_t key0 = (uint32_t)a->step->seed, key1 = (uint32_t)(a->step->seed >> 32);
    for (int n = 0; n < y->groups * GROUP; n += LANES) {
        size_t start = (size_t)n / GROUP * count * GROUP + n % GROUP;
        uvec quad;
        for (int lane = 0; lane < LANES; lane++)
            quad[lane] = (uint32_t)((size_t)(n + lane) * (count / 4));
        for (size_t i = 0; i < count; i += 4, quad += 1) {
            struct philox_lanes four = {{quad, (uint32_t)d.layer - (uvec){0},
                                         (uint32_t)a->step->step - (uvec){0},
                                         (uint32_t)d.v - (uvec){0}}};
            four = philox_of(four, key0, key1);
            for (int j = 0; j < 4; j++) {
                size_t at = start + (i + j) * GROUP;
                vec mask = select_vec((ivec)(four.word[j] < limit), splat(scale), splat(0));
                store(tensor_f32(y) + at, load(tensor_f32(&a->in[0]) + at) * mask);
            }
        }
    }
}

/* Whole planes: LANES samples draw for their planes of a channel in one call, each from the word
 * that is its own. */
static void n16_dropout2d(const struct op_args *a) {
    const struct tensor *y = &a->out[0];
    struct dropout_args d = a->p.dropout;
    uint64_t threshold = philox_threshold(1.0 - (double)d.p);
    if (y->layout == LAYOUT_PLAIN || threshold >> 32) {
        reference_dropout2d(a);
        return;
    }
    uvec limit = (uint32_t)threshold - (uvec){0};
    float scale = 1.0f / (1.0f - d.p);
    size_t channels = (size_t)y->dims[1], pixels = tensor_sample_count(y) / channels;
    for (int n = 0; n < y->groups * GROUP; n += LANES)
        for (size_t c = 0; c < channels; c++) {
            uvec number, word = {0};
            for (int lane = 0; lane < LANES; lane++)
                number[lane] = (uint32_t)((size_t)(n + lane) * channels + c);
            struct philox_lanes four = {{number >> 2, (uint32_t)d.layer - (uvec){0},
                                         (uint32_t)a->step->step - (uvec){0},
                                         (uint32_t)d.v - (uvec){0}}};
            four = philox_of(four, (uint32_t)a->step->seed, (uint32_t)(a->step->seed >> 32));
            for (uint32_t j = 0; j < 4; j++)
                word |= four.word[j] & (uvec)((number & 3) == j);
            vec mask = select_vec((ivec)(word < limit), splat(scale), splat(0));
            size_t at = ((size_t)n / GROUP * channels + c) * pixels * GROUP + (size_t)n % GROUP;
            const float *from = tensor_f32(&a->in[0]) + at;
            float *to = tensor_f32(y) + at;
            for (size_t i = 0; i < pixels * GROUP; i += GROUP)
                store(to + i, load(from + i) * mask);
        }
}
