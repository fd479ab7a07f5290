/* Refuses options that are valid separately but not together, before anything is opened. */
#include <string.h>

#include "base/error.h"
#include "base/text/nearest.h"
#include "models/model.h"
#include "train/estimate/retime.h"
#include "train/run.h"

/* A number was most likely meant for --devices. */
static int check_device_word(const char *word) {
    static const char *const words[] = {"auto", "cpu", "cuda"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(word, words[i])) return OK;
    if (!*word || word[strspn(word, "0123456789")])
        return unknown_value("--device", word, words, 3);
    return fail(ERR_USAGE, "--device: %s: expected auto, cpu or cuda: did you mean --devices %s?",
                word, word);
}

static int check_dp(const struct run_config *config) {
    if (config->dp.output_device >= config->devices)
        return fail(ERR_USAGE, "--output-device: %d: expected 0 to %d", config->dp.output_device,
                    config->devices - 1);
    if (config->dp.sharded_reduce && config->devices == 1)
        return fail(ERR_USAGE,
                    "--dp-reduce: sharded: one device has nothing to reduce: give first, or "
                    "more --devices");
    return OK;
}

static int check_checkpoint(const struct run_config *config) {
    if (*config->files.resume && *config->model.init_from)
        return fail(ERR_USAGE,
                    "--init-from: %s: no effect: --resume takes the weights from its file too: "
                    "give one of them",
                    config->model.init_from);
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
                    "--virtual-devices: %d is not a multiple of %d devices: give %d, or off", v, w,
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
    if (!c->data.join) return OK;
    if (c->data.drop_last)
        return fail(ERR_USAGE, "--join and --drop-last: with --drop-last no rank runs out of "
                               "batches: give one of them");
    if (c->model.options.sync_bn)
        return fail(ERR_USAGE, "--join and --sync-bn: a rank without samples cannot take part in "
                               "SyncBatchNorm's forward: give one of them");
    return OK;
}

int run_config_check(const struct run_config *config) {
    struct model model = {0};
    struct dataset_config data = run_dataset(config);
    if (!config->dry && !config->model.options.own && model_is_outline(config->model.name))
        return fail(ERR_USAGE,
                    "--model: %s: it works only with estimate: duet estimate --model %s; models "
                    "that can be trained: duet train --help",
                    config->model.name, config->model.name);
    if (config->model.options.tokens && !config->model.options.params)
        return fail(ERR_USAGE,
                    "--classes: %dx%d: only a model of --params has tokens: give the number of "
                    "classes",
                    config->model.options.tokens, config->model.options.token_classes);
    CHECK(dataset_check(&data));
    struct model_options options = run_model_options(config);
    CHECK(model_open(&model, config->model.name, &options));
    model_free(&model);
    CHECK(check_device_word(config->device));
    CHECK(check_checkpoint(config));
    CHECK(check_dp(config));
    CHECK(check_join(config));
    CHECK(check_devices(config));
    if (!config->dry && !config->spread && !strcmp(config->ddp.allreduce, "mpi"))
        return fail(ERR_USAGE, "--allreduce: mpi: it is for several machines: start the ranks with "
                               "mpirun, or give auto");
    return *config->clock.gpu ? retime_check(config) : OK;
}
