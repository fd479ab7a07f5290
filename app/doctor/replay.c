/* Recorded steps (CUDA graphs): the same training runs twice, once with every step launched anew
 * and once with steps replayed from a recording. What changes from step to step (the batch, the
 * learning rate, dropout's masks, the row of the logs) must reach a replayed step through device
 * memory. If the recording has captured such a value instead, the hashes of the next step
 * differ. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "doctor/sample.h"

enum { STEPS = 7, LEAST_REPLAYED = 2, PARAMS_KEPT = 16 };

struct outcome {
    double losses[2 * STEPS]; /* [STEPS][2]: by row of the log and by segment */
    /* [STEPS][2 * parameters]: by row of the log, the parameters' values, then their gradients */
    uint64_t hashes[STEPS * 2 * PARAMS_KEPT];
    int replayed; /* how many steps were replayed completely */
};

static int train(struct replica *r, struct sample *s, struct outcome *out) {
    const struct batch batch = {.segments = s->segments, .pixels = s->pixels, .labels = s->labels};
    for (int k = 0; k < STEPS; k++) {
        struct step_block step = {.seed = 5,
                                  .step = (uint64_t)k,
                                  .weight = 1.0f / (float)(s->segments.n + k),
                                  .learning_rate = 0.01f * (float)(k + 1),
                                  .first_update = k == 0,
                                  .row = STEPS - 1 - k};
        s->pixels[0] = (float)k; /* a different batch in each step */
        CHECK(replica_write_step(r, &step));
        CHECK(replica_load(r, &batch));
        CHECK(replica_step(r, &s->segments));
        out->replayed += r->recorded.stage == STAGE_REPLAYED;
        CHECK(stream_sync(device_compute(r->device))); /* the next step overwrites the batch */
    }
    return replica_read_logs(r, STEPS, out->losses, NULL, out->hashes);
}

static int train_on(struct sample *s, struct device *device, int graph, struct outcome *out) {
    struct replica_config config = {.max_samples = s->segments.n,
                                    .log_rows = STEPS,
                                    .log_segments = s->segments.count,
                                    .hashes = 1,
                                    .optimizer = 1,
                                    .update.momentum = 0.9,
                                    .graph = graph};
    struct replica r;
    if (s->model.param_count > PARAMS_KEPT)
        return fail(ERR_FAILED, "doctor: model %s has more than %d parameters", s->model.name,
                    PARAMS_KEPT);
    CHECK(replica_init(&r, device, &s->model, &config, s->values));
    int code = train(&r, s, out);
    replica_free(&r);
    return code;
}

static void compare(struct doctor *d, const struct sample *s, const struct outcome *launched,
                    const struct outcome *replayed) {
    static const char bound[] = "equal to steps launched anew; 2 replayed at least";
    char name[CHECK_NAME_BYTES];
    int hashes = 2 * s->model.param_count; /* of one step */
    int row = STEPS - 1;                   /* of the log; the first step writes the last row */
    snprintf(name, sizeof name, "%s: %s replayed", doctor_kind_name(d), s->model.name);
    while (row >= 0 &&
           !memcmp(&launched->hashes[row * hashes], &replayed->hashes[row * hashes],
                   (size_t)hashes * sizeof(uint64_t)) &&
           !memcmp(&launched->losses[2 * row], &replayed->losses[2 * row], 2 * sizeof(double)))
        row--;
    if (row >= 0)
        note(d, FINDING_OFF, name, bound, "losses, values or gradients differ from step %d on",
             STEPS - 1 - row);
    else
        note(d, replayed->replayed >= LEAST_REPLAYED ? FINDING_OK : FINDING_OFF, name, bound,
             "%d of %d steps replayed: losses, values, gradients equal", replayed->replayed, STEPS);
}

static int one_model(struct doctor *d, int i) {
    struct sample sample = {.pixels = NULL};
    struct outcome launched = {.replayed = 0}, replayed = {.replayed = 0};
    struct device *device = NULL;
    int code = sample_open(&sample, d, i, d->config.seed);
    if (!code) code = doctor_open(d, 0, SAMPLE_DEVICE_BYTES, 1, &device);
    if (!code) code = train_on(&sample, device, 0, &launched);
    if (!code) code = train_on(&sample, device, 1, &replayed);
    if (!code) compare(d, &sample, &launched, &replayed);
    device_close(device);
    sample_free(&sample);
    return code;
}

int check_replay(struct doctor *d, int first) {
    if (d->kind != DEVICE_CUDA) {
        note(d, FINDING_NOT_HERE, "cpu: steps replayed", "",
             "emulated devices launch every step anew");
        return OK;
    }
    for (int i = first; i < SAMPLE_MODELS; i++) {
        doctor_step(d, i, "%s: %s replayed", doctor_kind_name(d), sample_name(i));
        CHECK(one_model(d, i));
    }
    return OK;
}
