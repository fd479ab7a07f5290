/* Compares random numbers with PyTorch's (tests/golden/rng.txt), and Philox with its authors' test
 * vectors. */
#include <stdint.h>

#include "base/philox.h"
#include "base/random.h"
#include "tests/golden/rng.h"
#include "tests/harness/harness.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

Test(random, engine_is_mt19937, .timeout = 30) {
    struct rng r;
    /* The paper's default seed; the C++ standard states its 10000th word. */
    rng_seed(&r, 5489);
    uint32_t word = 0;
    for (int i = 0; i < 10000; i++)
        word = rng_u32(&r);
    cr_assert_eq(word, 4123659995u);
    struct rng a, b;
    rng_seed(&a, 7), rng_seed(&b, 7 + (1ull << 32)); /* only the low 32 bits count */
    uint64_t first = rng_u64(&a);
    cr_assert_eq(first, rng_u64(&b));
    rng_seed(&a, 7);
    uint64_t high = rng_u32(&a), low = rng_u32(&a);
    cr_assert_eq(first, high << 32 | low);
}

Test(random, uniform_and_normal_are_pytorchs, .timeout = 60) {
    static float x[4099];
    for (int i = 0; i < DRAWS; i++) {
        struct rng r;
        int n;
        double a, b;
        uint64_t seed, hash;
        uint32_t first, last;
        char line[512], kind[32];
        cr_assert_eq(sscanf(rng_row("draw", i, line),
                            "%31s %" SCNu64 " %d %lf %lf %" SCNx32 " %" SCNx32 " %" SCNx64, kind,
                            &seed, &n, &a, &b, &first, &last, &hash),
                     8);
        rng_seed(&r, seed);
        if (!strcmp(kind, "UNIFORM"))
            rng_uniform(&r, x, (size_t)n, a, b);
        else
            rng_normal(&r, x, (size_t)n, a, b);
        if (!strcmp(kind, "NORMAL_TWICE")) rng_normal(&r, x, (size_t)n, a, b);
        cr_assert_eq(float_bits(x[0]), first, "row %d, first of %d", i, n);
        cr_assert_eq(float_bits(x[n - 1]), last, "row %d, last of %d", i, n);
        cr_assert_eq(fnv_words(FNV_START, x, n), hash, "row %d, %d values", i, n);
    }
}

Test(random, kept_normal_survives_uniforms_and_dies_with_the_seed, .timeout = 30) {
    struct rng r;
    float a[2], b, u;
    rng_seed(&r, 3);
    rng_normal(&r, a, 2, 0, 1);
    rng_seed(&r, 3);
    rng_normal(&r, &b, 1, 0, 1);
    rng_uniform(&r, &u, 1, 0, 1);
    rng_normal(&r, &b, 1, 0, 1);
    cr_assert_eq(float_bits(a[1]), float_bits(b));
    rng_seed(&r, 3);
    rng_normal(&r, &b, 1, 0, 1);
    rng_seed(&r, 3);
    rng_normal(&r, &b, 1, 0, 1);
    cr_assert_eq(float_bits(a[0]), float_bits(b));
}

Test(random, permutations_are_pytorchs, .timeout = 60) {
    static int32_t order[60000];
    for (int i = 0; i < PERMUTATIONS; i++) {
        struct rng r;
        int n;
        uint64_t seed, hash;
        char line[512];
        cr_assert_eq(
            sscanf(rng_row("permutation", i, line), "%" SCNu64 " %d %" SCNx64, &seed, &n, &hash),
            3);
        rng_seed(&r, seed);
        rng_permutation(&r, order, n);
        cr_assert_eq(fnv_words(FNV_START, order, n), hash, "row %d, n %d", i, n);
    }
    static const int32_t known[10] = {4, 1, 7, 5, 3, 9, 0, 8, 6, 2};
    struct rng r;
    rng_seed(&r, 0);
    rng_permutation(&r, order, 10);
    cr_assert_arr_eq(order, known, sizeof known);
}

/* randint(low, high, (count,)), and the rand(1) that follows; the hash is over 64-bit words. */
Test(random, integers_as_pytorch, .timeout = 60) {
    static int64_t x[1001];
    for (int i = 0; i < INTEGERS; i++) {
        struct rng r;
        int wide, count;
        uint64_t seed, hash;
        int64_t low, high_less_1, first, last;
        uint32_t want;
        float next;
        char line[512];
        cr_assert_eq(sscanf(rng_row("integers", i, line),
                            "%" SCNu64 " %d %d %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
                            " %" SCNx64 " %" SCNx32,
                            &seed, &wide, &count, &low, &high_less_1, &first, &last, &hash, &want),
                     9);
        rng_seed(&r, seed);
        for (int k = 0; k < count; k++)
            x[k] = rng_integer(&r, low, (uint64_t)high_less_1 - (uint64_t)low + 1);
        cr_assert_eq(x[0], first, "row %d", i);
        cr_assert_eq(x[count - 1], last, "row %d", i);
        cr_assert_eq(fnv_words(FNV_START, x, 2 * count), hash, "row %d", i);
        rng_uniform(&r, &next, 1, 0, 1); /* it took as many words */
        cr_assert_eq(float_bits(next), want, "row %d", i);
    }
}

