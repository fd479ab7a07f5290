/* Rank 0 prints the progress of a run on standard error, because standard output is for results. On
 * a terminal one line is rewritten in place, and each epoch leaves a line. Elsewhere only the lines
 * of the epochs are printed. */
#ifndef TRAIN_PROGRESS_H
#define TRAIN_PROGRESS_H

#include <stdint.h>

struct progress {
    int shown;         /* 0: --quiet, or not rank 0 */
    int terminal;      /* 1: standard error is a terminal */
    const char *title; /* title of the mode: "DDP" */
    int epochs, steps; /* epochs and steps of the whole run */
    int steps_per_epoch;
    int untimed; /* 1: no times, because the run gets modelled times at its end */
    int first;   /* steps done by the run that this one resumes */
    /* The first step whose loss was not finite; -1: none. It is reported, but not as an error. */
    int not_finite;
    int64_t last_ns; /* when the rewritten line was last drawn */
    int line_width;  /* columns of the current line */
};

/* Sets up *p; `title` must outlive it. `steps` ends the run; each epoch has steps_per_epoch. */
void progress_start(struct progress *p, const char *title, int steps_per_epoch, int steps,
                    int quiet);

/* Called with the loss of each step, in order, when the host has read it. That may be 60 steps
 * late, because no step waits for a loss. */
void progress_loss(struct progress *p, int step, double loss);

/* Called every few steps: `step` steps are done, `samples` were trained on in `seconds` of
 * training, and `loss` is that of the last step. */
void progress_step(struct progress *p, int epoch, int step, double loss, int64_t samples,
                   double seconds);

/* Called after each epoch. accuracy below 0: not evaluated. Otherwise a second line is printed. */
void progress_epoch(struct progress *p, int epoch, int step, double loss, double accuracy,
                    double valid_loss, int64_t samples, double seconds);

#endif
