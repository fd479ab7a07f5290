/* The parameters of a model on one device: the internal param_set with its own names, a simple SGD
 * and files. */
#include "nn/params/params.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/files/safetensors.h"
#include "duet/train.h"
#include "nn/params/state.h"

static void free_specs(struct param_spec *specs, int count) {
    for (int i = 0; specs && i < count; i++)
        free((char *)specs[i].name);
    free(specs);
}

static int check_name(int i, const char *name) {
    char what[32];
    snprintf(what, sizeof what, "parameter %d", i);
    return name_check(what, name);
}

static int copy_specs(struct param_spec **out, const struct param_spec *from, int count) {
    struct param_spec *specs = *out = calloc((size_t)count + 1, sizeof *specs);
    if (!specs) return fail(ERR_MEMORY, "out of host memory for %d parameters", count);
    for (int i = 0; i < count; i++) {
        specs[i] = from[i];
        specs[i].name = strdup(from[i].name);
        if (!specs[i].name) return fail(ERR_MEMORY, "out of host memory for %d parameters", count);
    }
    return OK;
}

static struct duet_tensor borrowed(struct device *device, const struct tensor *t) {
    return (struct duet_tensor){.device = device, .t = *t, .borrowed = 1};
}

/* Each has a gradient, since the program may fill it itself. */
void params_show(struct duet_params *p) {
    int count = p->set.count;
    for (int i = 0; i < count; i++) {
        const struct param *param = &p->set.param[i];
        p->views[i] = borrowed(p->set.device, &param->value);
        p->views[count + i] = borrowed(p->set.device, &param->grad);
        p->views[count + i].has_grad = &p->has_grad[i];
        p->has_grad[i] = (char)param_trains(param);
    }
}

void params_show_gradients(struct duet_params *p) {
    for (int i = 0; i < p->set.count; i++)
        p->views[p->set.count + i].t = p->set.param[i].grad;
}

static int build(struct duet_params *p, struct device *device, const struct param_spec *specs,
                 int count, float *const *values, int segments) {
    CHECK(copy_specs(&p->specs, specs, count));
    CHECK((segments ? param_set_init : param_set_init_apart)(&p->set, device, p->specs, count));
    if (segments) CHECK(param_set_keep_segments(&p->set, segments));
    CHECK(optimizer_init(&p->sgd, &p->set, &(struct optimizer_config){.kind = OPTIMIZER_SGD}));
    CHECK(device_alloc(device, (void **)&p->step, sizeof *p->step, MEM_WORKSPACE));
    p->views = calloc(2 * (size_t)count + 1, sizeof *p->views);
    p->has_grad = malloc((size_t)count + 1);
    if (!p->views || !p->has_grad)
        return fail(ERR_MEMORY, "out of host memory for %d parameters", count);
    params_show(p);
    for (int i = 0; i < count; i++)
        if (values && values[i]) CHECK(param_write_value(&p->set, i, values[i]));
    return stream_sync(device_compute(device));
}

int params_create(duet_params **out, struct device *device, const struct param_spec *specs,
                  int count, float *const *values, int segments) {
    struct duet_params *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return fail(ERR_MEMORY, "parameters: out of host memory");
    int code = build(p, device, specs, count, values, segments);
    if (code) {
        p->set.count = count; /* param_set_init may have failed to set it */
        duet_params_free(p);
    } else {
        *out = p;
    }
    return code;
}

static int check_params(const struct duet_param *params, int count) {
    for (int i = 0; i < count; i++) {
        CHECK(check_name(i, params[i].name));
        CHECK(tensor_check_shape(params[i].name, params[i].rank, params[i].shape));
        if (params[i].shape[0] == 0)
            return fail(ERR_USAGE, "%s: dimension 0 is 0: give at least 1", params[i].name);
    }
    return OK;
}

int duet_params_create(duet_params **out, duet_device *device, const struct duet_param *params,
                       int count) {
    CHECK_OUT(out);
    if (!device) return fail(ERR_USAGE, "parameters: no device was given");
    if (!params) return fail(ERR_USAGE, "parameters: no description was given");
    if (count < 1 || count > MOST_PARAMS)
        return fail(ERR_USAGE, "parameters: %d: give 1 to %d", count, MOST_PARAMS);
    CHECK(check_params(params, count));
    struct param_spec *specs = calloc((size_t)count, sizeof *specs);
    float **values = calloc((size_t)count, sizeof *values);
    int code =
        specs && values ? OK : fail(ERR_MEMORY, "out of host memory for %d parameters", count);
    for (int i = 0; i < count && !code; i++) {
        specs[i] = (struct param_spec){.name = params[i].name, .rank = params[i].rank};
        memcpy(specs[i].dims, params[i].shape, sizeof specs[i].dims);
        values[i] = (float *)params[i].values;
    }
    if (!code) code = names_check_differ("parameters", specs, count, NULL, 0);
    if (!code) code = params_create(out, device_of(device), specs, count, values, 1);
    free(specs);
    free(values);
    return code;
}

