/* Reads the options of a run: see run_options.h. */
#include "cli/options/run_options.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/program_name.h"
#include "cli/options/effects.h"
#include "cli/options/help.h"
#include "models/graph/graph.h"
#include "models/model_file.h"
#include "train/compare/compare.h"

/* What other programs call some options. */
static const struct option_synonym synonyms[] = {{"--learning-rate", "--lr"},
                                                 {"--world-size", "--devices"},
                                                 {"--nproc-per-node", "--devices"},
                                                 {"--gpus", "--devices N, or --gpu NAME"},
                                                 {"--num-gpus", "--devices"},
                                                 {"--num-workers", "--workers"},
                                                 {"--num-epochs", "--epochs"},
                                                 {"--max-steps", "--steps"},
                                                 {"--backend", "--allreduce"},
                                                 {"--accumulation", "--no-sync-steps"},
                                                 {NULL, NULL}};

/* ---- two options, one file ---- */

/* Finds the file that a path leads to, or that atomic_open will make there. Returns 0 if two
 * outputs cannot replace each other's file (a device, a pipe), or if no file is possible: opening
 * it will report why. */
static int file_of(const char *path, char real[PATH_MAX]) {
    char *target = atomic_target(path);
    int found = target && snprintf(real, PATH_MAX, "%s", target) < PATH_MAX;
    free(target);
    return found;
}

/* Refuses two outputs that go to the same file: the later would replace the earlier unnoticed. So
 * would an output that goes to an input. But weights may be saved to the file that they came from,
 * and a checkpoint may replace the one that the run resumes from. */
static int refuse_one_file(const struct run_config *config) {
    const struct run_paths *f = &config->files;
    const struct model_file *model = model_file_of(config->model.options.own);
    const struct {
        const char *name, *path;
        int is_input;
        const char *becomes; /* the option whose input file this output may replace */
    } files[] = {{"--init-from", config->model.init_from, 1, ""},
                 {"--resume", f->resume, 1, ""},
                 {"--model", model ? model->path : "", 1, ""},
                 {"--dataset", dataset_is_file(config->data.name) ? config->data.name : "", 1, ""},
                 {"--save", f->save, 0, "--init-from"},
                 {"--checkpoint", f->checkpoint, 0, "--resume"},
                 {"--log-loss", f->log_loss, 0, ""},
                 {"--json", f->json, 0, ""},
                 {"--trace", f->trace, 0, ""},
                 {"--report", f->report, 0, ""}};
    enum { FILES = sizeof files / sizeof *files };
    char real[FILES][PATH_MAX];
    for (int i = 0; i < FILES; i++) {
        if (!*files[i].path || !file_of(files[i].path, real[i])) *real[i] = 0;
        for (int j = 0; !files[i].is_input && *real[i] && j < i; j++)
            if (!strcmp(real[i], real[j]) && strcmp(files[i].becomes, files[j].name))
                return fail(ERR_USAGE, "%s and %s: %s and %s are the same file: name two files",
                            files[j].name, files[i].name, files[j].path, files[i].path);
    }
    return OK;
}

/* ---- values that depend on other values ---- */

/* --batch-size and --batch-per-device name the same number. `none`: its value if neither is
 * given. */
static int resolve_batch(struct run_config *config, int none) {
    int devices = config->mode == MODE_SINGLE ? 1 : config->devices,
        each = config->batch_per_device;
    if (!each) {
        if (!config->batch_size) config->batch_size = none;
        return OK;
    }
    if (config->batch_size)
        return fail(ERR_USAGE, "--batch-per-device: %d: --batch-size %d is given too: give one",
                    each, config->batch_size);
    if (each > LARGEST_BATCH / devices)
        return fail(ERR_USAGE, "--batch-per-device: %d on %d devices: give at most %d", each,
                    devices, LARGEST_BATCH / devices);
    config->batch_size = each * devices;
    return OK;
}

/* The loss if none is given: cross entropy, unless the program's own model says otherwise. */
static enum duet_loss own_loss(const struct run_config *config) {
    const struct duet_model *own = config->model.options.own;
    int is_own = own && !strcmp(config->model.name, own->name);
    return is_own && own->loss != DUET_NLL ? own->loss : DUET_CROSS_ENTROPY;
}

/* LeNet has one bucket, hardly any outputs, and no overlap. So commands that show where memory and
 * time go use the model of the lessons, unless a model or data are named. */
enum { SHOWN_DEVICES = 4 };
static const char shown_model[] = "wide";

