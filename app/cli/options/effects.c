/* Refuses options without effect: see effects.h. It asks three questions, one for each column of
 * bits. */
#include "cli/options/effects.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "fsdp/fsdp.h"
#include "train/compare/bits.h"

/* ---- by command ---- */

static const struct {
    unsigned bit;
    const char *name, *why; /* why some options have no effect in it */
    const char *its_own;    /* why it lacks even compare's options; NULL: as above */
} commands[] = {{BY_TRAIN, "train", NULL, NULL},
                {BY_COMPARE, "compare", "it trains more than one model", NULL},
                {BY_DEMO, "demo", "it trains more than one model", NULL},
                {BY_PROFILE, "profile", "it trains more than one model",
                 "it only measures a few steps of each mode"},
                {BY_ESTIMATE, "estimate", "nothing runs, and every mode is shown", NULL},
                {BY_SCALE, "scale", "it trains more than one model", "it shows only its table"}};
enum { COMMANDS = sizeof commands / sizeof *commands };

unsigned command_bit(const char *name) {
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(commands[i].name, name)) return commands[i].bit;
    return 0;
}

static const char *why_not(unsigned command, int compare_does) {
    for (int i = 0; i < COMMANDS; i++)
        if (commands[i].bit == command)
            return compare_does && commands[i].its_own ? commands[i].its_own : commands[i].why;
    return "";
}

static int check_command(const struct option *option, const struct asked *asked) {
    unsigned all = option->commands & BY_ALL, bit = command_bit(asked->command);
    int trains = (all & BY_TRAIN) != 0;
    if (!all || all & bit) return OK;
    return fail(ERR_USAGE, "%s: no effect in duet %s: %s: use duet %s, or leave it out",
                option->name, asked->command,
                trains ? why_not(bit, (all & BY_COMPARE) != 0)
                : all & BY_COMPARE
                    ? "it always trains in its own modes"
                    : "it trains with the given settings, and computes nothing beforehand",
                trains             ? "train"
                : all & BY_COMPARE ? "compare"
                : all & BY_PROFILE ? "profile or estimate"
                                   : "estimate");
}

/* ---- by mode ---- */

/* Commands that train in several modes take options that any of the modes can use. With --sync-bn
 * they leave DP out. */
static int check_mode(const struct option *option, const struct asked *asked) {
    enum run_mode mode = asked->config->mode;
    int of_dp = option->modes == IN_DP, of_fsdp = option->modes == IN_FSDP;
    const char *why = of_dp     ? "it belongs to DataParallel"
                      : of_fsdp ? "it belongs to FSDP"
                                : "it belongs to DDP";
    if (!option->modes || option->modes & asked->modes) return OK;
    if (of_fsdp && asked->modes != 1U << mode)
        return fail(ERR_USAGE, "%s: no effect without FSDP: %s: give --modes all, or leave it out",
                    option->name, why);
    if (asked->modes != 1U << mode)
        return fail(ERR_USAGE, "%s: no effect with --sync-bn: %s, which is not run: leave one out",
                    option->name, why);
    return fail(ERR_USAGE, "%s: no effect in mode %s: %s: give --mode %s, or leave it out",
                option->name, mode_name(mode), why,
                of_dp     ? "dp"
                : of_fsdp ? "fsdp"
                          : "ddp");
}

/* ---- by condition ---- */

/* Gives the model every option that some model takes, and sees which it used: a model ignores
 * options that it lacks. ERR_USAGE: there is no such model. */
static int ask_model(const struct asked *asked, unsigned condition, int *holds) {
    const struct model_options given = run_model_options(asked->config);
    const struct model_options all = {.dropout = -1,
                                      .hidden_count = 1,
                                      .hidden = {1},
                                      .sample = given.sample,
                                      .classes = given.classes,
                                      .params = given.params,
                                      .buffers = given.buffers,
                                      .own = given.own};
    struct model model;
    CHECK(model_open(&model, asked->config->model.name, &all));
    *holds = condition == WITH_MLP ? model.hidden_count > 0 : model.norms;
    model_free(&model);
    return OK;
}

static int is_made(const struct run_config *config) {
    struct dataset_config data = run_dataset(config);
    return config->model.options.params || dataset_made_samples(&data) > 0;
}

