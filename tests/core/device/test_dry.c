/* Dry devices: the same calls on a dry device and on an emulated one leave the same ledger, traffic
 * and spans, and the same error when memory runs out. A dry address has no memory. */
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/core/device/shared.h"

enum { COUNT = 5000, BYTES = COUNT * sizeof(float), HELD = 64 };

/* Allocates and frees pieces of all sizes until memory has run out several times. */
static void fill(struct device *d, char text[512]) {
    void *held[HELD] = {NULL};
    unsigned seed = 3;
    for (int round = 0; round < 2000; round++) {
        int slot = rand_r(&seed) % HELD;
        size_t bytes = (size_t)(rand_r(&seed) % 400000);
        device_free(d, held[slot]);
        int code = device_alloc(d, &held[slot], bytes, (enum mem_cause)(slot % MEM_CAUSE_COUNT));
        if (code) snprintf(text, 512, "%d: %s", round, error_message());
    }
    for (int i = 0; i < HELD; i++)
        device_free(d, held[i]);
}

/* Copies of each direction, a write, an op, and events between the streams. */
static void work(struct device *d, struct device *peer, float *host) {
    struct stream *compute = device_compute(d), *copy = device_copy(d);
    void *x, *y, *there;
    struct event *copied;
    int dims = COUNT;
    MUST(device_alloc(d, &x, BYTES, MEM_INPUT));
    MUST(device_alloc(d, &y, BYTES, MEM_PARAMS));
    MUST(device_alloc(peer, &there, BYTES, MEM_GRADS));
    MUST(event_create(d, &copied));
    stream_set_phase(copy, PHASE_INPUT, 7);
    MUST(copy_to_device(copy, x, host, BYTES));
    MUST(event_record(copied, copy));
    MUST(stream_sync(copy)); /* a wait that blocks would be a span */
    MUST(stream_wait(compute, copied));
    stream_set_phase(compute, PHASE_FORWARD, 7);
    MUST(copy_to_device(compute, y, host, BYTES));
    struct op_args args = {
        .in = {tensor_plain(y, DTYPE_F32, 1, &dims), tensor_plain(x, DTYPE_F32, 1, &dims)},
        .out[0] = tensor_plain(y, DTYPE_F32, 1, &dims)};
    MUST(launch(compute, OP_ADD_FORWARD, &args));
    MUST(copy_peer(compute, peer, there, d, y, BYTES / 2));
    MUST(stream_write(compute, y, host, 64));
    MUST(copy_to_host(compute, host, y, BYTES));
    MUST(stream_sync(compute));
    MUST(stream_sync(copy));
    cr_assert(event_done(copied));
    event_destroy(copied);
}

static void compare_spans(struct stream *dry, struct stream *real) {
    struct span_log *a = stream_spans(dry), *b = stream_spans(real);
    cr_assert_eq(a->count, b->count, "%zu and %zu", a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        const struct span *x = &a->spans[i], *y = &b->spans[i];
        cr_expect(!strcmp(x->name, y->name) && x->bytes == y->bytes && x->flops == y->flops &&
                      x->phase == y->phase && x->step == y->step && x->lane == y->lane,
                  "%s of %llu bytes", x->name, (unsigned long long)x->bytes);
        cr_expect(!x->start_ns && !x->end_ns && !x->cpu_ns, "no time passes");
    }
}

Test(dry, counts_as_the_emulated_device_does, .timeout = 30) {
    static const enum device_kind kinds[] = {DEVICE_DRY, DEVICE_HOST};
    struct device *d[2], *peer[2];
    char full[2][512] = {"", ""};
    static float host[2][COUNT];
    for (int i = 0; i < 2; i++) {
        d[i] = test_open(kinds[i], 0);
        peer[i] = test_open(kinds[i], 1);
        for (int k = 0; k < COUNT; k++)
            host[i][k] = 1;
        fill(d[i], full[i]);
        work(d[i], peer[i], host[i]);
    }
    cr_expect(device_is_dry(d[0]) && !device_is_dry(d[1]));
    cr_expect_str_eq(full[0], full[1]);
    cr_expect(strstr(full[0], "largest piece"), "it ran out of memory: %s", full[0]);
    struct ledger a = device_ledger(d[0]), b = device_ledger(d[1]);
    cr_expect(!memcmp(&a, &b, sizeof a));
    cr_expect(!memcmp(device_traffic(d[0]), device_traffic(d[1]), sizeof(struct traffic)));
    cr_expect(device_traffic(d[0])->bytes[LINK_HOST][0] > 2 * BYTES);
    compare_spans(device_compute(d[0]), device_compute(d[1]));
    compare_spans(device_copy(d[0]), device_copy(d[1]));
    cr_expect(host[0][0] == 0 && host[0][COUNT - 1] == 0, "a copy to the host writes zeros");
    cr_expect_eq(host[1][COUNT - 1], 2);
    for (int i = 0; i < 2; i++) {
        device_close(d[i]);
        device_close(peer[i]);
    }
}

/* Larger than the machine; and each device has addresses of its own. */
Test(dry, nothing_lies_behind_its_addresses, .timeout = 30) {
    struct device_config config = test_config(DEVICE_DRY, MAX_DEVICES - 1);
    struct device *last, *first = test_open(DEVICE_DRY, 0);
    unsigned char resident;
    void *x, *y, *pinned;
    config.memory_bytes = 1ull << 48;
    MUST(device_open(&last, &config));
    MUST(device_alloc(last, &x, 1ull << 47, MEM_PARAMS));
    MUST(device_alloc(first, &y, 4096, MEM_PARAMS));
    MUST(device_host_alloc(first, &pinned, 1ull << 40));
    cr_expect(x != y && pinned != x && pinned != y);
    void *const all[] = {x, y, pinned};
    for (int i = 0; i < 3; i++)
        cr_expect_neq(mincore((void *)((uintptr_t)all[i] & ~(uintptr_t)4095), 1, &resident), 0);
    device_host_free(first, pinned);
    device_close(first);
    device_close(last);
}
