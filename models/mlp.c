/* MLP: linear layers of any width with relu between them. Its gradients can be made arbitrarily
 * large (--mlp-hidden 4096,4096 has 2e7 parameters), to see what communication costs.
 *
 * Wide, the model of the lessons, is an MLP with two hidden layers of 512 and, on random data, 2000
 * classes. Unlike the small LeNet it has large outputs, a slow loss on device 0, several buckets,
 * and a backward long enough to hide some of them.
 *
 *     (N,1,28,28) flatten 784 -> fc1 relu -> fc2 relu -> ... -> 10 scores; cross entropy
 *
 * Samples may have any shape, and it takes any number of classes.
 *
 * Parameters are fc1.weight (out, in), fc1.bias, ... with PyTorch's default initialisation. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "models/models.h"

enum { DEFAULT_HIDDEN = 256, WIDE_HIDDEN = 512 };

static duet_var *mlp_forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    int last = duet_layer_count(t) - 1;
    duet_var *h = duet_flatten(t, x); /* (N,784) */
    for (int i = 0; i < last; i++)
        h = duet_relu(t, duet_layer(t, i, h));
    return duet_layer(t, last, h); /* (N,10) */
}

/* Sets the widths of the hidden layers. */
static int choose_hidden(struct model *model, const struct model_options *options) {
    int count = options->hidden_count, wide = !strcmp(model->name, wide_model.name);
    if (count < 0 || count >= MODEL_MAX_LAYERS)
        return fail(ERR_USAGE, "--mlp-hidden: %d widths: give 1 to %d", count,
                    MODEL_MAX_LAYERS - 1);
    model->hidden_count = count ? count : wide ? 2 : 1;
    model->hidden[0] = model->hidden[1] = wide ? WIDE_HIDDEN : DEFAULT_HIDDEN;
    for (int i = 0; i < count; i++) {
        model->hidden[i] = options->hidden[i];
        if (model->hidden[i] < 1)
            return fail(ERR_USAGE, "--mlp-hidden: %d: give widths of at least 1", model->hidden[i]);
    }
    return OK;
}

static int check_widths(const struct model *model, double in) {
    double count = 0;
    for (int i = 0; i <= model->hidden_count; i++) {
        double out = i == model->hidden_count ? model->classes : model->hidden[i];
        count += out * in + out;
        in = out;
    }
    if (count <= MODEL_MAX_PARAMETERS) return OK;
    return fail(ERR_USAGE,
                "--mlp-hidden: these widths, with %d classes, make %.0f parameters: give widths "
                "that make at most %d",
                model->classes, count, MODEL_MAX_PARAMETERS);
}

static void describe_mlp(duet_module *m, void *context) {
    (void)context;
    struct model *model = model_of(m);
    int in = model->channels * model->height * model->width;
    int code = choose_hidden(model, module_options(m));
    if (!code) code = check_widths(model, in);
    module_fail(m, code);
    for (int i = 0; !code && i <= model->hidden_count; i++) {
        int out = i == model->hidden_count ? model->classes : model->hidden[i];
        char name[16];
        snprintf(name, sizeof name, "fc%d", i + 1);
        duet_module_linear(m, name, in, out, 1);
        in = out;
    }
}

const struct duet_model mlp_model = {
    .name = "mlp", .describe = describe_mlp, .forward = mlp_forward};
const struct duet_model wide_model = {
    .name = "wide", .describe = describe_mlp, .forward = mlp_forward};
