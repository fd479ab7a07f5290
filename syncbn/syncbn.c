/* SyncBatchNorm: one normalisation for the whole global batch.
 *
 * Without it, BatchNorm normalises each rank's samples with their own mean and variance. That is a
 * different model for every number of ranks, and a poor one if a rank has few samples.
 * SyncBatchNorm takes mean and variance over the samples of all ranks. A forward and a backward of
 * one layer, on every rank alike:
 *
 *     forward    moments: mean, M2 and count of each own segment           OP_BATCH_NORM_MOMENTS
 *                all-gather                                                here
 *                merged over all V segments in the order of v              OP_BATCH_NORM_MERGE
 *                running statistics: unbiased variance of the whole        OP_BATCH_NORM_TRACK
 *                y = (x - mean) / sqrt(M2 / count + epsilon) * w + b
 *     backward   sum dy, sum dy (x - mean) of each own segment             OP_BATCH_NORM_SUMS
 *                all-gather                                                here
 *                added up over all V segments in the order of v            OP_BATCH_NORM_TOTAL
 *                dw, db: of the own samples; DDP sums them as any gradient
 *                dx = (dy - sum dy / n - (x - mean) invstd^2 sum dy (x - mean) / n) invstd w
 *
 * PyTorch's rule is the same: its forward gathers mean, invstd and count of each rank, its backward
 * all-reduces the two sums. Three details differ, but not the result. M2 travels instead of invstd,
 * which PyTorch converts back to a variance. The unit is the segment, not the rank, and every rank
 * adds sums in the order of v. So 1, 2 and 4 ranks with the same virtual devices get the same bits,
 * and so does a single device, whose segments need no gather. All sums are kept in double. A rank
 * without samples takes part with a count of zero.
 *
 * The gather is a collective in the middle of forward and backward, once for each layer and
 * direction: 3 C or 2 C doubles from each segment. It waits for the slowest rank every time; that
 * is the cost of SyncBatchNorm. nn/layers/batch_norm.c has the layer and calls the two functions
 * below. */
#include "syncbn/syncbn.h"

#include <stdlib.h>

#include "allreduce/allreduce.h"
#include "base/error.h"

enum { MOST_ROWS = 3 }; /* mean, M2, count */

struct syncbn {
    struct syncbn_config config;
    struct allreduce *collectives;
    double *parts; /* (segments, MOST_ROWS, channels), owned device memory that all ranks share */
};

/* Peers read the memory during a gather only, which ends when all have; so every layer may use
 * it. */
static int take_parts(void *context, int rows, int channels, struct tensor *parts) {
    struct syncbn *s = context;
    if (rows > MOST_ROWS || channels > s->config.channels)
        return fail(ERR_FAILED,
                    "SyncBatchNorm: %d rows of %d channels: it was set up for %d of %d: give "
                    "syncbn_init the most channels of any layer",
                    rows, channels, MOST_ROWS, s->config.channels);
    int dims[3] = {s->config.segments, rows, channels};
    *parts = tensor_plain(s->parts, DTYPE_F64, 3, dims);
    return OK;
}

/* A double is two elements of the all-gather. Block v comes from rank v mod W. */
static int gather(void *context, const struct tensor *parts) {
    struct syncbn *s = context;
    size_t block = 2 * (size_t)parts->dims[1] * (size_t)parts->dims[2];
    return all_gather_enqueue(s->collectives, device_compute(s->config.device), parts->data,
                              (size_t)s->config.segments, block, -1, -1);
}

static int init(struct syncbn *s, struct tape_exchange *exchange) {
    const struct syncbn_config *c = &s->config;
    size_t count = 2 * (size_t)c->segments * MOST_ROWS * (size_t)c->channels; /* floats */
    struct allreduce_config config = allreduce_config_default();
    config.group = c->group;
    config.algorithm = ALLREDUCE_DIRECT;
    config.any_order = 1; /* gathers add nothing */
    CHECK(device_alloc(c->device, (void **)&s->parts, count * sizeof(float), MEM_COMM));
    CHECK(allreduce_init(&s->collectives, c->comm, c->device, &config));
    CHECK(allreduce_register(s->collectives, (float *)s->parts, count));
    *exchange = (struct tape_exchange){.segments = c->segments,
                                       .segment = c->segment,
                                       .parts = take_parts,
                                       .gather = gather,
                                       .context = s};
    return OK;
}

int syncbn_init(struct syncbn **out, const struct syncbn_config *config,
                struct tape_exchange *exchange) {
    *out = NULL;
    struct syncbn *s = calloc(1, sizeof *s);
    if (!s) return fail(ERR_MEMORY, "SyncBatchNorm: the host is out of memory");
    s->config = *config;
    int code = init(s, exchange);
    if (code)
        syncbn_free(s);
    else
        *out = s;
    return code;
}

void syncbn_free(struct syncbn *s) {
    if (!s) return;
    allreduce_free(s->collectives);
    device_free(s->config.device, s->parts);
    free(s);
}