static void free_layers(struct duet_params *params) {
    for (int i = 0; params->own_layers && i < params->layer_count; i++)
        free(params->own_layers[i].name);
    free(params->own_layers);
}

void duet_params_free(duet_params *params) {
    if (!params) return;
    int count = params->set.count;
    if (params->reducer && params->reducer->free) params->reducer->free(params->reducer->context);
    if (params->sync) params->sync->free(params->sync);
    if (params->set.device) {
        stream_sync(device_compute(params->set.device));
        device_free(params->set.device, params->step);
    }
    params_free_buffers(params, params->buffers.count);
    free_layers(params);
    grad_clip_free(&params->clip);
    optimizer_free(&params->sgd);
    param_set_free(&params->set);
    free_specs(params->specs, count);
    free(params->views);
    free(params->has_grad);
    free(params);
}

int duet_params_count(const duet_params *params) {
    return params ? params->set.count : 0;
}

int duet_params_has_grad(const duet_params *params, int i) {
    return params && i >= 0 && i < params->set.count && params->has_grad[i];
}

duet_tensor *duet_params_value(duet_params *params, int i) {
    int whole = params && i >= 0 && i < params->set.count && !params->set.shard;
    return whole ? &params->views[i] : NULL;
}

duet_tensor *duet_params_grad(duet_params *params, int i) {
    int trains = params && i >= 0 && i < params->set.count && !params->set.shard &&
                 param_trains(&params->set.param[i]);
    return trains ? &params->views[params->set.count + i] : NULL;
}

int duet_sgd(duet_params *params, double lr, int batch_size) {
    if (!params) return fail(ERR_USAGE, "sgd: no parameters were given");
    if (!(lr >= 0 && lr <= FLT_MAX))
        return fail(ERR_USAGE, "sgd: learning rate %g: give 0 to %g", lr, (double)FLT_MAX);
    if (batch_size < 1) return fail(ERR_USAGE, "sgd: batch size %d: give at least 1", batch_size);
    struct step_block step = {.learning_rate = (float)(lr / batch_size)};
    CHECK(stream_write(device_compute(params->set.device), params->step, &step, sizeof step));
    return optimizer_step(&params->sgd, param_set_own(&params->set), params->step, NULL, &step);
}

int duet_zero_grad(duet_params *params) {
    if (!params) return fail(ERR_USAGE, "zero_grad: no parameters were given");
    CHECK(param_set_zero_unused(&params->set, NULL));
    memset(params->has_grad, 0, (size_t)params->set.count);
    params->zeroed++;
    return OK;
}

int duet_clip_grad_norm(duet_params *params, double max_norm, double *norm) {
    if (norm) *norm = 0;
    if (!params) return fail(ERR_USAGE, "clip: no parameters were given");
    if (!(max_norm >= 0)) /* true for NaN */
        return fail(ERR_USAGE, "clip: max_norm %g: give at least 0", max_norm);
    CHECK(grad_clip(&params->clip, &params->set, max_norm));
    return norm ? grad_clip_norm(&params->clip, norm) : OK;
}

/* ---- files ---- */

static const struct safetensors_pair pt = {"format", "pt"};
const struct params_extra PARAMS_ONLY = {.about = &pt, .pairs = 1};

int params_write(duet_params *params, const char *path, struct atomic_file *file,
                 const struct params_extra *extra) {
    struct state state;
    struct atomic_file own = {0}, *f = file ? file : &own;
    const int writes = !params->set.shard || params->set.shard->leads;
    int code = state_make(&state, params, extra->optimizer);
    if (!code) code = state_take(&state, extra->updates);
    if (!code && writes && !file) code = atomic_open(f, path);
    if (!code && writes && !file) f->disposable = extra->disposable;
    if (!code && writes)
        code = safetensors_write(f, state.items, state.count, extra->about, extra->pairs);
    if (!code && writes) code = atomic_commit(f);
    atomic_abandon(&own);
    state_free(&state);
    return code;
}

int duet_params_save(duet_params *params, const char *file) {
    if (!params || !file)
        return fail(ERR_USAGE, "save: no %s given", params ? "file was" : "parameters were");
    return params_write(params, file, NULL, &PARAMS_ONLY);
}

int params_read(duet_params *params, duet_optimizer *optimizer, const struct safetensors *file,
                int64_t most, int64_t updates) {
    struct state state;
    int code = state_make(&state, params, optimizer);
    if (!code) code = state_read(&state, file, most);
    if (!code) code = state_put(&state, updates);
    state_free(&state);
    return code;
}

int duet_params_load(duet_params *params, const char *file) {
    if (!params || !file)
        return fail(ERR_USAGE, "load: no %s given", params ? "file was" : "parameters were");
    struct safetensors s = {0};
    CHECK(safetensors_open(&s, file));
    int code = params_read(params, NULL, &s, 0, 0);
    safetensors_close(&s);
    return code;
}
