/* The copy of the state, and the thread that writes it: see checkpoint.h.
 *
 *     training    take: copy          take: join, copy        finish: join
 *     thread             write file             write file
 *
 * Between take and join the copy belongs to the thread. */
#include "train/files/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/files/atomic_file.h"
#include "base/program_name.h"
#include "base/worker.h"
#include "data/safetensors.h"
#include "train/compare/bits.h"
#include "train/files/resume.h"
#include "train/files/settings.h"

enum { OWN_PAIRS = 4, MOST_PARTS = 2, PREFIX_BYTES = 40 };

struct checkpoint {
    struct session *s;
    struct replica *replica; /* of device 0, which updates the parameters */

    /* the copy */
    int step, last;
    float *values, *state; /* as on the device */
    float **value;         /* [parameters] into values */
    float *part;           /* the parts of the state, one by one */
    int64_t *updates;      /* [parameters] */
    void *buffers;
    struct safetensors_item *items; /* of the optimizer */
    int item_count;
    char prefix[MOST_PARTS][PREFIX_BYTES]; /* "optimizer.exp_avg." */
    struct setting settings[SETTINGS_MOST];
    struct safetensors_pair about[OWN_PAIRS + SETTINGS_MOST];
    int pairs;
    char step_text[16];

    struct worker *worker;
    struct task task; /* writes the file */
    int running;      /* 1: the task was given, and nobody has looked at its end yet */

    /* how it went */
    int taken, failed;
    int good_step; /* of the last checkpoint that was written; 0: none */
    int warned;    /* the one before had failed too */
};

/* ---- what a file holds ---- */

static void describe(struct checkpoint *c) {
    char why_not[160];
    int promised = bits_promised(c->s->config, why_not, sizeof why_not);
    const struct safetensors_pair own[OWN_PAIRS] = {{"format", "pt"},
                                                    {"duet_checkpoint", CHECKPOINT_VERSION},
                                                    {"step", c->step_text},
                                                    {"bits_promised", promised ? "1" : "0"}};
    memcpy(c->about, own, sizeof own);
    c->pairs = OWN_PAIRS + settings_list(c->s, c->settings);
    for (int i = OWN_PAIRS; i < c->pairs; i++)
        c->about[i] = (struct safetensors_pair){c->settings[i - OWN_PAIRS].name,
                                                c->settings[i - OWN_PAIRS].text};
}

/* The tensors of the optimizer: their data lies in the copy. */
static void list_items(struct checkpoint *c) {
    const struct param_set *set = &c->replica->params->set;
    const struct optimizer *o = &c->replica->optimizer->optimizer;
    float *part = c->part;
    c->items[c->item_count++] = (struct safetensors_item){.name = "optimizer.step",
                                                          .dims = 1,
                                                          .shape = {set->count},
                                                          .data = c->updates,
                                                          .dtype = "I64"};
    for (int k = 0; k < o->each; k++) {
        snprintf(c->prefix[k], PREFIX_BYTES, "optimizer.%s.",
                 optimizer_part_name(o->config.kind, k));
        for (int i = 0; i < set->count; i++) {
            const struct param_spec *spec = set->param[i].spec;
            if (spec->frozen) continue;
            struct safetensors_item *item = &c->items[c->item_count++];
            *item = (struct safetensors_item){
                .name = spec->name, .prefix = c->prefix[k], .dims = spec->rank, .data = part};
            for (int d = 0; d < spec->rank; d++)
                item->shape[d] = spec->dims[d];
            part += set->param[i].count;
        }
    }
}

static int allocate(struct checkpoint *c) {
    const struct param_set *set = &c->replica->params->set;
    size_t each = (size_t)c->replica->optimizer->optimizer.each, count = (size_t)set->count;
    c->values = malloc(set->arena_count * sizeof(float) + 1);
    c->state = malloc(optimizer_state_bytes(&c->replica->optimizer->optimizer, set) + 1);
    c->part = malloc(set->total_count * each * sizeof(float) + 1);
    c->value = calloc(count + 1, sizeof *c->value);
    c->updates = calloc(count + 1, sizeof *c->updates);
    c->items = calloc(count * each + 1, sizeof *c->items);
    c->buffers = malloc(c->replica->params->buffers.bytes + 1);
    if (!c->values || !c->state || !c->part || !c->value || !c->updates || !c->items || !c->buffers)
        return fail(ERR_MEMORY, "--checkpoint: no host memory for a copy of %zu parameters",
                    set->total_count);
    for (int i = 0; i < set->count; i++)
        c->value[i] = c->values + set->param[i].value_offset;
    return OK;
}

