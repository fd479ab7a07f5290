/* Simple: one linear layer, nn.Linear(10, 10) of PyTorch's first examples of data parallel
 * training. There is next to nothing to compute, so what a step costs is what the strategy itself
 * costs.
 *
 *     (N,10) linear -> 10 scores; cross entropy
 *
 * Samples of any shape are flattened, and the scores follow the classes. Parameters are
 * linear.weight (out, in) and linear.bias, with PyTorch's default initialisation. */
#include "models/models.h"
#include "nn/init.h"

enum { WEIGHT, BIAS };

static int init(const struct model *model, struct rng *engine, float **values) {
    const int *dims = model->params[WEIGHT].dims;
    init_linear(engine, dims[0], dims[1], values[WEIGHT], values[BIAS]);
    return 0;
}

static struct var *forward(const struct model *model, struct tape *t, struct param *p,
                           struct buffer *b, struct var *x) {
    (void)model, (void)b;
    return to_plain(t, linear(t, flatten(t, x), &p[WEIGHT], &p[BIAS])); /* (N,10) */
}

int simple_describe(struct model *model, const struct model_options *options) {
    int in = model->channels * model->height * model->width, out = model->classes;
    const struct param_spec specs[] = {{"linear.weight", 2, {out, in}}, {"linear.bias", 1, {out}}};
    (void)options;
    model->init = init;
    model->forward = forward;
    return model_set_params(model, specs, sizeof specs / sizeof *specs);
}
