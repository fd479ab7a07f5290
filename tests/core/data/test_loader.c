/* The loader gives the right pixels in the right order with any number of workers, and can end
 * cleanly at any moment. */
#include <stdint.h>

#include "base/error.h"
#include "data/loader.h"
#include "tests/harness/harness.h"
#include "tests/core/data/synthetic.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

enum { SAMPLES = 103, PIXELS = 6 };

/* Images of 2 x 3 whose bytes depend on the sample, and which contain every byte value. */
static uint8_t images[SAMPLES * PIXELS], labels[SAMPLES];
static struct dataset tiny = {.name = "tiny",
                              .count = SAMPLES,
                              .shape = {1, 2, 3},
                              .classes = 10,
                              .images = images,
                              .labels = labels};

static void tiny_make(void) {
    for (int i = 0; i < SAMPLES; i++) {
        labels[i] = (uint8_t)(i % 10);
        for (int p = 0; p < PIXELS; p++)
            images[i * PIXELS + p] = (uint8_t)(i * PIXELS + p);
    }
}

static struct loader_config config(int workers) {
    struct loader_config c = {0};
    c.set = &tiny;
    c.split = (struct split){SPLIT_STRIDED, 2, 4};
    c.batch_size = 10;
    c.shuffle = 1;
    c.seed = 5;
    c.device_count = 2;
    c.workers = workers;
    return c;
}

static struct loader *opened(const struct loader_config *c) {
    struct loader *l;
    cr_assert_eq(loader_init(&l, c), OK, "%s", error_message());
    return l;
}

static struct batch *next(struct loader *l) {
    struct batch *b;
    cr_assert_eq(loader_next(l, &b), OK, "%s", error_message());
    return b;
}

/* Compares a batch with its plan, pixel by pixel. */
static void check_batch(const struct loader_config *c, const struct batch *b, int epoch, int step) {
    struct order o = {SAMPLES, split_replicas(&c->split), c->end, c->shuffle, c->seed};
    int32_t order[2 * SAMPLES], sample[2 * SAMPLES];
    struct batch_plan plan;
    order_epoch(&o, epoch, order);
    batch_plan(&c->split, order, order_length(&o), c->batch_size, step, c->first_device,
               c->device_count, &plan, sample);
    cr_assert(b->epoch == epoch && b->step == step, "epoch %d step %d", b->epoch, b->step);
    cr_assert(b->segments.n == plan.n && b->global_n == plan.global_n);
    cr_assert(!memcmp(&b->segments, &plan.segments, sizeof plan.segments));
    cr_assert(b->pixels && b->labels);
    for (int i = 0; i < plan.n; i++) {
        cr_assert_eq(b->labels[i], labels[sample[i]]);
        for (int p = 0; p < PIXELS; p++) {
            float want = (float)images[sample[i] * PIXELS + p] / 255.0f;
            if (c->stds[0] > 0) want = (want - c->means[0]) / c->stds[0];
            cr_assert_eq(b->pixels[i * PIXELS + p], want, "sample %d pixel %d", i, p);
        }
    }
}

static int walk_epoch(struct loader *l, const struct loader_config *c, int epoch, int first) {
    int step = first;
    cr_assert_eq(loader_start_epoch(l, epoch, first), OK, "%s", error_message());
    for (struct batch *b; (b = next(l)); step++) {
        check_batch(c, b, epoch, step);
        loader_release(l, b);
    }
    cr_assert_null(next(l)); /* at the end of an epoch it stays there */
    return step;
}

Test(loader, whole_epochs_with_any_number_of_workers, .timeout = 60, .init = tiny_make) {
    static const enum order_end ends[] = {ORDER_PAD, ORDER_CUT, ORDER_EXACT};
    static const int steps[] = {11, 10, 11}; /* 104, 100 and 103 positions in tens */
    for (int workers = 0; workers <= 3; workers++)
        for (int end = 0; end < 3; end++) {
            struct loader_config c = config(workers);
            c.end = ends[end];
            struct loader *l = opened(&c);
            cr_assert_eq(loader_steps(l), steps[end]);
            cr_assert_eq(loader_duplicates(l), end == 0 ? 1 : 0);
            cr_assert_null(next(l)); /* no epoch was started */
            for (int epoch = 0; epoch < 3; epoch++)
                cr_assert_eq(walk_epoch(l, &c, epoch, 0), steps[end]);
            cr_assert_eq(walk_epoch(l, &c, 7, 4), steps[end]);
            cr_assert_eq(walk_epoch(l, &c, 7, steps[end]), steps[end]);
            loader_free(l);
        }
}

