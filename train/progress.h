/* Progress of long work, from rank 0 alone: one line rewritten in place on a terminal, a plain
 * line an epoch otherwise. */
#ifndef TRAIN_PROGRESS_H
#define TRAIN_PROGRESS_H

#include <stdint.h>

struct progress {
    int shown;         /* 0: quiet, or not rank 0 */
    int terminal;      /* the output is a terminal: rewrite one line */
    const char *title; /* "DDP" */
    int epochs, steps; /* of the whole run */
    /* the first step whose loss was no finite number; -1: none. Reported, never an error */
    int not_finite;
    int64_t last_ns; /* when the line was last drawn */
    int line_width;  /* of the line that stands there now */
};

void progress_start(struct progress *p, const char *title, int epochs, int steps, int quiet);

/* The loss of each step, in order. */
void progress_loss(struct progress *p, int step, double loss);

/* After some steps: `step` steps are done, `images` trained on in `seconds` of training; loss of
 * the last step. */
void progress_step(struct progress *p, int epoch, int step, double loss, int64_t images,
                   double seconds);

/* After an epoch; accuracy < 0: not evaluated. */
void progress_epoch(struct progress *p, int epoch, int step, double loss, double accuracy,
                    int64_t images, double seconds);

#endif
