/* The files of a run, which rank 0 writes. Those of --log-loss and --save appear whole at the end
 * or not at all; that of --tensorboard grows. They are opened before training, so that a folder
 * that cannot be written is reported at once. */
#ifndef TRAIN_FILES_OUTPUT_H
#define TRAIN_FILES_OUTPUT_H

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "train/files/curves.h"
#include "train/session.h"

struct outputs {
    const struct run_config *config;
    struct curves curves;
    struct atomic_file weights, losses; /* not open unless requested */
};

/* Opens the files that config names; config must outlive them. Zero *o first, and call
 * outputs_abandon even after a failure. */
int outputs_open(struct outputs *o, const struct run_config *config);
/* Writes losses and weights, and puts both files in place. It tries each file, even if others fail,
 * and adds those that cannot be written to *unwritten. */
void outputs_commit(struct outputs *o, struct session *s, struct failures *unwritten);
/* Removes uncommitted files; does nothing after a commit or on zeroed outputs. */
void outputs_abandon(struct outputs *o);

#endif
