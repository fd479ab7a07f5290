/* Runs two jobs of one step, the reference's and the other mode's. */
#include "train/compare/lockstep.h"

#include <math.h>
#include <string.h>

#include "base/distance.h"
#include "base/error.h"

static int one_step(const struct run_config *config, enum run_mode mode, struct run_record **out,
                    struct job_result *result) {
    struct run_config one = *config;
    one.mode = mode;
    one.steps = 1;
    one.hashes = one.spans = one.evaluate = 0;
    one.dump_grads = one.quiet = one.warned = 1;
    one.model.options.dropout = 0;
    run_config_without_files(&one);
    CHECK(record_new(out));
    int code = job_run(&one, *out, result);
    if (code) record_delete(*out), *out = NULL;
    return code;
}

static double norm(const float *x, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum);
}

/* The relative distance of two gradients of one parameter; least: the smallest denominator. */
static double distance(const float *a, const float *b, size_t count, double least) {
    double d = relative_l2(a, b, count), own = norm(a, count);
    if (!least || own >= least || isnan(own)) return d;
    return own > 0 ? d * own / least : norm(b, count) / least;
}

static int compare_step(const struct run_config *config, const struct run_record *a,
                        const struct run_record *b, struct verdict *v) {
    struct model_options options = config->model.options;
    struct model model;
    options.sample = (struct sample_shape){a->channels, a->height, a->width};
    options.classes = a->classes;
    CHECK(model_open(&model, config->model.name, &options));
    size_t offset = 0;
    double least =
        model.buffer_count ? LOCKSTEP_LEAST_SHARE * norm(a->grads, model_count(&model)) : 0;
    if (model.buffer_count) v->bound = LOCKSTEP_BOUND_NORM;
    for (int p = 0; p < model.param_count; p++) {
        size_t count = param_spec_count(&model.params[p]);
        double d = distance(a->grads + offset, b->grads + offset, count, least);
        offset += count;
        if (d <= v->worst) continue;
        v->worst = d;
        v->parameter = p;
    }
    model_free(&model);
    return OK;
}

/* Without virtual devices DDP pads an epoch that the other modes do not pad, so the last batch
 * differs. */
static int same_work(const struct run_config *config, const struct run_record *reference) {
    return config->virtual_devices != VIRTUAL_OFF || config->data.join ||
           reference->steps_per_epoch > 1 || reference->train_samples % config->devices == 0;
}

int lockstep_check(const struct run_config *config, const struct run_record *reference,
                   struct verdict *v, struct job_result *result) {
    struct run_record *step = NULL, *other = NULL;
    v->worst = v->step = v->device = 0;
    v->bound = LOCKSTEP_BOUND;
    v->steps = same_work(config, reference);
    v->in_gradient = 1;
    int code = v->steps ? one_step(config, reference->mode, &step, result) : OK;
    if (!code && v->steps) code = one_step(config, config->mode, &other, result);
    if (!code && v->steps) code = compare_step(config, step, other, v);
    record_delete(step);
    record_delete(other);
    CHECK(code);
    v->kind = v->worst <= v->bound ? VERDICT_WITHIN : VERDICT_BEYOND;
    return OK;
}
