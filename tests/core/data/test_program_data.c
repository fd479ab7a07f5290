/* A program's own data sets, and the loader with all its options: every kind of samples and
 * answers, PyTorch's orders, normalisation, the two warnings, and what is refused. */
#include <limits.h>
#include <math.h>

#include "tests/duet/shared.h"

enum { COUNT = 10, NUMBERS = 6, OUTPUTS = 2 };

static float numbers[COUNT * NUMBERS], targets[COUNT * OUTPUTS];
static uint8_t bytes[COUNT * NUMBERS];
static int32_t labels[COUNT];

static void make_arrays(void) {
    for (int i = 0; i < COUNT * NUMBERS; i++) {
        numbers[i] = (float)i / 7 - 3;
        bytes[i] = (uint8_t)(i * 41 % 256);
    }
    for (int i = 0; i < COUNT; i++) {
        labels[i] = i * 100; /* too large for a byte */
        for (int k = 0; k < OUTPUTS; k++)
            targets[i * OUTPUTS + k] = (float)(i - k) / 3;
    }
}

static int read_sample(void *context, int i, void *sample, void *answer) {
    const struct duet_data *d = context;
    if (d->type == DUET_U8)
        memcpy(sample, bytes + (ptrdiff_t)i * NUMBERS, NUMBERS);
    else
        memcpy(sample, numbers + (ptrdiff_t)i * NUMBERS, NUMBERS * sizeof(float));
    if (d->outputs)
        memcpy(answer, targets + (ptrdiff_t)i * OUTPUTS, OUTPUTS * sizeof(float));
    else
        memcpy(answer, labels + i, sizeof *labels);
    return 0;
}

/* form: 1 for bytes, 2 for targets, 4 for a function; dimensions as they come. */
static struct duet_data data_of(int form, struct duet_data *of_function) {
    struct duet_data d = {.count = COUNT,
                          .rank = 1 + form % 3,
                          .shape = {form % 3 ? 3 : 6, 2, 1},
                          .type = form & 1 ? DUET_U8 : DUET_F32,
                          .outputs = form & 2 ? OUTPUTS : 0};
    if (form & 4) {
        *of_function = d;
        d.read = read_sample, d.context = of_function;
        return d;
    }
    d.samples = form & 1 ? (const void *)bytes : numbers;
    if (form & 2)
        d.targets = targets;
    else
        d.labels = labels;
    return d;
}

static float pixel(int i, double mean, double std) {
    float x = (float)bytes[i] / 255.0f;
    return std > 0 ? (x - (float)mean) / (float)std : x;
}

static void expect_sample(const struct duet_batch *b, int row, int form, int i) {
    for (int k = 0; k < NUMBERS; k++)
        cr_assert_eq(b->X[row * NUMBERS + k],
                     form & 1 ? pixel(i * NUMBERS + k, 0, 0) : numbers[i * NUMBERS + k],
                     "form %d: number %d of sample %d", form, k, i);
    if (!(form & 2)) {
        cr_assert(!b->targets && b->outputs == 0 && b->y[row] == labels[i]);
        return;
    }
    cr_assert(!b->y && b->outputs == OUTPUTS);
    cr_assert(!memcmp(b->targets + (ptrdiff_t)row * OUTPUTS, targets + (ptrdiff_t)i * OUTPUTS,
                      OUTPUTS * sizeof(float)));
}

