/* The files of a run, which rank 0 writes: --log-loss and --save, each of which appears whole at
 * the end or not at all, and --tensorboard, which grows. They are opened before training, so that a
 * folder that cannot be written is reported at once. */
#ifndef TRAIN_FILES_OUTPUT_H
#define TRAIN_FILES_OUTPUT_H

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "train/files/curves.h"
#include "train/session.h"

struct outputs {
    const struct run_config *config;
    struct curves curves;
    struct atomic_file weights, losses; /* closed where not asked for */
};

/* Opens the files that config names; config must outlive them. Zero *o before, and outputs_abandon
 * it afterwards, also after a failure. */
int outputs_open(struct outputs *o, const struct run_config *config);
/* Writes losses and weights, and puts both files in their places. Each is tried, even if others
 * fail; those that cannot be written are added to *unwritten. */
void outputs_commit(struct outputs *o, struct session *s, struct failures *unwritten);
/* Removes what was not committed; does nothing after a commit or on zeroed outputs. */
void outputs_abandon(struct outputs *o);

#endif
