/* The run record: what is written comes back, to the bit where bits count, and what is no record is
 * refused. */
#include <math.h>

#include "base/error.h"
#include "tests/harness/harness.h"
#include "tests/harness/text.h"
#include "trace/record.h"
#include "trace/record_proof.h"

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
                           .images = INT64_MAX,
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
            x->phase_ns[p] = 100 * d + p, x->phase_median_ns[p] = 1000 * d + p,
            x->phase_spread_ns[p] = 2000 * d + p, x->phase_p90_ns[p] = 4000 * d + p,
            x->phase_bytes[p] = (uint64_t)(3000 * d + p);
        x->step_median_ns = d + 11, x->step_spread_ns = d + 12, x->no_core_ns = d + 13,
        x->step_p90_ns = d + 15, x->kernels = d + 14;
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

static char *written(const struct run_record *r, int hashes, size_t *bytes) {
    char *text;
    FILE *f = open_memstream(&text, bytes);
    struct json_writer w;
    json_start(&w, f);
    record_write(r, &w, NULL, hashes);
    cr_assert_eq(json_finish(&w, "record"), OK);
    fclose(f);
    return text;
}

static int read_back(const char *text, size_t bytes, struct run_record *r) {
    struct json *root = NULL;
    cr_assert_eq(json_parse("record", text, bytes, &root), OK, "%s", error_message());
    int code = record_read(r, root);
    json_free(root);
    return code;
}

/* Gradients go beside the text. */
static float *floats_of(const struct run_record *r, size_t *count) {
    char *bytes;
    FILE *f = open_memstream(&bytes, count);
    record_floats_write(r, f);
    fclose(f);
    *count /= sizeof(float);
    cr_assert_eq(*count, record_floats(r));
    return (float *)(void *)bytes;
}

static void same_device(const struct device_record *a, const struct device_record *b) {
    cr_assert(a->device == b->device && a->bytes_in == b->bytes_in &&
              a->bytes_out == b->bytes_out && a->comm_ns == b->comm_ns &&
              a->exposed_ns == b->exposed_ns && a->wait_ns == b->wait_ns &&
              a->busy_ns == b->busy_ns && a->flops == b->flops);
    cr_assert(a->step_median_ns == b->step_median_ns && a->step_spread_ns == b->step_spread_ns &&
              a->no_core_ns == b->no_core_ns && a->kernels == b->kernels);
    cr_assert_arr_eq(a->phase_median_ns, b->phase_median_ns, sizeof a->phase_median_ns);
    cr_assert_eq(a->step_p90_ns, b->step_p90_ns);
    cr_assert_arr_eq(a->phase_p90_ns, b->phase_p90_ns, sizeof a->phase_p90_ns);
    cr_assert_arr_eq(a->phase_spread_ns, b->phase_spread_ns, sizeof a->phase_spread_ns);
    cr_assert_arr_eq(a->phase_bytes, b->phase_bytes, sizeof a->phase_bytes);
    cr_assert_arr_eq(a->phase_ns, b->phase_ns, sizeof a->phase_ns);
    cr_assert(a->memory.capacity == b->memory.capacity && a->memory.total == b->memory.total &&
              a->memory.total_peak == b->memory.total_peak);
    cr_assert_arr_eq(a->memory.now, b->memory.now, sizeof a->memory.now);
    cr_assert_arr_eq(a->memory.peak, b->memory.peak, sizeof a->memory.peak);
    cr_assert_arr_eq(a->memory.at_peak, b->memory.at_peak, sizeof a->memory.at_peak);
}

