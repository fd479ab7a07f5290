/* Branches: a network whose steps do not all use the same layers. For lessons on
 * --find-unused-parameters: DDP must know which gradients a step will not bring, or it waits for
 * them.
 *
 *     flatten -> fc1 relu -+-> left relu ----------------+-> head -> scores; cross entropy
 *                          |                             |
 *                          +-> right relu ---------------+
 *                          |                             |
 *                          +-> left relu -> right relu --+
 *
 *     batch k of the run:   k mod 3 = 0: left    1: right    2: both, and so in evaluation
 *
 * Parameters are fc1.weight (64, in), left.weight (64, 64), right.weight, head.weight (classes, 64)
 * and their biases, with PyTorch's default initialisation. It takes samples of any shape. */
#include "base/error.h"
#include "models/models.h"
#include "nn/init.h"

enum { WIDTH = 64, WAYS = 3 };
enum { FC1 = 0, LEFT = 2, RIGHT = 4, HEAD = 6, PARAMS = 8 }; /* a weight, and its bias behind it */

static int init(const struct model *model, struct rng *engine, float **values) {
    for (int i = 0; i < PARAMS; i += 2)
        init_linear(engine, model->params[i].dims[0], model->params[i].dims[1], values[i],
                    values[i + 1]);
    return 0;
}

static struct var *forward(const struct model *model, struct tape *t, struct param *p,
                           struct buffer *b, struct var *x) {
    (void)model, (void)b;
    int way = tape_training(t) ? (int)(tape_number(t) % WAYS) : WAYS - 1;
    struct var *h = relu(t, linear(t, flatten(t, x), &p[FC1], &p[FC1 + 1])); /* (N,64) */
    if (way != 1) h = relu(t, linear(t, h, &p[LEFT], &p[LEFT + 1]));
    if (way != 0) h = relu(t, linear(t, h, &p[RIGHT], &p[RIGHT + 1]));
    return to_plain(t, linear(t, h, &p[HEAD], &p[HEAD + 1])); /* (N,classes) */
}

int branches_describe(struct model *model, const struct model_options *options) {
    (void)options;
    int in = model->channels * model->height * model->width, classes = model->classes;
    const struct param_spec specs[PARAMS] = {
        {.name = "fc1.weight", .rank = 2, .dims = {WIDTH, in}},
        {.name = "fc1.bias", .rank = 1, .dims = {WIDTH}},
        {.name = "left.weight", .rank = 2, .dims = {WIDTH, WIDTH}},
        {.name = "left.bias", .rank = 1, .dims = {WIDTH}},
        {.name = "right.weight", .rank = 2, .dims = {WIDTH, WIDTH}},
        {.name = "right.bias", .rank = 1, .dims = {WIDTH}},
        {.name = "head.weight", .rank = 2, .dims = {classes, WIDTH}},
        {.name = "head.bias", .rank = 1, .dims = {classes}},
    };
    model->graph_changes = 1;
    model->init = init;
    model->forward = forward;
    return model_set_params(model, specs, PARAMS);
}
