/* Recorded steps (models/recorded.h) in every order, when memory moves under them, when bodies
 * fail, and with more of them than are kept; and a device that cannot record goes on without. (The
 * bits of training with recordings and without: test_train.c.)
 *
 * Tests that need a GPU are skipped where none opens; in the build with EMULATION=1 one does. */
#include "tests/dp/rig.h"

static void need_gpu(int gpus) {
    int count;
    char text[16];
    snprintf(text, sizeof text, "%d", gpus);
    setenv("EMULATED_GPUS", text, 1);
    if (device_probe(DEVICE_CUDA, &count)) cr_skip_test("%s", error_message());
}

struct bench {
    struct device *device;
    duet_tape *tape;
    float *x; /* 256 floats */
    struct recorded recorded;
    int calls, fail_at;
};

static void open_bench(struct bench *b, enum device_kind kind) {
    memset(b, 0, sizeof *b);
    b->device = rig_device(0, kind, kind == DEVICE_CUDA ? 160 : 64, 0);
    cr_assert_eq(tape_init(&b->tape, b->device), OK);
    cr_assert_eq(device_alloc(b->device, (void **)&b->x, 256 * sizeof *b->x, MEM_INPUT), OK);
    recorded_init(&b->recorded, b->device, b->tape, NULL, 1);
}

static void close_bench(struct bench *b) {
    recorded_free(&b->recorded);
    duet_tape_free(b->tape);
    device_free(b->device, b->x);
    rig_close(b->device);
}

/* Doubles x, after a step of the tape, so that its arena is in use. Fails behind that where the
 * test wants it to. */
static int body(struct bench *b) {
    const struct segments one = {.count = 1, .n = 64, .seg = {{0, 64}}};
    const struct tape_step step = {.segments = &one};
    const int dims[1] = {256}, rows[2] = {64, 4};
    b->calls++;
    CHECK(tape_begin(b->tape, &step));
    struct tensor from = tensor_plain(b->x, DTYPE_F32, 2, rows),
                  x = tensor_plain(b->x, DTYPE_F32, 1, dims);
    duet_relu(b->tape, tape_leaf(b->tape, &from, 0));
    CHECK(tape_error(b->tape));
    struct op_args args = {.out[0] = x, .p.fill.value = 2};
    if (b->calls == b->fail_at) {
        /* then the end of the recording fails too */
        if (recorded_is_recording(&b->recorded)) (void)stream_sync(device_compute(b->device));
        return fail(ERR_FAILED, "the body of call %d failed", b->calls);
    }
    return launch(device_compute(b->device), OP_SCALE, &args);
}

static int whole_step(struct bench *b, const struct recorded_key *key) {
    int code = OK;
    recorded_begin(&b->recorded, key);
    if (recorded_enter(&b->recorded, "a step")) code = body(b);
    return recorded_leave(&b->recorded, code);
}

static int step_of(struct bench *b, int kind) {
    struct recorded_key key = {.kind = kind};
    return whole_step(b, &key);
}

static float x_of(struct bench *b) {
    float x = 0;
    cr_assert_eq(copy_to_host(device_compute(b->device), &x, b->x, sizeof x), OK, "%s",
                 error_message());
    cr_assert_eq(stream_sync(device_compute(b->device)), OK, "%s", error_message());
    return x;
}

static void set_x(struct bench *b, float value) {
    struct op_args args = {.out[0] = tensor_plain(b->x, DTYPE_F32, 1, (int[]){256}),
                           .p.fill.value = value};
    cr_assert_eq(launch(device_compute(b->device), OP_FILL, &args), OK, "%s", error_message());
}

