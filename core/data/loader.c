/* Prefetches batches. A few staging buffers circulate between the worker and the consumer:
 *
 *          a step for the buffer      loader_next (waits for the task)      loader_release
 *      FREE -------------------> GIVEN --------------------------------> HELD -----------> FREE
 *
 * A buffer that is GIVEN is a task of the worker (base/worker.h), which fills it. Steps are given
 * in order, and a free buffer gets the next one at once, so the step that the consumer waits for
 * always has a buffer. The number of buffers limits the memory.
 *
 * Only the consumer accesses the states. The contents of a buffer belong to its task while the task
 * is GIVEN and has not ended. The order of the epoch is written only while no task runs. */
#include "data/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/worker.h"
#include "data/prepare.h"

/* A wait calls `interrupted` this often. */
enum { LOOK_NS = 50 * 1000 * 1000 };

enum staging_state { FREE, GIVEN, HELD };

struct staging {
    struct batch batch; /* first, so that a batch handed out can be cast to its buffer */
    enum staging_state state;
    struct task task; /* fills it */
    struct loader *loader;
    void *memory;      /* staging memory of pixels and labels */
    float *pixels;     /* in `memory` */
    uint32_t *answers; /* labels or targets, 4 bytes each; in `memory` */
    int32_t *index;    /* data set indices of the batch */
    uint8_t *rows;     /* buffer for the samples as bytes */
};

struct loader {
    struct loader_config config;
    struct order order;
    int64_t length;                     /* positions in an epoch */
    int steps;                          /* batches in an epoch */
    int32_t *index;                     /* the order of the epoch */
    float pixel[LOADER_CHANNELS * 256]; /* [table][byte]: the float that it becomes */
    int tables;                         /* 1, or one per channel */
    int buffers;
    struct staging *staging; /* [buffers] */

    struct worker *worker;
    int epoch;  /* the epoch being loaded */
    int claim;  /* the next step that a buffer gets */
    int wanted; /* the next step that the consumer gets */
};

/* The task of a buffer. */
static int fill_buffer(void *argument) {
    struct staging *s = argument;
    struct loader *l = s->loader;
    const struct loader_config *c = &l->config;
    struct batch_plan plan;
    int outline = c->set->outline;
    batch_plan(&c->split, outline ? NULL : l->index, l->length, c->batch_size, s->batch.step,
               c->first_device, c->device_count, &plan, outline ? NULL : s->index);
    s->batch.segments = plan.segments;
    s->batch.global_n = plan.global_n;
    if (outline) return OK;
    const struct prepare what = {.set = c->set,
                                 .pixel = l->pixel,
                                 .tables = l->tables,
                                 .index = s->index,
                                 .n = plan.n,
                                 .rows = s->rows,
                                 .pixels = s->pixels,
                                 .answers = s->answers};
    return prepare_samples(&what, &s->batch.host_ns, &s->batch.pinned_ns);
}

/* Every free buffer gets a step, as long as there are any. */
static void give_steps(struct loader *l) {
    for (int i = 0; i < l->buffers && l->claim < l->steps; i++) {
        struct staging *s = &l->staging[i];
        if (s->state != FREE) continue;
        s->state = GIVEN;
        s->batch.next = NULL;
        s->batch.epoch = l->epoch;
        s->batch.step = l->claim++;
        worker_give(l->worker, &s->task);
    }
}

/* Waits until the buffer is filled. ERR_TIMEOUT: the deadline has passed. */
static int wait_for(struct loader *l, struct staging *s, int64_t deadline) {
    const struct loader_config *c = &l->config;
    int64_t look = 0; /* the first look does not wait */
    while (look < deadline) {
        if (worker_wait(l->worker, &s->task, look)) return OK;
        if (c->interrupted) CHECK(c->interrupted(c->interrupt_context));
        look = now_ns() + LOOK_NS < deadline ? now_ns() + LOOK_NS : deadline;
    }
    if (worker_wait(l->worker, &s->task, deadline)) return OK;
    return fail(ERR_TIMEOUT, "loader: epoch %d, step %d: no worker delivered the batch in time: %s",
                l->epoch, l->wanted, c->of_program ? "give more workers" : "raise --timeout");
}

