/* Copies a batch to a replica's device, and the next one while kernels run.
 *
 * The device has two slots for a batch. While the kernels of a step read one, the copy
 * stream fills the other with the next step's batch:
 *
 *     compute stream   ... step k, reads slot 0 ...| step k+1, reads slot 1 ...
 *     copy stream         batch k+1 -> slot 1         batch k+2 -> slot 0
 *
 * Each slot has two events that keep the streams in order. `loaded` is recorded after a copy, and
 * the step that reads the slot waits for it. `used` is recorded on the compute stream when the
 * next step moves to the other slot, and the next copy waits for it. A batch that was not
 * announced is copied on the compute stream itself, into the slot in use. The second slot is
 * allocated with the first batch from the host, even if the next batch is not ready, so the memory
 * of a run does not depend on the speed of its loader. */
#include "base/error.h"
#include "models/replica.h"
#include "models/replica_internal.h"

static size_t pixels_of(const struct replica *r, size_t samples) {
    const struct model *m = r->model;
    return samples * (size_t)m->channels * (size_t)m->height * (size_t)m->width;
}

/* ---- the slots ---- */

static int make_slot(struct replica *r, struct batch_slot *p) {
    size_t samples = (size_t)r->config.max_samples;
    CHECK(device_alloc(r->device, (void **)&p->pixels, pixels_of(r, samples) * sizeof *p->pixels,
                       MEM_INPUT));
    struct tensor answers = model_answers(r->model, NULL, r->config.max_samples);
    CHECK(device_alloc(r->device, &p->labels, tensor_bytes(&answers), MEM_INPUT));
    CHECK(event_create(r->device, &p->loaded));
    return event_create(r->device, &p->used);
}

static void use_slot(struct replica *r, int which) {
    r->slot_now = which;
    r->pixels = r->slot[which].pixels;
    r->labels = r->slot[which].labels;
}

int replica_make_input(struct replica *r) {
    CHECK(make_slot(r, &r->slot[0]));
    use_slot(r, 0);
    return OK;
}

void replica_free_input(struct replica *r) {
    for (int i = 0; i < 2; i++) {
        device_free(r->device, r->slot[i].pixels);
        device_free(r->device, r->slot[i].labels);
        event_destroy(r->slot[i].loaded);
        event_destroy(r->slot[i].used);
    }
}

/* ---- batches ---- */

static int copy_answers(struct replica *r, struct stream *stream, const struct batch_slot *p,
                        const struct batch *batch) {
    int targets = loss_of_targets(r->model->loss);
    const void *answers = targets ? (const void *)batch->targets : batch->labels;
    struct tensor t = model_answers(r->model, p->labels, batch->segments.n);
    if (answers) return copy_to_device(stream, t.data, answers, tensor_bytes(&t));
    if (!batch->labels && !batch->targets) return OK;
    return fail(ERR_FAILED, "load: the batch has %s: not what the loss %s compares with",
                batch->labels ? "labels" : "targets", loss_name(r->model->loss));
}

static int copy_batch(struct replica *r, struct stream *stream, const struct batch_slot *p,
                      const struct batch *batch) {
    size_t numbers = pixels_of(r, (size_t)batch->segments.n);
    CHECK(copy_to_device(stream, p->pixels, batch->pixels, numbers * sizeof *p->pixels));
    return copy_answers(r, stream, p, batch);
}

static int is_there(const struct batch_slot *p, const struct batch *batch) {
    return p->batch == batch && p->epoch == batch->epoch && p->step == batch->step;
}

/* Begins the copy of a batch into the slot that is not in use. */
static int announce(struct replica *r, const struct batch *batch) {
    struct batch_slot *p = &r->slot[1 - r->slot_now];
    struct stream *stream = device_copy(r->device);
    CHECK(replica_check_samples(r, "load", batch->segments.n));
    stream_set_phase(stream, PHASE_INPUT, r->step_number);
    CHECK(stream_wait(stream, p->used));
    CHECK(copy_batch(r, stream, p, batch));
    CHECK(event_record(p->loaded, stream));
    p->batch = batch;
    p->epoch = batch->epoch;
    p->step = batch->step;
    return OK;
}

/* Makes the batch the one that the step reads. */
static int take(struct replica *r, const struct batch *batch) {
    struct stream *stream = replica_phase(r, r->input);
    struct batch_slot *other = &r->slot[1 - r->slot_now];
    int there = is_there(other, batch);
    other->batch = NULL;
    if (!there) return copy_batch(r, stream, &r->slot[r->slot_now], batch);
    CHECK(event_record(r->slot[r->slot_now].used, stream));
    use_slot(r, 1 - r->slot_now);
    return stream_wait(stream, other->loaded);
}

int replica_load(struct replica *r, const struct batch *batch) {
    r->global_n = batch->global_n;
    CHECK(replica_check_samples(r, "load", batch->segments.n));
    if (!r->config.blocking_copies && !r->slot[1].used) CHECK(make_slot(r, &r->slot[1]));
    CHECK(take(r, batch));
    if (r->config.blocking_copies) return stream_sync(device_compute(r->device));
    return batch->next ? announce(r, batch->next) : OK;
}
