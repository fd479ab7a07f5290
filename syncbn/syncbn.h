/* SyncBatchNorm across the ranks of DDP: batch statistics over the whole global batch, although
 * each rank sees only its own samples. syncbn.c explains how; convert.c is the call of duet.h. */
#ifndef SYNCBN_SYNCBN_H
#define SYNCBN_SYNCBN_H

#include "comm/comm.h"
#include "nn/params/params.h"
#include "nn/tape/tape.h"

struct syncbn;

struct syncbn_config {
    struct comm *comm;
    struct announcer *group; /* the group that counts its calls; NULL: the command's */
    struct device *device;
    int segments; /* V over all ranks; rank r holds those with v mod world size = r */
    int segment;  /* index of the one segment of a program's tape; -1: use each segment's v */
    int channels; /* the largest number in any layer */
};

/* Collective. Set *exchange on every tape whose synchronised batch_norms use the statistics of all
 * segments; it is valid until syncbn_free. The arguments are borrowed. ERR_MEMORY; on failure *out
 * is NULL. */
int syncbn_init(struct syncbn **out, const struct syncbn_config *config,
                struct tape_exchange *exchange);

/* Collective, unless the job has failed. NULL is fine. */
void syncbn_free(struct syncbn *syncbn);

/* The same for a duet_params: every pass with it uses the exchange, and it frees the exchange.
 * group and segment are as above; segments is V. With one rank nothing is exchanged. */
int syncbn_convert(duet_params *params, struct comm *comm, struct announcer *group, int segments,
                   int segment);

#endif