Test(api_data, arrays_and_functions_of_every_kind, .timeout = 30) {
    make_arrays();
    for (int form = 0; form < 8; form++)
        for (int workers = 0; workers < 3; workers += 2) {
            duet_dataset *set;
            duet_loader *loader;
            struct duet_data of_function, d = data_of(form, &of_function);
            struct duet_batch b;
            int seen = 0;
            MUST(duet_dataset_create(&set, &d));
            const struct duet_dataset_info info = duet_dataset_info(set);
            cr_assert_eq(info.count, COUNT);
            cr_assert_eq(info.classes, form & 2 ? 0 : form & 4 ? 1 : 901);
            cr_assert(info.shape[0] == d.shape[0] && info.shape[1] == (d.rank > 1 ? 2 : 1) &&
                      info.shape[2] == 1);
            MUST(duet_loader_create(
                &loader, set, &(struct duet_loader_options){.batch_size = 4, .workers = workers}));
            cr_assert_eq(duet_loader_steps(loader), 3);
            MUST(duet_loader_start(loader, 0));
            do {
                MUST(duet_loader_next(loader, &b));
                for (int row = 0; row < b.n; row++)
                    expect_sample(&b, row, form, seen++);
            } while (b.n);
            cr_assert_eq(seen, COUNT);
            duet_loader_free(loader);
            duet_dataset_free(set);
        }
}

/* ---- orders ---- */

struct heard {
    int count;
    char text[200];
};

static void hear(const char *text, void *context) {
    struct heard *h = context;
    h->count++;
    snprintf(h->text, sizeof h->text, "%s", text);
}

/* Labels tell the samples apart. */
static void expect_order(duet_loader *loader, int epoch, int size, const int *want, int count) {
    struct duet_batch b;
    int seen = 0;
    MUST(duet_loader_start(loader, epoch));
    do {
        MUST(duet_loader_next(loader, &b));
        cr_assert(b.n == size || seen + b.n == count);
        for (int i = 0; i < b.n; i++, seen++)
            cr_assert_eq(b.y[i] / 100, want[seen], "epoch %d, place %d is %d", epoch, seen,
                         b.y[i] / 100);
    } while (b.n);
    cr_assert_eq(seen, count);
}

/* torch 2.15: DistributedSampler(set of 10, 3, rank, seed=7) of epochs 0 and 2; with drop_last in
 * both the sampler and the DataLoader; DataLoader(shuffle=True) after manual_seed(5). */
Test(api_data, orders_are_pytorchs, .timeout = 30) {
    static const int distributed[2][3][4] = {{{5, 4, 9, 2}, {0, 1, 6, 5}, {3, 7, 8, 0}},
                                             {{0, 7, 9, 3}, {5, 6, 1, 0}, {8, 2, 4, 5}}};
    static const int dropped[] = {5, 6}, random[3][10] = {{8, 3, 0, 5, 9, 1, 6, 2, 4, 7},
                                                          {5, 8, 9, 7, 2, 0, 4, 1, 3, 6},
                                                          {6, 5, 4, 0, 7, 2, 1, 8, 9, 3}};
    struct duet_data unused, d = data_of(0, &unused);
    duet_dataset *set;
    duet_loader *loader;
    make_arrays();
    MUST(duet_dataset_create(&set, &d));
    for (int rank = 0; rank < 3; rank++) {
        struct heard h = {.count = 0};
        struct duet_loader_options o = {.batch_size = 2,
                                        .shuffle = DUET_SHUFFLE,
                                        .seed = 7,
                                        .rank = rank,
                                        .world_size = 3,
                                        .warn = hear,
                                        .context = &h};
        MUST(duet_loader_create(&loader, set, &o));
        cr_assert_eq(h.count, rank == 0, "rank 0 alone says it");
        if (rank == 0)
            cr_assert_str_eq(h.text, "10 samples over 3 ranks: in every epoch 2 of them are served "
                                     "twice; with drop_last 1 would be left out instead");
        expect_order(loader, 0, 2, distributed[0][rank], 4);
        expect_order(loader, 2, 2, distributed[1][rank], 4);
        cr_assert_eq(h.count, rank == 0, "an epoch that was counted is no trap");
        for (int i = 0; i < 3; i++) /* the number is forgotten */
            expect_order(loader, 2, 2, distributed[1][rank], 4);
        cr_assert_eq(h.count, (rank == 0) + 1, "said once");
        cr_assert_not_null(strstr(h.text, "epoch 2 begins again"), "%s", h.text);
        cr_assert_not_null(strstr(h.text, "set_epoch"), "%s", h.text);
        duet_loader_free(loader);
    }
    struct heard h = {.count = 0};
    struct duet_loader_options o = {.batch_size = 2,
                                    .shuffle = DUET_SHUFFLE,
                                    .seed = 7,
                                    .rank = 1,
                                    .world_size = 3,
                                    .drop_last = 1};
    MUST(duet_loader_create(&loader, set, &o));
    expect_order(loader, 2, 2, dropped, 2);
    duet_loader_free(loader);
    o = (struct duet_loader_options){
        .batch_size = 4, .shuffle = DUET_SHUFFLE_RANDOM, .seed = 5, .warn = hear, .context = &h};
    MUST(duet_loader_create(&loader, set, &o));
    for (int epoch = 0; epoch < 3; epoch++)
        expect_order(loader, epoch, 4, random[epoch], 10);
    cr_assert_eq(h.count, 0);
    duet_loader_free(loader);
    duet_dataset_free(set);
}

