/* Lists the settings that determine the bits of a run. All others may change when a run is resumed:
 * its length, files, timeouts, threads, and, if equal bits are promised, the mode and the number of
 * devices. */
#include "train/files/settings.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/model_file.h"

struct list {
    struct setting *settings;
    int count, of_way;
};

__attribute__((format(printf, 3, 4))) static void put(struct list *l, const char *name,
                                                      const char *format, ...) {
    struct setting *s = &l->settings[l->count++];
    va_list args;
    va_start(args, format);
    vsnprintf(s->text, sizeof s->text, format, args);
    va_end(args);
    s->name = name;
    s->of_way = l->of_way;
}

/* The shortest text that identifies this double. */
static void add_number(struct list *l, const char *name, double value) {
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    put(l, name, "%s", text);
}

static void add_yes_no(struct list *l, const char *name, int value) {
    put(l, name, "%s", value ? "yes" : "no");
}

static void add_count(struct list *l, const char *name, int value) {
    if (value)
        put(l, name, "%d", value);
    else
        put(l, name, "off");
}

/* Tells two data sets apart but does not resist forgery: a multiply and a shift for every 8
 * bytes. */
static uint64_t mix(uint64_t hash, const uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, count - i < 8 ? count - i : 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15;
        hash ^= hash >> 32;
    }
    return hash;
}

uint64_t settings_fingerprint(const struct dataset *set) {
    size_t count = (size_t)set->count, numbers = count * sample_shape_count(&set->shape),
           answers = count * (size_t)dataset_answer_count(set);
    uint64_t hash = set->images ? mix(1, set->images, numbers)
                                : mix(1, (const uint8_t *)set->numbers, numbers * sizeof(float));
    return set->labels ? mix(hash, set->labels, count)
                       : mix(hash, set->answers, answers * sizeof(float));
}

/* A file may be moved, but its contents must be the same. */
static void add_model_name(struct list *l, const struct model *m, const struct model_file *file) {
    if (file && !strcmp(file->model->name, m->name))
        put(l, "--model", "a file, fingerprint %016" PRIx64,
            mix(1, (const uint8_t *)file->text, file->bytes));
    else
        put(l, "--model", "%s", m->name);
}

static void add_model(struct list *l, const struct model *m) {
    char widths[SETTING_BYTES] = "";
    for (int i = 0, used = 0; i < m->hidden_count; i++)
        used +=
            snprintf(widths + used, sizeof widths - (size_t)used, i ? ",%d" : "%d", m->hidden[i]);
    put(l, "--mlp-hidden", "%s", *widths ? widths : "none");
    add_yes_no(l, "--sync-bn", m->sync_bn);
}

static void add_update(struct list *l, const struct run_config *c) {
    struct optimizer_config o = run_optimizer(c);
    put(l, "--optimizer", "%s", optimizer_name(o.kind));
    add_number(l, "--lr", c->update.lr);
    add_number(l, "--weight-decay", o.weight_decay);
    if (o.kind == OPTIMIZER_SGD) add_number(l, "--momentum", o.momentum);
}

int settings_list(const struct session *s, struct setting settings[SETTINGS_MOST]) {
    const struct run_config *c = s->config;
    struct list l = {.settings = settings};
    add_model_name(&l, &s->model, model_file_of(c->model.options.own));
    add_model(&l, &s->model);
    put(&l, "--seed", "%" PRIu64, c->seed); /* first, since the data may be drawn from it */
    put(&l, "--dataset", "%s: %d samples, fingerprint %016" PRIx64, s->train_set.name,
        s->train_set.count, settings_fingerprint(&s->train_set));
    add_count(&l, "--virtual-devices", s->virtual_devices);
    put(&l, "--batch-size", "%d", c->batch_size);
    put(&l, "--no-sync-steps", "%d", c->update.passes);
    add_yes_no(&l, "--no-shuffle", !c->data.shuffle);
    add_yes_no(&l, "--drop-last", c->data.drop_last);
    add_yes_no(&l, "--join", c->data.join);
    add_update(&l, c);
    put(&l, "--device", "%s", s->gpus ? "cuda" : "cpu");
    if (s->gpus) {
        put(&l, "--cuda-math", "%s", c->cuda_math == DEVICE_MATH_LIBRARY ? "library" : "own");
        add_yes_no(&l, "--tf32", c->tf32);
    }
    l.of_way = 1;
    put(&l, "--mode", "%s", mode_name(c->mode));
    put(&l, "--devices", "%d", s->devices);
    if (c->mode == MODE_DDP) {
        put(&l, "--allreduce", "%s", c->ddp.allreduce);
        add_number(&l, "--bucket-cap-mb", c->ddp.bucket_cap_mb);
    }
    return l.count;
}
