/* The feed passes batches from the loader to the steps. It takes the next batch from the loader
 * before the step is enqueued, so that the strategy can copy it to the device during the step's
 * kernels. It keeps each batch until the step that reads it is done.
 *
 *     loader_start_epoch(loader, epoch, 0);        draws the order
 *     feed_next(&feed, loader, more, &batch);      waits for the loader; batch->next may be set
 *     ... the strategy enqueues the step ...
 *     feed_hold(&feed, loader, batch);             waits for the previous step, releases its batch
 *     feed_finish(&feed);                          waits for the last step */
#ifndef TRAIN_FEED_H
#define TRAIN_FEED_H

#include "train/session.h"

struct feed {
    struct session *s;
    struct event *done[2];    /* recorded after the last two steps */
    int turn;                 /* the next step records done[turn] */
    struct batch *ahead;      /* the next step's batch, already taken from the loader; or NULL */
    struct batch *held;       /* the previous step's batch, which may still be read; or NULL */
    struct loader *held_from; /* the loader that `held` is released to */
};

/* *f must be zeroed; after a failure feed_close frees what exists. */
int feed_open(struct feed *f, struct session *s);
void feed_close(struct feed *f);

/* Takes the next batch of the loader, NULL after the last one. more 1: the caller will need another
 * one after this. If that one is ready and copies may overlap kernels, it is taken too, as
 * (*batch)->next. The time spent waiting is a span of PHASE_LOADER. */
int feed_next(struct feed *f, struct loader *loader, int more, struct batch **batch);

/* Releases a batch whose step could not be enqueued. */
void feed_drop(struct feed *f, struct loader *loader, struct batch *batch);

/* Keeps the batch whose step has been enqueued, and waits for the previous step. So at most one
 * step runs while the next is enqueued. A batch's host memory must stay until its step is done. */
int feed_hold(struct feed *f, struct loader *loader, struct batch *batch);
int feed_finish(struct feed *f);

#endif