static int64_t deadline_of(const struct loader *l) {
    return deadline_after(l->config.timeout_s > 0 ? l->config.timeout_s : 300);
}

static int check_config(const struct loader_config *c) {
    CHECK(split_check(&c->split));
    if (c->batch_size < c->split.devices)
        return fail(ERR_USAGE,
                    "batch size: %d: give at least one sample for each of the %d devices",
                    c->batch_size, c->split.devices);
    if (c->first_device < 0 || c->device_count < 1 ||
        c->first_device > c->split.devices - c->device_count)
        return fail(ERR_USAGE, "loader: devices %d to %d: the job has %d", c->first_device,
                    c->first_device + c->device_count - 1, c->split.devices);
    if (c->stds[1] > 0 && c->set->shape.channels != LOADER_CHANNELS)
        return fail(ERR_USAGE, "loader: means of %d channels: a sample has %d", LOADER_CHANNELS,
                    c->set->shape.channels);
    if (c->workers < 0 || c->workers > LOADER_WORKERS)
        return fail(ERR_USAGE, "workers: %d: give 0 to %d", c->workers, LOADER_WORKERS);
    return OK;
}

static int make_buffers(struct loader *l) {
    struct loader_config *c = &l->config;
    size_t most = (size_t)batch_capacity(&c->split, loader_largest_batch(l), c->device_count);
    size_t pixel_bytes = most * sample_shape_count(&c->set->shape) * sizeof(float);
    size_t answer_bytes = most * (size_t)dataset_answer_count(c->set) * sizeof(uint32_t);
    pixel_bytes = (pixel_bytes + 63) / 64 * 64;
    int64_t room = l->length > c->set->count ? l->length : c->set->count;
    l->index = malloc((size_t)(room + 1) * sizeof *l->index);
    l->staging = calloc((size_t)c->workers + LOADER_SPARE, sizeof *l->staging);
    if (!l->index || !l->staging)
        return fail(ERR_MEMORY, "loader: no memory for the indices of %d samples: use fewer",
                    c->set->count);
    while (l->buffers < c->workers + LOADER_SPARE) {
        struct staging *s = &l->staging[l->buffers++];
        s->task = (struct task){.run = fill_buffer, .context = s};
        s->loader = l;
        if (!c->set->outline) s->index = malloc(most * sizeof *s->index);
        if (!c->set->outline) s->rows = malloc(most * sample_shape_count(&c->set->shape));
        if (!c->set->outline && (!s->index || !s->rows))
            return fail(ERR_MEMORY, "loader: no memory for a batch: %zu samples: use fewer", most);
        CHECK(c->alloc(c->context, &s->memory, pixel_bytes + answer_bytes));
        s->batch.pixels = s->pixels = s->memory;
        s->answers = (uint32_t *)((char *)s->memory + pixel_bytes);
        if (c->set->outputs)
            s->batch.targets = (const float *)s->answers;
        else
            s->batch.labels = (const int32_t *)s->answers;
    }
    return OK;
}

/* Converts a byte to a float like torchvision. */
static float pixel_of(unsigned char byte, float mean, float std) {
    float x = (float)byte / 255.0f;
    return std > 0 ? (x - mean) / std : x;
}

static int prepare(struct loader *l) {
    struct loader_config *c = &l->config;
    CHECK(check_config(c));
    l->order =
        (struct order){c->set->count, split_replicas(&c->split), c->end, c->shuffle, c->seed};
    CHECK(order_check(&l->order));
    l->length = order_length(&l->order);
    l->steps = batch_count(l->length, c->batch_size, c->end == ORDER_CUT);
    l->claim = l->wanted = l->steps; /* no step is left until loader_start_epoch */
    if (l->steps == 0)
        return fail(ERR_USAGE,
                    "batch size: %d: no whole batch in %d samples: use a smaller one, or keep the "
                    "last batch",
                    c->batch_size, c->set->count);
    l->tables = c->stds[1] > 0 ? LOADER_CHANNELS : 1;
    for (int i = 0; i < 256 * l->tables; i++)
        l->pixel[i] = pixel_of((unsigned char)(i % 256), c->means[i / 256], c->stds[i / 256]);
    if (!c->alloc) c->alloc = staging_alloc, c->release = staging_release;
    CHECK(make_buffers(l));
    CHECK(worker_new(&l->worker, c->workers));
    return worker_start(l->worker, c->workers, "loader: a worker cannot be started");
}

