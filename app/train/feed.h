/* The feed: batches from the loader to the steps. It takes the next batch from the loader before
 * the step is enqueued, so that the strategy can copy it to the device during the step's
 * kernels, and keeps each batch until the step that reads it is done.
 *
 *     loader_start_epoch(loader, epoch, 0);        the order is drawn
 *     feed_next(&feed, loader, more, &batch);      waits for the loader; batch->next may be there
 *     ... the strategy enqueues the step ...
 *     feed_hold(&feed, loader, batch);             waits for the step before, whose batch goes back
 *     feed_finish(&feed);                          waits for the last step */
#ifndef TRAIN_FEED_H
#define TRAIN_FEED_H

#include "train/session.h"

struct feed {
    struct session *s;
    struct event *done[2];    /* recorded after the last two steps */
    int turn;                 /* the next step records done[turn] */
    struct batch *ahead;      /* the next step's batch, already taken from the loader; or NULL */
    struct batch *held;       /* the batch of the step before, which may still be read; or NULL */
    struct loader *held_from; /* the loader that `held` is released to */
};

/* Takes zeroed feeds; after a failure feed_close frees what exists. */
int feed_open(struct feed *f, struct session *s);
void feed_close(struct feed *f);

/* The next batch of the loader, NULL after the last one. more 1: the caller will ask for another
 * one after this. Then that one is taken, too, if it is ready and copies may run beside the
 * kernels; it is (*batch)->next. The time spent waiting is a span of PHASE_LOADER. */
int feed_next(struct feed *f, struct loader *loader, int more, struct batch **batch);

/* Gives up a batch whose step could not be enqueued. */
void feed_drop(struct feed *f, struct loader *loader, struct batch *batch);

/* Keeps the batch whose step has been enqueued, and waits for the step before it. So one step may
 * run while the next is enqueued, and no more: a batch's host memory must stay until its step is
 * done. */
int feed_hold(struct feed *f, struct loader *loader, struct batch *batch);
int feed_finish(struct feed *f);

#endif
