/* Inside a replica: what replica.c and input.c call of each other. */
#ifndef MODELS_REPLICA_INTERNAL_H
#define MODELS_REPLICA_INTERNAL_H

#include "models/replica.h"

/* Spans of what is enqueued next on the compute stream, which is returned, carry this phase and the
 * number of the step. */
struct stream *replica_phase(struct replica *r, enum phase phase);

/* ERR_FAILED: more samples than the replica has room for. */
int replica_check_samples(const struct replica *r, const char *what, int n);

int replica_make_input(struct replica *r);
void replica_free_input(struct replica *r); /* zeroed and half-built are fine */

#endif
