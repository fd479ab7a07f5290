/* The state of an optimizer in host memory. On the device the numbers of an element that has two
 * lie beside each other, because an update reads both; in a file each part is a tensor of its own,
 * with the shape of its parameter. */
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
    if (bytes) CHECK(copy_to_host(stream, state, o->state, bytes));
    return stream_sync(stream);
}

int optimizer_state_write(struct optimizer *o, const struct param_set *set, const float *state) {
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
