/* Failures in DP: a replica without memory, wrong set-ups, a thread that does not return. Nothing
 * hangs, nothing leaks (rig_free checks every ledger), and the parameters are those from before the
 * step. */
#include "tests/dp/rig.h"

#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "dp/worker.h"

/* ---- a replica runs out of memory ---- */

static void reopen(struct rig *rig, int r, enum device_kind kind, int mib) {
    device_close(rig->device[r]);
    rig->device[r] = rig_device(r, kind, mib, 0);
}

enum { SHARE = 160 };

/* All parameters of device 0, one after another, after so many steps of 6 samples. */
static float *values_after(struct rig *rig, int steps, size_t *bytes) {
    struct param_set *set = &rig_replica(rig, 0)->params->set;
    float *values = malloc(*bytes = set->total_count * sizeof *values);
    for (int i = 0; i < steps; i++)
        cr_assert_eq(rig_run(rig, i, 6, 1), OK, "%s", error_message());
    for (int p = 0, at = 0; p < set->count; at += (int)set->param[p++].count)
        cr_assert_eq(param_read_value(set, p, values + at), OK, "%s", error_message());
    return values;
}

static void fail_then_go_on(enum device_kind kind, int loss_in_forward, int also) {
    struct rig rig, good;
    size_t bytes;
    rig_open(&rig, "lenet", 4, 4, kind, 0);
    rig_open(&good, "lenet", 4, 4, kind, 0);
    /* 6 MiB hold parameters, gradients, input and the activations of some images, not those of
     * 160. */
    reopen(&rig, 2, kind, 6);
    if (also) reopen(&rig, also, kind, 6);
    struct rig_config config = rig_config(&rig, loss_in_forward);
    config.max_samples = 4 * SHARE;
    cr_assert_eq(rig_init(&rig, &config), OK, "%s", error_message());
    config.max_samples = RIG_BATCH;
    cr_assert_eq(rig_init(&good, &config), OK, "%s", error_message());
    float *before = values_after(&rig, 0, &bytes);

    struct segments segments = {.count = 4, .n = 4 * SHARE};
    for (int v = 0; v < 4; v++)
        segments.seg[v] = (struct segment){v, SHARE};
    float *pixels = calloc(784 * 4 * SHARE, sizeof *pixels);
    int32_t *labels = calloc(4 * SHARE, sizeof *labels);
    struct batch batch = {.segments = segments, .pixels = pixels, .labels = labels};
    struct step_block step = rig_step(0, segments.n);
    for (int attempt = 0; attempt < 2; attempt++) {
        int code = rig_step_of(&rig, &step, &batch), lowest = also && also < 2 ? also : 2;
        char want[128];
        snprintf(want, sizeof want,
                 "Caught OutOfMemoryError in replica %d on device %d. out of memory on device %d",
                 lowest, lowest, lowest);
        cr_assert_eq(code, ERR_MEMORY, "%d: %s", code, error_message());
        cr_assert_eq(strncmp(error_message(), want, strlen(want)), 0, "%s", error_message());
        cr_assert_null(strchr(error_message(), '\n'), "one line");
        for (int r = 0; r < 4; r++)
            cr_assert_eq(stream_sync(device_compute(rig.device[r])), OK, "device %d: %s", r,
                         error_message());
    }
    float *after = values_after(&rig, 0, &bytes);
    cr_assert(memcmp(before, after, bytes) == 0, "the parameters changed");
    free(before), free(after);

    /* A batch that fits trains on, to the bits of a run that never failed. */
    float *want = values_after(&good, 2, &bytes);
    after = values_after(&rig, 2, &bytes);
    cr_assert(memcmp(want, after, bytes) == 0, "after the failure: other parameters");
    free(want), free(after);
    rig_free(&rig), rig_free(&good);
    free(pixels);
    free(labels);
}

Test(dp_failures, a_failing_replica_is_named, .timeout = 60) {
    fail_then_go_on(DEVICE_HOST, 0, 0);
    fail_then_go_on(DEVICE_HOST, 1, 0);
}

Test(dp_failures, a_failing_replica_is_named_late, .timeout = 60) {
    fail_then_go_on(DEVICE_HOST_LATE, 0, 0);
    fail_then_go_on(DEVICE_HOST_LATE, 1, 0);
}

Test(dp_failures, of_several_the_lowest_is_named, .timeout = 60) {
    fail_then_go_on(DEVICE_HOST, 0, 1);
    fail_then_go_on(DEVICE_HOST, 0, 3);
}

/* ---- wrong set-ups ---- */

Test(dp_failures, a_device_too_small_for_the_model_is_named, .timeout = 60) {
    struct rig rig;
    /* 1.2 MB of parameters, as much of gradients */
    rig_open(&rig, "convnet", 3, 3, DEVICE_HOST, 0);
    reopen(&rig, 1, DEVICE_HOST, 2);
    struct rig_config config = rig_config(&rig, 0);
    cr_assert_eq(rig_init(&rig, &config), ERR_MEMORY, "%s", error_message());
    cr_assert(strstr(error_message(), "out of memory on device 1"), "%s", error_message());
    cr_assert_null(rig.session.state);
    rig_free(&rig);
}

