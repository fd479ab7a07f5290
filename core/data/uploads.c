/* Uploads batches ahead of the program; see uploads.h. The slots are a ring. `count` of them are
 * in use, in order of batches; `first` holds the program's batch, if any (`held`). */
#include "data/uploads.h"

#include <stdlib.h>

#include "base/error.h"

enum { SLOTS = 3 };

struct slot {
    struct duet_tensor samples, answers; /* the batch's tensors, in memory for the largest one */
    struct event *loaded, *used;
    struct batch *batch; /* the batch that the copy reads; NULL: this slot is free */
};

struct uploads {
    struct device *device;
    struct slot slot[SLOTS];
    int first, count, held;
};

static int make_tensor(struct duet_tensor *out, struct device *device, enum dtype dtype, int rank,
                       const int *dims) {
    *out = (struct duet_tensor){
        .device = device, .t = tensor_plain(NULL, dtype, rank, dims), .borrowed = 1};
    return device_alloc(device, &out->t.data, tensor_bytes(&out->t), MEM_INPUT);
}

static int make_slot(struct slot *p, struct device *device, const duet_dataset *set, int samples) {
    const struct sample_shape *s = &set->set.shape;
    const int x[] = {samples, s->channels, s->height, s->width}, y[] = {samples, set->set.outputs};
    CHECK(make_tensor(&p->samples, device, DTYPE_F32, 1 + set->rank, x));
    CHECK(make_tensor(&p->answers, device, y[1] ? DTYPE_F32 : DTYPE_I32, y[1] ? 2 : 1, y));
    CHECK(event_create(device, &p->loaded));
    return event_create(device, &p->used);
}

int uploads_new(struct uploads **out, struct device *device, const duet_dataset *set, int samples) {
    struct uploads *u = *out = calloc(1, sizeof *u);
    if (!u) return fail(ERR_MEMORY, "loader: out of host memory");
    u->device = device;
    int code = OK;
    for (int i = 0; i < SLOTS && !code; i++)
        code = make_slot(&u->slot[i], device, set, samples);
    if (code) {
        uploads_free(u);
        *out = NULL;
    }
    return code;
}

void uploads_free(struct uploads *u) {
    if (!u) return;
    stream_sync(device_copy(u->device));
    stream_sync(device_compute(u->device));
    for (int i = 0; i < SLOTS; i++) {
        device_free(u->device, u->slot[i].samples.t.data);
        device_free(u->device, u->slot[i].answers.t.data);
        event_destroy(u->slot[i].loaded);
        event_destroy(u->slot[i].used);
    }
    free(u);
}

static int staging(void *device, void **out, size_t bytes) {
    return device_host_alloc(device, out, bytes);
}

static void staging_end(void *device, void *memory) {
    device_host_free(device, memory);
}

void uploads_staging(struct device *device, struct loader_config *config) {
    config->alloc = staging;
    config->release = staging_end;
    config->context = device;
}

static int send(struct stream *copy, struct slot *p, struct batch *batch) {
    const void *answers = batch->targets ? (const void *)batch->targets : batch->labels;
    p->batch = batch; /* from here on keep it until the copy is done */
    p->samples.t.dims[0] = p->answers.t.dims[0] = batch->segments.n;
    CHECK(stream_wait(copy, p->used));
    CHECK(copy_to_device(copy, p->samples.t.data, batch->pixels, tensor_bytes(&p->samples.t)));
    CHECK(copy_to_device(copy, p->answers.t.data, answers, tensor_bytes(&p->answers.t)));
    return event_record(p->loaded, copy);
}

/* Releases the first batch: its copy is done, but the program's kernels may still run. */
static int release(struct uploads *u, struct loader *loader) {
    struct slot *p = &u->slot[u->first];
    int code = event_sync(p->loaded);
    if (code) stream_sync(device_copy(u->device)); /* after this nothing reads the batch */
    loader_release(loader, p->batch);
    p->batch = NULL;
    u->first = (u->first + 1) % SLOTS;
    u->count--;
    u->held = 0;
    return code;
}

int uploads_drop(struct uploads *u, struct loader *loader) {
    int code = OK;
    if (u->held) code = event_record(u->slot[u->first].used, device_compute(u->device));
    while (u->count)
        CHECK_KEEP(release(u, loader), code);
    return code;
}

/* It waits only for the batch that the program requests. */
static int fill(struct uploads *u, struct loader *loader) {
    while (u->count < SLOTS) {
        struct batch *batch;
        CHECK(u->count ? loader_try(loader, &batch) : loader_next(loader, &batch));
        if (!batch) return OK;
        struct slot *p = &u->slot[(u->first + u->count) % SLOTS];
        u->count++;
        CHECK(send(device_copy(u->device), p, batch));
    }
    return OK;
}

int uploads_next(struct uploads *u, struct loader *loader, struct batch **batch,
                 duet_tensor **samples, duet_tensor **answers) {
    *batch = NULL;
    if (u->held) {
        CHECK(event_record(u->slot[u->first].used, device_compute(u->device)));
        CHECK(release(u, loader));
    }
    CHECK(fill(u, loader));
    if (!u->count) return OK;
    struct slot *p = &u->slot[u->first];
    CHECK(stream_wait(device_compute(u->device), p->loaded));
    u->held = 1;
    *batch = p->batch;
    *samples = &p->samples;
    *answers = &p->answers;
    return OK;
}
