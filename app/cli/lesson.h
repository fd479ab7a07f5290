/* The end of `duet demo`: a model for which DataParallel hurts. */
#ifndef CLI_LESSON_H
#define CLI_LESSON_H

#include "train/job.h"

/* LeNet is so small that DP's device 0 hardly does more than the others. So the demo also trains
 * `wide`, with 2000 outputs and Adam, in DP and in DDP. It runs a few steps (no more than the
 * demo's) on 4 devices; on GPUs it uses the demo's number, at least 2. It prints what device 0
 * holds and how DDP changes that. `demo` sets the kind of device and the timeout. If memory is too
 * small for DP, that is the point of the lesson: it prints the error and returns OK. held receives
 * DP's peak on device 0 and the mean of the others, in bytes; 0: not measured. */
int lesson_run(const struct run_config *demo, double held[2], struct job_result *result);

/* Prints this in a sentence, for the last lines of the demo. */
void lesson_answer_print(const double held[2]);

#endif
