/* Tests a replica: its memory at the start, its logs and hashes. */
#include "tests/harness/harness.h"

#include "base/error.h"
#include "models/replica.h"

#define MUST(call) cr_assert_eq(call, OK, "%s", error_message())

enum { SAMPLES = 24, PIXELS = 784 };

static float pixels[SAMPLES * PIXELS];
static int32_t labels[SAMPLES];
static const struct segments two_segments = {2, SAMPLES, {{0, 13}, {1, 11}}};

static void make_batch(uint64_t seed) {
    struct rng rng;
    rng_seed(&rng, seed);
    rng_uniform(&rng, pixels, SAMPLES * PIXELS, 0, 1);
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = (int32_t)(rng_u32(&rng) % 10);
}

static struct device *open_device(enum device_kind kind, int reference_math) {
    struct device *device;
    struct device_config config = {.kind = kind,
                                   .memory_bytes = 32 << 20,
                                   .check_operands = 1,
                                   .timeout_s = 20,
                                   .reference_math = reference_math};
    MUST(device_open(&device, &config));
    return device;
}

static void open_model(struct model *m, float ***values) {
    struct model_options options = {.dropout = -1, .hidden_count = 1, .hidden = {6}};
    MUST(model_open(m, "mlp", &options));
    MUST(model_values_init(m, 1, values));
}

static const struct replica_config full = {.max_samples = SAMPLES,
                                           .log_rows = 4,
                                           .log_segments = 2,
                                           .hashes = 1,
                                           .optimizer = 1,
                                           .update = {.momentum = 0.9, .weight_decay = 0.01}};

/* One training step, row `row` of the logs. */
static void train(struct replica *r, uint64_t number, int row, float lr) {
    struct step_block step = {.step = number,
                              .weight = 1.0f / SAMPLES,
                              .learning_rate = lr,
                              .first_update = number == 0,
                              .row = row};
    struct batch batch = {.segments = two_segments, .pixels = pixels, .labels = labels};
    duet_var *output, *loss;
    MUST(replica_write_step(r, &step));
    MUST(replica_load(r, &batch));
    MUST(replica_forward(r, &two_segments, 1, &output));
    MUST(replica_loss(r, output, 1, &loss));
    MUST(replica_backward(r, loss));
    MUST(replica_update(r));
}

/* Every amount of free memory that is too small by 256 bytes or more gives an error that says so,
 * and leaves nothing behind. The short form takes every seventh amount, up to the one that is
 * enough. */
Test(replica, half_built_leaves_nothing, .timeout = 120) {
    const size_t apart = test_short() ? 7 * 256 : 256;
    struct model m;
    float **values;
    struct replica r;
    open_model(&m, &values);
    for (int late = 0; late < 2; late++) {
        struct device *device = open_device(late ? DEVICE_HOST_LATE : DEVICE_HOST, 0);
        MUST(replica_init(&r, device, &m, &full, values));
        size_t needed = device_ledger(device).total, capacity = device_ledger(device).capacity;
        replica_free(&r);
        cr_assert_eq(device_ledger(device).total, 0);
        for (size_t left = needed % apart; left <= needed; left += apart) {
            void *hoarded;
            MUST(device_alloc(device, &hoarded, capacity - left, MEM_WORKSPACE));
            int code = replica_init(&r, device, &m, &full, values);
            cr_assert_eq(code, left < needed ? ERR_MEMORY : OK, "%zu of %zu bytes: %s", left,
                         needed, error_message());
            if (code) {
                cr_assert(strstr(error_message(), "out of memory on device 0"), "%s",
                          error_message());
                cr_assert_eq(device_ledger(device).total, capacity - left);
                cr_assert_null(r.device);
            }
            replica_free(&r);
            device_free(device, hoarded);
        }
        cr_assert_eq(device_ledger(device).total, 0);
        device_close(device);
    }
    replica_free(NULL);
    model_values_free(values);
    model_free(&m);
}

