/* Defaults and checks of a configuration, before anything is opened. */
#include "train/run.h"

#include <stdio.h>
#include <string.h>

#include "allreduce/plan.h"
#include "api/dataset.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text/nearest.h"
#include "device/visible.h"
#include "models/graph.h"
#include "models/model_file.h"
#include "train/estimate/retime.h"

void run_config_default(struct run_config *config) {
    *config = (struct run_config){
        .mode = MODE_SINGLE,
        .device = "auto",
        .devices = 2,
        .virtual_devices = VIRTUAL_DEFAULT,
        .model.name = "lenet",
        .model.options = {.dropout = -1},
        .data.name = "fashion-mnist",
        .data.on = "auto",
        .epochs = 10,
        .batch_size = 256,
        .update.passes = 1,
        .update.lr = 0.2,
        .update.weight_decay = -1,
        .update.rho = -1,
        .update.beta1 = -1,
        .update.beta2 = -1,
        .update.epsilon = -1,
        .update.lr_gamma = -1,
        .data.shuffle = 1,
        .data.workers = 1,
        .ddp.allreduce = "auto",
        .ddp.bucket_cap_mb = -1,
        .ddp.first_bucket_mb = -1,
        .timeout = 300,
        .evaluate = 1,
        .part.snapshots = {-1},
        .clock = {.host = CLOCK_PYTORCH},
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
    *config->files.csv = 0;
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
    return run_keeps_spans(config) || *config->files.json || *config->files.csv;
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
    /* A graph is for one shape of samples, and data that is made takes it. */
    const struct graph *graph = graph_of_run(config);
    int random = !strcmp(config->data.name, "random"),
        follows = random || (graph && !strcmp(config->data.name, "synthetic"));
    struct dataset_config data = {
        .name = config->data.name,
        .folder = *config->data.folder ? config->data.folder : NULL,
        .shape = !o->sample.channels && follows ? model_sample(config->model.name, o) : o->sample,
        .classes = o->classes || !follows ? o->classes : model_classes(config->model.name, o),
        .samples = config->data.samples,
        .targets = o->loss == LOSS_MSE,
        .places = model_places(config->model.name, o),
        .below = graph ? graph_below(graph) : 0,
        .outline = config->dry,
        .seed = config->seed};
    /* duet_command has said what is wrong with them. */
    if (o->own && o->own->train) (void)api_dataset_of(o->own->train, &data.own[0]);
    if (o->own && o->own->test) (void)api_dataset_of(o->own->test, &data.own[1]);
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
    if (*kind != DEVICE_CUDA) CHECK(visible_check("--devices", run_devices(config)));
    if (*kind != DEVICE_CUDA && config->cuda_math == DEVICE_MATH_LIBRARY)
        return fail(ERR_USAGE,
                    "--cuda-math: library: emulated devices have only Duet's own kernels: give "
                    "--device cuda where there is a GPU");
    if (*kind != DEVICE_CUDA && config->tf32)
        return fail(ERR_USAGE, "--tf32: no effect on emulated devices: no GPU was found: give "
                               "--device cuda where there is one, or leave it out");
    return OK;
}

uint64_t run_device_memory(const struct run_config *config, int index) {
    int n = config->device_memory_count;
    return n == 0 ? 0 : config->device_memory[n == 1 ? 0 : index];
}

/* A number was most likely meant for --devices. */
static int run_check_device_word(const char *word) {
    static const char *const words[] = {"auto", "cpu", "cuda"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(word, words[i])) return OK;
    if (!*word || word[strspn(word, "0123456789")])
        return unknown_value("--device", word, words, 3);
    return fail(ERR_USAGE, "--device: %s: there are auto, cpu and cuda: did you mean --devices %s?",
                word, word);
}

static int check_words(const struct run_config *config) {
    static const char *const places[] = {"auto", "host", "device"};
    CHECK(run_check_device_word(config->device));
    for (int i = 0; i < 3; i++)
        if (!strcmp(config->data.on, places[i])) return OK;
    return unknown_value("--data-on", config->data.on, places, 3);
}

static int check_dp(const struct run_config *config) {
    if (config->dp.output_device >= config->devices)
        return fail(ERR_USAGE, "--output-device: %d: there are devices 0 to %d",
                    config->dp.output_device, config->devices - 1);
    if (config->dp.sharded_reduce && config->devices == 1)
        return fail(ERR_USAGE,
                    "--dp-reduce: sharded: one device has nothing to reduce: give first, or "
                    "more --devices");
    return OK;
}

/* Ranks that each had an order of their own would each train on the whole data set. */
static int check_sampler(const struct run_config *config) {
    if (!config->data.random_sampler) return OK;
    if (config->mode == MODE_DDP)
        return fail(ERR_USAGE,
                    "--sampler: random: the ranks of DDP must share one order: leave it out, or "
                    "give --mode single or dp");
    if (!config->data.shuffle)
        return fail(ERR_USAGE, "--sampler: random: --no-shuffle is given too: give one");
    return OK;
}

int run_buffers_apart(const struct run_config *config) {
    return config->ddp.no_broadcast_buffers && !config->model.options.sync_bn;
}

static int check_checkpoint(const struct run_config *config) {
    if (*config->files.resume && *config->model.init_from)
        return fail(ERR_USAGE,
                    "--init-from: %s: no effect: --resume takes the weights from its file too: "
                    "give one of them",
                    config->model.init_from);
    if (*config->files.checkpoint && run_buffers_apart(config))
        return fail(ERR_USAGE,
                    "--checkpoint: %s: it holds the buffers of rank 0, and with "
                    "--no-broadcast-buffers each rank has its own: leave one out",
                    config->files.checkpoint);
    return OK;
}

static int check_devices(const struct run_config *config) {
    int w = run_devices(config), v = run_virtual_devices(config);
    if (config->devices < 1 || config->devices > MAX_DEVICES)
        return fail(ERR_USAGE, "--devices: %d: give 1 to %d", config->devices, MAX_DEVICES);
    if (config->device_memory_count > 1 && config->device_memory_count != w)
        return fail(ERR_USAGE,
                    "--device-memory: %d sizes for %d device%s: give one, or one for each",
                    config->device_memory_count, w, w > 1 ? "s" : "");
    if (v != VIRTUAL_OFF && (v < 1 || v > MAX_DEVICES))
        return fail(ERR_USAGE, "--virtual-devices: %d: give 1 to %d, or off", v, MAX_DEVICES);
    if (v != VIRTUAL_OFF && v % w)
        return fail(ERR_USAGE,
                    "--virtual-devices: %d is no multiple of %d devices: give %d, or off", v, w,
                    (v / w + 1) * w);
    if (config->batch_size < 1)
        return fail(ERR_USAGE, "--batch-size: %d: give at least 1", config->batch_size);
    if (config->batch_size < w)
        return fail(
            ERR_USAGE,
            "--batch-size: %d (the global batch) is below %d devices: give at least one sample for "
            "each, or fewer --devices",
            config->batch_size, w);
    return OK;
}

static int check_join(const struct run_config *c) {
    if (c->data.join == JOIN_OFF) return OK;
    if (c->data.drop_last)
        return fail(ERR_USAGE, "--join and --drop-last: no rank runs out where samples are left "
                               "out: give one of them");
    if (c->model.options.sync_bn)
        return fail(ERR_USAGE, "--join and --sync-bn: a rank without samples cannot take part in "
                               "SyncBatchNorm's forward: give one of them");
    if (c->data.join != JOIN_SAMPLES && c->mode != MODE_DDP)
        return fail(ERR_USAGE, "--join: initial, active and throw are about ranks: give --join "
                               "alone, or duet train --mode ddp");
    if ((c->data.join == JOIN_INITIAL || c->data.join == JOIN_ACTIVE) &&
        class_weights_given(&c->model.options.class_weights))
        return fail(ERR_USAGE, "--join: initial and active count samples, not the weights of their "
                               "labels: give --join alone");
    if (c->data.join != JOIN_SAMPLES && c->update.passes > 1)
        return fail(ERR_USAGE, "--join: initial, active and throw do not go with --no-sync-steps: "
                               "give --join alone");
    return OK;
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

int run_config_check(const struct run_config *config) {
    struct model model = {0};
    struct dataset_config data = run_dataset(config);
    CHECK(dataset_check(&data));
    if (!config->dry && !config->model.options.own && model_is_outline(config->model.name))
        return fail(ERR_USAGE,
                    "--model: %s: it can be estimated alone: duet estimate --model %s; models that "
                    "can be trained: duet --help",
                    config->model.name, config->model.name);
    CHECK(check_sampler(config));
    struct model_options options = run_model_options(config);
    CHECK(model_open(&model, config->model.name, &options));
    model_free(&model);
    CHECK(check_words(config));
    CHECK(run_check_update(config));
    CHECK(check_checkpoint(config));
    CHECK(check_dp(config));
    CHECK(check_join(config));
    CHECK(check_devices(config));
    return *config->clock.gpu ? retime_check(config) : OK;
}
