/* A checkpoint of a program is one safetensors file with parameters, buffers, the optimizer's state
 * and the program's position. The names are those of the command's checkpoints
 * (train/files/resume.h): "W1", "optimizer.exp_avg.W1", "optimizer.step". The strings in
 * __metadata__ hold the rest. A program's checkpoint lacks the command's settings, so --resume
 * refuses it; a program may read the command's checkpoints. */
#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/files/safetensors.h"
#include "base/text/number.h"
#include "base/text/parse.h"
#include "nn/params/optimizer.h"
#include "nn/tape/tape_internal.h"

enum { TEXT_BYTES = 40, MOST_TEXTS = 9 + OPTIMIZER_GROUPS };

/* ---- checks before anything is read or written ---- */

static int check_checkpoint(const struct duet_checkpoint *c, const char *file, const char *what) {
    if (!c) return fail(ERR_USAGE, "%s: no checkpoint was given", what);
    if (!file) return fail(ERR_USAGE, "%s: no file was given", what);
    if (!c->params) return fail(ERR_USAGE, "%s: no parameters were given", what);
    if (c->optimizer && c->optimizer->params != c->params)
        return fail(ERR_USAGE, "%s: the optimizer updates other parameters: give those", what);
    if (c->tape && c->tape->device != c->params->set.device)
        return fail(ERR_USAGE,
                    "%s: the tape is on %s, the parameters are on %s: give both one device", what,
                    device_name(c->tape->device), device_name(c->params->set.device));
    if (c->tape && c->tape->pass_of_update > 0 &&
        c->tape->pass_of_update < c->tape->passes_of_update)
        return fail(
            ERR_USAGE,
            "%s: pass %d of %d of an update is done: a checkpoint keeps no gradients: call it "
            "after the last pass",
            what, c->tape->pass_of_update, c->tape->passes_of_update);
    return OK;
}

/* ---- saving ---- */

struct texts {
    struct safetensors_pair pair[MOST_TEXTS];
    char value[MOST_TEXTS][TEXT_BYTES];
    int count;
};

static void add_text(struct texts *t, const char *key, const char *text) {
    snprintf(t->value[t->count], TEXT_BYTES, "%s", text);
    t->pair[t->count] = (struct safetensors_pair){key, t->value[t->count]};
    t->count++;
}

static void add_integer(struct texts *t, const char *key, int64_t value) {
    char text[TEXT_BYTES];
    snprintf(text, sizeof text, "%" PRId64, value);
    add_text(t, key, text);
}

/* 17 digits bring back the same double. */
static void add_double(struct texts *t, const char *key, double value) {
    char text[TEXT_BYTES];
    locale_t before = numbers_of_c();
    snprintf(text, sizeof text, "%.17g", value);
    numbers_end(before);
    add_text(t, key, text);
}

/* The rates of groups; below 0: that of the optimizer. */
static const char *const group_keys[OPTIMIZER_GROUPS] = {
    "lr.1", "lr.2",  "lr.3",  "lr.4",  "lr.5",  "lr.6",  "lr.7",  "lr.8",
    "lr.9", "lr.10", "lr.11", "lr.12", "lr.13", "lr.14", "lr.15", "lr.16"};

static void describe_entries(const struct duet_checkpoint *c, struct texts *t) {
    add_text(t, "format", "pt");
    add_text(t, "duet_checkpoint", CHECKPOINT_VERSION);
    add_integer(t, "step", c->step);
    add_integer(t, "epoch", c->epoch);
    if (c->tape) add_integer(t, "passes", (int64_t)c->tape->passes);
    if (c->optimizer) {
        add_text(t, "--optimizer", optimizer_name(c->optimizer->optimizer.config.kind));
        add_double(t, "lr", c->optimizer->lr);
        if (c->optimizer->optimizer.config.groups)
            add_integer(t, "groups", c->optimizer->optimizer.config.groups);
        for (int g = 0; g < c->optimizer->optimizer.config.groups; g++)
            add_double(t, group_keys[g], c->optimizer->optimizer.rate[g]);
    }
}

int duet_checkpoint_save(const struct duet_checkpoint *c, const char *file) {
    struct texts texts = {.count = 0};
    CHECK(check_checkpoint(c, file, "save"));
    if (c->epoch < 0 || c->step < 0)
        return fail(ERR_USAGE, "save: epoch %d, step %" PRId64 ": both count from 0", c->epoch,
                    c->step);
    describe_entries(c, &texts);
    return params_write(c->params, file, NULL,
                        &(struct params_extra){.optimizer = c->optimizer,
                                               .updates = c->optimizer ? c->optimizer->updates : 0,
                                               .about = texts.pair,
                                               .pairs = texts.count});
}

