/* Inside a replica: the functions that replica.c and input.c share. */
#ifndef MODELS_REPLICA_INTERNAL_H
#define MODELS_REPLICA_INTERNAL_H

#include "base/error.h"
#include "models/replica.h"

/* Sets the phase and the step number of the spans that are enqueued next on the compute stream, and
 * returns that stream. */
static inline struct stream *replica_phase(struct replica *r, enum phase phase) {
    struct stream *stream = device_compute(r->device);
    stream_set_phase(stream, phase, r->step_number);
    return stream;
}

/* ERR_FAILED: more samples than the replica has room for. */
static inline int replica_check_samples(const struct replica *r, const char *what, int n) {
    if (n >= 0 && n <= r->config.max_samples) return OK;
    return fail(ERR_FAILED, "%s: %d samples: the input buffer of %s holds %d", what, n,
                device_name(r->device), r->config.max_samples);
}

int replica_make_input(struct replica *r);
void replica_free_input(struct replica *r); /* zeroed and half-built are fine */

#endif