/* Layers in the order they were made after one manual_seed(seed); and randn(count) * scale. */
Test(random, layers_start_as_pytorchs, .timeout = 60) {
    static float weight[128 * 9216], bias[128];
    struct rng r;
    char line[512];
    for (int i = 0, before = -1; i < LAYERS; i++) {
        int seed, out, in, groups, k;
        uint64_t of_weight, of_bias;
        cr_assert_eq(sscanf(rng_row("layer", i, line), "%d %*s %d %d %d %d %" SCNx64 " %" SCNx64,
                            &seed, &out, &in, &groups, &k, &of_weight, &of_bias),
                     7);
        int inputs = in / groups * k * k, count = out * inputs;
        if (seed != before) rng_seed(&r, (uint64_t)seed);
        before = seed;
        rng_weight(&r, weight, (size_t)count, inputs);
        rng_bias(&r, bias, (size_t)out, inputs);
        cr_assert_eq(fnv_words(FNV_START, weight, count), of_weight, "layer %d: weight", i);
        cr_assert_eq(fnv_words(FNV_START, bias, out), of_bias, "layer %d: bias", i);
    }
    for (int i = 0; i < SCALED; i++) {
        int count;
        float scale;
        uint64_t seed, hash;
        cr_assert_eq(sscanf(rng_row("scaled", i, line), "%" SCNu64 " %d %f %" SCNx64, &seed, &count,
                            &scale, &hash),
                     4);
        rng_seed(&r, seed);
        rng_normal(&r, weight, (size_t)count, 0, 1);
        for (int k = 0; k < count; k++)
            weight[k] *= scale;
        cr_assert_eq(fnv_words(FNV_START, weight, count), hash, "row %d", i);
    }
}

/* The three test vectors published with Random123. */
Test(philox, known_answers, .timeout = 30) {
    static const struct {
        uint32_t counter[4], key[2], answer[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (int i = 0; i < COUNT(known); i++) {
        struct philox c;
        memcpy(c.word, known[i].counter, sizeof c.word);
        c = philox4x32(c, known[i].key[0], known[i].key[1]);
        cr_assert_arr_eq(c.word, known[i].answer, sizeof c.word, "vector %d", i);
    }
}

Test(philox, a_mask_is_a_function_of_all_its_five_names, .timeout = 30) {
    struct philox base = philox_quad(9, 1, 2, 3, 4);
    struct philox other[] = {philox_quad(10, 1, 2, 3, 4), philox_quad(9 + (1ull << 32), 1, 2, 3, 4),
                             philox_quad(9, 2, 2, 3, 4),  philox_quad(9, 1, 3, 3, 4),
                             philox_quad(9, 1, 2, 4, 4),  philox_quad(9, 1, 2, 3, 5),
                             philox_quad(9, 2, 1, 3, 4),  philox_quad(9, 1, 3, 2, 4)};
    for (int i = 0; i < COUNT(other); i++)
        cr_assert_arr_neq(base.word, other[i].word, sizeof base.word, "name %d", i);
    struct philox plain = {{4, 3, 2, 1}};
    /* The layout that base/philox.h documents: element / 4, layer, step, virtual device. */
    plain = philox4x32(plain, 9, 0);
    cr_assert_arr_eq(base.word, plain.word, sizeof base.word);
    for (int i = 0; i < 4; i++) {
        uint64_t at = base.word[i]; /* dropout keeps an element whose word is below the threshold */
        cr_assert_eq(philox_keep(9, 1, 2, 3, 16 + (uint64_t)i, at), 0, "word %d", i);
        cr_assert_eq(philox_keep(9, 1, 2, 3, 16 + (uint64_t)i, at + 1), 1, "word %d", i);
    }
}

Test(philox, probabilities, .timeout = 30) {
    cr_assert_eq(philox_threshold(0.0), 0u);
    cr_assert_eq(philox_threshold(1.0), 1ull << 32);
    cr_assert_eq(philox_threshold(0.5), 1ull << 31);
    int n = 100000, kept = 0;
    for (int i = 0; i < n; i++) {
        kept += philox_keep(1, 0, 0, 0, (uint64_t)i, philox_threshold(0.9));
        cr_assert(philox_keep(1, 0, 0, 0, (uint64_t)i, philox_threshold(1.0)));
        cr_assert_not(philox_keep(1, 0, 0, 0, (uint64_t)i, philox_threshold(0.0)));
    }
    /* The draws are always the same, so this passes always or never. */
    double five_sigma = 5 * sqrt(0.9 * 0.1 / n);
    cr_assert_float_eq((double)kept / n, 0.9, five_sigma, "%d kept", kept);
}
