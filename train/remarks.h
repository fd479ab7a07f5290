/* Remarks behind a run. */
#ifndef TRAIN_REMARKS_H
#define TRAIN_REMARKS_H

#include "train/progress.h"
#include "train/session.h"

/* Prints what the numbers of a run do not show. Nothing where p shows nothing. */
void remarks_print(const struct session *s, const struct progress *p);

#endif
