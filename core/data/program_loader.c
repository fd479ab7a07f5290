/* Batches for programs. They use the internal loader with one device, so that a batch is a
 * contiguous piece of the epoch's order, or the share of one rank. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/program_name.h"
#include "data/loader.h"
#include "data/program_dataset.h"
#include "data/uploads.h"
#include "nn/params/params.h"

_Static_assert(DUET_IN_ORDER == (int)SHUFFLE_NONE && DUET_SHUFFLE == (int)SHUFFLE_DISTRIBUTED &&
                   DUET_SHUFFLE_RANDOM == (int)SHUFFLE_RANDOM,
               "duet.h repeats the orders of data/sampler.h");

struct duet_loader {
    struct loader *loader;
    struct batch *held;      /* the caller's batch, released at the next call; or */
    struct uploads *uploads; /* holds it and copies batches ahead to a device; NULL: none */
    int started;             /* 1: an epoch was started */
    int shape[3];            /* shape of each image */
    const duet_dataset *set;
    int shuffles, epoch; /* epoch: the current one; -1: none yet */
    void (*warn)(const char *text, void *context);
    void *context;
};

/* device NULL: batches stay in host memory. ranks: that share a batch. */
static int create(duet_loader **out, const duet_dataset *set, const struct loader_config *config,
                  struct device *device, int ranks) {
    struct duet_loader *l = calloc(1, sizeof *l);
    if (!l) return fail(ERR_MEMORY, "loader: out of host memory");
    l->set = set;
    l->shuffles = config->shuffle != SHUFFLE_NONE;
    l->epoch = -1;
    memcpy(l->shape, duet_dataset_info(set).shape, sizeof l->shape);
    int code = loader_init(&l->loader, config);
    if (!code && device)
        code = uploads_new(&l->uploads, device, set,
                           (loader_largest_batch(l->loader) + ranks - 1) / ranks);
    if (code)
        duet_loader_free(l);
    else
        *out = l;
    return code;
}

static int check_ranks(const struct duet_loader_options *o, int world_size) {
    if (world_size < 1 || world_size > MAX_DEVICES)
        return fail(ERR_USAGE, "loader: %d ranks: give 1 to %d", world_size, MAX_DEVICES);
    if (o->rank < 0 || o->rank >= world_size)
        return fail(ERR_USAGE,
                    "Invalid rank %d, rank should be in the interval [0, %d]: give the rank of "
                    "this process",
                    o->rank, world_size - 1);
    if (o->batch_size < 1 || o->batch_size > MOST_SAMPLES / world_size)
        return fail(ERR_USAGE, "loader: batch size: %d on each of %d ranks: give 1 to %d",
                    o->batch_size, world_size, MOST_SAMPLES / world_size);
    if ((unsigned)o->shuffle > DUET_SHUFFLE_RANDOM)
        return fail(ERR_USAGE,
                    "loader: shuffle %d: expected DUET_IN_ORDER, DUET_SHUFFLE or "
                    "DUET_SHUFFLE_RANDOM",
                    (int)o->shuffle);
    if (o->shuffle == DUET_SHUFFLE_RANDOM && world_size > 1)
        return fail(ERR_USAGE,
                    "loader: DUET_SHUFFLE_RANDOM on %d ranks: a DataLoader's own shuffle ignores "
                    "ranks: give DUET_SHUFFLE",
                    world_size);
    return OK;
}

/* Numbers of one channel serve all. */
static int scale(const struct duet_loader_options *o, const struct dataset *set,
                 struct loader_config *c) {
    int bytes = set->read ? set->read_bytes : !set->numbers, given = 0;
    for (int i = 0; i < LOADER_CHANNELS; i++) {
        c->means[i] = (float)o->mean[i], c->stds[i] = (float)o->std[i];
        given |= o->mean[i] != 0 || o->std[i] != 0;
        if (!(o->std[i] >= 0 && o->std[i] <= FLT_MAX && fabs(o->mean[i]) <= FLT_MAX) ||
            (o->std[i] > 0) != (c->stds[i] > 0))
            return fail(ERR_USAGE, "loader: mean %g, std %g: give floats, std above 0", o->mean[i],
                        o->std[i]);
    }
    if (given && !bytes)
        return fail(
            ERR_USAGE,
            "loader: mean and std: the samples are floats, which are used unchanged: give neither");
    if (given && (o->std[0] == 0 || (o->std[1] == 0) != (o->std[2] == 0)))
        return fail(ERR_USAGE, "loader: std %g, %g, %g: give one for all channels, or three",
                    o->std[0], o->std[1], o->std[2]);
    if (o->std[1] == 0 && (o->mean[1] != 0 || o->mean[2] != 0))
        return fail(ERR_USAGE, "loader: means %g, %g, %g, but one std: give three of both",
                    o->mean[0], o->mean[1], o->mean[2]);
    return OK;
}

