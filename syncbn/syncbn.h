/* SyncBatchNorm across the ranks of DDP: batch statistics of the whole global batch, although each
 * rank sees its own samples alone. syncbn.c tells how; program.c is the call of duet.h. */
#ifndef SYNCBN_SYNCBN_H
#define SYNCBN_SYNCBN_H

#include "comm/comm.h"
#include "nn/tape/tape.h"

#ifdef __cplusplus
extern "C" {
#endif

struct syncbn;

/* Collective. From now on every synchronised batch_norm of `tape` takes the statistics of
 * `segments` segments (V) over all ranks; rank r holds those with v mod world size = r. channels:
 * the most that a layer has. comm, device and tape are borrowed and must outlive the object.
 * ERR_MEMORY; on failure *out is NULL. */
int syncbn_init(struct syncbn **out, struct comm *comm, struct device *device, duet_tape *tape,
                int segments, int channels);

/* The same for a program, whose tapes come and go: each of them holds the one segment of its rank.
 * *exchange is to be given to all of them, and is valid until syncbn_free. */
int syncbn_init_alone(struct syncbn **out, struct comm *comm, struct announcer *group,
                      struct device *device, int channels, struct tape_exchange *exchange);

/* Collective, unless the job has failed. NULL is fine. */
void syncbn_free(struct syncbn *syncbn);

#ifdef __cplusplus
}
#endif
#endif
