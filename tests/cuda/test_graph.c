/* Recordings on a GPU, or on the emulated runtime (make EMULATION=1). There queues are real, so it
 * shows what runs beside what, to ThreadSanitizer too. What is refused, and what a failing call
 * leaves behind, is in tests/core/device/test_cuda.c. Skipped where no GPU opens. */
#include "tests/core/device/shared.h"

#include <pthread.h>

#ifdef HAVE_CUDA
#include <cuda_runtime_api.h>

#include "device/cuda/flag.h"

enum { COUNT = 1000 };

/* Sets what the emulated runtime reads at its first call; a real GPU ignores it. */
static void emulated(const char *name, const char *value) {
    setenv(name, value, 1);
}

static struct device *open_gpu(int index, double timeout_s) {
    struct device_config config = test_config(DEVICE_CUDA, index);
    struct device *d;
    int gpus;
    config.devices = 2;
    config.memory_bytes = 80 << 20; /* the workspace takes 64 MiB of it */
    config.timeout_s = timeout_s;
    if (device_probe(DEVICE_CUDA, &gpus)) cr_skip_test("no GPU: %s", error_message());
    MUST(device_open(&d, &config));
    return d;
}

/* ---- replays do what launches do ---- */

/* Three steps of SGD with momentum on one vector, with gradient = value * 0.5 + 1, enqueued as a
 * step of training is. */
struct training {
    struct device *device;
    float *value, *grad, *momentum, *one;
    struct step_block *step;
};

static void training_open(struct training *t, struct device *d) {
    t->device = d;
    t->value = test_floats(d, COUNT), t->grad = test_floats(d, COUNT),
    t->momentum = test_floats(d, COUNT);
    t->one = test_floats(d, COUNT), t->step = (struct step_block *)test_floats(d, 64);
    struct stream *s = device_compute(d);
    MUST(test_fill(s, t->value, COUNT, 3));
    MUST(test_fill(s, t->one, COUNT, 1));
    MUST(stream_sync(s));
}

static int enqueue_step(void *context) {
    struct training *t = context;
    struct stream *s = device_compute(t->device);
    CHECK(copy_peer(s, t->device, t->grad, t->device, t->value, COUNT * sizeof(float)));
    CHECK(test_scale(s, t->grad, COUNT, 0.5f));
    CHECK(test_add(s, t->grad, t->one, COUNT));
    struct op_args a;
    memset(&a, 0, sizeof a);
    a.in[0] = test_vector(t->grad, COUNT);
    a.out[0] = test_vector(t->value, COUNT), a.out[1] = test_vector(t->momentum, COUNT);
    a.step = t->step;
    a.p.sgd = (struct sgd_args){.momentum = 0.9f, .weight_decay = 0.01f};
    return launch(s, OP_SGD, &a);
}

static void write_step(struct training *t, int i) {
    struct step_block block = {
        .learning_rate = 0.1f / (float)(i + 1), .first_update = i == 0, .step = (uint64_t)i};
    MUST(stream_write(device_compute(t->device), t->step, &block, sizeof block));
}

static struct recording *record(struct stream *s, int (*body)(void *), void *context) {
    struct recording *r;
    MUST(stream_record_begin(s));
    MUST(body(context));
    MUST(stream_record_end(s, &r));
    return r;
}

Test(cuda_graph, a_replay_reads_what_the_step_block_says_now, .timeout = 60) {
    emulated("EMULATED_CUDA_LATE_US", "300");
    struct device *d = open_gpu(0, 20);
    struct training launched, replayed;
    float want[COUNT], got[COUNT];
    training_open(&launched, d), training_open(&replayed, d);
    struct recording *r = record(device_compute(d), enqueue_step, &replayed);
    for (int i = 0; i < 6; i++) {
        write_step(&launched, i);
        MUST(enqueue_step(&launched));
        write_step(&replayed, i);
        MUST(stream_replay(device_compute(d), r, "step"));
    }
    MUST(copy_to_host(device_compute(d), want, launched.value, sizeof want));
    MUST(copy_to_host(device_compute(d), got, replayed.value, sizeof got));
    MUST(stream_sync(device_compute(d)));
    cr_assert(!memcmp(want, got, sizeof want), "%.9g launched, %.9g replayed", want[0], got[0]);
    cr_assert_lt(got[COUNT - 1], 3);
    recording_free(r);
    device_close(d);
}