/* ---- loading ---- */

static int broken(const struct safetensors *file, const char *what) {
    return fail(ERR_FAILED, "load: %s: the checkpoint lacks its %s: it is broken", file->path,
                what);
}

int checkpoint_check(const struct safetensors *file, const char *what, const char *instead) {
    const char *version = safetensors_text(file, "duet_checkpoint");
    if (!version)
        return fail(ERR_FAILED, "%s: %s: not a checkpoint: give %s", what, file->path, instead);
    return strcmp(version, CHECKPOINT_VERSION)
               ? fail(ERR_FAILED,
                      "%s: %s: a checkpoint of version %.20s, this Duet reads " CHECKPOINT_VERSION
                      ": use the Duet that wrote it",
                      what, file->path, version)
               : OK;
}

/* If a text that a checkpoint of the command may lack is missing, *value does not change. */
static int read_integer(const struct safetensors *file, const char *key, int64_t most, int needed,
                        int64_t *value) {
    const char *text = safetensors_text(file, key);
    if (!text && !needed) return OK;
    return text && !parse_int(key, text, 0, most, value) ? OK : broken(file, key);
}

static int read_rate(const struct safetensors *file, const char *key, double lowest, double *lr) {
    const char *text = safetensors_text(file, key);
    char *end;
    if (!text) return OK;
    locale_t before = numbers_of_c();
    *lr = strtod(text, &end);
    numbers_end(before);
    return end == text || *end || !(*lr >= lowest && *lr <= FLT_MAX) ? broken(file, "learning rate")
                                                                     : OK;
}

/* The program decides which parameters a group has; the number of groups must agree. */
static int read_groups(const struct duet_optimizer *o, const struct safetensors *file,
                       double rates[OPTIMIZER_GROUPS]) {
    int64_t groups = 0;
    CHECK(read_integer(file, "groups", OPTIMIZER_GROUPS, 0, &groups));
    if (groups != o->optimizer.config.groups)
        return fail(ERR_USAGE,
                    "load: %s: it was written with %d parameter groups besides the first, this "
                    "optimizer has %d: add the same",
                    file->path, (int)groups, o->optimizer.config.groups);
    for (int g = 0; g < groups; g++)
        CHECK(read_rate(file, group_keys[g], -INFINITY, &rates[g]));
    return OK;
}

static int check_kind(const struct duet_optimizer *o, const struct safetensors *file) {
    const char *theirs = safetensors_text(file, "--optimizer"),
               *ours = optimizer_name(o->optimizer.config.kind);
    if (!theirs || strcmp(theirs, ours))
        return fail(
            ERR_USAGE, "load: %s: it was written with %s%.20s, this optimizer is %s: make the same",
            file->path, theirs ? "the optimizer " : "no optimizer", theirs ? theirs : "", ours);
    for (int i = 0; !o->optimizer.each && i < file->count; i++)
        if (!strncmp(file->entries[i].name, "optimizer.momentum_buffer.", 26))
            return fail(ERR_USAGE,
                        "load: %s: it was written with momentum, this optimizer has none: make the "
                        "same",
                        file->path);
    return OK;
}

/* Everything is read before anything changes. */
static int load(struct duet_checkpoint *c, const struct safetensors *file) {
    struct duet_optimizer *o = c->optimizer;
    int64_t epoch = 0, step = 0, passes = c->tape ? (int64_t)c->tape->passes : 0;
    double lr = o ? o->lr : 0, rates[OPTIMIZER_GROUPS] = {0};
    CHECK(checkpoint_check(file, "load", "one, or duet_params_load for values only"));
    CHECK(read_integer(file, "step", INT64_MAX, 1, &step));
    CHECK(read_integer(file, "epoch", INT32_MAX, 0, &epoch));
    CHECK(read_integer(file, "passes", INT64_MAX - 1, 0, &passes));
    CHECK(read_rate(file, "lr", 0, &lr));
    if (o) CHECK(read_groups(o, file, rates));
    if (o) CHECK(check_kind(o, file));
    CHECK(params_read(c->params, o, file, INT64_MAX, 0));
    if (o) o->lr = lr;
    if (o) memcpy(o->optimizer.rate, rates, sizeof rates);
    if (c->tape) c->tape->passes = (uint64_t)passes;
    c->epoch = (int)epoch, c->step = step;
    return OK;
}

int duet_checkpoint_load(struct duet_checkpoint *c, const char *file) {
    struct safetensors s = {0};
    CHECK(check_checkpoint(c, file, "load"));
    CHECK(safetensors_open(&s, file));
    int code = load(c, &s);
    safetensors_close(&s);
    return code;
}
