/* Synthetic images have the same bytes everywhere, cover all classes, and can be learned, but not
 * from one pixel. They may have any shape and number of classes. */
#include <stdint.h>

#include "base/error.h"
#include "data/synthetic.h"
#include "tests/harness/harness.h"

#define SYNTHETIC_HASH 0x78fb4ed6f265a14fu

static void fill(uint64_t seed, uint32_t set, int count, uint8_t *images, uint8_t *labels) {
    const struct synthetic what = {seed, set, {1, 28, 28}, 10};
    cr_assert_eq(synthetic_fill(&what, count, images, labels), OK, "%s", error_message());
}

Test(synthetic, the_same_everywhere_and_of_all_classes, .timeout = 60) {
    enum { N = 2000 };
    static uint8_t images[N * 784], again[N * 784], labels[N], other[N];
    fill(0, 0, N, images, labels);
    /* The hash of the first 100 images: their bytes are the same on every machine. */
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < 100 * 784; i++)
        hash = (hash ^ images[i]) * 0x100000001b3u;
    cr_assert_eq(hash, SYNTHETIC_HASH, "%#llx", (unsigned long long)hash);
    int of_class[10] = {0};
    for (int i = 0; i < N; i++)
        of_class[labels[i]]++;
    for (int i = 0; i < 10; i++)
        cr_assert(of_class[i] > N / 20, "class %d: %d of %d", i, of_class[i], N);
    fill(0, 0, 10, again, other); /* an image does not depend on the count */
    cr_assert(!memcmp(images, again, 10 * 784) && !memcmp(labels, other, 10));
    fill(0, 1, N, again, other);
    cr_assert_arr_neq(images, again, sizeof images);
    fill(1, 0, N, again, other);
    cr_assert_arr_neq(images, again, sizeof images);
}

/* The images are neither trivial nor noise: no single pixel comes near telling two classes apart,
 * while the nearest of 2000 training images has the right class far more often than chance. */
Test(synthetic, learnable_but_not_by_one_pixel, .timeout = 60) {
    enum { N = 2000, TESTS = 200 };
    static uint8_t images[N * 784], labels[N], test[TESTS * 784], expected[TESTS];
    fill(0, 0, N, images, labels);
    fill(0, 1, TESTS, test, expected);
    double best = 0;
    for (int pixel = 0; pixel < 784; pixel++) {
        int bright[10] = {0}, total[10] = {0};
        for (int i = 0; i < N; i++)
            total[labels[i]]++, bright[labels[i]] += images[i * 784 + pixel] > 80;
        /* The best answer from one pixel: one class if it is bright, another if it is dark. */
        double most = 0, rest = 0;
        for (int c = 0; c < 10; c++) {
            if (bright[c] > most) most = bright[c];
            if (total[c] - bright[c] > rest) rest = total[c] - bright[c];
        }
        if ((most + rest) / N > best) best = (most + rest) / N;
    }
    /* Chance gives 0.1; telling two classes of ten for sure would give 0.2. */
    cr_assert(best < 0.25, "one pixel is right for %.2f", best);
    int right = 0;
    for (int t = 0; t < TESTS; t++) {
        int64_t nearest = INT64_MAX;
        int label = 0;
        for (int i = 0; i < N; i++) {
            int64_t distance = 0;
            for (int p = 0; p < 784; p++) {
                int d = images[i * 784 + p] - test[t * 784 + p];
                distance += d * d;
            }
            if (distance < nearest) nearest = distance, label = labels[i];
        }
        right += label == expected[t];
    }
    cr_assert(right > TESTS / 2, "%d of %d right", right, TESTS);
}

/* With 10 classes or fewer only the labels differ; the image of a number is not that of another,
 * channels have the same strokes in another strength, and nothing is written beyond the end. */
Test(synthetic, any_shape_and_number_of_classes, .timeout = 60) {
    enum { N = 300, AROUND = 64 };
    static const struct synthetic kinds[] = {{0, 0, {1, 28, 28}, 3},  {0, 0, {3, 32, 32}, 10},
                                             {5, 0, {2, 9, 31}, 100}, {0, 1, {1, 4, 4}, 10},
                                             {0, 0, {1, 28, 28}, 37}, {0, 0, {3, 40, 90}, 256}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        size_t each = sample_shape_count(&kinds[k].shape);
        uint8_t *images = malloc(N * each + AROUND), labels[N];
        memset(images, 0xa5, N * each + AROUND);
        cr_assert_eq(synthetic_fill(&kinds[k], N, images, labels), OK);
        int seen[256] = {0}, different = 0, dark = 0;
        for (int i = 0; i < N; i++) {
            cr_assert(labels[i] < kinds[k].classes);
            different += !seen[labels[i]]++;
        }
        cr_assert(different > kinds[k].classes / 2, "kind %zu: %d of %d classes", k, different,
                  kinds[k].classes);
        for (size_t i = 0; i < N * each; i++)
            dark += images[i] > 80;
        cr_assert(dark > N && dark < (int)(N * each) * 3 / 4, "kind %zu: %d dark pixels", k, dark);
        for (int i = 0; i < AROUND; i++)
            cr_assert_eq(images[N * each + (size_t)i], 0xa5);
        free(images);
    }
}

/* A number of two digits: the left half of the image shows the tens, the right half the ones. */
Test(synthetic, numbers_of_two_digits, .timeout = 60) {
    enum { N = 400, SIDE = 28 };
    static uint8_t images[N * SIDE * SIDE], labels[N];
    const struct synthetic what = {0, 0, {1, SIDE, SIDE}, 20};
    double ink[2][2] = {{0}}; /* [half][0: shows a one; 1: a zero] */
    int count[2][2] = {{0}};
    cr_assert_eq(synthetic_fill(&what, N, images, labels), OK);
    for (int i = 0; i < N; i++)
        for (int half = 0; half < 2; half++) {
            int digit = half ? labels[i] % 10 : labels[i] / 10;
            if (digit > 1) continue;
            count[half][!digit]++;
            for (int p = 0; p < SIDE * SIDE; p++)
                if ((p % SIDE >= SIDE / 2) == half)
                    ink[half][!digit] += images[i * SIDE * SIDE + p];
        }
    for (int half = 0; half < 2; half++)
        cr_assert(ink[half][1] / count[half][1] > 1.3 * ink[half][0] / count[half][0],
                  "half %d: a 0 has 6 strokes, a 1 has 2", half);
}
