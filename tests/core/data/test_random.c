/* Random data have the bits of PyTorch's draws, and dataset_check refuses wrong settings. */
#include "data/dataset.h"
#include "tests/core/device/shared.h"
#include "tests/golden/golden.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
#define RANDOM "tests/golden/random.txt"

static void open_random(struct dataset *set, int c, int h, int w, int classes, int samples,
                        int targets, uint64_t seed) {
    const struct dataset_config config = {.name = "random",
                                          .shape = {c, h, w},
                                          .classes = classes,
                                          .samples = samples,
                                          .targets = targets,
                                          .seed = seed};
    MUST(dataset_make(set, &config, 1));
}

static void has_the_hash(const char *what, const char *name, const void *numbers, size_t count) {
    char key[64], line[512], got[32];
    snprintf(key, sizeof key, "%s %s", what, name);
    const char *want = golden_fact(RANDOM, key, line);
    snprintf(got, sizeof got, "%016llx", (unsigned long long)fnv1a64(numbers, count));
    cr_assert(!strncmp(got, want, 16), "%s: %s, not PyTorch's %s", key, got, want);
}

Test(random_data, is_pytorchs_to_the_bit, .timeout = 60) {
    static const struct {
        const char *name;
        int shape[3], outputs, samples, targets;
        uint64_t seed;
    } sets[] = {{"simple", {10, 1, 1}, 10, 80, 1, 0},
                {"complex", {3, 32, 32}, 10, 80, 0, 3},
                {"narrow", {3, 1, 1}, 2, 80, 1, 7},
                {"tiny", {3, 1, 1}, 1, 3, 1, 1}};
    for (int i = 0; i < COUNT(sets); i++) {
        struct dataset set;
        const int *s = sets[i].shape;
        open_random(&set, s[0], s[1], s[2], sets[i].outputs, sets[i].samples, sets[i].targets,
                    sets[i].seed);
        cr_assert(set.count == sets[i].samples && !set.images && !set.labels);
        cr_assert_eq(set.outputs, sets[i].targets ? sets[i].outputs : 0);
        cr_assert_eq(set.classes, sets[i].targets ? 0 : sets[i].outputs);
        has_the_hash("samples", sets[i].name, set.numbers,
                     (size_t)set.count * sample_shape_count(&set.shape));
        has_the_hash("answers", sets[i].name, set.answers,
                     (size_t)(set.count * dataset_answer_count(&set)));
        dataset_free(&set);
        cr_assert_null(set.numbers);
    }
}

static void refused(struct dataset_config config, const char *says) {
    struct dataset set;
    cr_expect_eq(dataset_make(&set, &config, 1), ERR_USAGE, "%s was not refused", says);
    MUST_SAY(says);
    cr_expect_null(strchr(error_message(), '\n'));
}

Test(random_data, what_is_too_much_is_refused_before_it_is_made, .timeout = 30) {
    refused((struct dataset_config){.name = "cifar"}, "expected fashion-mnist, mnist, synthetic");
    refused((struct dataset_config){.name = "random", .samples = -1}, "--samples: -1");
    refused((struct dataset_config){.name = "random", .shape = {3, 0, 4}}, "--shape: 3x0x4");
    refused((struct dataset_config){.name = "random", .shape = {1 << 24, 2, 1}}, "--shape: ");
    refused((struct dataset_config){.name = "random", .shape = {3, 2048, 2048}, .samples = 1000},
            "1000 of 3x2048x2048 take 46.9 GiB of host memory: give at most 21");
    refused((struct dataset_config){.name = "random", .targets = 1, .classes = 1 << 20},
            "take 25.0 GiB");
    refused((struct dataset_config){.name = "random", .folder = "d"}, "--data-dir: d: random");
    refused((struct dataset_config){.name = "synthetic", .shape = {10, 1, 1}}, "at least 4 x 4");
    refused((struct dataset_config){.name = "synthetic", .targets = 1}, "synthetic has labels");
    refused((struct dataset_config){.name = "mnist", .targets = 1}, "mnist has labels");
    refused((struct dataset_config){.name = "mnist", .samples = 5}, "--samples: 5: mnist");
    refused((struct dataset_config){.name = "mnist", .shape = {1, 2, 3}}, "--shape: 1x2x3");
    const struct dataset_config random = {.name = "random"}, drawn = {.name = "synthetic"};
    struct dataset set;
    cr_assert_eq(dataset_make(&set, &random, 0), ERR_USAGE, "the test part");
    cr_assert(!dataset_has_test(&random) && dataset_has_test(&drawn));
    cr_assert(dataset_made_samples(&random) == 6400 && dataset_made_samples(&drawn) == 60000);
}

Test(sample_shape, as_a_user_writes_it, .timeout = 30) {
    static const char *const wrong[] = {"",
                                        "x",
                                        "3x32",
                                        "3x32x32x1",
                                        "3x32x",
                                        "0x1x1",
                                        "-1x2x3",
                                        "3,32,32",
                                        "3x 4x5",
                                        "1e3",
                                        "3x3.5x4",
                                        "16777217",
                                        "4096x4096x2",
                                        "99999999999999999999"};
    struct sample_shape s = {7, 7, 7};
    char text[SAMPLE_SHAPE_BYTES];
    for (int i = 0; i < COUNT(wrong); i++) {
        cr_expect_eq(sample_shape_parse("--shape", wrong[i], &s), ERR_USAGE, "'%s'", wrong[i]);
        MUST_SAY("--shape: '");
        cr_expect(s.channels == 7 && s.width == 7);
    }
    MUST(sample_shape_parse("--shape", "3x32x31", &s));
    cr_assert(s.channels == 3 && s.height == 32 && s.width == 31);
    cr_assert_str_eq(sample_shape_text(&s, text), "3x32x31");
    MUST(sample_shape_parse("--shape", "16777216", &s));
    cr_assert(s.channels == 1 << 24 && s.height == 1 && s.width == 1);
    cr_assert_str_eq(sample_shape_text(&s, text), "16777216");
    MUST(sample_shape_parse("--shape", "1X1x5", &s));
    cr_assert_str_eq(sample_shape_text(&s, text), "1x1x5");
}
