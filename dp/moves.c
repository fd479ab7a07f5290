/* What device 0's thread moves for a step: the batch comes in and is scattered, the parameters
 * go to every device, the gradients come back. dp/loss.c has what lies between: outputs and
 * dL/dy. */
#include "base/error.h"
#include "dp/state.h"

struct stream *dp_enter(struct dp *dp, enum phase phase) {
    stream_set_phase(dp->group.stream, dp->training ? phase : PHASE_EVALUATE,
                     dp->replica[0].step_number);
    return dp->group.stream;
}

int dp_write_step(struct dp *dp, int r) {
    return replica_write_other(&dp->replica[r], dp->step,
                               dp->training ? PHASE_INPUT : PHASE_EVALUATE);
}

/* Device 0 takes in the whole batch. Pixels must be there before they are scattered, so a batch
 * that is an index is unpacked here, not in forward. */
int dp_input(struct dp *dp, const struct batch *batch) {
    CHECK(dp_write_step(dp, 0));
    CHECK(replica_load(&dp->replica[0], batch));
    return replica_unpack(&dp->replica[0]);
}

/* A tensor that is scattered: whole on device 0, and where its rows go on each device. */
struct scattered {
    struct tensor whole;
    const int *sizes; /* rows of each device */
    void *parts[MAX_DEVICES];
};

static struct scattered pixels_of(struct dp *dp) {
    const struct model *m = dp->replica[0].model;
    const int shape[4] = {dp->all->n, m->channels, m->height, m->width};
    struct scattered s = {.whole = tensor_plain(dp->replica[0].pixels, DTYPE_F32, 4, shape),
                          .sizes = dp->sizes};
    for (int r = 0; r < dp->count; r++)
        s.parts[r] = dp->replica[r].pixels;
    return s;
}

/* Labels go to where the loss is computed: their rows to every device, or all to the output device,
 * where they already are if that is device 0. */
static struct scattered labels_of(struct dp *dp) {
    struct replica *first = &dp->replica[0];
    struct scattered s = {.whole = model_answers(first->model, first->labels, dp->all->n),
                          .sizes = dp->own_loss ? dp->sizes : dp->loss_sizes};
    for (int r = 0; r < dp->count; r++)
        s.parts[r] =
            dp->own_loss || r != dp->output_device || r == 0 ? dp->replica[r].labels : dp->labels;
    return s;
}

int dp_scatter(struct dp *dp) {
    struct scattered inputs[] = {pixels_of(dp), labels_of(dp)};
    dp_enter(dp, PHASE_SCATTER);
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        CHECK(scatter(&dp->group, &inputs[i].whole, inputs[i].sizes, inputs[i].parts));
    return OK;
}

/* The other devices read buffers in evaluation; what they write to theirs is lost, since the next
 * replicate overwrites it. So a model's buffers are those of device 0, as in PyTorch. */
static int replicate_buffers(struct dp *dp) {
    float *buffers[MAX_DEVICES];
    struct param_range whole = {0, dp->replica[0].buffers.bytes / sizeof(float)};
    if (!whole.count) return OK;
    for (int r = 0; r < dp->count; r++)
        buffers[r] = dp->replica[r].buffers.arena;
    return broadcast_coalesced(&dp->group, buffers, &whole, 1);
}

int dp_replicate(struct dp *dp, enum phase phase) {
    float *values[MAX_DEVICES];
    for (int r = 0; r < dp->count; r++)
        values[r] = dp->replica[r].params.values;
    dp_enter(dp, phase);
    CHECK(broadcast_coalesced(&dp->group, values, dp->groups, dp->group_count));
    return replicate_buffers(dp);
}

int dp_reduce_to_first(struct dp *dp) {
    dp_enter(dp, PHASE_REDUCE);
    return reduce_add_coalesced(&dp->reduce, dp->groups, dp->group_count);
}

int dp_collect_shards(struct dp *dp) {
    dp_enter(dp, PHASE_REDUCE);
    return sharded_reduce_collect(&dp->shards);
}
