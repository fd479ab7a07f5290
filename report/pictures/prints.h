/* Fingerprints: the hashes of a step's parameters, or gradients, as eight digits that people can
 * compare. Equal values have equal digits; different values have equal ones once in 4e9 times. */
#ifndef REPORT_PICTURES_PRINTS_H
#define REPORT_PICTURES_PRINTS_H

#include "trace/record.h"

/* 1 if the run's device was hashed. */
int is_hashed(const struct run_record *run, int device);

/* step: an index of the run's steps; run->steps: the values at the end, grads 0 alone. buffers 1:
 * buffers count as values. */
uint32_t fingerprint(const struct run_record *run, int device, int step, int grads, int buffers);

/* Some steps to show: the first, the last and some between, at even distances. Returns how many.
 */
enum { PRINTED_STEPS = 5 };
int steps_to_print(const struct run_record *run, int steps[PRINTED_STEPS]);

#endif
