/* The run record: reading returns exactly what a rank wrote, and a truncated record is refused. */
#include <math.h>

#include "base/error.h"
#include "tests/harness/harness.h"
#include "tests/harness/text.h"
#include "trace/record.h"
#include "trace/record_bytes.h"

enum { DEVICES = 3, STEPS = 5, PARAMETERS = 2, COUNT = 7 };

static void fill(void *data, size_t bytes, unsigned seed) {
    unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++)
        p[i] = (unsigned char)((seed = seed * 1664525u + 1013904223u) >> 24);
}

/* Every member holds a value of its own, so that none can be forgotten or swapped. */
static struct run_record make(void) {
    struct run_record r = {.devices = DEVICES,
                           .virtual_devices = 6,
                           .bits_promised = 1,
                           .gpus = 2,
                           .cores = 5,
                           .batch_size = 256,
                           .epochs = 2,
                           .parameters = PARAMETERS,
                           .parameter_count = COUNT,
                           .optimizer = "adadelta",
                           .spans_lost = 12,
                           .lr = 0.1,
                           .momentum = 1.0 / 3,
                           .weight_decay = 5e-324,
                           .seed = UINT64_MAX - 3,
                           .duplicates = 4,
                           .train_samples = 60000,
                           .test_samples = 10000,
                           .channels = 3,
                           .height = 32,
                           .width = 31,
                           .classes = 11,
                           .loss_in_forward = 1,
                           .timed = 1,
                           .steps_per_epoch = 7,
                           .first_step = 9,
                           .steps = STEPS,
                           .epoch_count = 2,
                           .training_seconds = 12.25,
                           .first_step_seconds = 0.75,
                           .samples = INT64_MAX,
                           .sum_order = "ring over 4 devices"};
    r.mode = MODE_DDP, strcpy(r.model, "lenet"), strcpy(r.dataset, "synthetic"),
    strcpy(r.kind, "cpu"), strcpy(r.algorithm, "tree");
    strcpy(r.why_not, "\"quoted\", with a comma"), strcpy(r.choice, "tree: asked for");
    r.bucket_bytes = malloc(2 * sizeof *r.bucket_bytes), r.bucket_count = 2;
    r.bucket_bytes[0] = 16, r.bucket_bytes[1] = 1ll << 40;
    r.losses = malloc(STEPS * sizeof *r.losses);
    const double losses[STEPS] = {2.3025887909104572, 5e-324, NAN, INFINITY, -0.0};
    memcpy(r.losses, losses, sizeof losses);
    r.epoch_seconds = malloc(2 * sizeof(double)), r.accuracy = malloc(2 * sizeof(double));
    r.epoch_seconds[0] = 6, r.epoch_seconds[1] = 6.25, r.accuracy[0] = 0.5, r.accuracy[1] = -1;
    r.valid_loss = malloc(2 * sizeof(double)), r.valid_loss[0] = 0.7, r.valid_loss[1] = NAN;
    r.epoch_lr = malloc(2 * sizeof(double)), r.epoch_lr[0] = 0.1, r.epoch_lr[1] = 0.04;
    r.names = calloc(PARAMETERS, sizeof *r.names);
    r.names[0] = strdup("cn1.weight"), r.names[1] = strdup("b\xc3\xa9");
    for (int d = 0; d < DEVICES; d++) {
        struct device_record *x = &r.device[d];
        x->device = d;
        x->memory.capacity = 1u << 30, x->memory.total = (uint64_t)d + 100,
        x->memory.total_peak = (uint64_t)d + 200;
        for (int c = 0; c < MEM_CAUSE_COUNT; c++)
            x->memory.now[c] = (uint64_t)(1000 * d + c), x->memory.peak[c] = x->memory.now[c] + 50,
            x->memory.at_peak[c] = x->memory.now[c] + 20;
        for (int p = 0; p < PHASE_COUNT; p++)
            x->phase_ns[p] = 100 * d + p, x->phase_bytes[p] = (uint64_t)(3000 * d + p);
        x->step_median_ns = d + 11, x->step_spread_ns = d + 12, x->no_core_ns = d + 13,
        x->kernels = d + 14;
        x->bytes_in = (1ull << 60) + (uint64_t)d, x->bytes_out = (uint64_t)d + 7,
        x->comm_ns = d + 1, x->exposed_ns = d + 16, x->wait_ns = d + 2, x->busy_ns = d + 3;
        x->flops = 1e12 + d;
        if (d == 1) continue; /* not hashed */
        fill(r.hashes[d] = malloc(STEPS * 2 * PARAMETERS * 8), STEPS * 2 * PARAMETERS * 8,
             (unsigned)d);
        fill(r.final_hashes[d] = malloc(PARAMETERS * 8), PARAMETERS * 8, (unsigned)d + 9);
    }
    r.traffic = calloc(1, sizeof *r.traffic);
    traffic_add(r.traffic, LINK_HOST, 0, 1ull << 60), traffic_add(r.traffic, 1, LINK_HOST, 3);
    traffic_add(r.traffic, 0, 1, 4096);
    fill(r.grads = malloc(COUNT * 4), COUNT * 4, 50);
    return r;
}

