/* Writes checkpoints between two steps. train/files/resume.h describes their contents.
 *
 * Rank 0 reads the state of device 0 and writes the file, as a program does with
 * duet_checkpoint_save; the other ranks wait at their next collective. The previous file stays
 * until the new one is complete. A checkpoint that cannot be written does not end the run: a
 * warning says so, training continues, and the command ends with status 1. */
#ifndef TRAIN_FILES_CHECKPOINT_H
#define TRAIN_FILES_CHECKPOINT_H

#include "base/error.h"
#include "train/session.h"

struct checkpoint;

/* Lists the settings that each file holds. *out is NULL if config has no checkpoint, and in all but
 * the leading process unless the model is sharded; the functions below then do nothing. */
int checkpoint_init(struct checkpoint **out, struct session *s);

/* Called after `step` steps, the last of which is enqueued: writes the file. last 1: the run is
 * over, and a file that cannot be put in place is kept elsewhere (base/files/atomic_file.h). */
void checkpoint_take(struct checkpoint *c, int step, int last);

/* Adds the checkpoints that could not be written to *unwritten. */
void checkpoint_finish(const struct checkpoint *c, struct failures *unwritten);

void checkpoint_free(struct checkpoint *c); /* NULL is fine */

#endif
