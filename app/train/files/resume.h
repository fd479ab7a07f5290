/* A checkpoint holds everything that a run needs to continue with the bits of an uninterrupted run.
 *
 * It is a safetensors file:
 *
 *     NAME                        parameters and buffers under PyTorch's names; --init-from and
 *                                 other programs read them as in a file of --save
 *     optimizer.PART.NAME         the optimizer's state: PART is momentum_buffer, square_avg,
 *                                 acc_delta, exp_avg or exp_avg_sq, as PyTorch calls it
 *     optimizer.step              I64 [parameters]: how often each parameter was updated
 *     __metadata__                duet_checkpoint: the version of this list; step: the steps done;
 *                                 bits_promised: 1 if other modes have the same bits; sum_order and
 *                                 ready_order: the order of sums, if it is not the fold order; and
 *                                 each setting of train/files/settings.h under its flag
 *
 * The number of steps is the complete position, because the sampler's order follows from seed and
 * epoch, and dropout from seed and step. */
#ifndef TRAIN_FILES_RESUME_H
#define TRAIN_FILES_RESUME_H

#include "train/session.h"

#define ORDER_OF_SUMS "sum_order" /* as in bits_order_text; missing: the fold order */
#define READY_ORDER "ready_order" /* ddp_ready_order, indices of parameters; missing: unknown */

/* Called before data, model and devices are opened. Checks that the file of --resume is a
 * checkpoint, that the file of --init-from is a safetensors file, and that the file of --checkpoint
 * can be written. */
int resume_check_files(const struct run_config *config);

/* Checks that the settings of the checkpoint s->file are this run's, and reads the position into
 * s->first_step. Data, model and devices must be open. ERR_USAGE names the first setting that
 * differs; ERR_FAILED: not a checkpoint, or a broken one. */
int resume_check(struct session *s);

/* Collective: the ranks check that all have read the same step. */
int resume_agree(struct session *s);

#endif
