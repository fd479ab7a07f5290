/* Checks one training step of a whole model, as in `duet train`: copy of the batch, forward, loss,
 * backward, update. It checks two things.
 *
 * Agreement with the reference, which runs the same step with the host's reference kernels from the
 * same values. The loss and the gradient of every parameter must agree within a bound. Two correct
 * programs may take different branches if the input of a ReLU is within rounding of zero, or if two
 * values of a max-pool are within rounding of each other. A gradient may then far exceed the bound.
 * That happened with 4 of 200 batches. So after a batch that disagrees the check tries another. One
 * batch that agrees is enough, because a real fault shows on every batch.
 *
 * Equal bits between the batch as two segments at once and each segment alone. The losses and the
 * folded gradients must agree bit for bit. This makes single, DP and DDP the same training
 * (docs/design.md section 2, rules 1 and 2). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/distance.h"
#include "base/error.h"
#include "doctor/check.h"
#include "models/replica.h"

/* ---- a model with initial values, and a batch of random images ---- */

enum { MODELS = 3, MOST_PICTURES = 40 };

static const uint64_t DEVICE_BYTES = (uint64_t)64 << 20; /* more than a step needs */
struct sample {
    struct model model;
    float **values;           /* initial values, by parameter in registration order */
    struct segments segments; /* two segments, which together are the batch */
    size_t pixels_each;       /* pixels of one image: C * H * W */
    float *pixels;            /* [segments.n][C][H][W] */
    int32_t labels[MOST_PICTURES];
};

/* The initial values are multiplied so that the scores of the classes differ. With LeNet's own
 * initial values all classes have nearly the same probability whatever the image is, and the loss
 * would hardly depend on the first layers. */
static const struct {
    const char *name;
    float factor; /* for the initial values */
    struct sample_shape sample;
    int classes;
} models[MODELS] = {{"lenet", 10, {1, 28, 28}, 10},
                    {"convnet", 1.5f, {1, 28, 28}, 10},
                    {"complex", 3, {3, 9, 11}, 37}}; /* colours, odd sides, more classes */

/* Opens model i, with values and images drawn from `seed`. */
static int sample_open(struct sample *s, const struct doctor *d, int i, uint64_t seed) {
    const struct model_options options = {
        .dropout = -1, .sample = models[i].sample, .classes = models[i].classes};
    int n = d->config.quick ? 9 : MOST_PICTURES - 3; /* segments that end inside a group of 16 */
    struct rng rng;
    CHECK(model_open(&s->model, models[i].name, &options));
    CHECK(model_values_init(&s->model, seed, &s->values));
    for (int p = 0; p < s->model.param_count; p++)
        for (size_t k = 0; k < param_spec_count(&s->model.params[p]); k++)
            s->values[p][k] *= models[i].factor;
    s->pixels_each = (size_t)(s->model.channels * s->model.height * s->model.width);
    s->pixels = malloc((size_t)n * s->pixels_each * sizeof(float));
    if (!s->pixels)
        return fail(ERR_MEMORY, "doctor: out of host memory for a batch: free some memory");
    rng_seed(&rng, seed + 1);
    rng_uniform(&rng, s->pixels, (size_t)n * s->pixels_each, 0, 1);
    s->segments = (struct segments){2, n, {{0, n / 2 + 1}, {1, n - n / 2 - 1}}};
    for (int k = 0; k < n; k++)
        s->labels[k] = (int32_t)(rng_u32(&rng) % (uint32_t)s->model.classes);
    return OK;
}

static void sample_free(struct sample *s) {
    free(s->pixels);
    model_values_free(s->values);
    model_free(&s->model);
}

/* ---- the step ---- */

/* Every correct float kernel stays within this relative error of one step's loss. Duet's own
 * kernels sum in double and come much closer. */
static const double LOSS_BOUND = 2e-6;
/* tf32 rounds every factor to 2^-11, about 5e-4 of each product, in 4 layers forward and backward.
 * So many values then take the other branch of a ReLU or max-pool that correct gradients were up to
 * 4.1e-2 apart. A wrong gradient is off by about its own size. */
static const double TF32_LOSS_BOUND = 2e-3, TF32_GRADIENT_BOUND = 1e-1;

