/* The state of an optimizer in host memory. If an element has two numbers, they are adjacent on the
 * device, because an update reads both. In a file each part is its own tensor, with the shape of
 * its parameter. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "nn/optimizer/optimizer.h"

const char *optimizer_part_name(enum optimizer_kind kind, int k) {
    static const char *const names[OPTIMIZER_COUNT][2] = {
        [OPTIMIZER_SGD] = {"momentum_buffer", ""},
        [OPTIMIZER_ADADELTA] = {"square_avg", "acc_delta"},
        [OPTIMIZER_ADAM] = {"exp_avg", "exp_avg_sq"},
        [OPTIMIZER_ADAMW] = {"exp_avg", "exp_avg_sq"}};
    return names[kind][k];
}

size_t optimizer_state_bytes(const struct optimizer *o, const struct param_set *set) {
    return set->grad_count * (size_t)o->each * sizeof *o->state;
}

int optimizer_state_read(struct optimizer *o, const struct param_set *set, float *state) {
    struct stream *stream = device_compute(set->device);
    size_t bytes = optimizer_state_bytes(o, set);
    if (set->shard && bytes) return set->gather_state(set->context, o->state, o->each, state);
    if (bytes) CHECK(copy_to_host(stream, state, o->state, bytes));
    return stream_sync(stream);
}

/* This process's part of a whole state. */
static int write_shard(struct optimizer *o, const struct param_set *set, const float *state) {
    size_t each = (size_t)o->each;
    float *own = calloc(1, optimizer_state_bytes(o, set->shard) + 1);
    if (!own) return fail(ERR_MEMORY, "optimizer: out of host memory for its state");
    for (int i = 0; i < set->count; i++) {
        const struct param *p = &set->shard->param[i];
        if (!param_trains(p)) continue;
        memcpy(own + p->value_offset * each,
               state + (set->param[i].value_offset + p->begins) * each,
               p->count * each * sizeof *own);
    }
    int code = optimizer_state_write(o, set->shard, own);
    free(own);
    return code;
}

int optimizer_state_write(struct optimizer *o, const struct param_set *set, const float *state) {
    if (set->shard) return write_shard(o, set, state);
    struct stream *stream = device_compute(set->device);
    size_t bytes = optimizer_state_bytes(o, set);
    if (bytes) CHECK(copy_to_device(stream, o->state, state, bytes));
    return stream_sync(stream);
}

void optimizer_part_get(const struct optimizer *o, const struct param *p, int k, const float *state,
                        float *part) {
    size_t each = (size_t)o->each;
    for (size_t i = 0; i < p->count; i++)
        part[i] = state[(p->value_offset + i) * each + (size_t)k];
}

void optimizer_part_put(const struct optimizer *o, const struct param *p, int k, const float *part,
                        float *state) {
    size_t each = (size_t)o->each;
    for (size_t i = 0; i < p->count; i++)
        state[(p->value_offset + i) * each + (size_t)k] = part[i];
}
