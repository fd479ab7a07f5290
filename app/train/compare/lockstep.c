/* Each point is two jobs of one step, the reference's and the other mode's, started from the
 * snapshot. The reference's is made once for all modes. */
#include "train/compare/lockstep.h"

#include <math.h>
#include <string.h>

#include "base/distance.h"
#include "base/error.h"

void lockstep_points(int steps, int points[MAX_SNAPSHOTS]) {
    int wanted[] = {0, steps / 4, steps / 2, steps - 1}, n = 0;
    for (int i = 0; steps > 0 && i < 4; i++)
        if (n == 0 || wanted[i] > points[n - 1]) points[n++] = wanted[i];
    points[n] = -1;
}

static int one_step(const struct run_config *config, enum run_mode mode,
                    const struct run_record *single, int k, struct run_record *out,
                    struct job_result *result) {
    struct run_config one = *config;
    one.mode = mode;
    one.part.first_step = single->snapshot_step[k];
    one.steps = 1;
    one.hashes = one.spans = one.evaluate = 0;
    one.part.dump_grads = one.quiet = one.warned = 1;
    one.part.snapshots[0] = -1;
    one.model.options.dropout = 0;
    *one.model.init_from = 0;
    run_config_without_files(&one);
    return job_run(&one, single->snapshots[k], single->parameter_count, out, result);
}

static double norm(const float *x, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum);
}

/* The distance of two gradients of one parameter; least: what it is measured against at least. */
static double distance(const float *a, const float *b, size_t count, double least) {
    double d = relative_l2(a, b, count), own = norm(a, count);
    if (!least || own >= least) return d;
    double apart = 0;
    for (size_t i = 0; i < count; i++)
        apart += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return isfinite(apart) ? sqrt(apart) / least : INFINITY;
}

static int compare_point(const struct run_config *config, const struct run_record *single, int k,
                         const struct run_record *a, const struct run_record *b,
                         struct verdict *v) {
    struct model_options options = config->model.options;
    struct model model;
    options.sample = (struct sample_shape){single->channels, single->height, single->width};
    options.classes = single->classes;
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
        v->step = single->snapshot_step[k];
        v->parameter = p;
    }
    model_free(&model);
    return OK;
}

static int reference_step(const struct run_config *config, const struct run_record *reference,
                          int k, struct run_record **step, struct job_result *result) {
    if (*step) return OK;
    CHECK(record_new(step));
    int code = one_step(config, reference->mode, reference, k, *step, result);
    if (!code) return OK;
    record_delete(*step);
    *step = NULL;
    return code;
}

int lockstep_check(const struct run_config *config, const struct run_record *reference,
                   struct run_record **steps, struct verdict *v, struct job_result *result) {
    v->worst = 0;
    v->bound = LOCKSTEP_BOUND;
    v->steps = reference->snapshot_count;
    v->in_gradient = 1;
    v->device = 0;
    for (int k = 0; k < reference->snapshot_count; k++) {
        struct run_record *other;
        CHECK(reference_step(config, reference, k, &steps[k], result));
        CHECK(record_new(&other));
        int code = one_step(config, config->mode, reference, k, other, result);
        if (!code) code = compare_point(config, reference, k, steps[k], other, v);
        record_delete(other);
        CHECK(code);
    }
    v->kind = v->worst <= v->bound ? VERDICT_WITHIN : VERDICT_BEYOND;
    return OK;
}