/* Plain, plain (the arena may still move), recorded, replayed: each step doubles x once. */
Test(cuda_recorded, three_stages, .timeout = 60) {
    struct bench b;
    need_gpu(1);
    open_bench(&b, DEVICE_CUDA);
    set_x(&b, 1);
    int stage[8];
    for (int i = 0; i < 8; i++) {
        cr_assert_eq(step_of(&b, 0), OK, "%s", error_message());
        cr_expect_eq(x_of(&b), ldexpf(1, i + 1), "step %d", i);
        stage[i] = b.recorded.stage;
        cr_assert(i == 0 || stage[i] >= stage[i - 1], "a step goes forward through the stages");
    }
    cr_expect(stage[0] == STAGE_PLAIN && stage[7] == STAGE_REPLAYED);
    int calls = b.calls;
    cr_assert_eq(step_of(&b, 0), OK);
    cr_expect_eq(b.calls, calls, "a replay does not call the body");
    recorded_forget(&b.recorded);
    cr_assert_eq(step_of(&b, 0), OK);
    cr_expect(b.calls == calls + 1 && b.recorded.stage == STAGE_PLAIN);
    cr_expect_eq(x_of(&b), ldexpf(1, 10));
    close_bench(&b);
}

/* More kinds of steps than are kept, in turn and in pairs: the oldest is dropped, and every step
 * still does its work. */
Test(cuda_recorded, more_than_are_kept, .timeout = 60) {
    struct bench b;
    int replays = 0, done = 0;
    need_gpu(1);
    open_bench(&b, DEVICE_CUDA);
    set_x(&b, 1);
    for (int round = 0; round < 12; round++)
        for (int k = 0; k < RECORDED_STEPS + 1; k++) {
            /* too many at first, then as many as are kept */
            int kind = round < 6 ? k : 100 + k % RECORDED_STEPS;
            cr_assert_eq(step_of(&b, kind), OK, "%s", error_message());
            replays += b.recorded.stage == STAGE_REPLAYED;
            cr_expect_eq(x_of(&b), 2, "round %d, kind %d", round, kind);
            set_x(&b, 1);
            done++;
        }
    cr_expect(replays > 0 && replays < done / 2, "%d of %d", replays, done);
    cr_expect_eq(b.recorded.count, RECORDED_STEPS);
    close_bench(&b);
}

/* The one that was not used for longest is dropped. */
Test(cuda_recorded, the_oldest_goes, .timeout = 60) {
    struct bench b;
    need_gpu(1);
    open_bench(&b, DEVICE_CUDA);
    set_x(&b, 1);
    for (int round = 0; round < 4; round++)
        for (int kind = 0; kind < RECORDED_STEPS; kind++)
            cr_assert_eq(step_of(&b, kind), OK, "%s", error_message());
    cr_assert_eq(b.recorded.stage, STAGE_REPLAYED);
    const int next[] = {0, 100, 101, 0, 3, 2},
              stage[] = {STAGE_REPLAYED, STAGE_PLAIN,    STAGE_PLAIN,
                         STAGE_REPLAYED, STAGE_REPLAYED, STAGE_PLAIN};
    for (int i = 0; i < 6; i++) { /* 100 takes the place of 1, 101 that of 2 */
        cr_assert_eq(step_of(&b, next[i]), OK, "%s", error_message());
        cr_expect_eq((int)b.recorded.stage, stage[i], "step %d, kind %d: stage %d", i, next[i],
                     b.recorded.stage);
    }
    close_bench(&b);
}

/* A body fails while it is recorded, or before: its own error is returned, nothing is kept, and the
 * next step is right. */
Test(cuda_recorded, a_body_that_fails, .timeout = 60) {
    need_gpu(1);
    for (int at = 1; at <= 3; at++) { /* plain, plain, recorded */
        struct bench b;
        int failures = 0;
        open_bench(&b, DEVICE_CUDA);
        b.fail_at = at;
        set_x(&b, 1);
        for (int i = 0; i < 8; i++) {
            int code = step_of(&b, 0);
            if (code) cr_expect(strstr(error_message(), "the body of call"), "%s", error_message());
            failures += code != OK;
        }
        cr_expect_eq(failures, 1, "call %d", at);
        cr_expect_eq(b.recorded.stage, STAGE_REPLAYED);
        cr_expect_eq(x_of(&b), 128, "seven of eight steps doubled it");
        close_bench(&b);
    }
}

/* The tape's memory moves between two steps, by another step on it: nothing that was recorded is
 * replayed. */
