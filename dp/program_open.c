/* Makes and frees a duet_data_parallel: parameters and a tape per device, events, threads. Also the
 * calls of duet.h for programs without a tape for the loss. */
#include <stdlib.h>

#include "dp/balance.h"
#include "dp/dp.h"

/* ---- checks of arguments ---- */

static int check_devices(duet_device *const *devices, int n) {
    if (!devices) return fail(ERR_USAGE, "DataParallel: no devices were given");
    for (int r = 0; r < n; r++) {
        if (!devices[r]) return fail(ERR_USAGE, "DataParallel: device %d is NULL: open it", r);
        for (int i = 0; i < r; i++)
            if (devices[i] == devices[r])
                return fail(ERR_USAGE,
                            "DataParallel: devices %d and %d are the same: give each once", i, r);
        if (device_config(device_of(devices[r]))->kind !=
            device_config(device_of(devices[0]))->kind)
            return fail(ERR_USAGE, "DataParallel: %s and %s: give devices of one kind",
                        duet_device_name(devices[0]), duet_device_name(devices[r]));
    }
    return OK;
}

static int check_options(const struct duet_data_parallel_options *o) {
    if (o->dim < -MAX_RANK || o->dim >= MAX_RANK)
        return fail(ERR_USAGE, "DataParallel: dim %d: give %d to %d", o->dim, -MAX_RANK,
                    MAX_RANK - 1);
    if (!(o->timeout_s >= 0 && o->timeout_s <= 1e6))
        return fail(ERR_USAGE, "DataParallel: timeout_s %g: give seconds, or 0 for %g",
                    o->timeout_s, (double)DP_TIMEOUT_S);
    return OK;
}

/* ---- its life ---- */

/* The same parameters, buffers and layers on another device; each forward brings the values. */
static int copy_params(struct duet_params **out, struct device *device,
                       const struct duet_params *params) {
    CHECK(params_create(out, device, params->specs, params->set.count, NULL, 1));
    (*out)->layers = params->layers;
    (*out)->layer_count = params->layer_count;
    return params_register(*out, params->buffer_specs, params->buffers.count);
}

/* One line about GPUs that cannot reach each other, however many pairs there are. */
static void warn_of_devices(struct duet_data_parallel *m, struct device *const *devices) {
    const char *fault = "";
    char text[320];
    if (dp_imbalance_of(devices, m->dp.count, text, sizeof text)) data_parallel_warn(m, text);
    for (int r = 0; r < m->dp.count && !*fault; r++)
        fault = device_p2p_fault(devices[r]);
    if (*fault) data_parallel_warn(m, fault);
}

static int build(struct duet_data_parallel *m, struct device *const *devices, int n,
                 const struct duet_data_parallel_options *o) {
    for (int r = 0; r < n; r++) {
        if (r > 0) CHECK(copy_params(&m->params[r], devices[r], m->params[0]));
        CHECK(duet_tape_create(&m->tape[r], (duet_device *)devices[r]));
        duet_tape_seed(m->tape[r], o->seed);
    }
    m->passes.has_grad = calloc((size_t)m->params[0]->set.count, 1);
    if (!m->passes.has_grad) return fail(ERR_MEMORY, "DataParallel: out of host memory");
    const struct dp_config config = {.devices = n,
                                     .device = devices,
                                     .params = m->params,
                                     .output_device = o->output_device,
                                     .context = m,
                                     .timeout_s = o->timeout_s};
    CHECK(dp_init(&m->dp, &config));
    warn_of_devices(m, devices);
    return OK;
}