int loader_init(struct loader **out, const struct loader_config *config) {
    struct loader *l = *out = calloc(1, sizeof *l);
    if (!l) return fail(ERR_MEMORY, "loader: no memory");
    l->config = *config;
    int code = prepare(l);
    if (code) {
        loader_free(l);
        *out = NULL;
    }
    return code;
}

int loader_steps(const struct loader *l) {
    return l->steps;
}
int loader_duplicates(const struct loader *l) {
    return (int)order_duplicates(&l->order);
}

int loader_samples(const struct loader *l, int first, int count) {
    int64_t B = l->config.batch_size, from = first * B, end = from + count * B;
    int64_t length = l->steps * B < l->length ? l->steps * B : l->length;
    end = end < length ? end : length;
    return (int)(end > from ? end - from : 0);
}

int64_t loader_labels(const struct loader *l, int first, int count, int ignored) {
    const struct dataset *set = l->config.set;
    int samples = loader_samples(l, first, count), each = dataset_answer_count(set);
    int64_t from = (int64_t)first * l->config.batch_size, counted = 0;
    for (int i = 0; i < samples; i++)
        for (int j = 0; j < each; j++)
            counted += !ignored || set->outline ||
                       dataset_label(set, l->index[from + i], j) != ignored - 1;
    return counted;
}

int loader_largest_batch(const struct loader *l) {
    return (int)(l->length < l->config.batch_size ? l->length : l->config.batch_size);
}

int loader_start_epoch(struct loader *l, int epoch, int first_step) {
    if (first_step < 0 || first_step > l->steps)
        return fail(ERR_USAGE, "loader: step %d: an epoch has %d", first_step, l->steps);
    int64_t deadline = deadline_of(l);
    l->claim = l->wanted = l->steps; /* until the order is drawn */
    for (int i = 0; i < l->buffers; i++) {
        struct staging *s = &l->staging[i];
        if (s->state != GIVEN) continue;
        if (!worker_take_back(l->worker, &s->task)) CHECK(wait_for(l, s, deadline));
        s->state = FREE;
    }
    if (!l->config.set->outline) order_epoch(&l->order, epoch, l->index);
    l->epoch = epoch;
    l->claim = l->wanted = first_step;
    give_steps(l);
    return OK;
}

/* The buffer of the wanted step; NULL: all are held, or there is no such step. */
static struct staging *wanted_buffer(struct loader *l) {
    for (int i = 0; i < l->buffers; i++)
        if (l->staging[i].state == GIVEN && l->staging[i].batch.step == l->wanted)
            return &l->staging[i];
    return NULL;
}

int loader_next(struct loader *l, struct batch **out) {
    *out = NULL;
    if (l->wanted == l->steps) return OK;
    struct staging *s = wanted_buffer(l);
    if (!s)
        return fail(ERR_FAILED, "loader: all %d batches are held: release one first", l->buffers);
    CHECK(wait_for(l, s, deadline_of(l)));
    CHECK(task_end(&s->task));
    s->state = HELD;
    l->wanted++;
    *out = &s->batch;
    return OK;
}

int loader_try(struct loader *l, struct batch **out) {
    const struct staging *s = wanted_buffer(l);
    *out = NULL;
    int ready = s && (!l->config.workers || worker_has_ended(l->worker, &s->task));
    return ready ? loader_next(l, out) : OK;
}

void loader_release(struct loader *l, struct batch *batch) {
    if (!batch) return;
    ((struct staging *)batch)->state = FREE;
    give_steps(l);
}

void loader_free(struct loader *l) {
    if (!l) return;
    for (int i = 0; i < l->buffers; i++)
        if (l->staging[i].state == GIVEN) worker_take_back(l->worker, &l->staging[i].task);
    worker_free(l->worker, WORKER_NEVER);
    for (int i = 0; i < l->buffers; i++) {
        free(l->staging[i].index);
        free(l->staging[i].rows);
        if (l->staging[i].memory) l->config.release(l->config.context, l->staging[i].memory);
    }
    free(l->staging);
    free(l->index);
    free(l);
}
