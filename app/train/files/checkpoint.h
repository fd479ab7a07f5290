/* Writing checkpoints (train/files/resume.h says what is in one) while training goes on.
 *
 * Rank 0 copies the state of device 0 to host memory between two steps, and a thread writes the
 * file. The other ranks wait only for the copy. The previous file stays until the new one is
 * complete. A checkpoint that cannot be written does not end the run: a warning says so, training
 * goes on, and the command ends with status 1. */
#ifndef TRAIN_FILES_CHECKPOINT_H
#define TRAIN_FILES_CHECKPOINT_H

#include "base/error.h"
#include "train/session.h"

struct checkpoint;

/* Makes room for one copy of the state. *out is NULL where config asks for no checkpoint, and in a
 * process that does not lead; the functions below then do nothing. */
int checkpoint_init(struct checkpoint **out, struct session *s);

/* After `step` steps, the last of which is enqueued: takes the state and starts to write it. Waits
 * until the checkpoint before is written. last 1: the run is over, and what cannot be put in place
 * is kept elsewhere, as base/files/atomic_file.h does. A failure here is one of the device. */
int checkpoint_take(struct checkpoint *c, int step, int last);

/* Now and then, without waiting: says so if the checkpoint under way has failed. */
void checkpoint_look(struct checkpoint *c);

/* Waits for the last one, and adds to *unwritten those that could not be written. */
void checkpoint_finish(struct checkpoint *c, struct failures *unwritten);

void checkpoint_free(struct checkpoint *c); /* waits for the thread; takes NULL */

#endif
