/* The parts of the GPU's device layer that need no GPU: the arithmetic of its clock, its
 * handles, the gaps of its memory, and the message of a refusal. The machine's GPUs are
 * hidden first, so these tests give the same result everywhere. duet doctor checks GPUs, and
 * tests/app/cli/test_bad_input.c checks what the command prints without one. */
#include <sys/wait.h>

#include "device/allocations.h"
#include "device/event_clock.h"
#include "tests/core/device/shared.h"

static const int64_t MS = 1000000;

/* ---- clock ---- */

Test(event_clock, the_narrowest_look_at_the_host_wins, .timeout = 10) {
    const int64_t before[4] = {1000, 5000, 9000, 20000}, after[4] = {4000, 6000, 12000, 21001};
    struct event_clock clock = {0};
    cr_assert_eq(event_clock_anchor(&clock, before, after, 4), 1);
    cr_assert_eq(clock.anchor_ns, 5500);
    cr_assert_eq(clock.window_ns, 1000);
    cr_assert_eq(event_clock_anchor(&clock, before, after, 1), 0);
    cr_assert_eq(clock.anchor_ns, 2500);
}

Test(event_clock, spans_lie_where_the_events_were, .timeout = 10) {
    const int64_t before = 7000 * MS, after = before + 10000;
    struct event_clock clock = {0};
    int64_t start, end;
    event_clock_anchor(&clock, &before, &after, 1);
    event_clock_span(&clock, 2.5f, 0.25f, &start, &end);
    cr_assert_eq(start, before + 5000 + 5 * MS / 2);
    cr_assert_eq(end, start + MS / 4);
    event_clock_span(&clock, 2.75f, 0.001f, &start, &end);
    cr_assert_eq(start, before + 5000 + 11 * MS / 4);
}

Test(event_clock, spans_of_a_lane_never_overlap_nor_run_backwards, .timeout = 10) {
    int64_t before = 1000 * MS, after = before, start, end, last;
    struct event_clock clock = {0};
    event_clock_anchor(&clock, &before, &after, 1);
    event_clock_span(&clock, 10, 5, &start, &last);
    before = after = 1014 * MS; /* by the new anchor the time is 1 ms less than by the old one */
    event_clock_anchor(&clock, &before, &after, 1);
    event_clock_span(&clock, 0, 0.5f, &start, &end);
    cr_assert_eq(start, last);
    cr_assert_geq(end, start, "an interval that was cut to nothing");
    event_clock_span(&clock, 2, -0.0005f, &start, &end);
    cr_assert_eq(start, 1016 * MS);
    cr_assert_eq(end, start, "two events at once may measure a little below 0");
}

Test(event_clock, an_anchor_grows_old_after_a_second, .timeout = 10) {
    const int64_t at = 5 * MS;
    struct event_clock clock = {0};
    event_clock_anchor(&clock, &at, &at, 1);
    cr_assert(!event_clock_is_old(&clock, at + 999 * MS));
    cr_assert(event_clock_is_old(&clock, at + 1001 * MS));
}

/* ---- handles ---- */

Test(gpu_handle, an_emulated_device_refuses_it, .timeout = 10) {
    struct device *d = test_open(DEVICE_HOST, 0);
    struct memory_handle handle;
    void *memory;
    int fd;
    MUST(device_export(d, test_floats(d, 10), &handle, &fd));
    memcpy(handle.kind, "cuda", 5);
    cr_assert_eq(device_import(d, &handle, fd, &memory), ERR_FAILED);
    MUST_SAY("another kind");
    device_close(d);
}

/* ---- the gaps of memory that the CPU must not touch ---- */

Test(allocations, they_never_touch_what_they_divide, .timeout = 10) {
    struct allocations all = {0};
    struct allocation removed;
    size_t largest;
    char *nowhere = (char *)(uintptr_t)0x100000000000u; /* inaccessible: any access would crash */
    for (size_t i = 0; i < 3; i++) {
        char *at = allocations_gap(&all, nowhere, 4096, i < 2 ? 1024 : 2048, &largest);
        cr_assert_eq(at, nowhere + i * 1024);
        MUST(allocations_add(&all, at, i < 2 ? 1024 : 2048, MEM_PARAMS));
    }
    cr_assert_null(allocations_gap(&all, nowhere, 4096, 256, &largest));
    cr_assert_eq(largest, 0);
    cr_assert(allocations_remove(&all, nowhere + 1024, &removed));
    cr_assert_null(allocations_gap(&all, nowhere, 4096, 2048, &largest));
    cr_assert_eq(largest, 1024);
    cr_assert(allocations_remove(&all, nowhere, &removed));
    cr_assert_eq(allocations_gap(&all, nowhere, 4096, 2048, &largest), nowhere, "gaps join");
    allocations_free(&all);
}

/* ---- refusals ---- */

/* CUDA reads this variable at its first call, which has not happened yet. */
static void hide_gpus(void) {
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
}

static int lines(const char *text) {
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

Test(cuda_refusal, without_a_gpu_probe_and_open_say_why, .timeout = 30) {
    struct device_config config = test_config(DEVICE_CUDA, 0);
    struct device *device = NULL;
    int count = 7;
    hide_gpus();
    cr_assert_eq(device_probe(DEVICE_CUDA, &count), ERR_USAGE);
    cr_assert_eq(count, 0);
    MUST_SAY("device cuda: ");
    MUST_SAY("open devices of the kind \"cpu\"");
    cr_assert_eq(lines(error_message()), 0);
    cr_assert_eq(device_open(&device, &config), ERR_USAGE);
    MUST_SAY("open devices of the kind \"cpu\"");
    cr_assert_null(device);
    MUST(device_probe(DEVICE_HOST, &count));
    cr_assert_eq(count, MAX_DEVICES);
}
