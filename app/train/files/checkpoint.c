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

#include "base/files/atomic_file.h"
#include "base/files/safetensors.h"
#include "base/program_name.h"
#include "base/worker.h"
#include "ddp/ddp.h"
#include "nn/params/optimizer_items.h"
#include "train/compare/bits.h"
#include "train/files/resume.h"
#include "train/files/settings.h"

enum { OWN_PAIRS = 4, ORDER_PAIRS = 2 };

struct checkpoint {
    struct session *s;
    struct replica *replica; /* that of device 0, which updates the parameters */

    /* the copy */
    int step, last;
    float *values, **value; /* as on the device; [parameters] into it */
    void *buffers;
    struct optimizer_items state;
    struct setting settings[SETTINGS_MOST];
    struct safetensors_pair about[OWN_PAIRS + SETTINGS_MOST + ORDER_PAIRS];
    int pairs;                                     /* without those of the order */
    char sum_order[SUM_ORDER_BYTES], *ready_order; /* owned; NULL: not known */
    char step_text[16];

    struct worker *worker;
    struct task task; /* writes the file */
    int running;      /* 1: a task was given, and its end has not been checked yet */

    /* how it went */
    int taken, failed;
    int good_step; /* of the last checkpoint that was written; 0: none */
    int warned;    /* the one before failed, too */
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
    bits_order_text(c->s->config, c->sum_order);
    if (*c->sum_order)
        c->about[c->pairs++] = (struct safetensors_pair){ORDER_OF_SUMS, c->sum_order};
}

static int allocate(struct checkpoint *c) {
    const struct param_set *set = &c->replica->params->set;
    c->values = malloc(set->arena_count * sizeof(float) + 1);
    c->value = calloc((size_t)set->count + 1, sizeof *c->value);
    c->buffers = malloc(c->replica->params->buffers.bytes + 1);
    if (!c->values || !c->value || !c->buffers)
        return fail(ERR_MEMORY, "--checkpoint: out of host memory for a copy of %zu parameters",
                    set->total_count);
    for (int i = 0; i < set->count; i++)
        c->value[i] = c->values + set->param[i].value_offset;
    return optimizer_items_make(&c->state, c->replica->optimizer);
}

/* Runs in the worker's thread. */
static int write_file(void *argument) {
    struct checkpoint *c = argument;
    struct atomic_file file = {0};
    optimizer_items_list(&c->state, c->replica->optimizer);
    const struct model_state state = {.values = c->value,
                                      .buffers = c->buffers,
                                      .more = c->state.items,
                                      .more_count = c->state.count,
                                      .about = c->about,
                                      .pairs = c->pairs + (c->ready_order != NULL)};
    int code = atomic_open(&file, c->s->config->files.checkpoint);
    file.disposable = !c->last;
    if (!code) code = model_state_save(&c->s->model, &file, &state);
    if (!code) code = atomic_commit(&file);
    atomic_abandon(&file);
    return code;
}

int checkpoint_init(struct checkpoint **out, struct session *s) {
    *out = NULL;
    const int sharded = s->replicas[0]->params->set.shard != NULL; /* then a copy is collective */
    if (!*s->config->files.checkpoint || (!session_leads(s) && !sharded)) return OK;
    struct checkpoint *c = *out = calloc(1, sizeof *c);
    if (!c) return fail(ERR_MEMORY, "--checkpoint: out of host memory");
    c->s = s;
    c->replica = s->replicas[0];
    c->task = (struct task){.run = write_file, .context = c};
    CHECK(worker_new(&c->worker, 1));
    CHECK(allocate(c));
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

/* Waits for the current checkpoint and checks how it went. */
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

/* With an allreduce's order of sums, a resumed run continues with the buckets of this one. */
static int write_ready_order(struct checkpoint *c) {
    const struct grad_reducer *ddp = c->replica->params->reducer;
    const int *order = !*c->sum_order ? NULL
                       : ddp          ? ddp_ready_order(ddp->context)
                                      : sums_ready_order(&c->s->sums);
    size_t bytes;
    free(c->ready_order);
    c->ready_order = NULL;
    FILE *text = order ? open_memstream(&c->ready_order, &bytes) : NULL;
    for (int i = 0; text && i < c->replica->params->set.trained; i++)
        fprintf(text, "%d ", order[i]);
    if (order && (!text || fclose(text)))
        return fail(ERR_MEMORY, "--checkpoint: out of host memory");
    c->about[c->pairs] = (struct safetensors_pair){READY_ORDER, c->ready_order};
    return OK;
}

static int copy_values(struct checkpoint *c, struct stream *stream) {
    struct param_set *set = &c->replica->params->set;
    if (!set->shard)
        return copy_to_host(stream, c->values, set->values, set->arena_count * sizeof(float));
    for (int i = 0; i < set->count; i++)
        CHECK(param_read_value(set, i, c->value[i]));
    return OK;
}

int checkpoint_take(struct checkpoint *c, int step, int last) {
    if (!c) return OK;
    struct replica *r = c->replica;
    struct stream *stream = device_compute(r->device);
    join(c);
    /* copying the state is not training, nor is the evaluation before the last checkpoint */
    if (!last) measure_count(c->s);
    stream_set_phase(stream, PHASE_NONE, step);
    CHECK(copy_values(c, stream));
    CHECK(buffer_set_read(&r->params->buffers, c->buffers));
    CHECK(optimizer_items_read(&c->state, r->optimizer, step));
    measure_mark(c->s);
    if (!session_leads(c->s)) return OK;
    c->step = step;
    c->last = last;
    c->taken++;
    CHECK(write_ready_order(c));
    snprintf(c->step_text, sizeof c->step_text, "%d", step);
    worker_start(c->worker, 1, "--checkpoint"); /* without a thread, join writes the file */
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
    optimizer_items_free(&c->state);
    free(c->values);
    free(c->value);
    free(c->buffers);
    free(c->ready_order);
    free(c);
}
