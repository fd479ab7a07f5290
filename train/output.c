/* The files of a run: see output.h. */
#include "train/output.h"

#include <string.h>

#include "base/error.h"

int outputs_open(struct outputs *o, const struct run_config *config) {
    o->config = config;
    if (*config->save) { /* only to see whether it can be opened; it is written at the end */
        struct atomic_file trial = {0};
        CHECK(atomic_open(&trial, config->save));
        atomic_abandon(&trial);
    }
    if (*config->json) CHECK(atomic_open(&o->json, config->json));
    if (!*config->log_loss) return OK;
    CHECK(atomic_open(&o->losses, config->log_loss));
    fprintf(o->losses.file, "step,epoch,loss\n");
    return OK;
}

int outputs_losses(struct outputs *o, const struct run_record *record, int first, int epoch) {
    if (!o->losses.file) return OK;
    for (int i = first; i < record->steps; i++)
        fprintf(o->losses.file, "%d,%d,%.9g\n", record->first_step + i, epoch, record->losses[i]);
    return ferror(o->losses.file)
               ? fail(ERR_FAILED, "%s: cannot write the losses: is the disk full?",
                      o->config->log_loss)
               : OK;
}

static int save_weights(struct session *s) {
    float **values = NULL;
    int code = model_values_alloc(&s->model, &values);
    for (int i = 0; !code && i < s->model.param_count; i++)
        code = param_read_value(&s->replicas[0]->params, i, values[i]);
    if (!code) code = model_values_save(&s->model, s->config->save, values);
    model_values_free(values);
    return code;
}

int outputs_commit(struct outputs *o, struct session *s) {
    if (*s->config->save) CHECK(save_weights(s));
    if (o->losses.file) CHECK(atomic_commit(&o->losses));
    if (!o->json.file) return OK;
    struct json_writer w;
    json_start(&w, o->json.file);
    record_write(s->record, &w, NULL, 0);
    CHECK(json_finish(&w, s->config->json));
    return atomic_commit(&o->json);
}

void outputs_abandon(struct outputs *o) {
    if (!o->config) return;
    atomic_abandon(&o->losses);
    atomic_abandon(&o->json);
}