/* ---- normalisation ---- */

Test(api_data, bytes_are_normalised_as_by_torchvision, .timeout = 30) {
    static const double mean[3] = {.485, .456, .406}, std[3] = {.229, .224, .225};
    struct duet_data d = {.count = COUNT,
                          .rank = 3,
                          .shape = {3, 2, 1},
                          .type = DUET_U8,
                          .samples = bytes,
                          .labels = labels};
    duet_dataset *set;
    duet_loader *loader;
    struct duet_batch b;
    make_arrays();
    MUST(duet_dataset_create(&set, &d));
    for (int all = 0; all < 2; all++) {
        struct duet_loader_options o = {.batch_size = COUNT};
        memcpy(o.mean, mean, all ? sizeof mean : sizeof *mean);
        memcpy(o.std, std, all ? sizeof std : sizeof *std);
        MUST(duet_loader_create(&loader, set, &o));
        MUST(duet_loader_start(loader, 0));
        MUST(duet_loader_next(loader, &b));
        for (int i = 0; i < COUNT * NUMBERS; i++) {
            int c = all ? i % NUMBERS / 2 : 0;
            cr_assert_eq(b.X[i], pixel(i, mean[c], std[c]), "number %d", i);
        }
        duet_loader_free(loader);
    }
    duet_dataset_free(set);
}

/* ---- a function that fails ---- */

static int fails_at_7(void *context, int i, void *sample, void *answer) {
    memset(sample, 0, NUMBERS * sizeof(float));
    memset(answer, 0, sizeof(int32_t));
    return i == 7 ? *(int *)context : 0;
}

Test(api_data, a_function_that_fails_ends_the_epoch, .timeout = 30) {
    for (int workers = 0; workers < 3; workers++) {
        int code = workers == 1 ? DUET_MEMORY : -5;
        struct duet_data d = {.count = COUNT,
                              .rank = 1,
                              .shape = {NUMBERS},
                              .type = DUET_F32,
                              .read = fails_at_7,
                              .context = &code};
        duet_dataset *set;
        duet_loader *loader;
        struct duet_batch b;
        int want = workers == 1 ? DUET_MEMORY : DUET_FAILED;
        MUST(duet_dataset_create(&set, &d));
        MUST(duet_loader_create(
            &loader, set, &(struct duet_loader_options){.batch_size = 4, .workers = workers}));
        MUST(duet_loader_start(loader, 0));
        MUST(duet_loader_next(loader, &b));
        for (int again = 0; again < 5; again++) {
            MUST_FAIL(duet_loader_next(loader, &b), want, "for sample 7");
            cr_assert_eq(b.n, 0);
        }
        code = 0;
        MUST(duet_loader_start(loader, 1));
        for (int i = 0; i < 3; i++)
            MUST(duet_loader_next(loader, &b));
        cr_assert_eq(b.n, 2);
        duet_loader_free(loader);
        duet_dataset_free(set);
    }
}

/* ---- misuse ---- */

