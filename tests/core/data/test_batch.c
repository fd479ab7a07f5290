/* The batch plan: every sample occurs once, the segments are the same on any number of devices, and
 * the shares are PyTorch's if PyTorch defines them. */
#include <stdint.h>

#include "base/error.h"
#include "data/batch.h"
#include "data/sampler.h"
#include "tests/harness/harness.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

enum { MOST = 256 };

static const int virtuals[] = {1, 2, 3, 4, 8, 64};
static const int batches[] = {1, 2, 3, 5, 8, 13, 64, 100};
static const int lengths[] = {1, 2, 7, 24, 64, 100, 192};

/* The plan of one batch for all W devices; `sample` receives the samples. */
static struct batch_plan plan_all(struct split s, const int32_t *order, int length, int B, int k,
                                  int32_t *sample) {
    struct batch_plan plan;
    batch_plan(&s, order, length, B, k, 0, s.devices, &plan, sample);
    return plan;
}

/* Checks one plan against the rule itself: the samples of virtual device v are those at the
 * positions p with p mod V = v, in ascending order. */
static void check_strided(int V, int W, int length, int B, int k, const int32_t *order) {
    struct split s = {SPLIT_STRIDED, W, V};
    int32_t sample[MOST];
    struct batch_plan plan = plan_all(s, order, length, B, k, sample);
    int end = (k + 1) * B < length ? (k + 1) * B : length, at = 0;
    cr_assert_eq(plan.global_n, end - k * B);
    cr_assert_eq(plan.n, plan.global_n);
    cr_assert_eq(plan.segments.count, V);
    cr_assert_eq(plan.segments.n, plan.n);
    cr_assert_eq(plan.per_device, V / W);
    for (int i = 0; i < V; i++) {
        int device = i / (V / W), v = device + i % (V / W) * W, n = 0;
        cr_assert_eq(plan.segments.seg[i].v, v, "V %d W %d: segment %d is %d", V, W, i,
                     plan.segments.seg[i].v);
        for (int p = k * B; p < end; p++) {
            if (p % V != v) continue;
            cr_assert_eq(sample[at], order[p], "V %d W %d B %d k %d v %d", V, W, B, k, v);
            at++, n++;
        }
        cr_assert_eq(plan.segments.seg[i].n, n);
    }
    cr_assert_eq(at, plan.n);
    int sum = 0;
    for (int r = 0; r < W; r++) { /* planned by itself, a device gets its part of the same plan */
        int32_t own[MOST];
        struct batch_plan one;
        batch_plan(&s, order, length, B, k, r, 1, &one, own);
        const struct segment *share = plan.segments.seg + r * plan.per_device;
        cr_assert_eq(one.n, plan.device_n[r]);
        cr_assert(one.n <= batch_capacity(&s, B, 1) && batch_capacity(&s, B, 1) <= B, "capacity");
        cr_assert_eq(one.global_n, plan.global_n);
        cr_assert(!memcmp(own, sample + sum, (size_t)one.n * sizeof *own));
        cr_assert(one.segments.count == plan.per_device && one.segments.n == plan.device_n[r]);
        cr_assert(!memcmp(one.segments.seg, share, (size_t)plan.per_device * sizeof *share));
        sum += one.n;
    }
    cr_assert_eq(sum, plan.n);
}

Test(batch, strided_grid, .timeout = 60) {
    for (int a = 0; a < COUNT(virtuals); a++)
        for (int b = 0; b < COUNT(batches); b++)
            for (int c = 0; c < COUNT(lengths); c++) {
                int32_t order[MOST];
                int length = lengths[c], steps = batch_count(length, batches[b], 0);
                /* 251 is prime, so all values differ. */
                for (int p = 0; p < length; p++)
                    order[p] = (p * 37 + 11) % 251;
                cr_assert_eq(steps, (length + batches[b] - 1) / batches[b]);
                for (int W = 1; W <= virtuals[a]; W++)
                    for (int k = 0; k < steps && virtuals[a] % W == 0; k++)
                        check_strided(virtuals[a], W, length, batches[b], k, order);
            }
}

/* With V = W, the shares of an epoch are the lists of DistributedSampler, cut into batches. */
Test(batch, epoch_is_distributed_sampler, .timeout = 30) {
    for (int W = 1; W <= 5; W++) {
        struct order o = {50, W, ORDER_PAD, 1, 3};
        struct split s = {SPLIT_STRIDED, W, W};
        int32_t order[MOST], sample[MOST], *list;
        int length = (int)order_length(&o), n;
        order_epoch(&o, 1, order);
        for (int r = 0; r < W; r++) {
            int at = 0;
            cr_assert_eq(sampler_indices(&o, r, 1, &list, &n), OK);
            for (int k = 0; k < batch_count(length, 4 * W, 0); k++) {
                struct batch_plan plan;
                batch_plan(&s, order, length, 4 * W, k, r, 1, &plan, sample);
                cr_assert(!memcmp(sample, list + at, (size_t)plan.n * sizeof *list),
                          "W %d rank %d batch %d", W, r, k);
                at += plan.n;
            }
            cr_assert_eq(at, n);
            free(list);
        }
    }
}

