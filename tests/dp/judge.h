/* The judge of DP: one device that holds all segments itself takes the same steps, and every bit
 * must be equal. (That one device has the bits of single: tests/app/cli/test_same_bits.c.) */
#ifndef TESTS_DP_JUDGE_H
#define TESTS_DP_JUDGE_H

#include "tests/dp/rig.h"

struct record {
    int params;
    size_t count;
    float *values, *grads; /* all parameters one after another, after the last step */
    double losses[RIG_ROWS * 64];
    int64_t hits[RIG_ROWS * 64];
    uint64_t *hashes; /* (RIG_ROWS, 2 * params) */
};

static inline void record_replica(struct record *record, struct replica *r) {
    record->params = r->params->set.count;
    record->count = r->params->set.total_count;
    record->values = malloc(record->count * sizeof(float));
    record->grads = malloc(record->count * sizeof(float));
    record->hashes = malloc(sizeof(uint64_t) * RIG_ROWS * 2 * (size_t)r->params->set.count);
    size_t at = 0;
    for (int p = 0; p < r->params->set.count; at += r->params->set.param[p++].count) {
        cr_assert_eq(param_read_value(&r->params->set, p, record->values + at), OK, "%s",
                     error_message());
        cr_assert_eq(param_read_grad(&r->params->set, p, record->grads + at), OK, "%s",
                     error_message());
    }
    cr_assert_eq(replica_read_logs(r, RIG_ROWS, record->losses, record->hits, record->hashes), OK,
                 "%s", error_message());
}

static inline void judged_free(struct record *record) {
    free(record->values);
    free(record->grads);
    free(record->hashes);
}

/* Steps of batches[i] samples, evaluations where negative; then the values' hashes. */
static inline void rig_train(struct rig *rig, const int *batches, int steps, const char *what) {
    struct step_block last = rig_step(steps, 1);
    for (int i = 0; i < steps; i++)
        cr_assert_eq(rig_run(rig, i, abs(batches[i]), batches[i] > 0), OK, "%s: step %d: %s", what,
                     i, error_message());
    cr_assert_eq(rig_hash_values(rig, &last), OK, "%s: %s", what, error_message());
}

static inline void judge(struct record *record, const char *model, int segments, const int *batches,
                         int steps) {
    struct rig rig;
    rig_open(&rig, model, 1, segments, DEVICE_HOST, 0);
    struct rig_config config = rig_config(&rig, 0);
    cr_assert_eq(rig_init(&rig, &config), OK, "%s", error_message());
    rig_train(&rig, batches, steps, "one device");
    record_replica(record, rig_replica(&rig, 0));
    rig_free(&rig);
}

/* The virtual device whose samples are in column c of the logs: dp.h states the formula. */
static inline int column_v(const struct rig *rig, int c) {
    int k = rig->segments / rig->devices;
    return c / k + c % k * rig->devices;
}

/* Logs of losses and hits are on `output_device`, everything else on device 0. */
static inline void check_against(struct rig *rig, const struct record *want, const int *batches,
                                 int steps, int output_device, const char *what) {
    struct record got;
    int params = want->params, columns = rig->segments;
    record_replica(&got, rig_replica(rig, output_device));
    for (int i = 0; i < steps; i++)
        for (int c = 0; c < columns; c++) {
            int v = column_v(rig, c), n = abs(batches[i]);
            cr_assert(memcmp(&got.losses[i * columns + c], &want->losses[i * columns + v],
                             sizeof(double)) == 0,
                      "%s: step %d, loss of virtual device %d: %.17g, not %.17g", what, i, v,
                      got.losses[i * columns + c], want->losses[i * columns + v]);
            cr_assert_eq(got.hits[i * columns + c], want->hits[i * columns + v],
                         "%s: step %d, hits of %d", what, i, v);
            if (v >= n)
                cr_assert_eq(got.losses[i * columns + c], 0.0, "%s: an empty segment has no loss",
                             what);
        }
    judged_free(&got);
    record_replica(&got, rig_replica(rig, 0));
    for (int i = 0; i <= steps; i++) {
        if (i < steps && batches[i] < 0) continue;
        for (int p = 0; p < 2 * params && (i < steps || p < params); p++)
            cr_assert_eq(got.hashes[i * 2 * params + p], want->hashes[i * 2 * params + p],
                         "%s: step %d, hash of %s %d", what, i, p < params ? "value" : "gradient",
                         p % params);
    }
    cr_assert(memcmp(got.values, want->values, want->count * sizeof(float)) == 0,
              "%s: other parameters", what);
    cr_assert(memcmp(got.grads, want->grads, want->count * sizeof(float)) == 0,
              "%s: other gradients", what);
    judged_free(&got);

    /* every device saw the same values, by its own hashes */
    for (int r = 1; r < rig->devices; r++) {
        record_replica(&got, rig_replica(rig, r));
        for (int i = 0; i <= steps; i++)
            for (int p = 0; p < params && (i == steps || batches[i] > 0); p++)
                cr_assert_eq(got.hashes[i * 2 * params + p], want->hashes[i * 2 * params + p],
                             "%s: step %d, device %d saw another parameter %d", what, i, r, p);
        judged_free(&got);
    }
}

#endif