static void refuse_data(struct duet_data d, const char *says) {
    duet_dataset *set = (duet_dataset *)1;
    MUST_FAIL(duet_dataset_create(&set, &d), DUET_USAGE, says);
    cr_assert(!set && !strchr(duet_error(), '\n'));
}

static void refuse_options(const duet_dataset *set, struct duet_loader_options o,
                           const char *says) {
    duet_loader *loader = (duet_loader *)1;
    MUST_FAIL(duet_loader_create(&loader, set, &o), DUET_USAGE, says);
    cr_assert(!loader && !strchr(duet_error(), '\n'));
}

Test(api_data, what_is_refused, .timeout = 30) {
    struct duet_data unused, d, good;
    struct duet_loader_options o, fine = {.batch_size = 2};
    duet_dataset *set, *of_bytes;
    int32_t negative[COUNT] = {0, 1, -1};
    make_arrays();
    good = data_of(0, &unused);
#define BAD(change, says) (d = good, change, refuse_data(d, says))
    BAD(d.count = 0, "0 samples");
    BAD(d.count = INT_MIN, "samples");
    BAD(d.rank = 0, "rank 0");
    BAD(d.rank = 4, "rank 4");
    BAD(d.shape[0] = 0, "0 x 1 x 1");
    BAD((d.rank = 3, d.shape[0] = d.shape[1] = d.shape[2] = INT_MAX), "in all");
    BAD(d.type = DUET_F64, "type");
    BAD(d.samples = NULL, "no samples");
    BAD(d.labels = NULL, "neither labels nor targets");
    BAD(d.targets = targets, "both labels and targets");
    BAD((d.labels = NULL, d.targets = targets), "0 outputs");
    BAD(d.outputs = 2, "2 outputs");
    BAD(d.read = read_sample, "both an array and a function");
    BAD((d.read = read_sample, d.samples = NULL), "the function makes them too");
    BAD(d.labels = negative, "label -1 of sample 2");
    BAD(d.classes = 5, "label 100 of sample 1");
    BAD(d.classes = -1, "-1 classes");
    MUST(duet_dataset_create(&set, &good));
    d = data_of(1, &unused);
    MUST(duet_dataset_create(&of_bytes, &d));
#define WRONG(change, says) (o = fine, change, refuse_options(of_bytes, o, says))
    WRONG(o.batch_size = 0, "batch size: 0");
    WRONG(o.world_size = -1, "-1 ranks");
    WRONG(o.world_size = 65, "65 ranks");
    WRONG((o.rank = 2, o.world_size = 2), "Invalid rank 2");
    WRONG(o.rank = -1, "Invalid rank -1");
    WRONG(o.shuffle = (enum duet_shuffle)3, "shuffle 3");
    WRONG((o.shuffle = DUET_SHUFFLE_RANDOM, o.world_size = 2), "ignores ranks");
    WRONG(o.workers = -1, "workers: -1");
    WRONG((o.drop_last = 1, o.batch_size = 11), "11 on each of 1 ranks: no whole batch in 10 "
                                                "samples: use a smaller one, or no drop_last");
    WRONG(o.mean[0] = 1, "std 0, 0, 0");
    WRONG(o.std[0] = -1, "std -1");
    WRONG(o.std[0] = (double)NAN, "std nan");
    WRONG((o.std[0] = 1, o.mean[1] = (double)INFINITY), "mean inf");
    WRONG((o.std[0] = o.std[1] = 1), "or three");
    WRONG((o.std[0] = 1, o.mean[2] = 1), "means 0, 0, 1, but one std");
    WRONG(o.std[0] = 1e-60, "std 1e-60");
    o = fine, o.std[0] = 1;
    refuse_options(set, o, "the samples are floats");
    o.std[1] = o.std[2] = 1;
    d = data_of(1, &unused), d.rank = 1, d.shape[0] = 6;
    duet_dataset_free(of_bytes);
    MUST(duet_dataset_create(&of_bytes, &d));
    refuse_options(of_bytes, o, "means of 3 channels: a sample has 6");
    duet_dataset_free(of_bytes);
    duet_dataset_free(set);
}