/* ---- a bucket's event ---- */

struct buckets {
    struct device *device;
    float *x, *one;
    struct event *half;
};

/* x += 1, event, x += 1 */
static int enqueue_halves(void *context) {
    struct buckets *b = context;
    struct stream *s = device_compute(b->device);
    CHECK(test_add(s, b->x, b->one, COUNT));
    CHECK(event_record(b->half, s));
    return test_add(s, b->x + COUNT, b->one, COUNT);
}

/* The other stream reads the first half of each replay, and not of the one before, while the second
 * half runs. */
Test(cuda_graph, the_communication_stream_waits_for_this_replays_event, .timeout = 120) {
    emulated("EMULATED_CUDA_LATE_US", "200");
    struct device *d = open_gpu(0, 20);
    struct stream *compute = device_compute(d), *comm = device_comm(d);
    struct buckets b = {d, test_floats(d, 2 * COUNT), test_floats(d, COUNT), NULL};
    struct event *taken;
    float *out, seen[20][2];
    MUST(event_create(d, &b.half));
    MUST(event_create(d, &taken));
    MUST(device_host_alloc(d, (void **)&out, 20 * COUNT * sizeof *out));
    MUST(test_fill(compute, b.x, 2 * COUNT, 0));
    MUST(test_fill(compute, b.one, COUNT, 1));
    MUST(stream_sync(compute));
    struct recording *r = record(compute, enqueue_halves, &b);
    cr_assert_eq(event_done(b.half), 1, "nobody has replayed it yet");
    for (int i = 0; i < 20; i++) {
        MUST(stream_wait(compute, taken));
        MUST(stream_replay(compute, r, "halves"));
        MUST(stream_wait(comm, b.half));
        MUST(copy_to_host(comm, out + i * COUNT, b.x, COUNT * sizeof *out));
        MUST(event_record(taken, comm));
    }
    MUST(event_sync(b.half));
    MUST(stream_sync(comm));
    for (int i = 0; i < 20; i++)
        seen[i][0] = out[i * COUNT], seen[i][1] = out[i * COUNT + COUNT - 1];
    for (int i = 0; i < 20; i++)
        cr_assert(seen[i][0] == (float)(i + 1) && seen[i][1] == seen[i][0], "replay %d gave %g, %g",
                  i, seen[i][0], seen[i][1]);
    MUST(stream_sync(compute));
    recording_free(r);
    event_destroy(taken), event_destroy(b.half);
    device_host_free(d, out);
    device_close(d);
}

/* ---- capture is the thread's own ---- */

static void *record_and_replay(void *context) {
    struct training *t = context;
    struct stream *s = device_compute(t->device);
    for (int round = 0; round < 10; round++) {
        struct recording *r = record(s, enqueue_step, t);
        write_step(t, round);
        MUST(stream_replay(s, r, "step"));
        recording_free(r);
    }
    MUST(stream_sync(s));
    return NULL;
}

Test(cuda_graph, two_threads_record_while_a_third_allocates_and_waits, .timeout = 120) {
    emulated("EMULATED_GPUS", "1");
    struct training t[2];
    struct device *idle = open_gpu(0, 20);
    pthread_t thread[2];
    float got[2][COUNT];
    for (int i = 0; i < 2; i++)
        training_open(&t[i], open_gpu(i, 20));
    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, record_and_replay, &t[i]);
    for (int i = 0; i < 50; i++) {
        float *memory = test_floats(idle, 100);
        MUST(test_fill(device_compute(idle), memory, 100, 1));
        MUST(stream_sync(device_compute(idle)));
        device_free(idle, memory);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++) {
        MUST(copy_to_host(device_compute(t[i].device), got[i], t[i].value, sizeof got[i]));
        MUST(stream_sync(device_compute(t[i].device)));
        device_close(t[i].device);
    }
    device_close(idle);
    cr_assert(!memcmp(got[0], got[1], sizeof got[0]) && got[0][5] < 3, "%g and %g", got[0][5],
              got[1][5]);
}

