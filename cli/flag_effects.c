/* The rules that say where a flag has an effect: see flag_effects.h. Each is one question about
 * what was asked. */
#include "cli/flag_effects.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/flag_table.h"
#include "cli/screen.h"

/* `where` and `name`: "in mode", "dp". `what`: what to give. */
static int unless(int effect, const struct flag *flag, const char *where, const char *name,
                  const char *why, const char *what) {
    if (effect) return OK;
    return fail(ERR_USAGE, "%s: no effect %s %s: %s: give %s, or leave it out", flag->name, where,
                name, why, what);
}

int always(const struct flag *flag, const struct asked *asked) {
    (void)flag;
    (void)asked;
    return OK;
}

/* ---- by command ---- */

static int is(const struct asked *asked, const char *command) {
    return !strcmp(asked->command, command);
}

/* There is no value that would help: another command would. */
static int unless_command(int effect, const struct flag *flag, const struct asked *asked,
                          const char *why) {
    if (effect) return OK;
    return fail(ERR_USAGE, "%s: no effect in duet %s: %s: use duet train, or leave it out",
                flag->name, asked->command, why);
}

int by_train(const struct flag *flag, const struct asked *asked) {
    return unless_command(is(asked, "train"), flag, asked, "it trains more than one model");
}

int by_estimate(const struct flag *flag, const struct asked *asked) {
    if (is(asked, "estimate")) return OK;
    return fail(ERR_USAGE,
                "%s: no effect in duet %s: it runs, and computes nothing from numbers: use duet "
                "estimate, or leave it out",
                flag->name, asked->command);
}

int by_profile_or_estimate(const struct flag *flag, const struct asked *asked) {
    if (is(asked, "estimate") || is(asked, "profile")) return OK;
    return fail(ERR_USAGE,
                "%s: no effect in duet %s: it trains with the batch that was asked for: use duet "
                "profile or estimate, or leave it out",
                flag->name, asked->command);
}

int of_runs(const struct flag *flag, const struct asked *asked) {
    if (!asked->config->find_max_batch) return OK;
    return fail(ERR_USAGE,
                "%s: no effect beside --find-max-batch: no table of runs is made: leave one out",
                flag->name);
}

int where_no_batch_is_sought(const struct flag *flag, const struct asked *asked) {
    if (!asked->config->find_max_batch) return OK;
    return fail(ERR_USAGE,
                "%s: no effect beside --find-max-batch: that finds the batch: leave one "
                "out",
                flag->name);
}

int beside_params(const struct flag *flag, const struct asked *asked) {
    CHECK(by_estimate(flag, asked));
    return unless(asked->config->model_options.params > 0, flag, "without", "--params",
                  "the models in the house know their sizes", "--params N");
}

int by_train_or_scale(const struct flag *flag, const struct asked *asked) {
    return unless_command(is(asked, "train") || is(asked, "scale"), flag, asked,
                          "it trains in several modes");
}

int by_all_but_estimate(const struct flag *flag, const struct asked *asked) {
    return unless_command(!is(asked, "estimate"), flag, asked, "nothing runs");
}

int by_all_but_scale(const struct flag *flag, const struct asked *asked) {
    CHECK(by_all_but_estimate(flag, asked));
    return unless_command(!is(asked, "scale"), flag, asked, "it trains more than one model");
}

int by_all_but_profile(const struct flag *flag, const struct asked *asked) {
    CHECK(by_all_but_estimate(flag, asked));
    return unless_command(!is(asked, "profile"), flag, asked, "it trains for its times alone");
}

/* ---- by mode ---- */

static int trains_in(const struct asked *asked, enum run_mode mode) {
    return (int)(asked->modes >> mode & 1);
}

static const char *mode_of(const struct asked *asked) {
    return mode_name(asked->config->mode);
}

/* A command that trains in several modes lacks DP where --sync-bn leaves it out. */
int in_dp(const struct flag *flag, const struct asked *asked) {
    if (!trains_in(asked, MODE_DP) && trains_in(asked, MODE_DDP) && trains_in(asked, MODE_SINGLE))
        return fail(ERR_USAGE,
                    "%s: no effect beside --sync-bn: it belongs to DataParallel, which is left "
                    "out: leave out one of them",
                    flag->name);
    return unless(trains_in(asked, MODE_DP), flag, "in mode", mode_of(asked),
                  "it belongs to DataParallel", "--mode dp");
}

int in_dp_with_threads(const struct flag *flag, const struct asked *asked) {
    enum run_mode mode = asked->config->mode;
    CHECK(by_all_but_estimate(flag, asked));
    if (asked->modes != 1U << mode || mode == MODE_DP) return in_dp(flag, asked);
    return unless(0, flag, "in mode", mode_of(asked),
                  mode == MODE_DDP ? "each rank is a process, with a lock of its own that no other "
                                     "thread waits for"
                                   : "one thread launches, and no other one waits for its lock",
                  "--mode dp");
}

