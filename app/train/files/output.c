/* The files of a run: see output.h. */
#include "train/files/output.h"

#include "base/error.h"

/* A folder that takes no checkpoint is noticed at once, not after the first N steps. */
int outputs_try_checkpoint(const char *path) {
    struct atomic_file file = {0};
    int code = atomic_open(&file, path);
    atomic_abandon(&file);
    return code;
}

int outputs_open(struct outputs *o, const struct run_config *config) {
    o->config = config;
    if (*config->files.checkpoint) CHECK(outputs_try_checkpoint(config->files.checkpoint));
    if (*config->files.save) CHECK(atomic_open(&o->weights, config->files.save));
    if (*config->files.tensorboard)
        CHECK(event_file_open(&o->curves.file, config->files.tensorboard));
    if (!*config->files.log_loss) return OK;
    CHECK(atomic_open(&o->losses, config->files.log_loss));
    fprintf(o->losses.file, "step,epoch,loss\n");
    return OK;
}

void outputs_losses(struct outputs *o, const struct run_record *record, int first, int epoch) {
    if (!o->losses.file) return;
    for (int i = first; i < record->steps; i++)
        fprintf(o->losses.file, "%d,%d,%.9g\n", record->first_step + i, epoch, record->losses[i]);
}

/* All ranks of a sharded model read the values, and rank 0 writes them. */
static int save_weights(struct outputs *o, struct session *s) {
    return params_write(s->replicas[0]->params, s->config->files.save, &o->weights, &PARAMS_ONLY);
}

void outputs_commit(struct outputs *o, struct session *s, struct failures *unwritten) {
    if (o->weights.file || (*s->config->files.save && s->replicas[0]->params->set.shard))
        failures_add(unwritten, save_weights(o, s));
    if (o->losses.file) failures_add(unwritten, atomic_commit(&o->losses));
    failures_add(unwritten, event_file_close(&o->curves.file));
}

void outputs_abandon(struct outputs *o) {
    if (!o->config) return;
    event_file_close(&o->curves.file);
    atomic_abandon(&o->weights);
    atomic_abandon(&o->losses);
}
