/* Batches that a loader copies to a device ahead (its option `device`). They arrive while the
 * device's kernels are blocked, at most two ahead, and do not overwrite a place that kernels still
 * read. Training gives the bits of tensors that the program makes itself. With CUDA_EMULATION the
 * tests also run on GPUs. */
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "nn/tensor.h"
#include "tests/duet/shared.h"

enum { COUNT = 22, BATCH = 4, PLACES = 3, K = 6, OUTPUTS = 2, CLASSES = 3 };
static const int64_t PATIENCE_NS = 20 * 1000 * 1000 * (int64_t)1000;

static float numbers[COUNT * K], targets[COUNT * OUTPUTS];
static int32_t labels[COUNT];

static struct duet_data fill_data(int with_targets) {
    for (int i = 0; i < COUNT * K; i++)
        numbers[i] = (float)i / 50 - 1;
    for (int i = 0; i < COUNT * OUTPUTS; i++)
        targets[i] = (float)i / 20;
    for (int i = 0; i < COUNT; i++)
        labels[i] = i % CLASSES;
    return (struct duet_data){.count = COUNT,
                              .rank = 1,
                              .shape = {K},
                              .type = DUET_F32,
                              .samples = numbers,
                              .labels = with_targets ? NULL : labels,
                              .targets = with_targets ? targets : NULL,
                              .outputs = with_targets ? OUTPUTS : 0};
}

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 100 * 1000}, NULL);
}

/* ---- during the kernels ---- */

static atomic_int open_gate;

/* Stands in for kernels that take long: the compute stream goes no further. */
static int gate(void *args) {
    (void)args;
    int64_t end = now_ns() + PATIENCE_NS;
    while (!atomic_load(&open_gate) && now_ns() < end)
        nap();
    return atomic_load(&open_gate) ? DUET_OK : DUET_TIMEOUT;
}

/* The numbers of an emulated device's tensor, which lie in the host's memory: a read by the public
 * function would wait for the gate. */
static int shows(const duet_tensor *tensor, const float *want, size_t bytes) {
    return !memcmp(tensor->t.data, want, bytes);
}

Test(api_uploads, arrive_while_kernels_run, .timeout = 60) {
    struct duet_data data = fill_data(0);
    struct duet_batch b[PLACES + 1];
    duet_device *device;
    duet_dataset *set;
    duet_loader *loader;
    const size_t bytes = BATCH * K * sizeof(float);
    MUST(duet_devices_open(&device, 1, "cpu-async", API_MEMORY));
    MUST(duet_dataset_create(&set, &data));
    MUST(duet_loader_create(&loader, set,
                            &(struct duet_loader_options){.batch_size = BATCH, .device = device}));
    MUST(duet_loader_start(loader, 0));
    MUST(duet_loader_next(loader, &b[0]));
    MUST(duet_device_sync(device));
    cr_assert(shows(b[0].samples, numbers, bytes));
    atomic_store(&open_gate, 0);
    MUST(stream_call_host(device_compute(device_of(device)), "gate", 0, gate, "", 1));
    /* Each call returns once the previous batch has arrived, also one that was sent ahead. */
    for (int i = 1; i <= PLACES; i++) {
        MUST(duet_loader_next(loader, &b[i]));
        cr_assert(shows(b[i - 1].samples, numbers + (ptrdiff_t)(i - 1) * BATCH * K, bytes), "%d",
                  i);
    }
    /* The fourth goes to the place of the first, which kernels behind the gate may still read. */
    cr_assert_eq(b[PLACES].samples, b[0].samples);
    for (int i = 0; i < 20; i++, nap())
        cr_assert(shows(b[0].samples, numbers, bytes), "overwritten while it is read");
    atomic_store(&open_gate, 1);
    MUST(duet_device_sync(device));
    cr_assert(shows(b[PLACES].samples, numbers + (ptrdiff_t)PLACES * BATCH * K, bytes));
    duet_loader_free(loader); /* in the middle of an epoch, with batches in flight */
    duet_dataset_free(set);
    duet_devices_close(&device, 1);
}

/* ---- the same bits ---- */

struct run {
    duet_device *device;
    duet_params *params;
    duet_tape *tape;
    duet_dataset *set;
    int with_targets;
};

static int step(const struct run *r, const duet_tensor *x, const duet_tensor *y, int n) {
    duet_var *loss;
    int code = duet_tape_begin(r->tape, r->params, n, DUET_TRAIN);
    duet_var *scores = duet_linear(r->tape, duet_input(r->tape, x), 0, 1);
    if (r->with_targets)
        loss = duet_mse_loss(r->tape, scores, y, DUET_MEAN);
    else
        loss = duet_cross_entropy(r->tape, scores, y, DUET_MEAN, NULL);
    if (!code) code = duet_backward(r->tape, loss, NULL);
    return code ? code : duet_sgd(r->params, 0.5, 1);
}

