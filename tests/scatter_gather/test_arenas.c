/* Compares broadcast and reduce-add on emulated devices, prompt and late, with the fold over whole
 * arrays: every bit, the bytes of every link, and groups that begin and end inside the arena. */
#include "tests/scatter_gather/bed.h"

#include "base/fold.h"

/* Cuts [0, count) into pieces of uneven lengths and groups them, so that groups end inside it. */
static int cut(size_t count, size_t limit_bytes, struct param_range *groups) {
    static struct param_range pieces[64];
    int n = 0;
    size_t first = 0, lengths[] = {1, count / 3, count / 7 + 1, 13, count / 5, count};
    for (int i = 0; i < 6 && first < count; i++) {
        size_t left = count - first, length = lengths[i] < left ? lengths[i] : left;
        if (length) pieces[n++] = (struct param_range){first, length};
        first += length;
    }
    return coalesce(pieces, n, limit_bytes, groups);
}

/* The judge: the fold over whole arrays. */
static void fold_arrays(float **x, int n, size_t count) {
    for (struct fold f = fold_begin(n); fold_next(&f);)
        for (size_t i = 0; i < count; i++)
            x[f.to][i] += x[f.from][i];
}

/* GPU 0 cannot read a GPU out of its reach, so what was added last must have come by way of
 * staging. (The emulated runtime would let a kernel read it all the same.) */
static void check_staging(struct bed *bed, const struct reduce_plan *plan, struct param_range last,
                          float *const *host, float *got) {
    const char *peers = getenv("EMULATED_PEER");
    int cuda = device_config(bed->device[0])->kind == DEVICE_CUDA;
    for (int r = 1; r < bed->n; r++) {
#ifdef CUDA_EMULATION
        cr_assert_eq(plan->staging[r] != NULL, cuda && peers && !strcmp(peers, "0"), "device %d",
                     r);
#else
        (void)cuda, (void)peers;
#endif
        if (!plan->staging[r]) continue;
        get(bed, 0, got, plan->staging[r], last.count * sizeof(float));
        cr_assert(!memcmp(got, host[r] + last.first, last.count * sizeof(float)),
                  "device %d's part was not brought", r);
    }
}

/* In halves: the first in the fold order, the second one term after another. x[0]: the sum. */
static struct sum_pieces halves(int n, size_t count, struct sum_piece piece[2], float **x) {
    for (int p = 0; p < 2; p++) {
        struct sum_order *order = &piece[p].order;
        piece[p] =
            (struct sum_piece){p * (count / 2), p ? count - count / 2 : count / 2, fold_order(n)};
        for (int k = 0; k < n - 1; k++) {
            if (p) order->add[k] = (struct addition){0, (uint8_t)(k + 1)};
            for (size_t i = 0; x && i < piece[p].count; i++)
                x[order->add[k].to][piece[p].first + i] +=
                    x[order->add[k].from][piece[p].first + i];
        }
    }
    return (struct sum_pieces){.piece = piece, .count = 2};
}

static void broadcast_and_reduce(struct bed *bed, size_t count, size_t limit_bytes, int upwards) {
    int n = bed->n;
    size_t bytes = count * sizeof(float), moved = 0;
    float *host[MOST_DEVICES], *got = malloc(bytes + 1), *arenas[MOST_DEVICES];
    struct param_range groups[64];
    struct reduce_plan plan;
    int group_count = cut(count, limit_bytes, groups), other = n > 2 && upwards;
    struct sum_piece pieces[2];
    const struct sum_pieces sums = halves(n, count, pieces, NULL);
    for (int g = 0; g < group_count; g++)
        moved += groups[g].count * sizeof(float);
    cr_assert_eq(moved, bytes, "the pieces have no gaps");
    for (int r = 0; r < n; r++) {
        host[r] = malloc(bytes + 1);
        fill_random(host[r], count, count * 64 + (uint64_t)r);
        arenas[r] = alloc(bed, r, bytes);
    }
    forget_traffic(bed);
    for (int r = 0; r < n; r++)
        put(bed, r, arenas[r], host[r], bytes);

    all(bed, device_group_ready);
    cr_assert_eq(reduce_plan_init(&plan, &bed->group, 0, arenas, count, other ? &sums : NULL), OK,
                 "%s", error_message());
    cr_assert_eq(reduce_add_coalesced(&plan, groups, group_count), OK, "%s", error_message());
    all(bed, device_group_follow);
    /* unchanged, then overwritten: device 0 must have read it before */
    for (int i = 0; i < n; i++) {
        int r = turn(n, i, upwards);
        if (r == 0) {
            cr_assert_eq(stream_sync(device_compute(bed->device[0])), OK, "%s", error_message());
            continue;
        }
        get(bed, r, got, arenas[r], bytes);
        cr_assert(memcmp(got, host[r], bytes) == 0, "reduce over %d changed device %d", n, r);
        put(bed, r, arenas[r], host[0], bytes);
        cr_assert_eq(stream_sync(device_compute(bed->device[r])), OK);
    }
    if (group_count > 0 && !other) check_staging(bed, &plan, groups[group_count - 1], host, got);
    if (other)
        halves(n, count, pieces, host);
    else
        fold_arrays(host, n, count);
    get(bed, 0, got, arenas[0], bytes);
    cr_assert(memcmp(got, host[0], bytes) == 0, "reduce over %d of %zu: other bits", n, count);
    uint64_t want[MOST_DEVICES][MOST_DEVICES] = {{0}};
    for (int r = 1; r < n; r++)
        want[r][0] = moved;
    check_traffic(bed, want, "reduce");
    reduce_plan_free(&plan);

    for (int r = 1; r < n; r++)
        put(bed, r, arenas[r], host[r], bytes);
    all(bed, device_group_ready);
    cr_assert_eq(broadcast_coalesced(&bed->group, arenas, groups, group_count), OK, "%s",
                 error_message());
    all(bed, device_group_follow);
    for (int i = 0; i < n; i++) {
        int r = turn(n, i, upwards);
        get(bed, r, got, arenas[r], bytes);
        cr_assert(memcmp(got, host[0], bytes) == 0,
                  "broadcast over %d of %zu: device %d has other bits", n, count, r);
    }
    for (int r = 1; r < n; r++)
        want[0][r] = moved;
    check_traffic(bed, want, "reduce and broadcast");
    for (int r = 0; r < n; r++) {
        device_free(bed->device[r], arenas[r]);
        free(host[r]);
    }
    free(got);
}

