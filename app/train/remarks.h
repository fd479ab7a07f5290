/* Prints remarks after a run. */
#ifndef TRAIN_REMARKS_H
#define TRAIN_REMARKS_H

#include "train/progress.h"
#include "train/session.h"

/* Prints what the numbers of a run do not show, unless p prints nothing. */
void remarks_print(const struct session *s, const struct progress *p);

/* Rank 0 warns on stderr if P2P moves no bytes, and if launches wait. */
void remarks_warn_of_gpus(const struct session *s);

#endif