static char *bytes_of(const struct run_record *r, size_t *bytes) {
    char *text;
    FILE *f = open_memstream(&text, bytes);
    record_bytes_write(r, f);
    fclose(f);
    return text;
}

static char *json_of(const struct run_record *r) {
    char *text;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    struct json_writer w;
    json_start(&w, f);
    json_object(&w, NULL);
    record_write_fields(r, &w);
    json_close(&w);
    cr_assert_eq(json_finish(&w, "record"), OK);
    fclose(f);
    return text;
}

/* The JSON shows the struct, and the bytes after it show all that it points to. */
Test(record, round_trip, .timeout = 30) {
    struct run_record a = make(), b;
    size_t bytes, again;
    char *one = bytes_of(&a, &bytes), *text = json_of(&a);
    cr_assert_eq(record_bytes_read(&b, one, bytes), OK, "%s", error_message());
    char *two = bytes_of(&b, &again), *text_again = json_of(&b);
    cr_assert_str_eq(text, text_again);
    cr_assert_eq(bytes, again);
    cr_assert_arr_eq(one + sizeof a, two + sizeof a, bytes - sizeof a);
    cr_assert(a.hashes[0] != b.hashes[0] && !b.hashes[1] && !b.final_hashes[1] && b.hashes[2]);
    cr_assert_arr_eq(a.grads, b.grads, COUNT * 4);
    cr_assert(isinf(b.losses[3]) && signbit(b.losses[4]));
    cr_assert(!strcmp(b.names[1], "b\xc3\xa9") && strstr(text, "\"b\xc3\xa9\""));
    cr_assert(strstr(text, "2.3025887909104572") && strstr(text, "18446744073709551612") &&
              !strstr(text, "hashes"));
    free(one), free(two), free(text), free(text_again);
    record_free(&a), record_free(&b), record_free(&b), record_free(NULL);
}

/* A rank may have ended anywhere: nothing is read after the end, and what was read is freed, which
 * sanitizers see. */
Test(record, cut_short, .timeout = 60) {
    struct run_record a = make(), b;
    size_t bytes;
    char *text = bytes_of(&a, &bytes);
    for (size_t n = 0; n < bytes; n += n < sizeof a ? sizeof a / 7 : 53) {
        char *part = malloc(n + 1);
        memcpy(part, text, n);
        cr_assert_eq(record_bytes_read(&b, part, n), ERR_FAILED, "%zu of %zu bytes", n, bytes);
        record_free(&b);
        free(part);
    }
    free(text);
    record_free(&a);
}

/* Losses that are not finite: how many, and the first one's global step. */
Test(record, losses_not_finite, .timeout = 30) {
    double losses[] = {2, INFINITY, 1, NAN, -INFINITY};
    struct run_record r = {.first_step = 10, .steps = 5, .losses = losses};
    int count = -1;
    cr_assert(record_not_finite(&r, &count) == 11 && count == 3);
    cr_assert(says(not_finite_advice(11), "--lr") && !says(not_finite_advice(0), "--lr"));
    r.steps = 1;
    cr_assert(record_not_finite(&r, &count) == -1 && count == 0);
    cr_assert_eq(record_not_finite(&r, NULL), -1);
}

Test(record, sums, .timeout = 30) {
    struct run_record r = {
        .train_samples = 100, .duplicates = 4, .samples = 52, .training_seconds = 3};
    cr_assert_float_eq(record_seconds_per_epoch(&r), 6, 1e-12,
                       "half an epoch in 3 s is 6 s an epoch");
    r.steps = 2, r.batch_size = 26, r.steps_per_epoch = 4;
    cr_assert_float_eq(record_seconds_per_epoch(&r), 6, 1e-12);
    r.steps_per_epoch = 3; /* --drop-last: an epoch has 78 images */
    cr_assert_float_eq(record_seconds_per_epoch(&r), 4.5, 1e-12, "two steps of three in 3 s");
    cr_assert_float_eq(record_samples_per_second(&r), 52 / 3.0, 1e-12);
    r.device[0].step_median_ns = 500000000; /* and where steps were timed, their median counts */
    cr_assert_float_eq(record_samples_per_second(&r), 52, 1e-12);
    cr_assert_float_eq(record_seconds_per_epoch(&r), 1.5, 1e-12);
    cr_assert(seconds_digits(131) == 0 && seconds_digits(9.996) == 1 && seconds_digits(.2) == 3);
    cr_assert(rate_digits(21808) == 0 && rate_digits(9.4) == 1 && rate_digits(0.36) == 2);
    cr_assert_eq(record_last_accuracy(&r), -1);
    r = (struct run_record){.devices = 1};
    cr_assert(record_seconds_per_epoch(&r) == 0 && record_samples_per_second(&r) == 0);
    r.mode = MODE_DP;
    cr_assert(record_has_grads(&r, 0) && !record_has_grads(&r, 1));
    r.mode = MODE_DDP;
    cr_assert(record_has_grads(&r, 0) && record_has_grads(&r, 1));
}
