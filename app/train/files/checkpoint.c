/* A checkpoint is the file of a program's parameters (params_write) with the optimizer's state and
 * the settings of the run: see checkpoint.h. */
#include "train/files/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/atomic_file.h"
#include "base/files/safetensors.h"
#include "base/program_name.h"
#include "ddp/ddp.h"
#include "nn/params/optimizer.h"
#include "train/compare/bits.h"
#include "train/files/resume.h"
#include "train/files/settings.h"

enum { OWN_PAIRS = 4, ORDER_PAIRS = 2 };

struct checkpoint {
    struct session *s;
    struct setting settings[SETTINGS_MOST];
    struct safetensors_pair about[OWN_PAIRS + SETTINGS_MOST + ORDER_PAIRS];
    int pairs; /* not counting the ready order's */
    char sum_order[SUM_ORDER_BYTES], step_text[16];
    int taken, failed;
    int good_step;         /* step of the last checkpoint that was written; 0: none */
    int last_failed;       /* 1: the last checkpoint could not be written */
    char why[ERROR_BYTES]; /* error of the last checkpoint that failed */
};

static void describe_run(struct checkpoint *c) {
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

int checkpoint_init(struct checkpoint **out, struct session *s) {
    *out = NULL;
    const int sharded = s->replicas[0]->params->set.shard != NULL; /* if 1, reading is collective */
    if (!*s->config->files.checkpoint || (!session_leads(s) && !sharded)) return OK;
    struct checkpoint *c = *out = calloc(1, sizeof *c);
    if (!c) return fail(ERR_MEMORY, "--checkpoint: out of host memory");
    c->s = s;
    describe_run(c);
    return OK;
}

/* With an allreduce's order of sums, a resumed run continues with the buckets of this one. Sets
 * *text, which the caller frees; NULL: the order is not known. */
static int ready_order_text(const struct checkpoint *c, char **text) {
    const duet_params *params = c->s->replicas[0]->params;
    const int *order = !*c->sum_order    ? NULL
                       : params->reducer ? ddp_ready_order(params->reducer->context)
                                         : sums_ready_order(&c->s->sums);
    size_t bytes;
    FILE *file = order ? open_memstream(text, &bytes) : NULL;
    for (int i = 0; file && i < params->set.trained; i++)
        fprintf(file, "%d ", order[i]);
    return order && (!file || fclose(file)) ? fail(ERR_MEMORY, "--checkpoint: out of host memory")
                                            : OK;
}

/* Reads the state and writes the file. Among shards all ranks read, and rank 0 writes. */
static int write_state(struct checkpoint *c, int step, int last) {
    const struct replica *r = c->s->replicas[0];
    char *order = NULL;
    CHECK(ready_order_text(c, &order));
    snprintf(c->step_text, sizeof c->step_text, "%d", step);
    c->about[c->pairs] = (struct safetensors_pair){READY_ORDER, order};
    int code = params_write(r->params, c->s->config->files.checkpoint, NULL,
                            &(struct params_extra){.optimizer = r->optimizer,
                                                   .updates = step,
                                                   .about = c->about,
                                                   .pairs = c->pairs + (order != NULL),
                                                   .disposable = !last});
    free(order);
    return code;
}

static void warn(const struct checkpoint *c, int step) {
    char kept[64] = "";
    if (c->good_step) snprintf(kept, sizeof kept, ", and that of step %d stays", c->good_step);
    fprintf(stderr, "%s: warning: checkpoint of step %d: %s: training goes on%s\n", program_name(),
            step, c->why, kept);
}

void checkpoint_take(struct checkpoint *c, int step, int last) {
    if (!c) return;
    /* training time excludes writing the state, and the evaluation before the last checkpoint */
    if (!last) measure_count(c->s);
    stream_set_phase(device_compute(c->s->replicas[0]->device), PHASE_NONE, step);
    int failed = write_state(c, step, last) != OK;
    measure_mark(c->s);
    c->taken++;
    c->failed += failed;
    if (failed) snprintf(c->why, sizeof c->why, "%s", error_message());
    const int goes_on = !last && !(c->s->comm && comm_is_aborted(c->s->comm));
    if (failed && !c->last_failed && goes_on) warn(c, step);
    if (!failed) c->good_step = step;
    c->last_failed = failed;
}

void checkpoint_finish(const struct checkpoint *c, struct failures *unwritten) {
    if (!c || !c->failed) return;
    if (c->last_failed)
        failures_add(unwritten, fail(ERR_FAILED, "%s", c->why));
    else
        failures_add(unwritten,
                     fail(ERR_FAILED, "%s: %d of %d checkpoints could not be written: %s",
                          c->s->config->files.checkpoint, c->failed, c->taken, c->why));
}

void checkpoint_free(struct checkpoint *c) {
    free(c);
}