/* In the worker's thread. */
static int write_file(void *argument) {
    struct checkpoint *c = argument;
    struct atomic_file file = {0};
    const struct replica *r = c->replica;
    const struct model_state state = {.values = c->value,
                                      .buffers = c->buffers,
                                      .more = c->items,
                                      .more_count = c->item_count,
                                      .about = c->about,
                                      .pairs = c->pairs};
    float *part = c->part;
    for (int k = 0; k < r->optimizer->optimizer.each; k++)
        for (int i = 0; i < r->params->set.count; part += r->params->set.param[i++].count)
            optimizer_part_get(&r->optimizer->optimizer, &r->params->set.param[i], k, c->state,
                               part);
    int code = atomic_open(&file, c->s->config->files.checkpoint);
    file.disposable = !c->last;
    if (!code) code = model_state_save(&c->s->model, &file, &state);
    if (!code) code = atomic_commit(&file);
    atomic_abandon(&file);
    return code;
}

int checkpoint_init(struct checkpoint **out, struct session *s) {
    *out = NULL;
    if (!*s->config->files.checkpoint || !session_leads(s)) return OK;
    struct checkpoint *c = *out = calloc(1, sizeof *c);
    if (!c) return fail(ERR_MEMORY, "--checkpoint: no host memory");
    c->s = s;
    c->replica = s->replicas[0];
    c->task = (struct task){.run = write_file, .context = c};
    CHECK(worker_new(&c->worker, 1));
    CHECK(allocate(c));
    list_items(c);
    describe(c);
    return OK;
}

/* ---- how it went ---- */

static void warn(struct checkpoint *c) {
    char kept[64] = "";
    if (c->good_step) snprintf(kept, sizeof kept, ", and that of step %d stays", c->good_step);
    if (!c->warned && !c->last)
        fprintf(stderr, "%s: warning: checkpoint of step %d: %s: training goes on%s\n",
                program_name(), c->step, c->task.result.text, kept);
}

/* Waits for the checkpoint under way and looks at how it went. */
static void join(struct checkpoint *c) {
    if (!c->running) return;
    worker_wait(c->worker, &c->task, WORKER_NEVER);
    c->running = 0;
    int code = task_end(&c->task);
    if (code) {
        warn(c);
        c->failed++;
    } else {
        c->good_step = c->step;
    }
    c->warned = code != OK;
}

/* ---- training ---- */

int checkpoint_take(struct checkpoint *c, int step, int last) {
    if (!c) return OK;
    struct replica *r = c->replica;
    struct stream *stream = device_compute(r->device);
    join(c);
    /* a copy of the state is no part of training, and neither is the evaluation before the last */
    if (!last) measure_count(c->s);
    stream_set_phase(stream, PHASE_NONE, step);
    CHECK(copy_to_host(stream, c->values, r->params->set.values,
                       r->params->set.arena_count * sizeof(float)));
    CHECK(buffer_set_read(&r->params->buffers, c->buffers));
    CHECK(optimizer_state_read(&r->optimizer->optimizer, &r->params->set, c->state));
    measure_mark(c->s);
    for (int i = 0; i < r->params->set.count; i++)
        c->updates[i] = step - r->optimizer->optimizer.missed[i];
    c->step = step;
    c->last = last;
    c->taken++;
    snprintf(c->step_text, sizeof c->step_text, "%d", step);
    worker_start(c->worker, 1, "--checkpoint"); /* without a thread join writes the file */
    worker_give(c->worker, &c->task);
    c->running = 1;
    return OK;
}

void checkpoint_look(struct checkpoint *c) {
    if (c && c->running && worker_has_ended(c->worker, &c->task)) join(c);
}

void checkpoint_finish(struct checkpoint *c, struct failures *unwritten) {
    if (!c) return;
    join(c);
    if (!c->failed) return;
    if (c->warned) /* the last one failed */
        failures_add(unwritten, fail(ERR_FAILED, "%s", c->task.result.text));
    else
        failures_add(unwritten,
                     fail(ERR_FAILED, "%s: %d of %d checkpoints could not be written: %s",
                          c->s->config->files.checkpoint, c->failed, c->taken,
                          c->task.result.text));
}

void checkpoint_free(struct checkpoint *c) {
    if (!c) return;
    worker_free(c->worker, WORKER_NEVER);
    free(c->values);
    free(c->state);
    free(c->value);
    free(c->part);
    free(c->updates);
    free(c->items);
    free(c->buffers);
    free(c);
}
