/* The two arenas of a model's parameters. param.h says why their order is reversed. */
#include "nn/param.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "nn/tensor.h"

int param_is_of(const struct param_spec *spec, const char *name) {
    size_t length = strlen(name);
    return !strncmp(name, spec->name, length) && (!spec->name[length] || spec->name[length] == '.');
}

size_t param_spec_count(const struct param_spec *spec) {
    return dims_count(spec->dims, spec->rank);
}

static int zero_arena(struct param_set *set, float *arena, size_t count) {
    int dims[1] = {(int)count};
    struct op_args args = {.out[0] = tensor_plain(arena, DTYPE_F32, 1, dims)};
    return launch(device_compute(set->device), OP_FILL, &args);
}

/* Places the parameters that are frozen, or those that are not, in reverse registration order. */
static void place_params(struct param_set *set, int frozen) {
    for (int i = set->count - 1; i >= 0; i--) {
        struct param *p = &set->param[i];
        if (p->spec->frozen != frozen) continue;
        p->value_offset = p->grad_offset = set->arena_count;
        set->arena_count += param_padded(p->count);
        set->trained += !frozen;
    }
    if (!frozen) set->grad_count = set->arena_count;
}

static float *at(float *arena, size_t offset) {
    return arena ? arena + offset : NULL;
}

static struct tensor grad_of(const struct param_set *set, const struct param *p) {
    const int none = 0;
    if (p->spec->frozen) return tensor_plain(set->values, DTYPE_F32, 1, &none);
    return tensor_plain(at(set->grads, p->grad_offset), DTYPE_F32, p->spec->rank, p->spec->dims);
}

static void show(struct param_set *set) {
    for (int i = 0; i < set->count; i++) {
        struct param *p = &set->param[i];
        p->value =
            tensor_plain(at(set->values, p->value_offset), DTYPE_F32, p->spec->rank, p->spec->dims);
        p->grad = grad_of(set, p);
    }
}

int param_set_init_apart(struct param_set *set, struct device *device,
                         const struct param_spec *specs, int count) {
    memset(set, 0, sizeof *set);
    set->device = device;
    set->param = calloc((size_t)count + 1, sizeof *set->param);
    if (!set->param) return fail(ERR_MEMORY, "parameters: out of host memory for all %d", count);
    set->count = count;
    for (int i = 0; i < count; i++) {
        struct param *p = &set->param[i];
        p->spec = &specs[i];
        p->index = i;
        p->count = param_spec_count(p->spec);
        set->total_count += p->count;
    }
    place_params(set, 0);
    place_params(set, 1);
    show(set);
    if (set->arena_count <= INT32_MAX) return OK;
    int code =
        fail(ERR_USAGE, "parameters: %zu numbers: a model may have 2^31 - 1", set->total_count);
    param_set_free(set);
    return code;
}

void param_set_take_apart(struct param_set *set) {
    device_free(set->device, set->values);
    device_free(set->device, set->grads);
    set->values = set->grads = NULL;
    show(set);
}

int param_set_init(struct param_set *set, struct device *device, const struct param_spec *specs,
                   int count) {
    int code = OK;
    CHECK(param_set_init_apart(set, device, specs, count));
    size_t bytes = set->arena_count * sizeof(float), grads = set->grad_count * sizeof(float);
    CHECK_GOTO(device_alloc(device, (void **)&set->values, bytes, MEM_PARAMS), code, fail);
    if (grads) CHECK_GOTO(device_alloc(device, (void **)&set->grads, grads, MEM_GRADS), code, fail);
    CHECK_GOTO(zero_arena(set, set->values, set->arena_count), code, fail);
    if (grads) CHECK_GOTO(zero_arena(set, set->grads, set->grad_count), code, fail);
    show(set);
    return OK;
fail:
    param_set_free(set);
    return code;
}

int param_set_keep_segments(struct param_set *set, int segments) {
    size_t count = set->grad_count * (size_t)(segments - 1);
    if (count)
        CHECK(device_alloc(set->device, (void **)&set->segment_grads, count * sizeof(float),
                           MEM_GRADS));
    set->kept_segments = segments;
    return OK;
}

void param_set_free(struct param_set *set) {
    if (!set) return;
    if (set->device) {
        device_free(set->device, set->values);
        device_free(set->device, set->grads);
        device_free(set->device, set->segment_grads);
    }
    free(set->param);
    memset(set, 0, sizeof *set);
}

int param_set_lacks(const struct param_set *set, const char *has_grad) {
    for (int i = 0; i < set->count; i++)
        if (!has_grad[i] && param_trains(&set->param[i])) return 1;
    return 0;
}

int param_set_zero_unused(struct param_set *set, const char *has_grad) {
    if (set->shard && has_grad) return OK; /* the code that sharded the set does that */
    if (set->shard) return param_set_zero_unused(set->shard, NULL);
    for (int i = 0; i < set->count; i++)
        if (param_trains(&set->param[i]) && set->param[i].count && !(has_grad && has_grad[i]))
            CHECK(tensor_zero(set->device, &set->param[i].grad));
    return OK;
}

int param_set_relayout_grads(struct param_set *set, const int *order) {
    size_t offset = 0;
    for (int k = 0; k < set->trained; k++) {
        struct param *p = &set->param[order[k]];
        p->grad_offset = offset;
        p->grad.data = set->grads + offset;
        offset += param_padded(p->count);
    }
    set->layout_version++;
    return zero_arena(set, set->grads, set->grad_count);
}

static int read_tensor(struct param_set *set, const struct tensor *t, size_t count, float *host) {
    struct stream *stream = device_compute(set->device);
    CHECK(copy_to_host(stream, host, t->data, count * sizeof *host));
    return stream_sync(stream);
}

int param_read_value(struct param_set *set, int index, float *host) {
    CHECK(param_bring(set, index, 0));
    return read_tensor(set, &set->param[index].value, set->param[index].count, host);
}

int param_read_grad(struct param_set *set, int index, float *host) {
    const struct param *p = &set->param[index];
    CHECK(param_bring(set, index, 1));
    if (param_trains(p)) return read_tensor(set, &p->grad, p->count, host);
    memset(host, 0, p->count * sizeof *host);
    return OK;
}

int param_write_value(struct param_set *set, int index, const float *host) {
    struct stream *stream = device_compute(set->device);
    struct param *p = &param_set_own(set)->param[index];
    if (set->shard) set->shard->written = 1;
    if (p->count)
        CHECK(copy_to_device(stream, p->value.data, host + p->begins, p->count * sizeof *host));
    return stream_sync(stream);
}