enum { BATCHES = 3 }; /* the most batches that are tried */
/* The relative L2 distance from the reference that a gradient may have: kernels that sum in other
 * orders let more ReLUs flip than two modes with the same kernels. */
static const double GRADIENT_BOUND = 3e-4;
static const uint64_t OTHER_BATCH = 1000003; /* added to the seed for each further batch */

struct outcome {
    double loss[2]; /* by segment */
    float *grads;   /* all parameters, registration order */
};

struct testbed {
    struct doctor *d;
    struct sample sample;
    int batch;     /* number of the batch, from 0 */
    float *memory; /* [4][grads]: the gradients of the four outcomes */
    size_t grads;  /* gradient elements of the model */
    struct outcome reference, whole, part[2];
};

static int open_testbed(struct testbed *bed, int i) {
    struct outcome *outcomes[] = {&bed->reference, &bed->whole, &bed->part[0], &bed->part[1]};
    CHECK(sample_open(&bed->sample, bed->d, i,
                      bed->d->config.seed + (uint64_t)bed->batch * OTHER_BATCH));
    bed->grads = model_count(&bed->sample.model);
    bed->memory = malloc(4 * bed->grads * sizeof(float));
    if (!bed->memory)
        return fail(ERR_MEMORY, "doctor: out of host memory for gradients: free some memory");
    for (size_t k = 0; k < 4; k++)
        outcomes[k]->grads = bed->memory + k * bed->grads;
    return OK;
}

static struct batch whole_batch(const struct testbed *bed) {
    const struct sample *s = &bed->sample;
    return (struct batch){.segments = s->segments, .pixels = s->pixels, .labels = s->labels};
}

/* Segment v alone, as the batch of one virtual device. */
static struct batch part_of(const struct testbed *bed, int v) {
    const struct sample *s = &bed->sample;
    struct segment seg = s->segments.seg[v];
    size_t from = v ? (size_t)s->segments.seg[0].n : 0;
    return (struct batch){.segments = {1, seg.n, {seg}},
                          .pixels = s->pixels + from * s->pixels_each,
                          .labels = s->labels + from};
}

/* ---- one step ---- */

static int take_step(struct replica *r, const struct batch *batch, int samples,
                     struct outcome *out) {
    struct step_block step = {
        .seed = 5, .weight = 1.0f / (float)samples, .learning_rate = 0.1f, .first_update = 1};
    duet_var *output, *loss;
    size_t at = 0;
    CHECK(replica_write_step(r, &step));
    CHECK(replica_load(r, batch));
    CHECK(replica_forward(r, &batch->segments, 1, &output));
    CHECK(replica_loss(r, output, 1, &loss));
    CHECK(replica_backward(r, loss));
    CHECK(replica_update(r));
    CHECK(replica_read_logs(r, 1, out->loss, NULL, NULL));
    for (int i = 0; i < r->params->set.count; at += r->params->set.param[i++].count)
        CHECK(param_read_grad(&r->params->set, i, out->grads + at));
    return OK;
}

/* Each step has its own replica, and all start from the same values. */
static int step_on(struct testbed *bed, struct device *device, struct batch batch,
                   struct outcome *out) {
    struct replica_config config = {.max_samples = batch.segments.n,
                                    .log_rows = 1,
                                    .log_segments = batch.segments.count,
                                    .optimizer = 1,
                                    .update.momentum = 0.9};
    struct replica r;
    CHECK(replica_init(&r, device, &bed->sample.model, &config, bed->sample.values));
    int code = take_step(&r, &batch, bed->sample.segments.n, out);
    replica_free(&r);
    return code;
}

static int step_by_the_reference(struct testbed *bed) {
    struct device_config config = {.kind = DEVICE_HOST,
                                   .memory_bytes = DEVICE_BYTES,
                                   .reference_math = 1,
                                   .timeout_s = bed->d->config.timeout / 2};
    struct device *device;
    CHECK(device_open(&device, &config));
    int code = step_on(bed, device, whole_batch(bed), &bed->reference);
    device_close(device);
    return code;
}

static int steps_on_the_device(struct testbed *bed) {
    struct device *device;
    CHECK(doctor_open(bed->d, 0, DEVICE_BYTES, 1, &device));
    int code = step_on(bed, device, whole_batch(bed), &bed->whole);
    for (int v = 0; v < 2 && !code; v++)
        code = step_on(bed, device, part_of(bed, v), &bed->part[v]);
    device_close(device);
    return code;
}

