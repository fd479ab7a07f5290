/* Writes the files of a run: see output.h. */
#include "train/files/output.h"

#include "base/error.h"

int outputs_open(struct outputs *o, const struct run_config *config) {
    o->config = config;
    if (*config->files.save) CHECK(atomic_open(&o->weights, config->files.save));
    if (*config->files.tensorboard)
        CHECK(event_file_open(&o->curves.file, config->files.tensorboard));
    return *config->files.log_loss ? atomic_open(&o->losses, config->files.log_loss) : OK;
}

static int save_losses(struct outputs *o, const struct run_record *r) {
    fprintf(o->losses.file, "step,epoch,loss\n");
    for (int i = 0; i < r->steps; i++) {
        int step = r->first_step + i;
        fprintf(o->losses.file, "%d,%d,%.9g\n", step, step / r->steps_per_epoch, r->losses[i]);
    }
    return atomic_commit(&o->losses);
}

/* All ranks of a sharded model read the values, and rank 0 writes them. */
static int save_weights(struct outputs *o, struct session *s) {
    return params_write(s->replicas[0]->params, s->config->files.save, &o->weights, &PARAMS_ONLY);
}

void outputs_commit(struct outputs *o, struct session *s, struct failures *unwritten) {
    if (o->weights.file || (*s->config->files.save && s->replicas[0]->params->set.shard))
        failures_add(unwritten, save_weights(o, s));
    if (o->losses.file) failures_add(unwritten, save_losses(o, s->record));
    failures_add(unwritten, event_file_close(&o->curves.file));
}

void outputs_abandon(struct outputs *o) {
    if (!o->config) return;
    event_file_close(&o->curves.file);
    atomic_abandon(&o->weights);
    atomic_abandon(&o->losses);
}