int duet_data_parallel_create(duet_data_parallel **out, duet_device *const *devices, int n,
                              duet_params *params,
                              duet_var *(*forward)(duet_tape *tape, duet_var *x, void *context),
                              void *context, const struct duet_data_parallel_options *options) {
    const struct duet_data_parallel_options none = {0}, *o = options ? options : &none;
    struct device *device[MAX_DEVICES];
    CHECK_OUT(out);
    CHECK(dp_check_devices(n, o->output_device));
    CHECK(check_devices(devices, n));
    CHECK(check_options(o));
    if (!params || !(forward || o->forward_multi))
        return fail(ERR_USAGE, "DataParallel: no %s given",
                    params ? "forward function was" : "parameters were");
    if (forward && o->forward_multi)
        return fail(ERR_USAGE, "DataParallel: forward and forward_multi: give one of them");
    for (int r = 0; r < n; r++)
        device[r] = device_of(devices[r]);
    CHECK(dp_check_module(params, device[0]));
    struct duet_data_parallel *m = calloc(1, sizeof *m);
    if (!m) return fail(ERR_MEMORY, "DataParallel: out of host memory");
    m->used = n;
    m->forward = forward;
    m->forward_multi = o->forward_multi;
    m->warn = o->warn;
    m->context = context;
    m->params[0] = params;
    m->input_grad = o->input_grad;
    m->dim = o->dim;
    int code = build(m, device, n, o);
    if (code)
        duet_data_parallel_free(m);
    else
        *out = m;
    return code;
}

int data_parallel_around(struct duet_data_parallel **out, struct dp_config *config,
                         duet_tape *const *tapes, struct dp_shares *shares) {
    struct duet_data_parallel *m = *out = calloc(1, sizeof *m);
    if (!m) return fail(ERR_MEMORY, "DataParallel: out of host memory");
    m->used = config->devices;
    m->shares = shares;
    for (int r = 0; r < config->devices; r++) {
        m->params[r] = config->params[r];
        m->tape[r] = tapes[r];
    }
    m->passes.has_grad = calloc((size_t)m->params[0]->set.count, 1);
    config->context = m;
    int code = m->passes.has_grad ? dp_init(&m->dp, config)
                                  : fail(ERR_MEMORY, "DataParallel: out of host memory");
    if (!code) return OK;
    data_parallel_close(m);
    *out = NULL;
    return code;
}

static void free_pieces(struct duet_data_parallel *m, struct pieces *p) {
    for (int r = 0; r < MAX_DEVICES; r++)
        if (p->memory[r] && !p->lent[r]) device_free(m->params[r]->set.device, p->memory[r]);
}

int data_parallel_close(struct duet_data_parallel *m) {
    if (!m) return 1;
    if (!dp_free(&m->dp)) return 0; /* a lost thread may still use the whole struct */
    free_pieces(m, &m->y);
    for (int i = 0; i < MOST_INPUTS; i++)
        free_pieces(m, &m->x[i]);
    for (int i = 0; i < MOST_OUTPUTS; i++)
        free_pieces(m, &m->output[i].grads);
    if (m->passes.sums) device_free(m->params[0]->set.device, m->passes.sums);
    for (int r = 0; r < MAX_DEVICES && !m->shares; r++) {
        duet_tape_free(m->tape[r]);
        if (r > 0) duet_params_free(m->params[r]);
    }
    free(m->passes.has_grad);
    free(m);
    return 1;
}

void duet_data_parallel_free(duet_data_parallel *m) {
    data_parallel_close(m);
}

/* ---- its calls ---- */

int duet_data_parallel_forward(duet_data_parallel *m, duet_tensor *const *inputs, int input_count,
                               duet_tensor **outputs, int output_count, enum duet_pass pass) {
    int code = OK;
    if (!outputs) return fail(ERR_USAGE, "outputs is NULL: give memory for the result");
    if (output_count < 1 || output_count > MOST_OUTPUTS)
        return fail(ERR_USAGE, "DataParallel: %d outputs: give 1 to %d", output_count,
                    MOST_OUTPUTS);
    for (int i = 0; i < output_count; i++)
        outputs[i] = NULL;
    if (!m) return fail(ERR_USAGE, "DataParallel: the module is NULL");
    CHECK(data_parallel_forward(m, (const duet_tensor *const *)inputs, input_count, NULL,
                                output_count, pass));
    for (int i = 0; i < output_count && !code; i++)
        code = data_parallel_gather(m, &m->output[i], &outputs[i]);
    if (!code && pass == DUET_TRAIN) m->can_go_back = 1;
    for (int i = 0; i < output_count && code; i++) {
        duet_tensor_free(outputs[i]);
        outputs[i] = NULL;
    }
    return code;
}

int duet_data_parallel_backward(duet_data_parallel *m, duet_tensor *const *grads, int count) {
    if (!m) return fail(ERR_USAGE, "DataParallel: the module is NULL");
    return data_parallel_backward(m, (const duet_tensor *const *)grads, count, NULL);
}