static void warn(const struct duet_loader *l, const char *text) {
    if (l->warn)
        l->warn(text, l->context);
    else
        fprintf(stderr, "%s: warning: %s\n", program_name(), text);
}

static void say_duplicates(const struct duet_loader *l, int count, int world_size) {
    char text[200];
    int twice = loader_duplicates(l->loader);
    snprintf(
        text, sizeof text,
        "%d samples over %d ranks: in every epoch %d of them %s served twice; with drop_last %d "
        "would be left out instead",
        count, world_size, twice, twice == 1 ? "is" : "are", count % world_size);
    if (twice) warn(l, text);
}

int duet_loader_create(duet_loader **out, const duet_dataset *set,
                       const struct duet_loader_options *o) {
    CHECK_OUT(out);
    if (!set) return fail(ERR_USAGE, "loader: no data set was given");
    if (!o) return fail(ERR_USAGE, "loader: no options were given");
    int n = o->world_size ? o->world_size : 1;
    CHECK(check_ranks(o, n));
    if (o->drop_last && set->set.count / n < o->batch_size)
        return fail(ERR_USAGE,
                    "loader: batch size: %d on each of %d ranks: no whole batch in %d samples: use "
                    "a smaller one, or no drop_last",
                    o->batch_size, n, set->set.count);
    struct loader_config config = {
        .set = &set->set,
        .split = {.kind = SPLIT_STRIDED, .devices = n, .virtual_devices = n},
        .batch_size = o->batch_size * n,
        .shuffle = (int)o->shuffle,
        .seed = o->seed,
        .end = o->drop_last ? ORDER_CUT : ORDER_PAD,
        .first_device = o->rank,
        .device_count = 1,
        .of_program = 1,
        .workers = o->workers};
    CHECK(scale(o, &set->set, &config));
    if (o->device) uploads_staging(device_of(o->device), &config);
    CHECK(create(out, set, &config, device_of(o->device), n));
    (*out)->warn = o->warn;
    (*out)->context = o->context;
    if (o->rank == 0) say_duplicates(*out, set->set.count, n);
    return OK;
}

void duet_loader_free(duet_loader *loader) {
    if (!loader) return;
    uploads_free(loader->uploads);
    loader_free(loader->loader);
    free(loader);
}

int duet_loader_steps(const duet_loader *loader) {
    return loader ? loader_steps(loader->loader) : 0;
}

/* Every batch goes back, before another epoch. */
static int release(struct duet_loader *l) {
    loader_release(l->loader, l->held);
    l->held = NULL;
    return l->uploads ? uploads_drop(l->uploads, l->loader) : OK;
}

static int next_batch(struct duet_loader *l, struct duet_batch *batch, struct batch **out) {
    if (l->uploads)
        return uploads_next(l->uploads, l->loader, out, &batch->samples, &batch->answers);
    loader_release(l->loader, l->held);
    l->held = NULL;
    CHECK(loader_next(l->loader, &l->held));
    *out = l->held;
    return OK;
}

/* The warning comes once, since a program that forgets to count forgets it in every epoch. */
static void say_same_order(struct duet_loader *l, int epoch) {
    char text[200];
    snprintf(text, sizeof text,
             "epoch %d begins again, with its samples in the same order, as if set_epoch had been "
             "forgotten: give duet_loader_start the number of each epoch",
             epoch);
    warn(l, text);
    l->shuffles = 0;
}

int duet_loader_start(duet_loader *loader, int epoch) {
    if (!loader) return fail(ERR_USAGE, "loader is NULL");
    if (epoch < 0) return fail(ERR_USAGE, "epoch %d: epochs count from 0", epoch);
    CHECK(release(loader));
    CHECK(loader_start_epoch(loader->loader, epoch, 0));
    if (loader->shuffles && loader->epoch == epoch) say_same_order(loader, epoch);
    loader->epoch = epoch;
    loader->started = 1;
    return OK;
}

int duet_loader_next(duet_loader *loader, struct duet_batch *batch) {
    if (!batch) return fail(ERR_USAGE, "loader: no batch was given");
    *batch = (struct duet_batch){0};
    if (!loader) return fail(ERR_USAGE, "loader is NULL");
    if (!loader->started)
        return fail(ERR_USAGE, "loader: no epoch was started: call duet_loader_start");
    struct batch *held;
    CHECK(next_batch(loader, batch, &held));
    if (!held) return OK;
    batch->n = held->segments.n;
    batch->X = held->pixels;
    batch->y = held->labels;
    batch->targets = held->targets;
    batch->outputs = loader->set->set.outputs;
    memcpy(batch->shape, loader->shape, sizeof batch->shape);
    return OK;
}
