/* The moves of host/executor.h for elements of any type and for any operation: as fast as plain
 * loops are. Sums of floats have faster ones of their own (move.c). Element by element the same
 * bits as element_combine and element_scale give. */
#ifndef ALLREDUCE_HOST_TYPED_H
#define ALLREDUCE_HOST_TYPED_H

#include "allreduce/element.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All arrays have `length` elements of how.type. A dest may be one of the sources; two ranges never
 * overlap in part. The fold combines the n sources (1 .. MAX_DEVICES), each * scale, in fold
 * order; a reduce is `own * own_scale` combined with `source * source_scale`. */
void typed_copy(enum element_type type, void *const *dest, int dests, const void *source,
                double scale, size_t length);
void typed_reduce(struct arithmetic how, void *const *dest, int dests, const void *own,
                  double own_scale, const void *source, double source_scale, size_t length);
void typed_fold(struct arithmetic how, void *const *dest, int dests, const void *const *source,
                int n, double scale, size_t length);

#ifdef __cplusplus
}
#endif
#endif