/* ---- comparison ---- */

/* Adds the finding and returns 1; or returns 0 if they are too far apart and another batch is to be
 * tried. */
static int compare_with_reference(struct testbed *bed) {
    const struct model *model = &bed->sample.model;
    int tf32 = bed->d->kind == DEVICE_CUDA && bed->d->config.tf32;
    double loss = 0, want = 0, worst = 0;
    char name[CHECK_NAME_BYTES], bound[160], batch[48] = "";
    const char *where = "all";
    size_t at = 0;
    for (int s = 0; s < 2; s++) {
        loss += bed->whole.loss[s];
        want += bed->reference.loss[s];
    }
    double loss_off = fabs(loss - want) / fabs(want);
    double most_loss = tf32 ? TF32_LOSS_BOUND : LOSS_BOUND,
           most = tf32 ? TF32_GRADIENT_BOUND : GRADIENT_BOUND;
    for (int i = 0; i < model->param_count; i++) {
        size_t count = param_spec_count(&model->params[i]);
        double far = relative_l2(bed->reference.grads + at, bed->whole.grads + at, count);
        if (far > worst) worst = far, where = model->params[i].name;
        at += count;
    }
    int agree = loss_off <= most_loss && worst <= most;
    if (!agree && bed->batch + 1 < BATCHES) return 0;
    if (bed->batch)
        snprintf(batch, sizeof batch, agree ? "; batch %d" : "; no better in %d batches",
                 bed->batch + 1);
    snprintf(name, sizeof name, "%s: step of %s", doctor_kind_name(bed->d), model->name);
    snprintf(bound, sizeof bound, "loss %.0e, gradients %.0e: %s", most_loss, most,
             tf32 ? "factors of 11 bits, 4 layers, forward and backward"
                  : "correct steps differed by 4.5e-5, wrong ones by 1e-2");
    note(bed->d, agree ? FINDING_OK : FINDING_OFF, name, bound,
         "loss off by %.1e, gradients by %.1e (%s)%s", loss_off, worst, where, batch);
    return 1;
}

static void compare_bits(struct testbed *bed) {
    static const char bound[] = "equal: both segments at once, and each by itself, folded";
    char name[CHECK_NAME_BYTES];
    size_t wrong = 0, first = 0;
    snprintf(name, sizeof name, "%s: %s in two segments", doctor_kind_name(bed->d),
             bed->sample.model.name);
    for (size_t i = 0; i < bed->grads; i++) {
        float folded = bed->part[0].grads[i] + bed->part[1].grads[i];
        if (memcmp(&folded, &bed->whole.grads[i], sizeof folded) && wrong++ == 0) first = i;
    }
    int losses =
        bed->part[0].loss[0] == bed->whole.loss[0] && bed->part[1].loss[0] == bed->whole.loss[1];
    if (!wrong && losses)
        note(bed->d, FINDING_OK, name, bound, "losses and %zu gradients equal", bed->grads);
    else if (!losses)
        note(bed->d, FINDING_OFF, name, bound, "losses %.17g and %.17g, alone %.17g and %.17g",
             bed->whole.loss[0], bed->whole.loss[1], bed->part[0].loss[0], bed->part[1].loss[0]);
    else
        note(bed->d, FINDING_OFF, name, bound,
             "%zu of %zu gradients differ; the first is number %zu", wrong, bed->grads, first);
}

/* One batch. *done: the findings were added, no other batch is needed. */
static int one_batch(struct doctor *d, int model, int batch, int *done) {
    struct testbed bed = {.d = d, .batch = batch};
    int code = open_testbed(&bed, model);
    if (!code) code = step_by_the_reference(&bed);
    if (!code) code = steps_on_the_device(&bed);
    if (!code) *done = compare_with_reference(&bed);
    if (!code && *done) compare_bits(&bed);
    free(bed.memory);
    sample_free(&bed.sample);
    return code;
}

int check_step(struct doctor *d, int first) {
    for (int i = first; i < MODELS; i++) {
        int done = 0;
        doctor_step(d, i, "%s: step of %s", doctor_kind_name(d), models[i].name);
        for (int batch = 0; !done; batch++)
            CHECK(one_batch(d, i, batch, &done));
    }
    return OK;
}
