/* The sharded reduce: shards cover each range once, their sums have the bits of one sum on device
 * 0, and device 0 waits for all shards. */
#include "tests/scatter_gather/bed.h"

#include "scatter_gather/shards.h"

Test(shards, cover_every_element_once, .timeout = 30) {
    static const size_t counts[] = {0, 1, 63, 64, 65, 128, 1000, 129068, 10485761};
    for (int n = 1; n <= 64; n++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            struct param_range range = {192, counts[c]};
            size_t next = range.first, most = 0;
            int adders = n > 2 ? n - 1 : n;
            for (int d = 0; d < n; d++) {
                struct param_range shard = shard_of(range, n, d);
                cr_assert(n <= 2 || d > 0 || shard.count == 0, "device 0 of %d adds", n);
                if (shard.count) {
                    cr_assert_eq(shard.first, next, "%zu over %d: shard %d", counts[c], n, d);
                    cr_assert_eq((shard.first - range.first) % 64, 0, "256 bytes");
                }
                next += shard.count;
                if (shard.count > most) most = shard.count;
            }
            cr_assert_eq(next, range.first + range.count, "%zu over %d", counts[c], n);
            cr_assert_leq(most, counts[c] / (size_t)adders + 128, "%zu over %d: not even",
                          counts[c], n);
        }
}

enum { COUNT = 3000, RANGES = 3 };

/* The second range has fewer elements than there are devices, so some add nothing of it. */
static const struct param_range ranges[RANGES] = {{0, 1990}, {2048, 70}, {2176, 700}};

static void reduce_and_compare(int n, enum device_kind kind, int upwards) {
    struct bed bed;
    /* a GPU's workspace is there too */
    make_bed(&bed, n, kind, (size_t)(kind == DEVICE_CUDA ? 160 : 8) << 20);
    static float host[8][COUNT], want[COUNT], got[COUNT];
    float *arenas[8];
    struct sharded_reduce shards;
    /* 1: the first half in the fold order, the second one term after another */
    const int other = n > 2 && upwards == (kind != DEVICE_CUDA);
    struct sum_piece piece[2] = {{0, COUNT / 2, fold_order(n)}, {COUNT / 2, COUNT / 2, {.n = n}}};
    const struct sum_pieces sums = {.piece = piece, .count = 2};
    for (int k = 1; k < n; k++)
        piece[1].order.add[k - 1] = (struct addition){0, (uint8_t)k};
    for (int r = 0; r < n; r++) {
        fill_random(host[r], COUNT, (uint64_t)r + 5);
        arenas[r] = alloc(&bed, r, sizeof host[r]);
    }
    cr_assert_eq(
        sharded_reduce_init(&shards, &bed.group, arenas, ranges, RANGES, other ? &sums : NULL), OK,
        "%s", error_message());
    for (int round = 0; round < 2; round++) {
        memcpy(want, host[0], sizeof want);
        for (int i = 0; i < RANGES; i++)
            for (size_t e = ranges[i].first; e < ranges[i].first + ranges[i].count; e++) {
                float terms[8];
                for (int r = 0; r < n; r++)
                    terms[r] = host[r][e];
                const struct sum_order *order = &piece[other && e >= COUNT / 2].order;
                for (int k = 0; k < n - 1; k++)
                    terms[order->add[k].to] += terms[order->add[k].from];
                want[e] = terms[0];
            }
        for (int r = 0; r < n; r++)
            put(&bed, r, arenas[r], host[r], sizeof host[r]);
        all(&bed, device_group_ready);
        for (int i = 0; i < n; i++)
            cr_assert_eq(sharded_reduce_add(&shards, turn(n, i, upwards)), OK, "%s",
                         error_message());
        cr_assert_eq(sharded_reduce_collect(&shards), OK, "%s", error_message());
        all(&bed, device_group_follow);
        /* The next step overwrites the gradients. It must come after all that reads them. */
        static float noise[COUNT];
        fill_random(noise, COUNT, 99);
        for (int r = 1; r < n; r++)
            put(&bed, r, arenas[r], noise, sizeof noise);
        for (int r = 1; upwards && r < n; r++)
            cr_assert_eq(stream_sync(device_compute(bed.device[r])), OK);
        get(&bed, 0, got, arenas[0], sizeof got);
        for (int e = 0; e < COUNT; e++)
            cr_assert(memcmp(&got[e], &want[e], sizeof(float)) == 0, "%d devices, element %d", n,
                      e);
        for (int r = 1; r < n; r++)
            cr_assert_eq(stream_sync(device_compute(bed.device[r])), OK);
    }
    sharded_reduce_free(&shards);
    for (int r = 0; r < n; r++)
        device_free(bed.device[r], arenas[r]);
    free_bed(&bed);
}

Test(shards, sums_have_the_bits_of_one_sum, .timeout = 60) {
    for (int c = 0; c < DEVICE_COUNTS && device_counts[c] <= most_devices(); c++)
        for (int upwards = 0; upwards < 2; upwards++) {
            reduce_and_compare(device_counts[c], DEVICE_HOST, upwards);
            reduce_and_compare(device_counts[c], DEVICE_HOST_LATE, upwards);
        }
}

Test(shards, sums_on_gpus, .timeout = 120) {
    static const char *const gpus[] = {"1", "4"};
    for (int peers = 0; peers < 2; peers++)
        for (int g = 0; g < 2; g++) {
            int count;
            setenv("EMULATED_GPUS", gpus[g], 1);
            setenv("EMULATED_PEER", peers ? "1" : "0", 1);
            if (device_probe(DEVICE_CUDA, &count)) cr_skip_test("%s", error_message());
            reduce_and_compare(4, DEVICE_CUDA, 0);
        }
}
