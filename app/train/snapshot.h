/* Lock step (train/compare/lockstep.h): the parameters before some steps, and the gradients of the
 * last one, into the record. */
#ifndef TRAIN_SNAPSHOT_H
#define TRAIN_SNAPSHOT_H

#include "train/session.h"

/* Records the parameters if config->snapshots asks for them before `step`. *index: the next entry
 * of that list, from 0. Every rank calls it; rank 0 records. */
int snapshot_if_due(struct session *s, int step, int *index);

/* Records the reduced gradients of the last step, where config->dump_grads asks for them. */
int snapshot_grads(struct session *s);

#endif