/* ---- what goes wrong ---- */

Test(cuda_graph, a_capture_broken_behind_its_back_is_named_and_the_stream_goes_on, .timeout = 60) {
    struct device *d = open_gpu(0, 20);
    struct stream *s = device_compute(d);
    float *x = test_floats(d, COUNT), got = 0;
    struct recording *r;
    void *memory = NULL;
    MUST(stream_record_begin(s));
    MUST(test_fill(s, x, COUNT, 1));
    cr_assert_neq(cudaMalloc(&memory, 100), cudaSuccess, "allowed inside a capture?");
    cr_assert_eq(test_scale(s, x, COUNT, 2), ERR_FAILED);
    MUST_SAY("it came behind fill");
    cr_assert_eq(stream_record_end(s, &r), ERR_FAILED);
    MUST_SAY("cudaErrorStreamCaptureInvalidated");
    MUST(test_fill(s, x, COUNT, 5));
    MUST(copy_to_host(s, &got, x, sizeof got));
    MUST(stream_sync(s));
    cr_assert_eq(got, 5);
    MUST(stream_record_begin(s)); /* refused by name, before CUDA sees it */
    MUST(test_fill(s, x, COUNT, 6));
    cr_assert_eq(stream_sync(s), ERR_FAILED);
    cr_assert_eq(stream_record_end(s, &r), ERR_FAILED);
    MUST_SAY("sync on cuda(0): cannot be part of a recording");
    MUST(stream_record_begin(s));
    MUST(test_fill(s, x, COUNT, 7));
    MUST(stream_record_end(s, &r));
    MUST(stream_replay(s, r, "fill"));
    recording_free(r); /* waits for the replay */
    MUST(copy_to_host(s, &got, x, sizeof got));
    MUST(stream_sync(s));
    cr_assert_eq(got, 7);
    device_close(d);
}

/* Words for other ranks: a replay would say the old ones again. */
Test(cuda_graph, words_are_no_part_of_a_recording, .timeout = 60) {
    struct device *d = open_gpu(0, 20);
    struct stream *s = device_compute(d);
    struct cuda_stream *stream = (struct cuda_stream *)s;
    uint64_t *word = (uint64_t *)(void *)test_floats(d, 4), zero = 0, got = 0;
    if (cuda_flag_open((struct cuda_device *)d)) cr_skip_test("%s", error_message());
    MUST(stream_write(s, word, &zero, sizeof zero));
    MUST(stream_sync(s));
    MUST(stream_record_begin(s));
    cr_assert_eq(cuda_flag_post(stream, word, 5), ERR_FAILED);
    MUST_SAY("post of a flag on cuda(0): not inside a recording");
    cr_assert_eq(cuda_flag_wait(stream, word, 5), ERR_FAILED);
    MUST_SAY("wait for a flag on cuda(0): not inside a recording");
    MUST(stream_record_end(s, NULL));
    MUST(copy_to_host(s, &got, word, sizeof got));
    MUST(stream_sync(s));
    cr_assert_eq(got, 0);
    MUST(cuda_flag_post(stream, word, 5));
    MUST(cuda_flag_wait(stream, word, 5)); /* there, and so is what is below it */
    MUST(cuda_flag_wait(stream, word, 3));
    MUST(copy_to_host(s, &got, word, sizeof got));
    MUST(stream_sync(s));
    cr_assert_eq(got, 5);
    /* several in a call, and one by one where the driver has no such call */
    for (uint64_t epoch = 6; epoch < 8; epoch++) {
        uint64_t pair[2] = {0};
        const struct cuda_flag_op ops[4] = {
            {word, epoch, 0}, {word, epoch, 1}, {word + 1, epoch, 0}, {word + 1, epoch, 1}};
        MUST(stream_write(s, word + 1, &zero, sizeof zero));
        MUST(cuda_flags(stream, ops, 4));
        MUST(copy_to_host(s, pair, word, sizeof pair));
        MUST(stream_sync(s));
        cr_assert(pair[0] == epoch && pair[1] == epoch);
        ((struct cuda_device *)d)->batch_flags = NULL;
    }
    device_close(d);
}

