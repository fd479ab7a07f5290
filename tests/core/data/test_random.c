/* Random data: PyTorch's draws to the bit, and numbers that reach a batch unchanged, from the host
 * and from a device. And what dataset_check refuses. */
#include "data/device_dataset.h"
#include "data/loader.h"
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

/* Expects a batch's samples and answers, of which the host's copies are given, in the order of the
 * index. */
static void expect_batch(const struct dataset *set, const int32_t *index, int n,
                         const float *pixels, const void *answers, const char *who) {
    size_t each = sample_shape_count(&set->shape), width = (size_t)dataset_answer_count(set);
    for (int i = 0; i < n; i++) {
        size_t sample = (size_t)index[i];
        cr_assert(!memcmp(pixels + (size_t)i * each, set->numbers + sample * each, each * 4),
                  "%s: sample %d", who, i);
        cr_assert(!memcmp((const char *)answers + (size_t)i * width * 4,
                          (const char *)set->answers + sample * width * 4, width * 4),
                  "%s: answer %d", who, i);
    }
}

static void batches_are_the_data(struct device *d, const struct dataset *set) {
    struct loader_config c = {.set = set,
                              .split = {SPLIT_STRIDED, 2, 4},
                              .batch_size = 10,
                              .shuffle = 1,
                              .seed = 3,
                              .device_count = 2,
                              .workers = 1,
                              .mean = 0.286f, /* of bytes: numbers are taken as they are */
                              .std = 0.353f};
    struct loader *numbers, *indices;
    struct batch *batch, *place;
    struct device_dataset resident;
    size_t each = sample_shape_count(&set->shape), width = (size_t)dataset_answer_count(set);
    void *index, *x, *y;
    float *got = malloc(10 * each * 4), *got_y = malloc(10 * width * 4);
    int epochs = 0;
    MUST(device_dataset_init(&resident, d, set));
    cr_assert_eq(device_ledger(d).now[MEM_DATASET], device_dataset_bytes(set));
    MUST(device_alloc(d, &index, 40, MEM_INPUT));
    MUST(device_alloc(d, &x, 10 * each * 4, MEM_INPUT));
    MUST(device_alloc(d, &y, 10 * width * 4, MEM_INPUT));
    MUST(loader_init(&numbers, &c));
    c.on_device = &resident;
    MUST(loader_init(&indices, &c));
    for (; epochs < 2; epochs++) {
        MUST(loader_start_epoch(numbers, epochs, 0));
        MUST(loader_start_epoch(indices, epochs, 0));
        for (;;) {
            MUST(loader_next(numbers, &batch));
            MUST(loader_next(indices, &place));
            if (!batch) break;
            int n = batch->segments.n;
            const struct sample_shape *s = &set->shape;
            const int dims[4] = {n, s->channels, s->height, s->width}, answers[2] = {n, (int)width};
            struct tensor i = tensor_plain(index, DTYPE_I32, 1, dims),
                          pixels = tensor_plain(x, DTYPE_F32, 4, dims),
                          labels = tensor_plain(y, set->outputs ? DTYPE_F32 : DTYPE_I32,
                                                set->outputs ? 2 : 1, answers);
            cr_assert(set->outputs ? !batch->labels : !batch->targets);
            expect_batch(set, place->index, n, batch->pixels,
                         set->outputs ? (const void *)batch->targets : batch->labels, "host");
            MUST(copy_to_device(device_compute(d), index, place->index, (size_t)n * 4));
            MUST(device_dataset_gather(&resident, device_compute(d), &i, NULL, c.mean, c.std,
                                       &pixels, &labels));
            MUST(copy_to_host(device_compute(d), got, x, (size_t)n * each * 4));
            MUST(copy_to_host(device_compute(d), got_y, y, (size_t)n * width * 4));
            MUST(stream_sync(device_compute(d)));
            expect_batch(set, place->index, n, got, got_y, device_name(d));
            loader_release(numbers, batch), loader_release(indices, place);
        }
    }
    loader_free(numbers), loader_free(indices);
    device_free(d, index), device_free(d, x), device_free(d, y);
    device_dataset_free(&resident);
    free(got), free(got_y);
}

Test(random_data, batches_are_the_data, .timeout = 60) {
    /* channels, height, width, classes, targets; the last set's targets take more than its samples,
     * and more than a piece of the upload */
    static const int sets[][5] = {
        {10, 1, 1, 10, 1}, {3, 5, 7, 300, 0}, {1, 2, 2, 1, 1}, {2, 1, 1, 70000, 1}};
    for (int k = 0; k < ALL_KINDS; k++)
        for (int i = 0; i < COUNT(sets); i++) {
            struct device_config config = test_config(all_kinds[k], 0);
            struct dataset set;
            struct device *d;
            config.memory_bytes += 24 << 20;
            MUST(device_open(&d, &config));
            open_random(&set, sets[i][0], sets[i][1], sets[i][2], sets[i][3], 33, sets[i][4], 9);
            batches_are_the_data(d, &set);
            dataset_free(&set);
            device_close(d);
        }
}

static void refused(struct dataset_config config, const char *says) {
    struct dataset set;
    cr_expect_eq(dataset_make(&set, &config, 1), ERR_USAGE, "%s was not refused", says);
    MUST_SAY(says);
    cr_expect_null(strchr(error_message(), '\n'));
}

Test(random_data, what_is_too_much_is_refused_before_it_is_made, .timeout = 30) {
    refused((struct dataset_config){.name = "cifar"}, "there are fashion-mnist, mnist, synthetic");
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
