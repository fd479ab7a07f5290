/* A model on a tape: its forward function, and the loss of what that returns. */
#include "base/error.h"
#include "models/model.h"
#include "nn/tape/tape_internal.h"

const char *loss_name(enum duet_loss loss) {
    static const char *const names[] = {"cross-entropy", "mse", "smooth-l1", "bce-with-logits"};
    return names[loss];
}

struct tensor model_answers(const struct model *model, void *memory, int n) {
    int targets = loss_of_targets(model->loss);
    const int dims[2] = {n, targets ? model->classes : model->positions};
    return tensor_plain(memory, targets ? DTYPE_F32 : DTYPE_I32, dims[1] || targets ? 2 : 1, dims);
}

static int check_output(const struct model *model, const duet_var *x, const duet_var *y) {
    const struct tensor *v = &y->value;
    if (v->rank == 2 && v->dims[0] == x->value.dims[0] && v->dims[1] == model->classes) return OK;
    return fail(
        ERR_USAGE,
        "model %s: forward returned a tensor of %s: it must be (samples, classes), (%d, %d)",
        model->name, SHAPE(v), x->value.dims[0], model->classes);
}

/* While forward runs, the tape knows its layers, and that its callers begin and end the pass. */
duet_var *model_forward(const struct model *model, duet_tape *t, struct buffer_set *buffers,
                        duet_var *x) {
    if (tape_stuck(t, x)) return NULL;
    t->layers = model->layers;
    t->layer_count = model->layer_count;
    t->buffers = buffers;
    t->dropout = model->dropout;
    t->sync_bn = model->sync_bn;
    t->model = model;
    t->inside_model = 1;
    duet_var *y = model->forward(t, x, model->context);
    t->inside_model = 0;
    if (!y && !t->error)
        tape_refuse(t, "model %s: forward returned NULL: return the scores", model->name);
    y = to_plain(t, y);
    if (tape_stuck(t, y) || tape_fail(t, check_output(model, x, y))) return NULL;
    return y;
}

duet_var *model_loss(const struct model *model, duet_tape *t, duet_var *output,
                     const struct tensor *answers) {
    duet_tensor given = {.device = t->device, .t = *answers, .borrowed = 1};
    if (tape_failed(t, output)) return NULL;
    given.t.dims[0] = output->value.dims[0]; /* any batch size may follow */
    switch (model->loss) {
    case DUET_MSE: return duet_mse_loss(t, output, &given, DUET_MEAN);
    case DUET_SMOOTH_L1: return duet_smooth_l1_loss(t, output, &given, DUET_MEAN);
    case DUET_BCE_WITH_LOGITS:
        return duet_binary_cross_entropy_with_logits(t, output, &given, DUET_MEAN);
    default: break;
    }
    const int dims[3] = {given.t.dims[0], model->positions, model_label_classes(model)};
    if (model->positions > 1) output = tape_view(t, output, 3, dims);
    const struct duet_loss_options options = {.ignores = model->ignored != 0,
                                              .ignore_index = model->ignored - 1};
    return tape_loss_of_step(t, output, &given, &options, model->log_probabilities);
}

int model_label_classes(const struct model *model) {
    return model->positions ? model->classes / model->positions : model->classes;
}
