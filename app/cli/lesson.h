/* The end of `duet demo`: a model for which DataParallel hurts. */
#ifndef CLI_LESSON_H
#define CLI_LESSON_H

#include "train/job.h"

/* LeNet is so small that device 0 of DP hardly has more to do than the others. So the demo also
 * trains `wide`, with 2000 outputs and Adam, for a few steps of DP and of DDP, not more than its
 * own, on 4 devices (on GPUs as many as the demo has, at least 2), and prints what is on device 0
 * and what DDP does about it. `demo` gives the kind of device and the timeout. Memory that is too
 * small for DP is what the lesson is about: it prints the error and returns OK.
 * held: DP's peak of device 0 and the mean of the others, in bytes; 0: not measured. */
int lesson_run(const struct run_config *demo, double held[2], struct job_result *result);

/* Says so in a sentence, for the last lines of the demo. */
void lesson_answer_print(const double held[2]);

#endif
