/* The life of a duet_data_parallel: parameters and a tape for each device, events, threads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/program.h"
#include "dp/balance.h"
#include "dp/program.h"

static const double DEFAULT_TIMEOUT_S = 300;

void data_parallel_warn(const struct duet_data_parallel *dp, const char *text) {
    if (dp->warn)
        dp->warn(text, dp->context);
    else
        fprintf(stderr, "%s: warning: %s\n", program_name(), text);
}

int data_parallel_check_module(const struct duet_params *params, struct device *first) {
    if (params->set.device != first)
        return fail(ERR_USAGE,
                    "module must have its parameters and buffers on device %s (device_ids[0]) but "
                    "found one of them on device: %s",
                    device_name(first), device_name(params->set.device));
    if (params->reducer)
        return fail(ERR_USAGE, "DataParallel: the parameters have a duet_ddp: free it first");
    if (params->sync)
        return fail(ERR_USAGE, "SyncBatchNorm is only supported within "
                               "torch.nn.parallel.DistributedDataParallel: make parameters that "
                               "are not converted");
    return OK;
}

/* ---- what is given ---- */

static int check_devices(duet_device *const *devices, int n) {
    if (n < 1 || n > MAX_DEVICES)
        return fail(ERR_USAGE, "DataParallel: %d devices: give 1 to %d", n, MAX_DEVICES);
    if (!devices) return fail(ERR_USAGE, "DataParallel: no devices were given");
    for (int r = 0; r < n; r++) {
        if (!devices[r]) return fail(ERR_USAGE, "DataParallel: device %d is NULL: open it", r);
        for (int i = 0; i < r; i++)
            if (devices[i] == devices[r])
                return fail(ERR_USAGE, "DataParallel: devices %d and %d are one: give each once", i,
                            r);
        if (device_config(device_of(devices[r]))->kind !=
            device_config(device_of(devices[0]))->kind)
            return fail(ERR_USAGE, "DataParallel: %s and %s: give devices of one kind",
                        duet_device_name(devices[0]), duet_device_name(devices[r]));
    }
    return OK;
}

static int check_options(const struct duet_data_parallel_options *o, int n) {
    if (o->output_device < 0 || o->output_device >= n)
        return fail(ERR_USAGE, "DataParallel: output device %d: there are devices 0 to %d",
                    o->output_device, n - 1);
    if (!(o->timeout_s >= 0 && o->timeout_s <= 1e6))
        return fail(ERR_USAGE, "DataParallel: timeout_s %g: give seconds, or 0 for %g",
                    o->timeout_s, DEFAULT_TIMEOUT_S);
    return OK;
}

static void warn_of_imbalance(struct duet_data_parallel *dp) {
    uint64_t memory[MAX_DEVICES];
    int cores[MAX_DEVICES];
    char text[320];
    for (int r = 0; r < dp->count; r++) {
        memory[r] = device_ledger(dp->group.device[r]).capacity;
        cores[r] = device_cores(dp->group.device[r]);
    }
    if (dp_imbalance(memory, cores, dp->count, text, sizeof text)) data_parallel_warn(dp, text);
}

/* ---- its life ---- */

static int copy_buffers(struct duet_params *to, const struct duet_params *params) {
    int count = params->buffers.count;
    if (!count) return OK;
    struct duet_buffer *like = calloc((size_t)count, sizeof *like);
    if (!like) return fail(ERR_MEMORY, "DataParallel: no host memory for %d buffers", count);
    for (int i = 0; i < count; i++) {
        const struct buffer_spec *spec = params->buffers.buffer[i].spec;
        like[i].name = spec->name;
        like[i].type = spec->dtype == DTYPE_I64 ? DUET_I64 : DUET_F32;
        like[i].rank = spec->rank;
        memcpy(like[i].shape, spec->dims, sizeof like[i].shape);
    }
    int code = duet_params_register_buffers(to, like, count);
    free(like);
    return code;
}

/* The same parameters, buffers and layers on another device; each forward brings the values. */
static int copy_params(struct duet_params **out, struct device *device,
                       const struct duet_params *params) {
    int count = params->set.count;
    struct duet_param *like = calloc((size_t)count, sizeof *like);
    if (!like) return fail(ERR_MEMORY, "DataParallel: no host memory for %d parameters", count);
    for (int i = 0; i < count; i++) {
        const struct param_spec *spec = params->set.param[i].spec;
        like[i].name = spec->name;
        like[i].rank = spec->rank;
        memcpy(like[i].shape, spec->dims, sizeof like[i].shape);
    }
    int code = duet_params_create(out, (duet_device *)device, like, count);
    free(like);
    if (code) return code;
    (*out)->layers = params->layers;
    (*out)->layer_count = params->layer_count;
    return copy_buffers(*out, params);
}

/* The ranges of the values are those of the gradients too, unless a ddp has moved the latter. */
static int find_groups(struct duet_data_parallel *dp) {
    const struct param_set *set = &dp->params[0]->set;
    for (int i = 0; i < set->count; i++)
        if (set->param[i].grad_offset != set->param[i].value_offset)
            return fail(ERR_USAGE, "DataParallel: the parameters had a duet_ddp, which has moved "
                                   "their gradients: make new ones");
    dp->layout_version = set->layout_version;
    dp->groups = malloc(((size_t)set->count + 1) * sizeof *dp->groups);
    if (!dp->groups) return fail(ERR_MEMORY, "DataParallel: no host memory");
    return coalesce_params(set, 0, COALESCE_BYTES, dp->groups, &dp->group_count);
}