Test(loader, one_rank_one_device_and_normalised, .timeout = 60, .init = tiny_make) {
    struct loader_config c = config(2);
    c.first_device = 1, c.device_count = 1;
    c.means[0] = 0.1302f, c.stds[0] = 0.3069f;
    struct loader *l = opened(&c);
    walk_epoch(l, &c, 0, 0);
    loader_free(l);
    c.split = (struct split){SPLIT_CHUNKED, 4, 0}, c.first_device = 0, c.device_count = 4;
    l = opened(&c);
    cr_assert_eq(loader_duplicates(l), 0);
    walk_epoch(l, &c, 0, 0);
    loader_free(l);
    c.split = (struct split){SPLIT_STRIDED, 4, 4}, c.first_device = 3, c.device_count = 1;
    c.end = ORDER_EXACT, c.batch_size = 101; /* the last batch has two samples: none for device 3 */
    l = opened(&c);
    cr_assert_eq(loader_start_epoch(l, 0, 1), OK);
    struct batch *b = next(l);
    check_batch(&c, b, 0, 1);
    cr_assert(b->segments.n == 0 && b->global_n == 2, "%d of %d", b->segments.n, b->global_n);
    loader_free(l);
}

Test(loader, ends_cleanly_at_any_moment, .timeout = 60, .init = tiny_make) {
    for (int workers = 0; workers <= 3; workers++)
        for (int taken = 0; taken <= 11; taken++) {
            struct loader_config c = config(workers);
            struct loader *l = opened(&c);
            cr_assert_eq(loader_start_epoch(l, 0, 0), OK);
            for (int k = 0; k < taken; k++) {
                struct batch *b = next(l);
                cr_assert_eq(b->step, k);
                if (k + 1 < taken) loader_release(l, b); /* the last one is still held */
            }
            loader_free(l);
        }
    struct loader_config c = config(3);
    loader_free(opened(&c)); /* never started */
    loader_free(NULL);
}

Test(loader, an_epoch_may_begin_in_the_middle_of_another, .timeout = 60, .init = tiny_make) {
    for (int workers = 0; workers <= 3; workers++) {
        struct loader_config c = config(workers);
        struct loader *l = opened(&c);
        struct batch *held = NULL;
        for (int round = 0; round < 20; round++) {
            cr_assert_eq(loader_start_epoch(l, round, 0), OK);
            for (int k = 0; k < round % 4; k++) {
                struct batch *b = next(l);
                check_batch(&c, b, round, k);
                /* One batch stays held, also while the epoch changes. */
                loader_release(l, held);
                held = b;
            }
        }
        if (held) check_batch(&c, held, 19, 2);
        loader_release(l, held);
        walk_epoch(l, &c, 3, 0);
        loader_free(l);
    }
}

Test(loader, holding_every_batch_is_an_error_not_a_hang, .timeout = 30, .init = tiny_make) {
    for (int workers = 0; workers <= 2; workers++) {
        struct loader_config c = config(workers);
        struct loader *l = opened(&c);
        struct batch *held[2 + LOADER_SPARE], *more;
        cr_assert_eq(loader_start_epoch(l, 0, 0), OK);
        for (int i = 0; i < workers + LOADER_SPARE; i++)
            held[i] = next(l);
        cr_assert_eq(loader_next(l, &more), ERR_FAILED);
        cr_assert_null(more);
        for (int i = 0; i < workers + LOADER_SPARE; i++)
            check_batch(&c, held[i], 0, i);
        loader_release(l, held[1]);
        more = next(l);
        cr_assert_eq(more->step, workers + LOADER_SPARE);
        loader_free(l);
    }
}

/* loader_try hands out what is there, and what it hands out is what loader_next would. */
Test(loader, a_try_does_not_wait, .timeout = 30, .init = tiny_make) {
    for (int workers = 0; workers <= 2; workers++) {
        struct loader_config c = config(workers);
        struct loader *l = opened(&c);
        struct batch *batch = NULL;
        int steps = loader_steps(l), missed = 0;
        cr_assert_eq(loader_try(l, &batch), OK);
        cr_assert_null(batch, "before the epoch");
        cr_assert_eq(loader_start_epoch(l, 0, 0), OK);
        for (int step = 0; step < steps; step++) {
            cr_assert_eq(loader_try(l, &batch), OK, "%s", error_message());
            missed += !batch;
            if (!batch) batch = next(l);
            check_batch(&c, batch, 0, step);
            cr_assert(batch->host_ns >= 0 && batch->pinned_ns > 0, "both stages were timed");
            loader_release(l, batch);
        }
        cr_assert(workers || !missed, "without workers it prepares the batch itself");
        cr_assert_eq(loader_try(l, &batch), OK);
        cr_assert_null(batch, "after the last one");
        loader_free(l);
    }
}

/* Waits for batches that take a worker milliseconds until a wait fails, and returns its code. On a
 * busy machine the worker may be in time once, but not in every round. */
static int wait_for_a_late_worker(double timeout_s, int (*interrupted)(void *), void *context) {
    static struct dataset large;
    cr_assert_eq(synthetic_set(&large, 5000, 1), OK);
    struct loader_config c = {0};
    c.set = &large;
    c.split = (struct split){SPLIT_CHUNKED, 1, 0};
    c.batch_size = 5000, c.device_count = 1, c.workers = 1, c.timeout_s = timeout_s;
    c.interrupted = interrupted, c.interrupt_context = context;
    struct loader *l = opened(&c);
    struct batch *b;
    int code = OK;
    for (int i = 0; i < 100 && !code; i++) {
        code = loader_start_epoch(l, i, 0);
        if (!code) code = loader_next(l, &b);
        if (!code) loader_release(l, b);
    }
    loader_free(l);
    dataset_free(&large);
    return code;
}