/* The worked example of data/batch.h. */
Test(batch, written_out, .timeout = 30) {
    int32_t order[12], sample[6];
    for (int p = 0; p < 12; p++)
        order[p] = p;
    struct batch_plan plan = plan_all((struct split){SPLIT_STRIDED, 2, 4}, order, 12, 6, 1, sample);
    cr_assert_arr_eq(sample, ((int32_t[]){8, 6, 10, 9, 7, 11}), sizeof sample);
    cr_assert_arr_eq(plan.segments.seg, ((struct segment[]){{0, 1}, {2, 2}, {1, 1}, {3, 2}}),
                     4 * sizeof(struct segment));
    cr_assert(plan.device_n[0] == 3 && plan.device_n[1] == 3);
}

Test(batch, chunked_as_pytorch_scatters, .timeout = 30) {
    static const struct {
        int n, devices, sizes[4];
    } want[] = {
        {10, 4, {3, 3, 3, 1}}, {7, 4, {2, 2, 2, 1}}, {5, 4, {2, 2, 1, 0}},
        {9, 4, {3, 3, 3, 0}},  {6, 4, {2, 2, 2, 0}}, {3, 4, {1, 1, 1, 0}},
        {1, 4, {1, 0, 0, 0}},  {8, 1, {8}},          {8, 2, {4, 4}},
    };
    int32_t order[64], sample[64];
    for (int p = 0; p < 64; p++)
        order[p] = 63 - p;
    for (int i = 0; i < COUNT(want); i++) {
        struct split s = {SPLIT_CHUNKED, want[i].devices, 0};
        /* Batch 1 is the short one. */
        struct batch_plan plan = plan_all(s, order, 20 + want[i].n, 20, 1, sample);
        cr_assert_eq(plan.n, want[i].n);
        cr_assert_eq(plan.segments.count, want[i].devices);
        for (int r = 0; r < want[i].devices; r++) {
            cr_assert_eq(plan.device_n[r], want[i].sizes[r], "row %d device %d", i, r);
            cr_assert(plan.segments.seg[r].n == want[i].sizes[r] && plan.segments.seg[r].v == r);
        }
        for (int p = 0; p < want[i].n; p++)
            cr_assert_eq(sample[p], 63 - 20 - p);
    }
    cr_assert_eq(batch_capacity(&(struct split){SPLIT_CHUNKED, 4, 0}, 10, 1), 3);
    cr_assert_eq(batch_capacity(&(struct split){SPLIT_CHUNKED, 4, 0}, 10, 4), 10);
    cr_assert_eq(batch_count(25, 10, 0), 3);
    cr_assert_eq(batch_count(25, 10, 1), 2);
    cr_assert_eq(batch_count(20, 10, 0), 2);
}

/* The chunk rule in other terms: walk the samples in steps of ceil(n/W). */
Test(batch, chunks_take_every_sample_once, .timeout = 30) {
    int32_t order[300], sample[300];
    for (int p = 0; p < 300; p++)
        order[p] = p;
    for (int W = 1; W <= MAX_DEVICES; W++)
        for (int n = 1; n <= 300; n += 1 + n / 20) {
            struct split s = {SPLIT_CHUNKED, W, 0};
            struct batch_plan plan = plan_all(s, order, n, n, 0, sample);
            int step = (n + W - 1) / W, r = 0;
            for (int row = 0; row < n; row += step, r++)
                cr_assert_eq(plan.device_n[r], row + step <= n ? step : n - row,
                             "%d over %d: device %d", n, W, r);
            for (; r < W; r++)
                cr_assert_eq(plan.device_n[r], 0, "%d over %d: device %d", n, W, r);
            cr_assert_eq(plan.n, n);
            cr_assert_arr_eq(sample, order, (size_t)n * sizeof *sample);
        }
}

Test(batch, bad_splits_are_named, .timeout = 30) {
    static const struct {
        struct split s;
        const char *value;
    } bad[] = {
        {{SPLIT_STRIDED, 0, 1}, "0"},   {{SPLIT_STRIDED, -1, 1}, "-1"},
        {{SPLIT_CHUNKED, 65, 0}, "65"}, {{SPLIT_STRIDED, 2, 3}, "3"},
        {{SPLIT_STRIDED, 1, 65}, "65"}, {{SPLIT_STRIDED, 2, 0}, "0"},
        {{SPLIT_STRIDED, 4, 2}, "2"},
    };
    for (int i = 0; i < COUNT(bad); i++) {
        cr_assert_eq(split_check(&bad[i].s), ERR_USAGE, "split %d", i);
        cr_assert(strstr(error_message(), bad[i].value), "split %d: %s", i, error_message());
    }
    cr_assert_eq(split_check(&(struct split){SPLIT_STRIDED, 64, 64}), OK);
    cr_assert_eq(split_replicas(&(struct split){SPLIT_STRIDED, 2, 6}), 6);
    cr_assert_eq(split_replicas(&(struct split){SPLIT_CHUNKED, 2, 0}), 1);
}
