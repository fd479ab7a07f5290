/* MLP: linear layers of any width with relu between them. Its gradients can be made as large as one
 * likes (--mlp-hidden 4096,4096 has 2e7 parameters), to see what communication costs.
 *
 *     (N,1,28,28) flatten 784 -> fc1 relu -> fc2 relu -> ... -> 10 scores; cross entropy
 *
 * It takes samples of any shape, and any number of classes.
 *
 * Parameters are fc1.weight (out, in), fc1.bias, ... with PyTorch's default initialisation. */
#include "base/error.h"
#include "models/models.h"
#include "nn/init.h"

enum { DEFAULT_HIDDEN = 256 };
#define LAYER(n) \
    { "fc" #n ".weight", "fc" #n ".bias" }
static const char *const names[MODEL_MAX_LAYERS][2] = {
    LAYER(1),  LAYER(2),  LAYER(3),  LAYER(4),  LAYER(5),  LAYER(6),
    LAYER(7),  LAYER(8),  LAYER(9),  LAYER(10), LAYER(11), LAYER(12),
    LAYER(13), LAYER(14), LAYER(15), LAYER(16), LAYER(17),
};

static int init(const struct model *model, struct rng *engine, float **values) {
    for (int i = 0; i < model->param_count; i += 2)
        init_linear(engine, model->params[i].dims[0], model->params[i].dims[1], values[i],
                    values[i + 1]);
    return 0;
}

static struct var *forward(const struct model *model, struct tape *t, struct param *p,
                           struct buffer *b, struct var *x) {
    (void)b;
    struct var *h = flatten(t, x); /* (N,784) */
    for (int i = 0; i < model->param_count; i += 2) {
        h = linear(t, h, &p[i], &p[i + 1]);
        if (i + 2 < model->param_count) h = relu(t, h);
    }
    return to_plain(t, h); /* (N,10) */
}

/* Sets the widths of the hidden layers. */
static int choose_hidden(struct model *model, const struct model_options *options) {
    int count = options->hidden_count;
    if (count < 0 || count >= MODEL_MAX_LAYERS)
        return fail(ERR_USAGE, "--mlp-hidden: %d widths: give 1 to %d", count,
                    MODEL_MAX_LAYERS - 1);
    model->hidden_count = count ? count : 1;
    model->hidden[0] = DEFAULT_HIDDEN;
    for (int i = 0; i < count; i++) {
        model->hidden[i] = options->hidden[i];
        if (model->hidden[i] < 1)
            return fail(ERR_USAGE, "--mlp-hidden: %d: give widths of at least 1", model->hidden[i]);
    }
    return OK;
}

int mlp_describe(struct model *model, const struct model_options *options) {
    CHECK(choose_hidden(model, options));
    struct param_spec specs[2 * MODEL_MAX_LAYERS];
    int layers = model->hidden_count + 1;
    int in = model->channels * model->height * model->width;
    double count = 0;
    for (int i = 0; i < layers; i++) {
        int out = i == layers - 1 ? model->classes : model->hidden[i];
        specs[2 * i] = (struct param_spec){.name = names[i][0], .rank = 2, .dims = {out, in}};
        specs[2 * i + 1] = (struct param_spec){.name = names[i][1], .rank = 1, .dims = {out}};
        count += (double)out * in + out;
        in = out;
    }
    if (count > MODEL_MAX_COUNT)
        return fail(
            ERR_USAGE,
            "--mlp-hidden: these widths make %.0f parameters: give widths that make at most %d",
            count, MODEL_MAX_COUNT);
    model->init = init;
    model->forward = forward;
    return model_set_params(model, specs, 2 * layers);
}