static int init_reduce(struct duet_data_parallel *dp) {
    float *grads[MAX_DEVICES];
    size_t most = 0;
    for (int r = 0; r < dp->count; r++)
        grads[r] = dp->params[r]->set.grads;
    for (int g = 0; g < dp->group_count; g++)
        if (most < dp->groups[g].count) most = dp->groups[g].count;
    return reduce_plan_init(&dp->reduce, &dp->group, 0, grads, most);
}

/* One line, also where several pairs of GPUs are at fault. */
static void warn_of_p2p(struct duet_data_parallel *dp, struct device *const *devices) {
    const char *fault = "";
    for (int r = 0; r < dp->count && !*fault; r++)
        fault = device_p2p_fault(devices[r]);
    if (*fault) data_parallel_warn(dp, fault);
}

static int build(struct duet_data_parallel *dp, struct device *const *devices,
                 const struct duet_data_parallel_options *o) {
    CHECK(device_group_init(&dp->group, dp->count, devices));
    for (int r = 0; r < dp->count; r++) {
        if (r > 0) CHECK(copy_params(&dp->params[r], devices[r], dp->params[0]));
        CHECK(duet_tape_create(&dp->tape[r], (duet_device *)devices[r]));
        duet_tape_seed(dp->tape[r], o->seed);
    }
    dp->passes.has_grad = calloc((size_t)dp->params[0]->set.count, 1);
    if (!dp->passes.has_grad) return fail(ERR_MEMORY, "DataParallel: no host memory");
    CHECK(find_groups(dp));
    CHECK(init_reduce(dp));
    CHECK(
        workers_init(&dp->workers, dp->count, o->timeout_s > 0 ? o->timeout_s : DEFAULT_TIMEOUT_S));
    warn_of_imbalance(dp);
    warn_of_p2p(dp, devices);
    return OK;
}

/* The program's function, one of the two. */
struct function {
    duet_var *(*one)(duet_tape *tape, duet_var *x, void *context);
    void (*multi)(duet_tape *tape, const struct duet_replica *replica, duet_var **outputs,
                  void *context);
    void *context;
};

static int create(duet_data_parallel **out, duet_device *const *devices, int n, duet_params *params,
                  struct function f, const struct duet_data_parallel_options *options) {
    const struct duet_data_parallel_options none = {0}, *o = options ? options : &none;
    struct device *device[MAX_DEVICES];
    CHECK_OUT(out);
    if (f.multi && o->loss)
        return fail(ERR_USAGE, "DataParallel: a loss function beside a forward function of several "
                               "outputs: make the loss one of them");
    CHECK(check_devices(devices, n));
    CHECK(check_options(o, n));
    if (!params || !(f.one || f.multi))
        return fail(ERR_USAGE, "DataParallel: no %s given",
                    params ? "forward function was" : "parameters were");
    for (int r = 0; r < n; r++)
        device[r] = device_of(devices[r]);
    CHECK(data_parallel_check_module(params, device[0]));
    struct duet_data_parallel *dp = calloc(1, sizeof *dp);
    if (!dp) return fail(ERR_MEMORY, "DataParallel: no host memory");
    dp->count = dp->used = n;
    dp->output_device = o->output_device;
    dp->forward = f.one;
    dp->forward_multi = f.multi;
    dp->loss = o->loss;
    dp->warn = o->warn;
    dp->context = f.context;
    dp->params[0] = params;
    dp->buffer_bytes = params->buffers.bytes;
    dp->input_grad = o->input_grad;
    dp->passes.of_update = 1;
    int code = build(dp, device, o);
    if (code)
        duet_data_parallel_free(dp);
    else
        *out = dp;
    return code;
}

int duet_data_parallel_create(duet_data_parallel **out, duet_device *const *devices, int n,
                              duet_params *params,
                              duet_var *(*forward)(duet_tape *tape, duet_var *x, void *context),
                              void *context, const struct duet_data_parallel_options *options) {
    return create(out, devices, n, params, (struct function){.one = forward, .context = context},
                  options);
}

int duet_data_parallel_create_multi(duet_data_parallel **out, duet_device *const *devices, int n,
                                    duet_params *params,
                                    void (*forward)(duet_tape *tape,
                                                    const struct duet_replica *replica,
                                                    duet_var **outputs, void *context),
                                    void *context,
                                    const struct duet_data_parallel_options *options) {
    return create(out, devices, n, params, (struct function){.multi = forward, .context = context},
                  options);
}

static void free_pieces(struct duet_data_parallel *dp, struct pieces *p) {
    for (int r = 0; r < dp->group.count; r++)
        device_free(dp->group.device[r], p->memory[r]);
}

/* First the threads end, then what is enqueued, and then the memory is freed. */
void duet_data_parallel_free(duet_data_parallel *dp) {
    if (!dp) return;
    if (!workers_free(dp->workers)) return; /* a lost thread may still use everything */
    for (int r = 0; r < dp->group.count; r++)
        stream_sync(device_compute(dp->group.device[r]));
    reduce_plan_free(&dp->reduce);
    free_pieces(dp, &dp->y);
    for (int i = 0; i < MOST_INPUTS; i++)
        free_pieces(dp, &dp->x[i]);
    for (int i = 0; i < MOST_OUTPUTS; i++)
        free_pieces(dp, &dp->output[i].grads);
    if (dp->passes.sums) device_free(dp->params[0]->set.device, dp->passes.sums);
    for (int r = 0; r < dp->count; r++) {
        duet_tape_free(dp->tape[r]);
        if (r > 0) duet_params_free(dp->params[r]);
    }
    device_group_free(&dp->group);
    free(dp->passes.has_grad);
    free(dp->groups);
    free(dp);
}

int duet_data_parallel_replicas(const duet_data_parallel *dp) {
    return dp ? dp->used : 0;
}
