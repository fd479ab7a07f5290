/* The defaults of a configuration, and values that follow from it before anything is opened. */
#include "train/run.h"

#include <stdio.h>
#include <string.h>

#include "allreduce/plan.h"
#include "data/program_dataset.h"
#include "base/clock.h"
#include "base/error.h"
#include "models/graph/graph.h"
#include "models/model_file.h"

void run_config_default(struct run_config *config) {
    *config = (struct run_config){
        .mode = MODE_SINGLE,
        .modes = 1U << MODE_SINGLE | 1U << MODE_DP | 1U << MODE_DDP,
        .device = "auto",
        .devices = 2,
        .virtual_devices = VIRTUAL_DEFAULT,
        .model.name = "lenet",
        .model.options = {.dropout = -1},
        .data.name = "fashion-mnist",
        .epochs = 10,
        .batch_size = 256,
        .update.passes = 1,
        .update.lr = 0.2,
        .update.weight_decay = -1,
        .data.shuffle = 1,
        .data.workers = 1,
        .ddp.allreduce = "auto",
        .ddp.bucket_cap_mb = -1,
        .fsdp.shard = 2,
        .fsdp.prefetch = 1,
        .timeout = 300,
        .evaluate = 1,
        .started_ns = now_ns(),
    };
}

void run_config_own(struct run_config *config, const struct duet_model *own) {
    if (!own) return;
    config->model.options.own = own;
    snprintf(config->model.name, sizeof config->model.name, "%s", own->name);
    if (own->train) snprintf(config->data.name, sizeof config->data.name, DATASET_OWN);
}

void run_config_without_files(struct run_config *config) {
    *config->files.save = *config->files.log_loss = *config->files.json =
        *config->files.checkpoint = 0;
    *config->files.tensorboard = 0;
}

int run_config_of_several(struct run_config *config, const struct run_config *base,
                          const char *name) {
    run_config_without_files(config);
    if (!*base->files.tensorboard) return OK;
    int bytes =
        snprintf(config->files.tensorboard, PATH_BYTES, "%s/%s", base->files.tensorboard, name);
    if (bytes < PATH_BYTES) return OK;
    return fail(ERR_USAGE,
                "--tensorboard: %.40s...: the path of %s in it is too long: give a shorter one",
                base->files.tensorboard, name);
}

int run_keeps_spans(const struct run_config *config) {
    return *config->files.trace || *config->files.report || *config->files.pictures;
}

int run_writes_results(const struct run_config *config) {
    return run_keeps_spans(config) || *config->files.json;
}

struct optimizer_config run_optimizer(const struct run_config *config) {
    struct optimizer_config o = optimizer_default(config->update.optimizer);
    o.momentum = config->update.momentum;
    if (config->update.weight_decay >= 0) o.weight_decay = config->update.weight_decay;
    return o;
}

int run_devices(const struct run_config *config) {
    return config->mode == MODE_SINGLE ? 1 : config->devices;
}

int run_virtual_devices(const struct run_config *config) {
    return config->virtual_devices == VIRTUAL_DEFAULT ? run_devices(config)
                                                      : config->virtual_devices;
}

/* The graph that the run's model is, or NULL. */
static const struct graph *graph_of_run(const struct run_config *config) {
    const struct duet_model *own = config->model.options.own;
    return own && !strcmp(own->name, config->model.name) ? graph_of(own) : NULL;
}

const char *run_weights(const struct run_config *config) {
    const struct graph *graph = graph_of_run(config);
    if (*config->model.init_from) return config->model.init_from;
    return graph && graph->file ? graph->file->weights : NULL;
}

struct dataset_config run_dataset(const struct run_config *config) {
    const struct model_options *o = &config->model.options;
    /* A graph has one shape of samples; generated data get that shape. */
    const struct graph *graph = graph_of_run(config);
    int random = !strcmp(config->data.name, "random"), file = dataset_is_file(config->data.name),
        follows = random || (graph && (file || !strcmp(config->data.name, "synthetic")));
    struct dataset_config data = {
        .name = config->data.name,
        .folder = *config->data.folder ? config->data.folder : NULL,
        .shape = !o->sample.channels && follows ? model_sample(config->model.name, o) : o->sample,
        .classes = o->classes || !follows ? o->classes : model_classes(config->model.name, o),
        .samples = config->data.samples,
        .targets = loss_of_targets(o->loss),
        .binary = o->loss == DUET_BCE_WITH_LOGITS,
        .loss = loss_name(o->loss),
        .positions = model_positions(config->model.name, o),
        .parts = graph ? graph->parts : NULL,
        .part_count = graph && graph_below(graph) ? graph->input_count : 0,
        .outline = config->dry,
        .seed = config->seed};
    /* duet_command has reported any error in them. */
    if (o->own && o->own->train) (void)dataset_of_program(o->own->train, &data.own[0]);
    if (o->own && o->own->test) (void)dataset_of_program(o->own->test, &data.own[1]);
    return data;
}

int run_evaluates(const struct run_config *config) {
    struct dataset_config data = run_dataset(config);
    return config->evaluate && dataset_has_test(&data);
}

int run_device_kind(const struct run_config *config, enum device_kind *kind, int *count) {
    enum device_kind emulated = config->late ? DEVICE_HOST_LATE : DEVICE_HOST;
    *kind = DEVICE_DRY, *count = MAX_DEVICES;
    if (config->dry) return OK;
    *kind = strcmp(config->device, "cpu") ? DEVICE_CUDA : emulated;
    if (!strcmp(config->device, "auto") && device_probe(DEVICE_CUDA, count)) *kind = emulated;
    CHECK(device_probe(*kind, count));
    if (*kind != DEVICE_CUDA && config->cuda_math == DEVICE_MATH_LIBRARY)
        return fail(ERR_USAGE, "--cuda-math: library: emulated devices have only Duet's own "
                               "kernels: give --device cuda if there is a GPU");
    if (*kind != DEVICE_CUDA && config->tf32)
        return fail(ERR_USAGE, "--tf32: no effect on emulated devices: no GPU was found: give "
                               "--device cuda if there is one, or leave it out");
    return OK;
}

uint64_t run_device_memory(const struct run_config *config, int index) {
    int n = config->device_memory_count;
    return n == 0 ? 0 : config->device_memory[n == 1 ? 0 : index];
}

int run_check_sync_bn(const struct run_config *config) {
    if (config->mode != MODE_DP || !config->model.options.sync_bn) return OK;
    return fail(ERR_USAGE, "--sync-bn: SyncBatchNorm is only supported within "
                           "torch.nn.parallel.DistributedDataParallel: give --mode ddp, or single");
}

struct model_options run_model_options(const struct run_config *config) {
    struct model_options options = config->model.options;
    struct dataset_config data = run_dataset(config);
    options.sample = dataset_shape(&data);
    if (!strcmp(config->data.name, DATASET_OWN) && !options.classes)
        options.classes = dataset_model_outputs(&data.own[0]);
    return options;
}