Test(record, round_trip, .timeout = 30) {
    struct run_record a = make(), b;
    size_t bytes, again_bytes, count;
    char *text = written(&a, 1, &bytes);
    float *floats = floats_of(&a, &count);
    cr_assert_eq(read_back(text, bytes, &b), OK, "%s", error_message());
    cr_assert(!b.grads);
    cr_assert_eq(record_floats_read(&b, floats, count), OK, "%s", error_message());
    char *again = written(&b, 1, &again_bytes);
    cr_assert_eq(bytes, again_bytes);
    cr_assert_str_eq(text, again);
    for (int d = 0; d < DEVICES; d++) {
        same_device(&a.device[d], &b.device[d]);
        cr_assert_eq(!a.hashes[d], !b.hashes[d]);
        if (!a.hashes[d]) continue;
        cr_assert_arr_eq(a.hashes[d], b.hashes[d], STEPS * 2 * PARAMETERS * 8);
        cr_assert_arr_eq(a.final_hashes[d], b.final_hashes[d], PARAMETERS * 8);
    }
    cr_assert_arr_eq(a.traffic, b.traffic, sizeof *a.traffic);
    cr_assert_arr_eq(a.grads, b.grads, COUNT * 4);
    cr_assert_arr_eq(a.losses, b.losses, 2 * sizeof *a.losses);
    cr_assert(isnan(b.losses[2]) && isnan(b.losses[3]),
              "JSON knows no infinity: both read as not a number");
    cr_assert(b.losses[4] == 0 && signbit(b.losses[4]));
    cr_assert_str_eq(b.sum_order, a.sum_order);
    cr_assert(b.epoch_seconds[1] == 6.25 && b.accuracy[0] == 0.5 && b.accuracy[1] == -1 &&
              b.epoch_count == 2 && b.epoch_lr[0] == 0.1 && b.epoch_lr[1] == 0.04);
    cr_assert(b.valid_loss[0] == 0.7 && isnan(b.valid_loss[1]) &&
              isnan(record_last_valid_loss(&b)));
    cr_assert(b.seed == a.seed && b.images == a.images && b.lr == a.lr &&
              b.momentum == a.momentum && !strcmp(b.optimizer, a.optimizer) && b.spans_lost == 12 &&
              *a.optimizer && b.weight_decay == a.weight_decay);
    cr_assert(b.virtual_devices == 6 && b.bits_promised == 1 && b.gpus == 2 && b.cores == 5 &&
              b.batch_size == 256 && b.epochs == 2 && b.parameters == PARAMETERS &&
              b.parameter_count == COUNT && b.duplicates == 4 && b.train_samples == 60000 &&
              b.test_samples == 10000 && b.channels == 3 && b.height == 32 && b.width == 31 &&
              b.classes == 11 && b.loss_in_forward == 1 && b.first_step == 9 && b.steps == STEPS &&
              b.training_seconds == 12.25 && b.first_step_seconds == 0.75);
    cr_assert(a.mode == MODE_DDP && b.mode == MODE_DDP && !strcmp(a.model, b.model) &&
              !strcmp(a.dataset, b.dataset) && !strcmp(a.kind, b.kind) &&
              !strcmp(a.algorithm, b.algorithm) && !strcmp(a.why_not, b.why_not) &&
              !strcmp(a.choice, b.choice));
    cr_assert(b.bucket_count == 2 && b.bucket_bytes[0] == 16 && b.bucket_bytes[1] == 1ll << 40);
    cr_assert(!strcmp(b.names[0], "cn1.weight") && !strcmp(b.names[1], "b\xc3\xa9"));
    free(text), free(again), free(floats);
    record_free(&a), record_free(&b), record_free(&b), record_free(NULL);
}

/* A record without gradients, and counts that do not fit. */
Test(record, floats, .timeout = 30) {
    struct run_record a = make(), b;
    size_t bytes, count;
    char *text = written(&a, 1, &bytes);
    float *floats = floats_of(&a, &count);
    const size_t wrong[] = {1, COUNT - 1, COUNT + 1, 2 * COUNT};
    cr_assert_eq(count, COUNT);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_assert_eq(read_back(text, bytes, &b), OK, "%s", error_message());
        cr_assert_eq(record_floats_read(&b, floats, wrong[i]), ERR_FAILED, "%zu", wrong[i]);
        record_free(&b);
    }
    cr_assert_eq(read_back(text, bytes, &b), OK, "%s", error_message());
    cr_assert_eq(record_floats_read(&b, floats, 0), OK, "%s", error_message());
    cr_assert(!b.grads && record_floats(&b) == 0);
    free(text), free(floats);
    record_free(&a), record_free(&b);
}

