/* Compares scatter and gather on emulated devices, prompt and late, with simple loops: every byte,
 * every link. */
#include "tests/scatter_gather/bed.h"

/* Scatters rows of `width` elements, lets every device change its bytes, gathers them into other
 * memory. */
static void there_and_back(struct bed *bed, enum dtype dtype, int width, const int *sizes,
                           int in_place) {
    int upwards = in_place; /* every shape is read in both orders */
    int n = bed->n, offsets[MOST_DEVICES + 1], dims[2];
    cr_assert_eq(row_offsets(sizes, n, offsets), 0);
    size_t row_bytes = (size_t)width * dtype_bytes(dtype);
    size_t bytes = (size_t)offsets[n] * row_bytes;
    unsigned char *source = malloc(bytes + 1), *copy = malloc(bytes + 1), *junk = malloc(bytes + 1);
    uint64_t seed = (uint64_t)offsets[n] * 31 + (uint64_t)n;
    for (size_t i = 0; i < bytes; i++)
        source[i] = (unsigned char)next_random(&seed);
    memset(junk, 0xab, bytes + 1);

    void *parts[MOST_DEVICES];
    struct tensor inputs[MOST_DEVICES];
    dims[0] = offsets[n];
    dims[1] = width;
    struct tensor whole = tensor_plain(alloc(bed, 0, bytes), dtype, 2, dims);
    struct tensor back = tensor_plain(alloc(bed, 0, bytes), dtype, 2, dims);
    for (int r = 0; r < n; r++) {
        parts[r] = r == 0 && in_place ? whole.data : alloc(bed, r, (size_t)sizes[r] * row_bytes);
        inputs[r] = tensor_plain(parts[r], dtype, 2, (int[]){sizes[r], width});
    }
    forget_traffic(bed);
    for (int r = 0; r < n; r++) /* earlier work of device r on the same memory */
        if (parts[r] != whole.data) put(bed, r, parts[r], junk, (size_t)sizes[r] * row_bytes);
    put(bed, 0, back.data, junk, bytes);
    put(bed, 0, whole.data, source, bytes);

    all(bed, device_group_ready);
    cr_assert_eq(scatter(&bed->group, &whole, sizes, parts), OK, "%s", error_message());
    all(bed, device_group_follow);
    for (int i = 0; i < n; i++) {
        int r = turn(n, i, upwards);
        get(bed, r, copy, parts[r], (size_t)sizes[r] * row_bytes);
        cr_assert(memcmp(copy, source + (size_t)offsets[r] * row_bytes,
                         (size_t)sizes[r] * row_bytes) == 0,
                  "scatter over %d: device %d has other bytes", n, r);
    }
    uint64_t want[MOST_DEVICES][MOST_DEVICES] = {{0}};
    for (int r = 1; r < n; r++)
        want[0][r] = (uint64_t)sizes[r] * row_bytes;
    check_traffic(bed, want, "scatter");

    for (size_t i = 0; i < bytes; i++)
        source[i] ^= 0x5a;
    for (int r = 0; r < n; r++)
        put(bed, r, parts[r], source + (size_t)offsets[r] * row_bytes,
            (size_t)sizes[r] * row_bytes);
    all(bed, device_group_ready);
    cr_assert_eq(gather(&bed->group, inputs, sizes, &back), OK, "%s", error_message());
    all(bed, device_group_follow);
    for (int r = 1; r < n; r++)
        /* must not overtake the gather */
        put(bed, r, parts[r], junk, (size_t)sizes[r] * row_bytes);
    for (int i = 0; i < n; i++)
        cr_assert_eq(stream_sync(device_compute(bed->device[turn(n, i, upwards)])), OK, "%s",
                     error_message());
    get(bed, 0, copy, back.data, bytes);
    cr_assert(memcmp(copy, source, bytes) == 0, "gather over %d of %d rows: other bytes", n,
              offsets[n]);
    for (int r = 1; r < n; r++)
        want[r][0] = (uint64_t)sizes[r] * row_bytes;
    check_traffic(bed, want, "scatter and gather");

    device_free(bed->device[0], whole.data);
    device_free(bed->device[0], back.data);
    for (int r = 0; r < n; r++)
        if (parts[r] != whole.data) device_free(bed->device[r], parts[r]);
    free(source);
    free(copy);
    free(junk);
}

/* ceil(rows / n) rows each, until they are used up: the last devices may get none. */
static void equal_shares(int rows, int n, int *sizes) {
    int share = (rows + n - 1) / n;
    for (int r = 0; r < n; r++, rows -= sizes[r - 1])
        sizes[r] = rows < share ? rows : share;
}