/* The ledger by cause, to the byte; each buffer takes a multiple of 256 bytes. */
Test(replica, the_ledger_is_exact, .timeout = 30) {
    struct model m;
    float **values;
    struct replica r;
    struct device *device = open_device(DEVICE_HOST, 0);
    open_model(&m, &values);
    MUST(replica_init(&r, device, &m, &full, values));
    struct ledger l = device_ledger(device);
    /* 6*784 = 4704, 6, 60, 10: each in whole 64 elements */
    uint64_t arena = (4736 + 64 + 64 + 64) * 4;
    cr_assert_eq(l.now[MEM_PARAMS], arena);
    cr_assert_eq(l.now[MEM_GRADS], arena);
    cr_assert_eq(l.now[MEM_OPTIMIZER], arena);
    cr_assert_eq(l.now[MEM_INPUT], SAMPLES * PIXELS * 4 + 256);
    /* step block, 4 x 2 losses, hits; 4 x 8 hashes */
    cr_assert_eq(l.now[MEM_WORKSPACE], 256 + 256 + 256 + 256);
    cr_assert_eq(l.now[MEM_ACTIVATIONS], 0);
    make_batch(1);
    for (uint64_t s = 0; s < 4; s++)
        train(&r, s, (int)s, 0.1f);
    struct ledger after = device_ledger(device);
    cr_assert_gt(after.now[MEM_ACTIVATIONS], 0);
    after.now[MEM_ACTIVATIONS] = 0;
    l.now[MEM_INPUT] *= 2; /* the second place comes with the first batch */
    cr_assert_arr_eq(after.now, l.now, sizeof l.now);
    replica_free(&r);

    /* what DP's devices other than device 0 have besides parameters and gradients */
    struct replica_config bare = {.max_samples = 1};
    MUST(replica_init(&r, device, &m, &bare, NULL));
    l = device_ledger(device);
    cr_assert(l.now[MEM_OPTIMIZER] == 0 && l.now[MEM_WORKSPACE] == 256);
    float value[4704], zero[4704] = {0};
    MUST(param_read_value(&r.params->set, 0, value));
    cr_assert_arr_eq(value, zero, sizeof zero);
    MUST(replica_hash_values(&r)); /* config.hashes is 0: nothing happens */
    replica_free(&r);
    model_values_free(values);
    model_free(&m);
    device_close(device);
}

/* Pads stay zero, whatever the optimizer does: a bucket of DDP sums them too. */
Test(replica, pads_of_the_arenas_stay_zero, .timeout = 30) {
    struct model m;
    float **values;
    struct replica r;
    struct device *device = open_device(DEVICE_HOST, 0);
    open_model(&m, &values);
    MUST(replica_init(&r, device, &m, &full, values));
    make_batch(2);
    for (int moved = 0; moved < 2; moved++) {
        if (moved) {
            struct op_args junk = {
                .out[0] = tensor_plain(r.params->set.grads, DTYPE_F32, 1, (int[1]){4928}),
                .p.fill = {1}};
            MUST(launch(device_compute(device), OP_FILL, &junk));
            MUST(param_set_relayout_grads(&r.params->set, (int[]){2, 0, 3, 1}));
        }
        for (uint64_t s = 0; s < 3; s++)
            train(&r, s, 0, 0.1f);
        static float arena[4928];
        for (int which = 0; which < 2; which++) {
            int pads = 0;
            MUST(copy_to_host(device_compute(device), arena,
                              which ? r.params->set.grads : r.params->set.values, sizeof arena));
            MUST(stream_sync(device_compute(device)));
            for (size_t k = 0; k < r.params->set.arena_count; k++) {
                int inside = 0;
                for (int i = 0; i < 4; i++) {
                    size_t at = which ? r.params->set.param[i].grad_offset
                                      : r.params->set.param[i].value_offset;
                    inside |= k >= at && k < at + r.params->set.param[i].count;
                }
                if (inside) continue;
                cr_assert(arena[k] == 0, "element %zu of arena %d", k, which);
                pads++;
            }
            cr_assert_eq(pads, 4928 - 4780);
        }
        cr_assert_eq(r.params->set.param[2].grad_offset, moved ? 0 : 64);
    }
    replica_free(&r);
    model_values_free(values);
    model_free(&m);
    device_close(device);
}

/* ---- logs ---- */