/* Two epochs; `ahead`: by the loader's tensors. Two batches of the first epoch are left out. */
static void train(const struct run *r, int ahead, int workers, float *weights) {
    struct duet_loader_options options = {.batch_size = BATCH,
                                          .shuffle = DUET_SHUFFLE,
                                          .workers = workers,
                                          .rank = 1,
                                          .world_size = 2,
                                          .device = ahead ? r->device : NULL};
    duet_loader *loader;
    struct duet_batch b;
    int out = duet_tensor_dim(duet_params_value(r->params, 0), 0), seen = 0;
    float zeros[CLASSES * K] = {0};
    MUST(duet_tensor_write(duet_params_value(r->params, 0), zeros));
    MUST(duet_tensor_write(duet_params_value(r->params, 1), zeros));
    MUST(duet_loader_create(&loader, r->set, &options));
    for (int epoch = 0; epoch < 2; epoch++) {
        MUST(duet_loader_start(loader, epoch));
        for (int i = 0; epoch || i < 1; i++) {
            duet_tensor *x, *y;
            MUST(duet_loader_next(loader, &b));
            if (!b.n) break;
            seen += b.n;
            if (ahead) {
                cr_assert(duet_tensor_rank(b.samples) == 2 && duet_tensor_dim(b.samples, 0) == b.n);
                cr_assert(duet_tensor_rank(b.answers) == (r->with_targets ? 2 : 1));
                duet_tensor_free(b.samples); /* belongs to the loader, so nothing happens */
                MUST(step(r, b.samples, b.answers, b.n));
                continue;
            }
            cr_assert(!b.samples && !b.answers);
            MUST(duet_tensor_create(&x, r->device, DUET_F32, 2, (int[]){b.n, K}, b.X));
            if (r->with_targets)
                MUST(duet_tensor_create(&y, r->device, DUET_F32, 2, (int[]){b.n, out}, b.targets));
            else
                MUST(duet_tensor_create(&y, r->device, DUET_I32, 1, &b.n, b.y));
            MUST(step(r, x, y, b.n));
            duet_tensor_free(x), duet_tensor_free(y);
        }
    }
    cr_assert_eq(seen, BATCH + COUNT / 2, "%d", seen);
    MUST(duet_tensor_read(duet_params_value(r->params, 0), weights));
    duet_loader_free(loader);
}

static void compare(const char *kind, int with_targets) {
    const int out = with_targets ? OUTPUTS : CLASSES;
    const struct duet_param shapes[] = {{"weight", 2, {out, K}, NULL}, {"bias", 1, {out}, NULL}};
    struct duet_data data = fill_data(with_targets);
    struct run r = {.with_targets = with_targets};
    float plain[CLASSES * K], ahead[CLASSES * K];
    uint64_t now;
    MUST(duet_devices_open(&r.device, 1, kind, api_memory(kind)));
    MUST(duet_params_create(&r.params, r.device, shapes, 2));
    MUST(duet_tape_create(&r.tape, r.device));
    MUST(duet_dataset_create(&r.set, &data));
    train(&r, 0, 0, plain);
    cr_assert(plain[0] != 0 && plain[out * K - 1] != 0);
    for (int workers = 0; workers < 3; workers += 2) {
        train(&r, 1, workers, ahead);
        cr_assert(!memcmp(plain, ahead, (size_t)(out * K) * sizeof *plain), "%s, %d workers", kind,
                  workers);
    }
    duet_dataset_free(r.set);
    duet_tape_free(r.tape);
    duet_params_free(r.params);
    MUST(duet_device_memory(r.device, &now, NULL));
    cr_assert(now == 0 || !strcmp(kind, "cuda"), "%llu bytes are left", (unsigned long long)now);
    duet_devices_close(&r.device, 1);
}

Test(api_uploads, train_with_the_bits_of_tensors_made_by_hand, .timeout = 60) {
    for (int form = 0; form < 2; form++) {
        for (int i = 0; i < API_KINDS; i++)
            compare(api_kinds[i], form);
        compare("cpu-async", form);
    }
}

Test(api_uploads, tell_of_a_device_that_is_too_small, .timeout = 30) {
    static float wide[2 * 200000];
    const struct duet_data data = {.count = 2,
                                   .rank = 1,
                                   .shape = {200000},
                                   .type = DUET_F32,
                                   .samples = wide,
                                   .labels = labels};
    duet_device *device;
    duet_dataset *set;
    duet_loader *loader;
    uint64_t now;
    MUST(duet_devices_open(&device, 1, "cpu", 4 << 20));
    MUST(duet_dataset_create(&set, &data));
    MUST_FAIL(duet_loader_create(&loader, set,
                                 &(struct duet_loader_options){.batch_size = 2, .device = device}),
              DUET_MEMORY, "asked for input");
    cr_assert_null(loader);
    MUST(duet_device_memory(device, &now, NULL));
    cr_assert_eq(now, 0);
    duet_dataset_free(set);
    duet_devices_close(&device, 1);
}