int in_dp_one_way(const struct flag *flag, const struct asked *asked) {
    if (is(asked, "profile") || is(asked, "estimate"))
        return fail(ERR_USAGE,
                    "%s: no effect in duet %s: it always shows DP with it and without: leave it "
                    "out",
                    flag->name, asked->command);
    return in_dp(flag, asked);
}

int in_ddp(const struct flag *flag, const struct asked *asked) {
    return unless(trains_in(asked, MODE_DDP), flag, "in mode", mode_of(asked), "it belongs to DDP",
                  "--mode ddp");
}

/* One device is what single has, so whoever asks for one is not deceived. */
int on_several_devices(const struct flag *flag, const struct asked *asked) {
    int several = asked->modes != 1U << MODE_SINGLE;
    return unless(several || asked->config->devices == 1, flag, "in mode", mode_of(asked),
                  "it trains on one device", "--mode dp or ddp");
}

/* ---- by kind of device ---- */

int on_gpus(const struct flag *flag, const struct asked *asked) {
    const char *device = asked->config->device;
    return unless(strcmp(device, "cpu") != 0, flag, "on device", device, "it belongs to GPUs",
                  "--device cuda");
}

int with_graphs(const struct flag *flag, const struct asked *asked) {
    CHECK(on_gpus(flag, asked));
    CHECK(by_all_but_estimate(flag, asked));
    int timed = is(asked, "compare") || is(asked, "demo") || is(asked, "profile");
    CHECK(unless_command(!timed, flag, asked, "times are taken without graphs anyway"));
    const struct run_config *c = asked->config;
    if (!run_keeps_spans(c) && !c->live) return OK;
    return fail(ERR_USAGE,
                "%s: no effect beside %s: times are taken without graphs anyway: leave out "
                "one of them",
                flag->name,
                *c->trace    ? "--trace"
                : *c->report ? "--report"
                : c->live    ? "--live"
                             : "--pictures");
}

/* ---- by model and loss ---- */

/* Opens the model with every option that some model takes, and sees what it made of them: one that
 * has no such option ignores it. ERR_USAGE: there is no such model. */
static int try_model(const struct asked *asked, struct model *model) {
    const struct model_options given = run_model_options(asked->config);
    const struct model_options all = {.dropout = 0.5,
                                      .hidden_count = 1,
                                      .hidden = {1},
                                      .sample = given.sample,
                                      .classes = given.classes,
                                      .params = given.params,
                                      .buffers = given.buffers,
                                      .own = given.own};
    return model_open(model, asked->config->model, &all);
}

static int unless_model(int effect, const struct flag *flag, const struct asked *asked,
                        const char *why, const char *what) {
    return unless(effect, flag, "with model", asked->config->model, why, what);
}

int with_mlp(const struct flag *flag, const struct asked *asked) {
    struct model model;
    CHECK(try_model(asked, &model));
    int has = model.hidden_count > 0;
    model_free(&model);
    return unless_model(has, flag, asked, "it belongs to mlp", "--model mlp");
}

int with_dropout(const struct flag *flag, const struct asked *asked) {
    struct model model;
    CHECK(try_model(asked, &model));
    int has = model.dropout >= 0;
    model_free(&model);
    return unless_model(has, flag, asked, "it has no dropout", "--model convnet");
}

int with_buffers(const struct flag *flag, const struct asked *asked) {
    struct model model;
    CHECK(try_model(asked, &model));
    int has = model.buffer_count > 0;
    model_free(&model);
    return unless_model(has, flag, asked, "it has no BatchNorm", "--model resnet18");
}

int of_sync_bn(const struct flag *flag, const struct asked *asked) {
    CHECK(with_buffers(flag, asked));
    return asked->modes == 1U << MODE_DP ? run_check_sync_bn(asked->config) : OK;
}

int in_ddp_with_buffers(const struct flag *flag, const struct asked *asked) {
    CHECK(in_ddp(flag, asked));
    return with_buffers(flag, asked);
}

int of_first_weights(const struct flag *flag, const struct asked *asked) {
    const char *file = *asked->config->init_from ? "--init-from"
                       : *asked->config->resume  ? "--resume"
                                                 : NULL;
    CHECK(unless_model(!strcmp(asked->config->model, "resnet18"), flag, asked,
                       "it has one way to begin", "--model resnet18"));
    if (!file) return OK;
    return fail(ERR_USAGE, "%s: no effect beside %s: the weights come from its file: leave out one",
                flag->name, file);
}

/* Neither PyTorch's mse_loss nor its nll_loss can smooth labels. */
int of_scores(const struct flag *flag, const struct asked *asked) {
    struct model model;
    CHECK(try_model(asked, &model));
    int scores = !model.log_probabilities;
    model_free(&model);
    enum loss_kind loss = asked->config->model_options.loss;
    CHECK(unless(loss != LOSS_MSE, flag, "with loss", loss_name(loss), "it has no labels",
                 "--loss cross-entropy"));
    return unless_model(scores, flag, asked, "it ends in log_softmax and nll_loss, which has none",
                        "a model that ends in scores");
}