static int holds(const struct asked *asked, unsigned condition) {
    const struct run_config *c = asked->config;
    switch (condition) {
    /* Single has one device, so a request for one device is fulfilled. */
    case ON_SEVERAL_DEVICES:
        return asked->modes != 1U << MODE_SINGLE || c->devices == 1 ||
               bits_order(c) != ALLREDUCE_AUTO;
    case ADDS_AS_DDP:
        if (asked->modes & IN_FSDP && !strcmp(c->ddp.allreduce, "nccl")) return 1;
        return asked->modes & IN_DDP || bits_order(c) != ALLREDUCE_AUTO;
    case ON_GPUS: return strcmp(c->device, "cpu") != 0;
    case WITH_RESNET: return !strcmp(c->model.name, "resnet18");
    case OF_MADE_DATA: return is_made(c);
    case OF_FILES: return !is_made(c);
    case BY_SGD: return c->update.optimizer == OPTIMIZER_SGD;
    case SPLITS_PARAMETERS: return c->fsdp.shard == FSDP_PARAMETERS;
    case BESIDE_PARAMS: return c->model.options.params > 0;
    case BESIDE_CHECKPOINT: return *c->files.checkpoint != 0;
    case WITHOUT_INIT_FROM: return !*c->model.init_from;
    case WITHOUT_RESUME: return !*c->files.resume;
    case BESIDE_GPU: return *c->clock.gpu != 0;
    default: return 1;
    }
}

/* What a refusal quotes of the run. */
enum quoted { NOTHING, MODE, DEVICE, MODEL, DATA, OPTIMIZER };
static const char *quote(const struct run_config *c, enum quoted quoted) {
    const char *const words[] = {"",           mode_name(c->mode),
                                 c->device,    c->model.name,
                                 c->data.name, optimizer_name(c->update.optimizer)};
    return words[quoted];
}

/* The error for a condition that does not hold: no effect WHERE VALUE: WHY: give GIVE, or leave it
 * out. `beside`: the option that must go instead. */
static const struct {
    unsigned condition;
    const char *where;
    enum quoted value;
    const char *why, *give; /* give NULL: advise to leave one out */
} texts[] = {
    {ON_SEVERAL_DEVICES, "in mode ", MODE, "it trains on one device", "--mode dp or ddp"},
    {ADDS_AS_DDP, "in mode ", MODE,
     "it belongs to DDP; single and dp follow only ring and tree, over 3 or more --devices that "
     "divide --virtual-devices",
     "--mode ddp"},
    {ON_GPUS, "on device ", DEVICE, "it belongs to GPUs", "--device cuda"},
    {WITH_MLP, "with model ", MODEL, "it belongs to mlp", "--model mlp"},
    {WITH_NORMS, "with model ", MODEL, "it has no BatchNorm", "--model resnet18"},
    {WITH_RESNET, "with model ", MODEL, "it has only one initialisation", "--model resnet18"},
    {OF_MADE_DATA, "with data set ", DATA, "its files set it", "--dataset synthetic or random"},
    {OF_FILES, "with data set ", DATA, "it needs no files", "--dataset fashion-mnist or mnist"},
    {BY_SGD, "with optimizer ", OPTIMIZER, "it belongs to sgd", "--optimizer sgd"},
    {SPLITS_PARAMETERS, "with --shard gradients or optimizer", NOTHING,
     "in these modes each rank keeps all parameters", "--shard parameters"},
    {BESIDE_PARAMS, "without --params", NOTHING, "Duet's own models know their sizes",
     "--params N"},
    {BESIDE_CHECKPOINT, "without --checkpoint", NOTHING, "it sets when that file is written",
     "--checkpoint FILE"},
    {WITHOUT_INIT_FROM, "with --init-from", NOTHING, "the weights come from its file", NULL},
    {WITHOUT_RESUME, "with --resume", NOTHING, "the weights come from its file", NULL},
    {BESIDE_GPU, "without --gpu", NOTHING, "it belongs to the modelled clock", "--gpu NAME"}};

static int check_conditions(const struct option *option, const struct asked *asked) {
    const unsigned of_model = WITH_MLP | WITH_NORMS;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        unsigned condition = texts[i].condition;
        int is_so;
        if (!(option->conditions & condition)) continue;
        if (condition & of_model)
            CHECK(ask_model(asked, condition, &is_so));
        else
            is_so = holds(asked, condition);
        if (is_so) continue;
        const char *value = quote(asked->config, texts[i].value);
        if (!texts[i].give)
            return fail(ERR_USAGE, "%s: no effect %s%s: %s: leave one out", option->name,
                        texts[i].where, value, texts[i].why);
        return fail(ERR_USAGE, "%s: no effect %s%s: %s: give %s, or leave it out", option->name,
                    texts[i].where, value, texts[i].why, texts[i].give);
    }
    return OK;
}

int option_check_effect(const struct option *option, const struct asked *asked) {
    CHECK(check_command(option, asked));
    CHECK(check_mode(option, asked));
    return check_conditions(option, asked);
}
