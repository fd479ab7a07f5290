/* Data sets and batches. The internal loader is used with one device, so that a batch is a
 * contiguous piece of the epoch's order. */
#include "api/api.h"

#include <stdlib.h>
#include <string.h>

#include "data/loader.h"

struct duet_dataset {
    struct dataset set;
};

struct duet_loader {
    struct loader *loader;
    struct batch *held; /* the batch the caller has; released at the next call */
    int started;        /* 1: an epoch was started */
    int shape[3];       /* of each picture */
};

int duet_dataset_open(duet_dataset **out, const char *name, const char *folder, int train) {
    CHECK_OUT(out);
    if (!name)
        return fail(
            ERR_USAGE,
            "data set: no name was given: there are fashion-mnist, mnist, synthetic and random");
    struct duet_dataset *set = calloc(1, sizeof *set);
    if (!set) return fail(ERR_MEMORY, "data set %s: no host memory", name);
    int code = dataset_open(&set->set, name, folder, train);
    if (code)
        duet_dataset_free(set);
    else
        *out = set;
    return code;
}

void duet_dataset_free(duet_dataset *set) {
    if (!set) return;
    dataset_free(&set->set);
    free(set);
}

int duet_dataset_count(const duet_dataset *set) {
    return set ? set->set.count : 0;
}

void duet_dataset_shape(const duet_dataset *set, int shape[3]) {
    struct sample_shape none = {0}, of = set ? set->set.shape : none;
    if (!shape) return;
    shape[0] = of.channels;
    shape[1] = of.height;
    shape[2] = of.width;
}

int duet_dataset_classes(const duet_dataset *set) {
    return set ? set->set.classes : 0;
}

static int create(duet_loader **out, const duet_dataset *set, const struct loader_config *config) {
    struct duet_loader *l = calloc(1, sizeof *l);
    if (!l) return fail(ERR_MEMORY, "loader: no host memory");
    duet_dataset_shape(set, l->shape);
    int code = loader_init(&l->loader, config);
    if (code)
        free(l);
    else
        *out = l;
    return code;
}

int duet_loader_create(duet_loader **out, const duet_dataset *set, int batch_size, int shuffle,
                       uint64_t seed, int workers) {
    CHECK_OUT(out);
    if (!set) return fail(ERR_USAGE, "loader: no data set was given");
    return create(out, set,
                  &(struct loader_config){
                      .set = &set->set,
                      .split = {.kind = SPLIT_CHUNKED, .devices = 1, .virtual_devices = 1},
                      .batch_size = batch_size,
                      .shuffle = !!shuffle,
                      .seed = seed,
                      .end = ORDER_EXACT,
                      .device_count = 1,
                      .workers = workers});
}

/* The order of DistributedSampler is padded or cut to a multiple of the ranks, and rank r has its
 * positions r, r + n, ...: so every rank has equally many batches of equal sizes. */
int duet_loader_create_distributed(duet_loader **out, const duet_dataset *set, int batch_size,
                                   int shuffle, int drop_last, uint64_t seed, int workers, int rank,
                                   int world_size) {
    CHECK_OUT(out);
    if (!set) return fail(ERR_USAGE, "loader: no data set was given");
    if (world_size < 1 || world_size > MAX_DEVICES)
        return fail(ERR_USAGE, "loader: %d ranks: give 1 to %d", world_size, MAX_DEVICES);
    if (rank < 0 || rank >= world_size)
        return fail(ERR_USAGE,
                    "Invalid rank %d, rank should be in the interval [0, %d]: give the rank of "
                    "this process",
                    rank, world_size - 1);
    if (batch_size < 1 || batch_size > API_SAMPLES / world_size)
        return fail(ERR_USAGE, "loader: batches of %d on each of %d ranks: give 1 to %d",
                    batch_size, world_size, API_SAMPLES / world_size);
    return create(
        out, set,
        &(struct loader_config){
            .set = &set->set,
            .split = {.kind = SPLIT_STRIDED, .devices = world_size, .virtual_devices = world_size},
            .batch_size = batch_size * world_size,
            .shuffle = !!shuffle,
            .seed = seed,
            .end = drop_last ? ORDER_CUT : ORDER_PAD,
            .first_device = rank,
            .device_count = 1,
            .workers = workers});
}

void duet_loader_free(duet_loader *loader) {
    if (!loader) return;
    loader_free(loader->loader);
    free(loader);
}

int duet_loader_steps(const duet_loader *loader) {
    return loader ? loader_steps(loader->loader) : 0;
}

static void release(struct duet_loader *l) {
    loader_release(l->loader, l->held);
    l->held = NULL;
}

int duet_loader_start(duet_loader *loader, int epoch) {
    if (!loader) return fail(ERR_USAGE, "loader: none was given");
    if (epoch < 0) return fail(ERR_USAGE, "epoch %d: epochs count from 0", epoch);
    release(loader);
    CHECK(loader_start_epoch(loader->loader, epoch, 0));
    loader->started = 1;
    return OK;
}

int duet_loader_next(duet_loader *loader, struct duet_batch *batch) {
    if (!batch) return fail(ERR_USAGE, "loader: no batch was given");
    *batch = (struct duet_batch){0};
    if (!loader) return fail(ERR_USAGE, "loader: none was given");
    if (!loader->started)
        return fail(ERR_USAGE, "loader: no epoch was started: call duet_loader_start");
    release(loader);
    CHECK(loader_next(loader->loader, &loader->held));
    const struct batch *held = loader->held;
    if (!held) return OK;
    *batch = (struct duet_batch){held->segments.n, held->pixels, held->labels, {0}};
    memcpy(batch->shape, loader->shape, sizeof batch->shape);
    return OK;
}
