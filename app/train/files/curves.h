/* The curves of a run in TensorBoard (--tensorboard), which rank 0 writes during the run:
 *
 *     Loss/train                every step
 *     Speed/samples_per_second  each time that the losses are read: after steps 1, 2, 4, ... of an
 *                               epoch, and at least every 64 steps
 *     Loss/train_epoch          after each epoch: the mean of its losses; and
 *     Accuracy/test, Learning_rate, Memory/device_D_MiB, Memory/device_D_peak_MiB
 *
 * Unlike the other files of a run, this one grows, and its records stay if the run fails or is
 * killed. A run that continues from a checkpoint writes another file and continues the step
 * numbers. That file marks the restart, and TensorBoard drops later steps of the earlier files. */
#ifndef TRAIN_FILES_CURVES_H
#define TRAIN_FILES_CURVES_H

#include "base/files/event_file.h"
#include "train/session.h"

struct curves {
    struct event_file file;
    int epoch_start; /* index of the epoch's first loss in the record */
    int64_t samples; /* samples trained at the last point of the speed curve */
    double seconds;
};

/* Adds the new steps of the record, from index `first` on. seconds is the training time so far.
 * Does nothing on zeroed curves. */
void curves_steps(struct curves *c, const struct run_record *record, int first, double seconds);

/* Adds an epoch; its losses, accuracy and learning rate are the record's last ones. With
 * --tensorboard it is collective, and rank 0 writes every device's memory. */
int curves_epoch(struct curves *c, struct session *s);

#endif
