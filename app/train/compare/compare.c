/* Runs a comparison: see compare.h. */
#include "train/compare/compare.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "train/compare/lockstep.h"
#include "train/shared_data.h"

const char *compare_leaves_out(const struct run_config *config, enum run_mode mode) {
    if (!(config->modes >> mode & 1)) return "--modes does not name it";
    if ((config->spread || config->clock.nodes > 1) && mode == MODE_DP)
        return "DataParallel is one process, and the devices are on several machines";
    if (mode != MODE_DP || !config->model.options.sync_bn) return NULL;
    return "SyncBatchNorm is only supported within torch.nn.parallel.DistributedDataParallel, says "
           "PyTorch";
}

static int judge(struct comparison *c, enum run_mode mode, struct job_result *result) {
    struct verdict *v = &c->verdict[mode];
    if (!c->run[mode].devices) return OK; /* the mode was left out or did not fit */
    c->judged[mode] = verdict_judge(&c->run[c->reference], &c->run[mode], v);
    if (c->judged[mode]) return OK;
    struct run_config config = c->config;
    config.mode = mode;
    CHECK(lockstep_check(&config, &c->run[c->reference], v, result));
    c->judged[mode] = 1;
    return OK;
}

/* The run in `last` failed or was stopped. Those before it were completed. */
static void judge_those_before(struct comparison *c, enum run_mode last) {
    for (enum run_mode mode = c->reference + 1; mode < last; mode++)
        if (c->run[mode].devices)
            c->judged[mode] =
                verdict_judge(&c->run[c->reference], &c->run[mode], &c->verdict[mode]);
}

/* The outcome of both verdicts. If the loss is not finite in both modes, gradients beyond the bound
 * say nothing about the modes, and equal bits prove nothing either. */
static int conclude(const struct comparison *c, struct job_result *result) {
    int not_finite_at = -1;
    char words[VERDICT_WORDS];
    for (enum run_mode mode = c->reference + 1; mode < MODE_COUNT; mode++) {
        const struct verdict *v = &c->verdict[mode];
        if (!c->run[mode].devices) continue;
        int good = v->kind == VERDICT_EQUAL || v->kind == VERDICT_WITHIN;
        if (v->not_finite_at >= 0 && v->kind != VERDICT_DIFFERENT) {
            not_finite_at = v->not_finite_at;
            continue;
        }
        if (good) continue;
        result->exit_status = error_exit_status(ERR_CHECK);
        return fail(ERR_CHECK, "%s and %s did not train the same model: %s: see the verdict above",
                    mode_title(mode), mode_title(c->reference),
                    verdict_difference(v, &c->run[mode], words));
    }
    if (not_finite_at < 0) return OK;
    result->exit_status = error_exit_status(ERR_CHECK);
    return fail(ERR_CHECK,
                "loss: not finite since step %d: the comparison proves nothing from there on: %s",
                not_finite_at, not_finite_advice(not_finite_at));
}

/* Without virtual devices each mode splits the batch by its own device count. */
static int check_norms(const struct run_config *config, struct job_result *result) {
    struct model model;
    if (config->virtual_devices != VIRTUAL_OFF || config->model.options.sync_bn) return OK;
    CHECK(model_open(&model, config->model.name, &config->model.options));
    int norms = model.buffer_count > 0;
    model_free(&model);
    if (!norms) return OK;
    result->exit_status = error_exit_status(ERR_USAGE);
    return fail(ERR_USAGE,
                "--virtual-devices: off: BatchNorm normalises the share of each device, so the "
                "modes train different models: leave it out, or give --sync-bn");
}

/* The mode that takes the place of one that did not fit. */
static enum run_mode next_reference(const struct run_config *config, enum run_mode mode) {
    for (mode++; mode < MODE_COUNT && compare_leaves_out(config, mode);)
        mode++;
    return mode;
}

/* Runs one mode. One that does not fit into memory is left out, and its need is recorded. */
static int run_one(struct comparison *c, const struct run_config *config, enum run_mode mode,
                   struct job_result *result) {
    struct run_config one = c->config;
    one.mode = mode;
    one.hashes = one.spans = 1;
    one.stoppable = run_writes_results(config);
    CHECK(run_config_of_several(&one, config, mode_name(mode)));
    int code = job_run_titled(mode_title(mode), &one, &c->run[mode], result);
    if (code == ERR_MEMORY && !result->signal) {
        snprintf(c->full[mode], sizeof c->full[mode], "%s", error_message());
        record_free(&c->run[mode]);
        c->need[mode] = need_of(&one);
        if (mode == c->reference) c->reference = next_reference(&c->config, mode);
        return OK;
    }
    if (code && !c->run[mode].steps) record_free(&c->run[mode]); /* the record is empty */
    if (code) judge_those_before(c, mode);
    CHECK(code);
    /* All modes use the kind of device that `auto` found, since another kind gives other bits. */
    if (mode == c->reference)
        snprintf(c->config.device, sizeof c->config.device, "%s", c->run[mode].kind);
    return OK;
}

int compare_run(struct comparison *c, const struct run_config *config, struct job_result *result) {
    memset(result, 0, sizeof *result);
    result->exit_status = 1;
    c->config = *config;
    while (compare_leaves_out(config, c->reference))
        c->reference++;
    if (config->virtual_devices == VIRTUAL_DEFAULT) c->config.virtual_devices = config->devices;
    CHECK(check_norms(&c->config, result));
    CHECK(shared_data_open(&c->config));
    CHECK(job_try_first(&c->config, result));
    for (int i = 0; i < MODE_COUNT; i++) {
        /* while all machines take part; afterwards only rank 0 continues */
        enum run_mode mode = config->spread ? MODE_COUNT - 1 - i : i;
        if (!compare_leaves_out(&c->config, mode)) CHECK(run_one(c, config, mode, result));
    }
    for (enum run_mode mode = c->reference + 1; mode < MODE_COUNT; mode++)
        CHECK(judge(c, mode, result));
    CHECK(conclude(c, result));
    for (enum run_mode mode = 0; mode < MODE_COUNT; mode++) {
        if (!*c->full[mode]) continue;
        result->exit_status = error_exit_status(ERR_MEMORY);
        return fail(ERR_MEMORY, "%s", c->full[mode]);
    }
    return OK;
}

void comparison_free(struct comparison *c) {
    for (int mode = 0; mode < MODE_COUNT; mode++)
        record_free(&c->run[mode]);
    shared_data_close(&c->config);
}
