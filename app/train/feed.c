/* Passes batches from the loader to the steps: see feed.h. */
#include "train/feed.h"

#include "base/clock.h"
#include "base/error.h"

int feed_open(struct feed *f, struct session *s) {
    f->s = s;
    for (int i = 0; i < 2; i++)
        CHECK(event_create(s->device[0], &f->done[i]));
    return OK;
}

void feed_close(struct feed *f) {
    for (int i = 0; i < 2; i++)
        event_destroy(f->done[i]);
}

/* Asks the loader, and logs how long that took. */
static int wait_for_batch(struct feed *f, struct loader *loader, struct batch **batch) {
    struct session *s = f->s;
    struct span wait = {.start_ns = now_ns(),
                        .step = s->step,
                        .phase = PHASE_LOADER,
                        .rank = (int16_t)s->rank,
                        .device = (int16_t)s->first_device,
                        .lane = LANE_HOST,
                        .name = "wait for loader"};
    CHECK(loader_next(loader, batch));
    wait.end_ns = now_ns();
    if (loader == s->train_loader && *batch) span_add(&s->loads, &wait);
    return OK;
}

int feed_next(struct feed *f, struct loader *loader, int more, struct batch **batch) {
    const struct run_config *c = f->s->config;
    struct device_record *d = &f->s->record->device[f->s->first_device];
    *batch = f->ahead;
    f->ahead = NULL;
    if (!*batch) CHECK(wait_for_batch(f, loader, batch));
    if (!*batch) return OK;
    if (loader == f->s->train_loader) {
        d->host_ns += (*batch)->host_ns;
        d->pinned_ns += (*batch)->pinned_ns;
    }
    (*batch)->next = NULL;
    if (!more || c->data.no_pin_memory) return OK;
    CHECK(loader_try(loader, &f->ahead));
    (*batch)->next = f->ahead;
    return OK;
}

/* After a failure: a copy that overlaps the kernels may still read a batch, which the loader
 * refills once it is released. The text of the failure stays. */
static void end_copies(struct feed *f) {
    const struct failures kept = failures_of(ERR_FAILED);
    stream_sync(device_copy(f->s->device[0]));
    failures_end(&kept);
}

void feed_drop(struct feed *f, struct loader *loader, struct batch *batch) {
    end_copies(f);
    if (f->held != batch) loader_release(loader, batch);
    loader_release(loader, f->ahead);
    f->ahead = NULL;
}

int feed_finish(struct feed *f) {
    if (!f->held) return OK;
    int code = event_sync(f->done[f->turn ^ 1]);
    if (code) end_copies(f);
    loader_release(f->held_from, f->held);
    f->held = NULL;
    return code;
}

int feed_hold(struct feed *f, struct loader *loader, struct batch *batch) {
    CHECK(event_record(f->done[f->turn], device_compute(f->s->device[0])));
    CHECK(feed_finish(f));
    f->held = batch;
    f->held_from = loader;
    f->turn ^= 1;
    return OK;
}