Test(record, without_proof, .timeout = 30) {
    struct run_record a = make(), b;
    size_t bytes;
    char *text = written(&a, 0, &bytes);
    cr_assert_null(strstr(text, "hashes"));
    cr_assert_eq(read_back(text, bytes, &b), OK, "%s", error_message());
    for (int d = 0; d < DEVICES; d++)
        cr_assert(!b.hashes[d] && !b.final_hashes[d]);
    cr_assert(!b.grads);
    free(text);
    record_free(&a), record_free(&b);
}

/* Records that another version may have written, or that were damaged: each is refused. Under the
 * sanitizers nothing is read past the text and nothing leaks. */
Test(record, what_is_no_record, .timeout = 60) {
    struct run_record a = make(), b;
    size_t bytes;
    char *text = written(&a, 1, &bytes);
    const char *const changes[][2] = {{"\"mode\": \"ddp\"", "\"mode\": \"ddq\""},
                                      {"\"devices\": 3", "\"devices\": 2"},
                                      {"\"devices\": 3", "\"devices\": 65"},
                                      {"\"steps\": 5", "\"steps\": 6"},
                                      {"\"steps\": 5", "\"steps\": -1"},
                                      {"\"losses\"", "\"lasses\""},
                                      {"\"per_device\"", "\"per_divice\""},
                                      {"\"hashes\": [\"", "\"hashes\": [\"zz"},
                                      {"\"hashes\": [\"", "\"hashes\": [\"0"},
                                      {"\"parameters\": [", "\"parameters\": [\"more\", "}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char *other = malloc(bytes + 64), *at = strstr(text, changes[i][0]);
        cr_assert_not_null(at, "%s is not in the text", changes[i][0]);
        int length = sprintf(other, "%.*s%s%s", (int)(at - text), text, changes[i][1],
                             at + strlen(changes[i][0]));
        cr_assert_eq(read_back(other, (size_t)length, &b), ERR_FAILED, "%s was read",
                     changes[i][1]);
        record_free(&b);
        free(other);
    }
    const char *const nonsense[] = {
        "{}", "[]", "7", "null", "{\"devices\":1}", "{\"devices\":1,\"per_device\":[7]}"};
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        cr_assert_eq(read_back(nonsense[i], strlen(nonsense[i]), &b), ERR_FAILED, "%s was read",
                     nonsense[i]);
        record_free(&b);
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
        .train_samples = 100, .duplicates = 4, .images = 52, .training_seconds = 3};
    cr_assert_float_eq(record_seconds_per_epoch(&r), 6, 1e-12,
                       "half an epoch in 3 s is 6 s an epoch");
    r.steps = 2, r.batch_size = 26, r.steps_per_epoch = 4;
    cr_assert_float_eq(record_seconds_per_epoch(&r), 6, 1e-12);
    r.steps_per_epoch = 3; /* --drop-last: an epoch has 78 pictures */
    cr_assert_float_eq(record_seconds_per_epoch(&r), 4.5, 1e-12, "two steps of three in 3 s");
    cr_assert_float_eq(record_images_per_second(&r), 52 / 3.0, 1e-12);
    cr_assert(seconds_digits(131) == 0 && seconds_digits(9.996) == 1 && seconds_digits(.2) == 3);
    cr_assert(rate_digits(21808) == 0 && rate_digits(9.4) == 1 && rate_digits(0.36) == 2);
    cr_assert_eq(record_last_accuracy(&r), -1);
    r = (struct run_record){.devices = 1};
    cr_assert(record_seconds_per_epoch(&r) == 0 && record_images_per_second(&r) == 0);
    r.mode = MODE_DP;
    cr_assert(record_has_grads(&r, 0) && !record_has_grads(&r, 1));
    r.mode = MODE_DDP;
    cr_assert(record_has_grads(&r, 0) && record_has_grads(&r, 1));
}
