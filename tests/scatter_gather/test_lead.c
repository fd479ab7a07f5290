/* A device other than 0 leads. It gathers and scatters on its own stream. When device 0 leads
 * again, streams that follow device 0 also follow that device. */
#include "tests/scatter_gather/bed.h"

enum { N = 4, ROWS = 3, WIDTH = 50, SHARE = ROWS * WIDTH };

static struct bed bed;
static float *rows[N], *back[N], *whole;
static float host[N][SHARE], junk[SHARE];

static void open_bed(enum device_kind kind, int lead) {
    make_bed(&bed, N, kind, (size_t)(kind == DEVICE_CUDA ? 160 : 4) << 20);
    whole = alloc(&bed, lead, sizeof host);
    for (int r = 0; r < N; r++) {
        /* the leading device's own rows are where the rows of device 0 will go */
        rows[r] = r == lead ? whole : alloc(&bed, r, sizeof host[r]);
        back[r] = alloc(&bed, r, sizeof host[r]);
        fill_random(host[r], SHARE, (uint64_t)r + 1);
        put(&bed, r, rows[r], host[r], sizeof host[r]);
    }
    fill_random(junk, SHARE, 77);
}

static void close_bed(int lead) {
    for (int r = 0; r < N; r++) {
        cr_assert_eq(stream_sync(device_compute(bed.device[r])), OK, "%s", error_message());
        if (r != lead) device_free(bed.device[r], rows[r]);
        device_free(bed.device[r], back[r]);
    }
    device_free(bed.device[lead], whole);
    free_bed(&bed);
}

/* `read`: the device whose rows are read first, before anything else is waited for. */
static void gather_and_scatter(enum device_kind kind, int lead, int read) {
    static const int sizes[N] = {ROWS, ROWS, ROWS, ROWS};
    struct tensor inputs[N], all_rows;
    float got[SHARE];
    void *parts[N];
    open_bed(kind, lead);
    all_rows = tensor_plain(whole, DTYPE_F32, 2, (int[]){N * ROWS, WIDTH});
    for (int r = 0; r < N; r++) {
        inputs[r] = tensor_plain(rows[r], DTYPE_F32, 2, (int[]){ROWS, WIDTH});
        parts[r] = back[r];
    }
    all(&bed, device_group_ready);
    cr_assert_eq(device_group_lead(&bed.group, lead), OK, "%s", error_message());
    cr_assert_eq(gather(&bed.group, inputs, sizes, &all_rows), OK, "%s", error_message());
    cr_assert_eq(scatter(&bed.group, &all_rows, sizes, parts), OK, "%s", error_message());
    cr_assert_eq(device_group_lead(&bed.group, 0), OK, "%s", error_message());
    all(&bed, device_group_follow);
    for (int r = 0; r < N; r++)
        if (r != lead) put(&bed, r, rows[r], junk, sizeof junk); /* must run after the gather */
    for (int i = 0; i < N; i++) {
        int r = (read + i) % N;
        get(&bed, r, got, back[r], sizeof got);
        cr_assert(!memcmp(got, host[r], sizeof got), "device %d leads: device %d has other rows",
                  lead, r);
    }
    for (int d = 0; d < N; d++)
        for (int a = 0; a < N; a++)
            for (int b = 0; b < N; b++) {
                int moves = d == lead && a != b && (a == lead || b == lead);
                cr_assert_eq(device_traffic(bed.device[d])->bytes[a][b], moves ? sizeof got : 0,
                             "device %d charged for %d -> %d", d, a, b);
            }
    close_bed(lead);
}

Test(lead, another_device_gathers_and_scatters, .timeout = 60) {
    for (int lead = 0; lead < N; lead++)
        for (int read = 0; read < N; read++) {
            gather_and_scatter(DEVICE_HOST, lead, read);
            gather_and_scatter(DEVICE_HOST_LATE, lead, read);
        }
}

Test(lead, another_gpu_gathers_and_scatters, .timeout = 120) {
    int count;
    setenv("EMULATED_GPUS", "2", 1);
    if (device_probe(DEVICE_CUDA, &count)) cr_skip_test("%s", error_message());
    for (int lead = 0; lead < N; lead++)
        gather_and_scatter(DEVICE_CUDA, lead, (lead + 1) % N);
}