Test(loader, a_wait_has_a_deadline, .timeout = 30) {
    cr_assert_eq(wait_for_a_late_worker(1e-9, NULL, NULL), ERR_TIMEOUT);
    cr_assert(strstr(error_message(), "no worker delivered the batch in time"), "%s",
              error_message());
}

static int job_ended(void *context) {
    return fail(ERR_PEER, "rank %d has failed", *(int *)context);
}

Test(loader, a_wait_ends_with_the_job, .timeout = 30) {
    int rank = 3;
    cr_assert_eq(wait_for_a_late_worker(0, job_ended, &rank), ERR_PEER);
    cr_assert_str_eq(error_message(), "rank 3 has failed");
}

/* The order of the epoch must not change while a worker reads it. */
Test(loader, a_new_epoch_waits_for_the_batch_being_filled, .timeout = 30) {
    static struct dataset large;
    enum { N = 3000 };
    static int32_t order[N];
    cr_assert_eq(synthetic_set(&large, N, 1), OK);
    struct loader_config c = {0};
    c.set = &large;
    c.split = (struct split){SPLIT_CHUNKED, 1, 0};
    c.batch_size = N, c.device_count = 1, c.workers = 2, c.shuffle = 1;
    struct loader *l = opened(&c);
    for (int epoch = 0; epoch < 6; epoch++)
        cr_assert_eq(loader_start_epoch(l, epoch, 0), OK);
    struct batch *b = next(l);
    struct order o = {N, 1, ORDER_PAD, 1, 0};
    order_epoch(&o, 5, order);
    cr_assert_eq(b->epoch, 5);
    for (int i = 0; i < N; i++) {
        cr_assert_eq(b->labels[i], large.labels[order[i]], "sample %d", i);
        cr_assert_eq(b->pixels[i * 784 + 400], (float)large.images[order[i] * 784 + 400] / 255.0f,
                     "sample %d", i);
    }
    loader_free(l);
    dataset_free(&large);
}

/* Staging memory from the caller. It is counted, and request number `left` is refused. */
struct store {
    int left, open;
    size_t bytes; /* of the last request */
};
static int store_alloc(void *context, void **out, size_t bytes) {
    struct store *s = context;
    s->bytes = bytes;
    if (s->left-- == 0) return fail(ERR_MEMORY, "out of memory on device 0: %zu bytes", bytes);
    *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
    s->open++;
    return OK;
}
static void store_release(void *context, void *memory) {
    ((struct store *)context)->open--;
    free(memory);
}

Test(loader, staging_memory_is_the_callers, .timeout = 30, .init = tiny_make) {
    enum { SLOTS = 2 + LOADER_SPARE };
    for (int left = 0; left <= SLOTS; left++) {
        struct loader_config c = config(2);
        struct store s = {left, 0, 0};
        struct loader *l;
        c.alloc = store_alloc, c.release = store_release, c.context = &s;
        int code = loader_init(&l, &c);
        cr_assert_eq(code, left < SLOTS ? ERR_MEMORY : OK);
        cr_assert_eq(s.bytes, 256u + 40u, "%zu bytes", s.bytes);
        cr_assert((l != NULL) == (code == OK));
        if (l) walk_epoch(l, &c, 0, 0);
        if (l) cr_assert_eq(s.open, SLOTS);
        loader_free(l);
        cr_assert_eq(s.open, 0, "%d left open", s.open);
    }
}

Test(loader, bad_configurations_are_named, .timeout = 30, .init = tiny_make) {
    struct loader_config bad[8];
    const char *value[] = {"1", "0", "65", "-1", "3", "devices 1 to 2", "104", "devices 0 to -1"};
    for (int i = 0; i < 8; i++)
        bad[i] = config(0);
    bad[0].batch_size = 1;
    bad[1].batch_size = 0;
    bad[2].workers = 65;
    bad[3].workers = -1;
    bad[4].split.virtual_devices = 3;
    bad[5].first_device = 1;
    bad[6].batch_size = 104, bad[6].end = ORDER_CUT;
    bad[7].device_count = 0;
    for (int i = 0; i < 8; i++) {
        struct loader *l = (struct loader *)&l;
        cr_assert_eq(loader_init(&l, &bad[i]), ERR_USAGE, "configuration %d", i);
        cr_assert_null(l);
        cr_assert(strstr(error_message(), value[i]), "configuration %d: %s", i, error_message());
    }
    struct loader_config c = config(0);
    struct loader *l = opened(&c);
    cr_assert_eq(loader_start_epoch(l, 0, 12), ERR_USAGE);
    cr_assert_eq(loader_start_epoch(l, 0, -1), ERR_USAGE);
    loader_free(l);
}
