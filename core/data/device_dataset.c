/* The upload alternates between two pieces of pinned memory: while one is being copied to the
 * device, the other is filled. A copy straight from pageable memory would be staged by the driver
 * in small parts while the caller waits. */
#include "data/device_dataset.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"

static const double SETTLE_S = 1; /* how long to wait, after an error, for copies to end */

/* The samples and the labels as they are uploaded: their types and shapes, and in data the host's
 * memory. */
static struct tensor host_images(const struct dataset *set) {
    const struct sample_shape *s = &set->shape;
    const int dims[4] = {set->count, s->channels, s->height, s->width};
    const void *data = set->numbers ? (const void *)set->numbers : set->images;
    return tensor_plain((void *)(uintptr_t)data, set->numbers ? DTYPE_F32 : DTYPE_U8, 4, dims);
}

static struct tensor host_labels(const struct dataset *set) {
    const int dims[2] = {set->count, set->outputs ? set->outputs : set->places};
    const void *data = set->numbers ? set->answers : set->labels;
    return tensor_plain((void *)(uintptr_t)data,
                        set->outputs   ? DTYPE_F32
                        : set->numbers ? DTYPE_I32
                                       : DTYPE_U8,
                        dims[1] ? 2 : 1, dims);
}

static uint64_t occupied(size_t bytes) { /* rounded up as device_alloc rounds */
    return ((uint64_t)bytes + 255) / 256 * 256;
}

uint64_t device_dataset_bytes(const struct dataset *set) {
    struct tensor images = host_images(set), labels = host_labels(set);
    return occupied(tensor_bytes(&images)) + occupied(tensor_bytes(&labels));
}

struct piece {
    void *memory;
    struct event *sent; /* recorded after the copy from it; once done, it may be filled again */
};

/* Copies the host's tensor to memory of the device, which `there` then names. outline: there is
 * nothing to read. */
static int upload(struct stream *stream, struct piece pieces[2], const struct tensor *host,
                  struct tensor *there, int outline) {
    size_t bytes = tensor_bytes(host);
    const char *from = host->data;
    char *to = there->data;
    for (size_t at = 0, turn = 0; at < bytes; at += DATASET_PIECE, turn ^= 1) {
        struct piece *p = &pieces[turn];
        size_t size = bytes - at < DATASET_PIECE ? bytes - at : DATASET_PIECE;
        CHECK(event_sync(p->sent));
        if (!outline) memcpy(p->memory, from + at, size);
        CHECK(copy_to_device(stream, to + at, p->memory, size));
        CHECK(event_record(p->sent, stream));
    }
    return OK;
}

static int make_pieces(struct device *device, struct piece pieces[2], size_t largest) {
    size_t bytes = largest < DATASET_PIECE ? largest : DATASET_PIECE;
    for (int i = 0; i < 2; i++) {
        CHECK(device_host_alloc(device, &pieces[i].memory, bytes));
        CHECK(event_create(device, &pieces[i].sent));
    }
    return OK;
}

/* Whether the copies from both pieces are done. After an error they may still be running, because
 * in a job that is ending a wait returns before the work is done. */
static int settled(struct piece pieces[2]) {
    int64_t deadline = deadline_after(SETTLE_S);
    for (int i = 0; i < 2; i++)
        while (pieces[i].sent && !event_done(pieces[i].sent)) {
            if (now_ns() > deadline) return 0;
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
    return 1;
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Gives *there memory of the device for the host's tensor. */
static int place(struct device *device, const struct tensor *host, struct tensor *there) {
    void *memory = NULL;
    CHECK(device_alloc(device, &memory, tensor_bytes(host), MEM_DATASET));
    *there = *host;
    there->data = memory;
    return OK;
}

int device_dataset_init(struct device_dataset *d, struct device *device,
                        const struct dataset *set) {
    struct stream *stream = device_compute(device);
    struct tensor images = host_images(set), labels = host_labels(set);
    struct piece pieces[2] = {{0}};
    int code;
    memset(d, 0, sizeof *d);
    d->device = device;
    CHECK_GOTO(place(device, &images, &d->images), code, out);
    CHECK_GOTO(place(device, &labels, &d->labels), code, out);
    CHECK_GOTO(make_pieces(device, pieces, larger(tensor_bytes(&images), tensor_bytes(&labels))),
               code, out);
    CHECK_GOTO(upload(stream, pieces, &images, &d->images, set->outline), code, out);
    CHECK_GOTO(upload(stream, pieces, &labels, &d->labels, set->outline), code, out);
out:
    CHECK_KEEP(stream_sync(stream), code);
    /* A stuck device may still use this memory, so it is not freed. */
    if (code && !settled(pieces)) return memset(d, 0, sizeof *d), code;
    for (int i = 0; i < 2; i++) {
        event_destroy(pieces[i].sent);
        device_host_free(device, pieces[i].memory);
    }
    if (code) device_dataset_free(d);
    return code;
}

void device_dataset_free(struct device_dataset *d) {
    if (!d) return;
    if (d->device) {
        device_free(d->device, d->images.data);
        device_free(d->device, d->labels.data);
    }
    memset(d, 0, sizeof *d);
}

static int gather_rows(struct stream *stream, const struct tensor *from, const struct tensor *index,
                       const struct step_block *step, const struct tensor *to) {
    struct op_args args = {.in = {*from, *index}, .out = {*to}, .step = step};
    return launch(stream, OP_GATHER_ROWS, &args);
}

int device_dataset_gather(const struct device_dataset *d, struct stream *stream,
                          const struct tensor *index, const struct step_block *step, float mean,
                          float std, const struct tensor *x, const struct tensor *x_labels) {
    struct op_args args = {
        .in = {d->images, d->labels, *index}, .out = {*x, *x_labels}, .step = step};
    if (d->images.dtype == DTYPE_F32) {
        CHECK(gather_rows(stream, &d->images, index, step, x));
        return gather_rows(stream, &d->labels, index, step, x_labels);
    }
    args.p.gather = (struct gather_args){mean, std};
    return launch(stream, OP_GATHER_SAMPLES, &args);
}