Test(cuda_recorded, forgotten_when_memory_moves, .timeout = 60) {
    struct bench b;
    need_gpu(1);
    open_bench(&b, DEVICE_CUDA);
    set_x(&b, 1);
    for (int i = 0; i < 6; i++)
        cr_assert_eq(step_of(&b, 0), OK, "%s", error_message());
    cr_assert_eq(b.recorded.stage, STAGE_REPLAYED);
    const struct segments big = {.count = 1, .n = 64, .seg = {{0, 64}}};
    const struct tape_step more = {.segments = &big};
    const int rows[2] = {64, 4};
    cr_assert_eq(tape_begin(b.tape, &more), OK);
    struct tensor from = tensor_plain(b.x, DTYPE_F32, 2, rows);
    for (int i = 0; i < 3; i++)
        duet_relu(b.tape, tape_leaf(b.tape, &from, 0));
    cr_assert_eq(step_of(&b, 0), OK, "%s", error_message());
    cr_expect_eq(b.recorded.stage, STAGE_PLAIN);
    cr_expect_eq(x_of(&b), 128);
    close_bench(&b);
}

/* A step that differs in any part of the key is another step, plain at first; when the gradients
 * move, all are. */
Test(cuda_recorded, what_makes_another_step, .timeout = 60) {
    struct bench b;
    struct param_set params = {.layout_version = 3};
    struct recorded_key keys[5] = {
        {.kind = 2, .segments = {.count = 2, .n = 64, .seg = {{0, 32}, {1, 32}}}}};
    need_gpu(1);
    open_bench(&b, DEVICE_CUDA);
    recorded_init(&b.recorded, b.device, b.tape, &params, 1);
    for (int k = 1; k < 5; k++)
        keys[k] = keys[0];
    keys[1].source = &params;
    keys[2].segments.seg[1].v = 3;
    keys[3].segments.seg[0].n = 31, keys[3].segments.seg[1].n = 33;
    keys[4].segments.count = 1;
    for (int k = 0; k < 5; k++)
        for (int i = 0; i < 5; i++) {
            cr_assert_eq(whole_step(&b, &keys[k]), OK, "%s", error_message());
            if (i == 0)
                cr_expect_eq((int)b.recorded.stage, STAGE_PLAIN, "key %d is taken for another", k);
            if (i == 4) cr_expect_eq((int)b.recorded.stage, STAGE_REPLAYED, "key %d", k);
        }
    params.layout_version++;
    for (int k = 0; k < 5; k++) {
        cr_assert_eq(whole_step(&b, &keys[k]), OK, "%s", error_message());
        cr_expect_eq((int)b.recorded.stage, STAGE_PLAIN, "key %d: its gradients lie elsewhere now",
                     k);
    }
    close_bench(&b);
}

/* ---- where nothing is recorded ---- */

Test(cuda_recorded, plain_for_ever_on_emulated_devices, .timeout = 60) {
    struct bench b;
    open_bench(&b, DEVICE_HOST);
    set_x(&b, 1);
    enum { STEPS = 16, KINDS = 5 }; /* each step doubles x */
    for (int i = 0; i < STEPS; i++) {
        cr_assert_eq(step_of(&b, i % KINDS), OK, "%s", error_message());
        cr_expect(b.recorded.stage == STAGE_PLAIN && b.calls == i + 1);
    }
    cr_expect_eq(x_of(&b), 1 << STEPS);
    close_bench(&b);
}

/* No recordings are made with spans, if they are not wanted, or for a model with a collective
 * inside. */
Test(cuda_recorded, turned_off, .timeout = 60) {
    need_gpu(1);
    for (int reason = 0; reason < 4; reason++) {
        struct model model;
        struct replica r;
        struct device *device = rig_device(0, DEVICE_CUDA, 160, reason == 1);
        rig_model(&model, "mlp");
        model.collective_inside = reason == 2;
        struct replica_config config = {
            .max_samples = 8, .log_rows = 1, .log_segments = 1, .graph = reason != 3};
        cr_assert_eq(replica_init(&r, device, &model, &config, NULL), OK, "%s", error_message());
        cr_expect_eq(r.recorded.on, reason == 0, "reason %d", reason);
        replica_free(&r);
        rig_close(device);
        model_free(&model);
    }
}
