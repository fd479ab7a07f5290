/* The end of `duet demo`: a model for which DataParallel hurts. */
#ifndef CLI_LESSON_H
#define CLI_LESSON_H

#include "train/job.h"

/* LeNet is so small that device 0 of DP hardly has more to do than the others. So the demo also
 * trains `wide`, with 2000 outputs and Adam, by DP and by DDP, for a few steps (no more than its
 * own), on 4 devices (on GPUs as many as the demo has, at least 2). It prints what device 0 holds
 * and how DDP changes that. `demo` gives the kind of device and the timeout. If memory is too small
 * for DP, that is the point of the lesson: it prints the error and returns OK. held: DP's peak of
 * device 0 and the mean of the others, in bytes; 0: not measured. */
int lesson_run(const struct run_config *demo, double held[2], struct job_result *result);

/* Says so in a sentence, for the last lines of the demo. */
void lesson_answer_print(const double held[2]);

#endif
