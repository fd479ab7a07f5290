/* The moves of allreduce/host/executor.h for elements of any type and for any operation, as fast as
 * simple loops. Sums of floats have faster loops of their own (allreduce/host/move.c). The bits are
 * those of element_combine and element_scale (tests/allreduce/reference.h). */
#ifndef GROUP_TYPED_H
#define GROUP_TYPED_H

#include "allreduce/element.h"
#include "allreduce/plan.h"

/* host_ranks.move. All arrays have step->length elements of how.type. A dest may be one of the
 * sources; two ranges never overlap partly. A sum combines the n sources (1 .. MAX_DEVICES), times
 * scale, in fold order. A reduce combines `own * own_scale` with `source * source_scale`. */
void typed_move(struct arithmetic how, const struct plan_step *step, void *const *dest, int count,
                const void *const *sources, int n, const void *own, double source_scale,
                double own_scale);

#endif