Test(replica, logs_have_a_row_a_step_and_a_column_a_segment, .timeout = 30) {
    struct model m;
    float **values;
    for (int late = 0; late < 2; late++) {
        struct replica r;
        double losses[8], again[8];
        int64_t hits[8];
        struct device *device = open_device(late ? DEVICE_HOST_LATE : DEVICE_HOST, 0);
        open_model(&m, &values);
        MUST(replica_init(&r, device, &m, &full, values));
        make_batch(3);
        for (uint64_t s = 0; s < 4; s++)
            train(&r, s, (int)(3 - s), 0.5f);
        MUST(replica_read_logs(&r, 4, losses, hits, NULL));
        for (int i = 0; i < 8; i++) {
            cr_assert(losses[i] > 0 && losses[i] < 13 * 4, "loss %d is %g", i, losses[i]);
            cr_assert(hits[i] >= 0 && hits[i] <= (i % 2 ? 11 : 13));
        }
        cr_assert_lt(losses[0] + losses[1], losses[6] + losses[7],
                     "four steps on one batch made the loss larger");
        MUST(replica_read_logs(&r, 1, again, NULL, NULL));
        cr_assert_arr_eq(again, losses, 2 * sizeof *again);
        cr_assert_eq(replica_read_logs(&r, 5, losses, hits, NULL), ERR_FAILED);
        cr_assert_eq(replica_read_logs(&r, -1, losses, hits, NULL), ERR_FAILED);

        /* evaluation with the same weights logs what training would */
        struct step_block step = {.weight = 1, .row = 1};
        duet_var *output, *loss;
        MUST(replica_write_step(&r, &step));
        MUST(replica_forward(&r, &two_segments, 0, &output));
        MUST(replica_loss(&r, output, 0, &loss));
        train(&r, 9, 2, 0);
        MUST(replica_read_logs(&r, 4, again, NULL, NULL));
        cr_assert_arr_eq(again + 2, again + 4, 2 * sizeof *again);

        struct segments many = {1, SAMPLES + 1, {{0, SAMPLES + 1}}};
        struct batch too_many = {.segments = many, .pixels = pixels, .labels = labels};
        cr_assert_eq(replica_load(&r, &too_many), ERR_FAILED);
        cr_assert(strstr(error_message(), "25 samples"), "%s", error_message());
        cr_assert_eq(replica_forward(&r, &many, 0, &output), ERR_FAILED);
        cr_assert_null(output);
        replica_free(&r);
        model_values_free(values);
        model_free(&m);
        device_close(device);
    }
}

/* ---- hashes ---- */

static void read_hashes(struct replica *r, uint64_t hashes[8]) {
    MUST(replica_read_logs(r, 1, NULL, NULL, hashes));
}

Test(replica, a_hash_changes_with_its_parameter_alone, .timeout = 30) {
    struct model m;
    float **values;
    struct replica r;
    uint64_t before[8], after[8];
    struct device *device = open_device(DEVICE_HOST, 0);
    open_model(&m, &values);
    MUST(replica_init(&r, device, &m, &full, values));
    make_batch(4);
    train(&r, 0, 0, 0);
    read_hashes(&r, before);
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < i; k++)
            cr_assert_neq(before[i], before[k], "hashes %d and %d are equal", i, k);
    for (int i = 0; i < 4; i++) {
        size_t last = r.params->set.param[i].count - 1;
        float keep = values[i][last];
        values[i][last] = nextafterf(keep, 9); /* the smallest possible change */
        MUST(param_write_value(&r.params->set, i, values[i]));
        MUST(replica_hash_values(&r));
        read_hashes(&r, after);
        for (int k = 0; k < 8; k++)
            cr_assert_eq(before[k] == after[k], k != i, "parameter %d, hash %d", i, k);
        float other = values[i][0]; /* and two exchanged elements are another tensor */
        values[i][last] = other;
        values[i][0] = keep;
        MUST(param_write_value(&r.params->set, i, values[i]));
        MUST(replica_hash_values(&r));
        read_hashes(&r, after);
        cr_assert_neq(before[i], after[i]);
        values[i][0] = other;
        values[i][last] = keep;
        MUST(param_write_value(&r.params->set, i, values[i]));
    }
    train(&r, 0, 0, 0);
    read_hashes(&r, after);
    cr_assert_arr_eq(before, after, sizeof before);
    labels[0] = (labels[0] + 1) % 10;
    train(&r, 0, 0, 0);
    read_hashes(&r, after);
    cr_assert_arr_eq(before, after, sizeof before / 2);
    cr_assert_neq(before[7], after[7]);
    /* a hash does not depend on the address of a gradient */
    MUST(param_set_relayout_grads(&r.params->set, (int[]){1, 3, 0, 2}));
    train(&r, 0, 0, 0);
    uint64_t moved[8];
    read_hashes(&r, moved);
    cr_assert_arr_eq(moved, after, sizeof moved);
    replica_free(&r);
    model_values_free(values);
    model_free(&m);
    device_close(device);
}
