/* The rows of an epoch: the data set indices of all batches of one epoch, batch after batch, as the
 * devices of one loader take them. Where the data set lies on a device, this list is brought there
 * once an epoch, and a batch is a part of it. With the 6 samples 4 1 0 5 2 3 in batches of 4, for
 * device 1 of two:
 *
 *     epoch's order     4 1 0 5 | 2 3
 *     rows              1 5 | 3             first: 0, 2, 3
 *
 * It belongs to a loader, which fills it when an epoch begins. */
#ifndef DATA_EPOCH_ROWS_H
#define DATA_EPOCH_ROWS_H

#include <stddef.h>

#include "data/batch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct epoch_rows {
    int32_t *index; /* [room] */
    int32_t *first; /* [batches + 1]: where in `index` the rows of each batch begin, and the end */
    int batches, room;
};

/* Room for the rows of `batches` batches of at most `most` samples. The list itself, `index`, is
 * allocated by `alloc` (loader_config.alloc). ERR_USAGE: more than 2^31 samples. After an error
 * epoch_rows_free frees what there is. */
int epoch_rows_init(struct epoch_rows *r, int batches, size_t most,
                    int (*alloc)(void *context, void **out, size_t bytes), void *context);
/* Takes a zeroed struct. */
void epoch_rows_free(struct epoch_rows *r, void (*release)(void *context, void *memory),
                     void *context);

/* Fills it for an epoch; the parameters are those of batch_plan. order NULL: only `first`. */
void epoch_rows_fill(struct epoch_rows *r, const struct split *s, const int32_t *order,
                     int64_t length, int batch_size, int first_device, int devices);

/* Sets first and index of a batch from its number, batch->step. */
static inline void epoch_rows_take(const struct epoch_rows *r, struct batch *batch) {
    batch->first = r->first[batch->step];
    batch->index = r->index + batch->first;
}

#ifdef __cplusplus
}
#endif
#endif