Test(dp_failures, numbers_that_do_not_fit, .timeout = 60) {
    struct rig rig;
    rig_open(&rig, "mlp", 2, 2, DEVICE_HOST, 0);
    struct rig_config good = rig_config(&rig, 0), bad;
    bad = good, bad.devices = 0;
    cr_assert_eq(rig_init(&rig, &bad), ERR_USAGE);
    bad = good, bad.devices = 65;
    cr_assert_eq(rig_init(&rig, &bad), ERR_USAGE);
    cr_assert(strstr(error_message(), "65"), "%s", error_message());
    bad = good, bad.output_device = 2;
    cr_assert_eq(rig_init(&rig, &bad), ERR_USAGE);
    cr_assert_str_eq(error_message(), "DataParallel: output device 2: expected 0 to 1");
    bad = good, bad.output_device = -1;
    cr_assert_eq(rig_init(&rig, &bad), ERR_USAGE);
    cr_assert_null(rig.session.state);
    cr_assert_eq(rig_init(&rig, &good), OK, "%s", error_message());
    rig_free(&rig);
}

/* Parameters that device 0 does not hold: PyTorch's error for a moved module. */
Test(dp_failures, a_module_that_lies_elsewhere, .timeout = 60) {
    struct rig rig;
    rig_open(&rig, "mlp", 2, 2, DEVICE_HOST, 0);
    struct rig_config config = rig_config(&rig, 0);
    cr_assert_eq(rig_init(&rig, &config), OK, "%s", error_message());
    struct param_set *first = &rig_replica(&rig, 0)->params->set, kept = *first;
    *first = rig_replica(&rig, 1)->params->set; /* as module.to(device 1) */
    cr_assert_eq(rig_run(&rig, 0, 8, 1), ERR_USAGE);
    cr_assert_str_eq(error_message(),
                     "module must have its parameters and buffers on device cpu(0) (device_ids[0]) "
                     "but found one of them on device: cpu(1)");
    cr_assert_eq(rig_run(&rig, 0, 8, 0), ERR_USAGE, "an evaluation asks it too");
    *first = kept;
    cr_assert_eq(rig_run(&rig, 0, 8, 1), OK, "%s", error_message());
    rig_free(&rig);
}

/* ---- the threads ---- */

struct job {
    int fails[RIG_DEVICES], ran[RIG_DEVICES];
    atomic_int stuck; /* 1: index 1 spins here */
};

static int work(void *context, int index) {
    struct job *job = context;
    while (index == 1 && atomic_load(&job->stuck))
        usleep(1000);
    job->ran[index]++;
    return job->fails[index] ? fail(job->fails[index], "failure of %d", index) : OK;
}

Test(dp_workers, run_every_index_and_name_the_lowest_failure, .timeout = 60) {
    for (int n = 1; n <= RIG_DEVICES; n++) {
        struct workers *workers;
        struct job job = {.stuck = 0};
        int64_t own_end;
        cr_assert_eq(workers_init(&workers, n, 20), OK, "%s", error_message());
        for (int round = 0; round < 50; round++) {
            for (int i = 0; i < n; i++)
                job.fails[i] = round % (i + 2) == 1 ? ERR_MEMORY : OK;
            int lowest = -1;
            for (int i = n - 1; i >= 0; i--)
                if (job.fails[i]) lowest = i;
            cr_assert_eq(workers_run(workers, work, &job, &own_end), lowest);
            cr_assert(own_end > 0 && own_end <= now_ns());
            for (int i = 0; i < n; i++) {
                char want[32] = "";
                if (job.fails[i]) snprintf(want, sizeof want, "failure of %d", i);
                cr_assert_eq(job.ran[i], round + 1, "index %d", i);
                cr_assert_eq(workers_code(workers, i), job.fails[i]);
                cr_assert_str_eq(workers_text(workers, i), want);
            }
        }
        cr_assert_eq(workers_free(workers), 1);
    }
    cr_assert_eq(workers_free(NULL), 1);
}

Test(dp_workers, a_lost_thread_is_a_timeout_and_takes_no_more_orders, .timeout = 60) {
    struct workers *workers;
    struct job job = {.stuck = 1};
    /* enough time for the others to end, even on a busy machine */
    cr_assert_eq(workers_init(&workers, 3, 1), OK);
    cr_assert_eq(workers_run(workers, work, &job, NULL), 1);
    cr_assert_eq(workers_code(workers, 1), ERR_TIMEOUT);
    cr_assert(strstr(workers_text(workers, 1), "not returned"), "%s", workers_text(workers, 1));
    cr_assert_eq(job.ran[2], 1, "the others were joined");
    cr_assert_eq(workers_run(workers, work, &job, NULL), 1, "no second order");
    cr_assert_eq(job.ran[0], 1);
    atomic_store(&job.stuck, 0);
    cr_assert_eq(workers_free(workers), 1, "it came back in the last second");
}
