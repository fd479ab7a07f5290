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

/* Allocates one copy of the state. *out is NULL if config has no checkpoint, and in every process
 * but the leading one; the functions below then do nothing. */
int checkpoint_init(struct checkpoint **out, struct session *s);

/* After `step` steps, the last of which is enqueued: takes the state and starts to write it. Waits
 * until the checkpoint before is written. last 1: the run is over, and a file that cannot be put in
 * place is kept elsewhere, as base/files/atomic_file.h does. A failure here is a failure of the
 * device. */
int checkpoint_take(struct checkpoint *c, int step, int last);

/* Called now and then; does not wait. Warns if the current checkpoint has failed. */
void checkpoint_look(struct checkpoint *c);

/* Waits for the last one, and adds to *unwritten those that could not be written. */
void checkpoint_finish(struct checkpoint *c, struct failures *unwritten);

void checkpoint_free(struct checkpoint *c); /* waits for the thread; takes NULL */

#endif
