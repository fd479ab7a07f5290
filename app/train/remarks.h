/* Remarks after a run. */
#ifndef TRAIN_REMARKS_H
#define TRAIN_REMARKS_H

#include "train/progress.h"
#include "train/session.h"

/* Prints what the numbers of a run do not show. Nothing if p prints nothing. */
void remarks_print(const struct session *s, const struct progress *p);

/* On stderr, in rank 0: GPUs that advertise P2P but move no bytes by it; launches that wait. */
void remarks_warn_of_gpus(const struct session *s);

#endif