static void scatter_grid(enum device_kind kind) {
    for (int d = 0; d < DEVICE_COUNTS && device_counts[d] <= most_devices(); d++) {
        int n = device_counts[d], sizes[MOST_DEVICES];
        struct bed bed;
        make_bed(&bed, n, kind, (size_t)64 << 20);
        int rows[] = {0, 1, n - 1, n, n + 1, 1000};
        for (int i = 0; i < 6; i++)
            for (int in_place = 0; in_place < 2; in_place++) {
                equal_shares(rows[i], n, sizes);
                there_and_back(&bed, DTYPE_F32, 28 * 28, sizes, in_place);
                there_and_back(&bed, DTYPE_I32, 1, sizes, in_place);
                there_and_back(&bed, DTYPE_F64, 3, sizes, in_place);
                for (int r = 0; r < n; r++)
                    sizes[r] = (r * 7 + rows[i]) % 5; /* uneven, empty ones in the middle */
                there_and_back(&bed, DTYPE_F32, 10, sizes, in_place);
            }
        equal_shares(test_short() ? 300000 : 3000000, n, sizes);
        there_and_back(&bed, DTYPE_F32, 1, sizes, 1);
        free_bed(&bed);
    }
}

Test(scatter_gather, scatters_and_gathers_every_byte, .timeout = 120) {
    scatter_grid(DEVICE_HOST);
}

Test(scatter_gather, scatters_and_gathers_late, .timeout = 120) {
    scatter_grid(DEVICE_HOST_LATE);
}

Test(scatter_gather, wrong_sizes_and_shapes_are_named, .timeout = 30) {
    struct bed bed;
    make_bed(&bed, 2, DEVICE_HOST, 1 << 20);
    float *memory0 = alloc(&bed, 0, 4096), *memory1 = alloc(&bed, 1, 4096);
    struct tensor whole = tensor_plain(memory0, DTYPE_F32, 2, (int[]){5, 10});
    void *parts[] = {memory0, memory1};
    cr_assert_eq(scatter(&bed.group, &whole, (int[]){3, 3}, parts), ERR_FAILED);
    cr_assert(strstr(error_message(), "scatter: 5 rows"), "%s", error_message());

    struct tensor inputs[] = {tensor_plain(memory0 + 512, DTYPE_F32, 2, (int[]){3, 10}),
                              tensor_plain(memory1, DTYPE_F32, 2, (int[]){2, 9})};
    cr_assert_eq(gather(&bed.group, inputs, (int[]){3, 2}, &whole), ERR_FAILED);
    cr_assert(strstr(error_message(),
                     "Gather got an input of invalid size: got [2, 9], but expected [2, 10]"),
              "%s", error_message());
    cr_assert(strstr(error_message(), "from cpu(1)"), "%s", error_message());
    inputs[1] = tensor_plain(memory1, DTYPE_F32, 3, (int[]){2, 5, 2});
    cr_assert_eq(gather(&bed.group, inputs, (int[]){3, 2}, &whole), ERR_FAILED);
    cr_assert(strstr(error_message(), "got [2, 5, 2], but expected [2, 10]"), "%s",
              error_message());
    inputs[1] = tensor_plain(memory1, DTYPE_F32, 2, (int[]){1, 10});
    cr_assert_eq(gather(&bed.group, inputs, (int[]){3, 2}, &whole), ERR_FAILED,
                 "recorded sizes hold");
    cr_assert(strstr(error_message(), "got [1, 10], but expected [2, 10]"), "%s", error_message());
    inputs[1] = tensor_plain(memory1, DTYPE_I32, 2, (int[]){2, 10});
    cr_assert_eq(gather(&bed.group, inputs, (int[]){3, 2}, &whole), ERR_FAILED, "another type");
    cr_assert_eq(gather(&bed.group, inputs, (int[]){3, 1}, &whole), ERR_FAILED,
                 "sizes that do not sum");

    inputs[1] = tensor_plain(memory1, DTYPE_F32, 2, (int[]){2, 10});
    cr_assert_eq(gather(&bed.group, inputs, (int[]){3, 2}, &whole), OK,
                 "and the right ones pass: %s", error_message());
    device_free(bed.device[0], memory0);
    device_free(bed.device[1], memory1);
    free_bed(&bed);
}

Test(scatter_gather, a_group_has_1_to_64_devices, .timeout = 30) {
    struct device_group group;
    cr_assert_eq(device_group_init(&group, 0, NULL), ERR_USAGE);
    cr_assert_eq(device_group_init(&group, 65, NULL), ERR_USAGE);
    cr_assert(strstr(error_message(), "65"), "%s", error_message());
    device_group_free(&group);
}