static void choose_model(const struct options *o, struct run_config *config) {
    int any_data = options_have(o, "--dataset") || options_have(o, "--data-dir"),
        any_model =
            options_have(o, "--model") || config->model.options.own || config->model.options.params;
    if ((command_bit(o->command) & (BY_PROFILE | BY_ESTIMATE)) && !any_model && !any_data) {
        snprintf(config->model.name, sizeof config->model.name, "%s", shown_model);
        if (!options_have(o, "--devices") && strcmp(config->device, "cuda") != 0)
            config->devices = SHOWN_DEVICES;
    }
    const struct duet_model *own = config->model.options.own;
    /* A graph determines the shape of its samples, as do the built-in nets of estimate. */
    if (!any_data &&
        (command_bit(o->command) & (BY_PROFILE | BY_ESTIMATE | BY_COMPARE | BY_SCALE)) &&
        (graph_of(own) || model_is_outline(config->model.name)))
        snprintf(config->data.name, sizeof config->data.name, "random");
    if (strcmp(config->model.name, shown_model) || (own && !strcmp(own->name, shown_model))) return;
    if (!any_data) snprintf(config->data.name, sizeof config->data.name, "random");
    if (!options_have(o, "--bucket-cap-mb"))
        config->ddp.bucket_cap_mb = 1; /* the default would give only two buckets */
}

int run_options_read(struct options *o, int argc, char **argv, struct run_config *config) {
    int batch_size = config->batch_size, own = o->part[0].rows && o->part[0].rows != run_options;
    config->batch_size = 0; /* not given */
    config->update.lr = -1; /* not given */
    o->synonyms = synonyms;
    o->part[own].rows = run_options;
    o->part[own].target = config;
    CHECK(options_read(o, argc, argv));
    if (o->help) return OK;
    choose_model(o, config);
    if (!options_have(o, "--loss")) config->model.options.loss = own_loss(config);
    if (config->update.lr < 0)
        config->update.lr = optimizer_learning_rate(config->update.optimizer);
    config->warned = config->quiet;
    if (*config->clock.gpu && !strcmp(config->device, "auto")) /* modelled: no real GPU */
        snprintf(config->device, sizeof config->device, "cpu");
    return resolve_batch(config, batch_size);
}

/* ---- what has no effect ---- */

/* The modes that the command trains in. */
static unsigned modes_of(const char *command, const struct run_config *config) {
    unsigned modes = 0;
    if (command_bit(command) & (BY_TRAIN | BY_SCALE)) return 1U << config->mode;
    for (enum run_mode mode = 0; mode < MODE_COUNT; mode++)
        if (!compare_leaves_out(config, mode)) modes |= 1U << mode;
    return modes;
}

/* Each option that was given must have an effect. */
static int refuse_idle(const struct options *o, const struct run_config *config) {
    int own = o->part[0].rows != run_options;
    const struct asked asked = {config, o->command, modes_of(o->command, config)};
    for (int i = 0; run_options[i].help; i++)
        if (o->given[own][i]) CHECK(option_check_effect(&run_options[i], &asked));
    return asked.modes == IN_DP ? run_check_sync_bn(config) : OK;
}

int run_options_parse(struct options *o, int argc, char **argv, struct run_config *config) {
    if (!(command_bit(o->command) & (BY_TRAIN | BY_SCALE))) config->mode = MODE_DP;
    CHECK(run_options_read(o, argc, argv, config));
    if (o->help) return OK;
    CHECK(refuse_idle(o, config));
    return refuse_one_file(config);
}

/* ---- --help ---- */

/* In a program with its own model, that model is the default. */
static const char *help_of(const struct option *option, const struct duet_model *own, char *text,
                           size_t bytes) {
    if (!own || strcmp(option->name, "--model")) return option->help;
    const char *second = strstr(option->help, " (default)");
    int until = second ? (int)(second - option->help) : 0;
    snprintf(text, bytes, "%s (default), %.*s%s", own->name, until, option->help,
             second ? second + strlen(" (default)") : option->help);
    return text;
}

void run_options_help(const struct options *o, const struct duet_model *own) {
    unsigned bit = command_bit(o->command);
    int hidden = 0, part;
    printf("%s options, as --option value or --option=value; _ works as -:\n",
           o->all ? "all" : "the most used");
    const struct option *heading = NULL;
    for (const struct option *row = run_options; row->help; row++) {
        char model[512];
        if (!row->name) {
            heading = row;
            continue;
        }
        if (!(row->commands & bit) || options_find(o, row->name, &part) != row) continue;
        if (!o->all && !(row->commands & OFTEN)) {
            hidden++;
            continue;
        }
        if (o->all && heading) printf("\n%s:\n", heading->help);
        heading = NULL;
        option_print(row, help_of(row, own, model, sizeof model));
    }
    if (hidden)
        printf("\n%s %s --help --details shows %d more.\n", program_name(), o->command, hidden);
}
