/* Tests how batches reach a replica: a step reads its own batch, whether that was announced and
 * copied during kernels, or not, and a batch is not overwritten while it is read. */
#include "tests/harness/harness.h"

#include "base/error.h"
#include "models/replica.h"

#define MUST(call) cr_assert_eq(call, OK, "%s", error_message())

enum { SAMPLES = 16, PIXELS = 784, BATCHES = 7 };

static float pixels[BATCHES][SAMPLES * PIXELS];
static int32_t labels[BATCHES][SAMPLES];
static struct batch batches[BATCHES];

struct bench {
    struct device *device;
    struct model model;
    float **values;
    struct replica replica;
};

static void open_bench(struct bench *b, enum device_kind kind, int blocking) {
    struct model_options options = {.dropout = -1, .hidden_count = 1, .hidden = {6}};
    struct device_config config = {.kind = kind,
                                   .memory_bytes = (uint64_t)(kind == DEVICE_CUDA ? 160 : 16) << 20,
                                   .check_operands = 1,
                                   .spans = 1,
                                   .timeout_s = 20};
    struct replica_config full = {
        .max_samples = SAMPLES, .log_rows = 1, .log_segments = 1, .blocking_copies = blocking};
    MUST(device_open(&b->device, &config));
    MUST(model_open(&b->model, "mlp", &options));
    MUST(model_values_init(&b->model, 1, &b->values));
    MUST(replica_init(&b->replica, b->device, &b->model, &full, b->values));
    for (int k = 0; k < BATCHES; k++) {
        int n = SAMPLES - k; /* each has another size */
        for (int i = 0; i < SAMPLES * PIXELS; i++)
            pixels[k][i] = (float)(k * 1000 + i % 997);
        for (int i = 0; i < SAMPLES; i++)
            labels[k][i] = (k + i) % 10;
        batches[k] = (struct batch){
            .segments = {1, n, {{0, n}}}, .pixels = pixels[k], .labels = labels[k], .step = k};
    }
}

static void close_bench(struct bench *b) {
    replica_free(&b->replica);
    struct ledger ledger = device_ledger(b->device);
    cr_assert(ledger.total == 0 || device_config(b->device)->kind == DEVICE_CUDA);
    device_close(b->device);
    model_values_free(b->values);
    model_free(&b->model);
}

/* A step that takes long: it reads its batch at its end. It copies that to `seen`. */
static void step(struct bench *b, int k, float *seen, int32_t *seen_labels) {
    struct replica *r = &b->replica;
    struct step_block block = {.step = (uint64_t)k};
    duet_var *output;
    MUST(replica_write_step(r, &block));
    MUST(replica_load(r, &batches[k]));
    MUST(replica_forward(r, &batches[k].segments, 0, &output));
    size_t n = (size_t)batches[k].segments.n;
    struct stream *stream = device_compute(b->device);
    MUST(copy_to_host(stream, seen, r->pixels, n * PIXELS * sizeof *seen));
    MUST(copy_to_host(stream, seen_labels, r->labels, n * sizeof *seen_labels));
}

/* Bit k of `announced`: batch k + 1 is announced while batch k is trained on. */
static void run(enum device_kind kind, int blocking, unsigned announced) {
    static float seen[BATCHES][SAMPLES * PIXELS];
    static int32_t seen_labels[BATCHES][SAMPLES];
    struct bench b;
    open_bench(&b, kind, blocking);
    uint64_t one_place = device_ledger(b.device).now[MEM_INPUT];
    memset(seen, 0, sizeof seen);
    for (int k = 0; k < BATCHES; k++) {
        batches[k].next = announced >> k & 1 && k + 1 < BATCHES ? &batches[k + 1] : NULL;
        step(&b, k, seen[k], seen_labels[k]);
    }
    MUST(stream_sync(device_compute(b.device)));
    MUST(stream_sync(device_copy(b.device)));
    for (int k = 0; k < BATCHES; k++) {
        size_t n = (size_t)batches[k].segments.n;
        cr_assert(!memcmp(seen[k], pixels[k], n * PIXELS * sizeof(float)),
                  "kind %d, announced %x: step %d read another batch", kind, announced, k);
        cr_assert(!memcmp(seen_labels[k], labels[k], n * sizeof(int32_t)));
    }
    int ahead = 0, copies = 0;
    for (int k = 0; k + 1 < BATCHES && !blocking; k++)
        ahead += announced >> k & 1;
    struct span_log *log = stream_spans(device_copy(b.device));
    for (size_t i = 0; i < log->count; i++)
        copies += !log->spans[i].waiting && log->spans[i].phase == PHASE_INPUT &&
                  log->spans[i].lane == LANE_COPY;
    cr_assert_eq(copies, 2 * ahead, "pixels and labels of each batch that was announced");
    cr_assert_eq(device_ledger(b.device).now[MEM_INPUT], one_place * (blocking ? 1 : 2),
                 "the second place does not depend on what was announced");
    close_bench(&b);
}

static void run_all(enum device_kind kind) {
    run(kind, 0, ~0u);
    run(kind, 0, 0);
    run(kind, 0, 0x15);
    run(kind, 0, 0x2c);
    run(kind, 1, ~0u);
}

Test(input, a_step_reads_its_own_batch, .timeout = 60) {
    run_all(DEVICE_HOST);
    run_all(DEVICE_HOST_LATE);
}

Test(input, a_step_reads_its_own_batch_on_a_gpu, .timeout = 60) {
    int count;
    setenv("EMULATED_GPUS", "1", 1);
    if (device_probe(DEVICE_CUDA, &count)) cr_skip_test("%s", error_message());
    run(DEVICE_CUDA, 0, ~0u);
    run(DEVICE_CUDA, 0, 0x2c);
}

/* A batch that was announced and never trained on, whose memory then holds another one. */
Test(input, a_batch_that_was_given_up_is_not_taken_for_another, .timeout = 60) {
    static float seen[SAMPLES * PIXELS];
    static int32_t seen_labels[SAMPLES];
    struct bench b;
    open_bench(&b, DEVICE_HOST, 0);
    batches[0].next = &batches[1];
    step(&b, 0, seen, seen_labels);
    MUST(stream_sync(device_copy(b.device)));
    pixels[1][5] = -7;
    batches[1].epoch = 1;
    step(&b, 1, seen, seen_labels);
    cr_assert_eq(seen[5], -7, "of another epoch");
    batches[1].next = &batches[2];
    step(&b, 1, seen, seen_labels);
    batches[1].next = NULL;
    step(&b, 3, seen, seen_labels);
    MUST(stream_sync(device_copy(b.device)));
    pixels[2][5] = -8;
    step(&b, 2, seen, seen_labels);
    cr_assert_eq(seen[5], -8, "a batch in between gives it up");
    close_bench(&b);
}

Test(input, more_than_there_is_room_for, .timeout = 60) {
    struct bench b;
    open_bench(&b, DEVICE_HOST, 0);
    batches[1].segments = (struct segments){1, SAMPLES + 1, {{0, SAMPLES + 1}}};
    batches[0].next = &batches[1];
    cr_assert_eq(replica_load(&b.replica, &batches[0]), ERR_FAILED, "announced");
    cr_assert_eq(replica_load(&b.replica, &batches[1]), ERR_FAILED);
    close_bench(&b);
}