/* ---- by data set ---- */

static int is_made(const struct asked *asked) {
    struct dataset_config data = run_dataset(asked->config);
    return dataset_made_samples(&data) > 0;
}

int of_made_data(const struct flag *flag, const struct asked *asked) {
    if (asked->config->model_options.params) return OK; /* it is described, too */
    return unless(is_made(asked), flag, "with data set", asked->config->dataset,
                  "its files say that", "--dataset synthetic or random");
}

int of_files(const struct flag *flag, const struct asked *asked) {
    return unless(!is_made(asked), flag, "with data set", asked->config->dataset,
                  "it needs no files", "--dataset fashion-mnist or mnist");
}

int from_the_host(const struct flag *flag, const struct asked *asked) {
    return unless(strcmp(asked->config->data_on, "device") != 0, flag, "with", "--data-on device",
                  "the device makes the batches itself", "--data-on host");
}

/* ---- by optimizer ---- */

static int unless_optimizer(int effect, const struct flag *flag, const struct asked *asked,
                            const char *whose) {
    const char *name = optimizer_name(asked->config->optimizer);
    char why[64], what[64];
    snprintf(why, sizeof why, "it belongs to %s", whose);
    snprintf(what, sizeof what, "--optimizer %s", whose);
    return unless(effect, flag, "with optimizer", name, why, what);
}

static int has_adam(const struct asked *asked) {
    enum optimizer_kind kind = asked->config->optimizer;
    return kind == OPTIMIZER_ADAM || kind == OPTIMIZER_ADAMW;
}

int by_sgd(const struct flag *flag, const struct asked *asked) {
    return unless_optimizer(asked->config->optimizer == OPTIMIZER_SGD, flag, asked, "sgd");
}

int by_adam(const struct flag *flag, const struct asked *asked) {
    return unless_optimizer(has_adam(asked), flag, asked, "adam or adamw");
}

int by_adadelta(const struct flag *flag, const struct asked *asked) {
    return unless_optimizer(asked->config->optimizer == OPTIMIZER_ADADELTA, flag, asked,
                            "adadelta");
}

int by_adadelta_or_adam(const struct flag *flag, const struct asked *asked) {
    int is_adadelta = asked->config->optimizer == OPTIMIZER_ADADELTA;
    return unless_optimizer(is_adadelta || has_adam(asked), flag, asked, "adadelta, adam or adamw");
}

/* ---- by another flag ---- */

int beside_momentum(const struct flag *flag, const struct asked *asked) {
    CHECK(by_sgd(flag, asked));
    return unless(asked->config->momentum != 0, flag, "without", "--momentum",
                  "it weighs gradients in the momentum", "--momentum X");
}

int beside_lr_step(const struct flag *flag, const struct asked *asked) {
    return unless(asked->config->lr_step > 0, flag, "without", "--lr-step",
                  "it is the factor of that schedule", "--lr-step N");
}

int beside_save(const struct flag *flag, const struct asked *asked) {
    return unless(*asked->config->save != 0, flag, "without", "--save", "it changes names there",
                  "--save FILE");
}

int beside_checkpoint(const struct flag *flag, const struct asked *asked) {
    return unless(*asked->config->checkpoint != 0, flag, "without", "--checkpoint",
                  "it says when that is written", "--checkpoint FILE");
}

/* ---- by what is printed ---- */

int with_progress(const struct flag *flag, const struct asked *asked) {
    CHECK(by_all_but_estimate(flag, asked));
    CHECK(unless_command(!is(asked, "profile"), flag, asked, "it prints no progress"));
    CHECK(unless_command(!is(asked, "scale"), flag, asked, "its table grows while it runs"));
    if (!asked->config->quiet) return OK;
    return fail(ERR_USAGE,
                "%s: no effect beside --quiet: no progress is printed: leave out one of them",
                flag->name);
}

int with_dashboard(const struct flag *flag, const struct asked *asked) {
    CHECK(by_all_but_estimate(flag, asked));
    CHECK(unless_command(!is(asked, "scale"), flag, asked, "its table grows while it runs"));
    if (asked->config->find_max_batch)
        return fail(ERR_USAGE,
                    "%s: no effect beside --find-max-batch: its tries are too short to be watched: "
                    "leave out one of them",
                    flag->name);
    if (!screen_is_built_in())
        return fail(ERR_USAGE,
                    "%s: this build has no ncurses: install libncurses-dev and build again, or "
                    "leave it out",
                    flag->name);
    if (!asked->config->quiet) return OK;
    return fail(ERR_USAGE,
                "%s: no effect beside --quiet: no progress is shown: leave out one of them",
                flag->name);
}
