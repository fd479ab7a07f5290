/* Snapshots of the parameters and gradients: see snapshot.h. */
#include "train/snapshot.h"

#include <stdlib.h>

#include "base/error.h"

int snapshot_if_due(struct session *s, int step, int *index) {
    struct run_record *r = s->record;
    if (*index == MAX_SNAPSHOTS || s->config->part.snapshots[*index] != step) return OK;
    ++*index;
    if (!session_leads(s)) return OK;
    measure_count(s); /* reading the parameters is no part of training */
    stream_set_phase(device_compute(s->device[0]), PHASE_NONE, step);
    float *to = malloc(r->parameter_count * sizeof *to);
    if (!to) return fail(ERR_MEMORY, "snapshot: no host memory");
    int k = r->snapshot_count++;
    r->snapshots[k] = to;
    r->snapshot_step[k] = step;
    for (int i = 0; i < s->model.param_count; i++) {
        CHECK(param_read_value(&s->replicas[0]->params->set, i, to));
        to += s->replicas[0]->params->set.param[i].count;
    }
    measure_mark(s);
    return OK;
}

int snapshot_grads(struct session *s) {
    struct run_record *r = s->record;
    if (!s->config->part.dump_grads || !session_leads(s)) return OK;
    float *to = r->grads = malloc(r->parameter_count * sizeof *to);
    if (!to) return fail(ERR_MEMORY, "run record: no host memory");
    for (int i = 0; i < s->model.param_count; i++) {
        CHECK(param_read_grad(&s->replicas[0]->params->set, i, to));
        to += s->replicas[0]->params->set.param[i].count;
    }
    return OK;
}