static void arena_grid(enum device_kind kind) {
    for (int d = 0; d < DEVICE_COUNTS && device_counts[d] <= most_devices(); d++) {
        int n = device_counts[d];
        struct bed bed;
        /* a GPU's workspace is there too */
        make_bed(&bed, n, kind, (size_t)(kind == DEVICE_CUDA ? 160 : 32) << 20);
        size_t counts[] = {0, 1, (size_t)n - 1, (size_t)n, (size_t)n + 1, 511, 512, 513, 1000};
        for (int i = 0; i < 9; i++) {
            broadcast_and_reduce(&bed, counts[i], COALESCE_BYTES, i % 2);
            broadcast_and_reduce(&bed, counts[i], 400, 1 - i % 2);
        }
        for (int upwards = 0; n == 3 && upwards < 2; upwards++) /* 11.4 MiB: two groups at least */
            broadcast_and_reduce(&bed, 3000000, COALESCE_BYTES, upwards);
        free_bed(&bed);
    }
}

Test(scatter_gather, sums_in_fold_order_and_broadcasts, .timeout = 120) {
    arena_grid(DEVICE_HOST);
}

Test(scatter_gather, sums_and_broadcasts_late, .timeout = 120) {
    arena_grid(DEVICE_HOST_LATE);
}

/* Devices with a GPU each, sharing two, and out of each other's reach, so that arenas go by way
 * of staging. */
static void gpu_grid(const char *gpus, const char *peers) {
    int count;
    setenv("EMULATED_GPUS", gpus, 1); /* only the emulated runtime reads it */
    setenv("EMULATED_PEER", peers, 1);
    if (device_probe(DEVICE_CUDA, &count)) cr_skip_test("%s", error_message());
    arena_grid(DEVICE_CUDA);
}

Test(scatter_gather, sums_and_broadcasts_on_gpus, .timeout = 120) {
    gpu_grid("8", "1");
}
Test(scatter_gather, sums_and_broadcasts_on_shared_gpus, .timeout = 120) {
    gpu_grid("2", "1");
}
Test(scatter_gather, sums_and_broadcasts_through_staging, .timeout = 120) {
    gpu_grid("8", "0");
}

/* Rounding shows the order on every second element: fold order and the order of ranks must give
 * different bits, or the test above could not tell them apart. Zeros are added too, where -0 + 0
 * is +0, as on a single device. */
Test(scatter_gather, the_order_shows_in_the_bits, .timeout = 30) {
    enum { N = 4, COUNT = 1000 };
    static float x[N][COUNT], tree[N][COUNT];
    float *pointers[N], *arenas[N];
    struct bed bed;
    int differ = 0;
    for (int r = 0; r < N; r++) {
        fill_random(x[r], COUNT, (uint64_t)r + 5);
        memcpy(tree[r], x[r], sizeof x[r]);
        pointers[r] = tree[r];
        arenas[r] = x[r];
    }
    fold_arrays(pointers, N, COUNT);
    for (int i = 0; i < COUNT; i++)
        differ += ((x[0][i] + x[1][i]) + x[2][i]) + x[3][i] != tree[0][i];
    cr_assert_gt(differ, COUNT / 20,
                 "only %d of %d sums depend on the order: livelier data is needed", differ, COUNT);

    struct reduce_plan plan;
    /* only the arithmetic: the arrays need not be in device memory */
    make_bed(&bed, N, DEVICE_HOST, 1);
    cr_assert_eq(reduce_plan_init(&plan, &bed.group, 0, arenas, COUNT, NULL), OK);
    float outside = x[0][COUNT - 1];
    x[0][0] = -0.0f, x[1][0] = x[2][0] = x[3][0] = 0.0f;
    reduce_add_piece(&plan, &(struct sum_piece){0, COUNT - 1, fold_order(N)});
    cr_assert(!signbit(x[0][0]), "-0 + 0 is +0");
    cr_assert(memcmp(x[0] + 1, tree[0] + 1, (COUNT - 2) * sizeof(float)) == 0);
    cr_assert_eq(x[0][COUNT - 1], outside, "nothing beyond the range is touched");
    struct param_range longer = {0, COUNT + 1};
    cr_assert_eq(reduce_add_coalesced(&plan, &longer, 1), ERR_FAILED);
    cr_assert(strstr(error_message(), "a range of 1001 elements"), "%s", error_message());
    reduce_plan_free(&plan);
    free_bed(&bed);
}