#ifdef CUDA_EMULATION
static int fill_twice(void *context) {
    struct buckets *b = context;
    CHECK(test_fill(device_compute(b->device), b->x, COUNT, 1));
    return event_record(b->half, device_compute(b->device));
}

Test(cuda_graph, a_fault_outside_of_graphs_names_the_op_and_the_step, .timeout = 60) {
    emulated("EMULATED_CUDA_FAULT", "launch:4");
    struct device_config config = test_config(DEVICE_CUDA, 0);
    struct device *d;
    config.check_operands = 0;
    MUST(device_open(&d, &config));
    struct stream *s = device_compute(d);
    float *x = test_floats(d, 100);
    stream_set_phase(s, PHASE_FORWARD, 17);
    for (int i = 0; i < 4; i++)
        if (test_fill(s, x, 100, 1))
            break; /* any call behind it may be the one that shows the fault */
    cr_assert_eq(stream_sync(s), ERR_FAILED);
    MUST_SAY("cudaErrorIllegalAddress");
    MUST_SAY("of step 17");
    MUST_SAY("fill");
    device_close(d);
}

Test(cuda_graph, a_fault_inside_a_graph_names_the_replay_and_reaches_its_events, .timeout = 60) {
    emulated("EMULATED_CUDA_FAULT", "launch:3");
    struct device *d = open_gpu(0, 20);
    struct buckets b = {d, test_floats(d, COUNT), NULL, NULL};
    MUST(event_create(d, &b.half));
    struct recording *r = record(device_compute(d), fill_twice, &b);
    stream_set_phase(device_compute(d), PHASE_FORWARD, 41);
    int code = OK;
    for (int i = 0; i < 4 && !code; i++) {
        code = stream_replay(device_compute(d), r, "forward");
        CHECK_KEEP(stream_sync(device_compute(d)), code);
    }
    cr_assert_eq(code, ERR_FAILED);
    MUST_SAY("cudaErrorIllegalAddress");
    MUST_SAY("forward of step 41");
    cr_assert_eq(stream_replay(device_compute(d), r, "forward"), ERR_FAILED);
    fail(ERR_FAILED, "something else");
    cr_assert_eq(event_sync(b.half), ERR_FAILED);
    MUST_SAY("cudaErrorIllegalAddress");
    recording_free(r);
    event_destroy(b.half);
    device_close(d);
}

Test(cuda_graph, a_graph_that_hangs_meets_the_deadline, .timeout = 60) {
    emulated("EMULATED_CUDA_FAULT", "hang:2");
    /* long enough on a busy machine for what does not hang */
    struct device *d = open_gpu(0, 1);
    struct buckets b = {d, test_floats(d, COUNT), NULL, NULL};
    MUST(event_create(d, &b.half));
    struct recording *r = record(device_compute(d), fill_twice, &b);
    int code = OK;
    /* the emulation may or may not count the launch that was recorded */
    for (int i = 0; i < 3 && !code; i++) {
        MUST(stream_replay(device_compute(d), r, "forward"));
        code = stream_sync(device_compute(d));
    }
    cr_assert_eq(code, ERR_TIMEOUT);
    cr_assert_eq(event_sync(b.half), ERR_TIMEOUT);
    int64_t begun = now_ns();
    recording_free(r);
    event_destroy(b.half);
    device_close(d);
    cr_assert_lt(now_ns() - begun, 10000000000);
}
#endif
#else
Test(cuda_graph, needs_the_headers_of_cuda, .timeout = 10) {
    cr_skip_test("no CUDA here");
}
#endif
