/* Coalescing: many small parameters travel as few large pieces. Pure integers.
 *
 * A model has dozens of tensors, most of them tiny (a bias of 10 floats), and each move costs a
 * start-up time whatever its size. PyTorch's broadcast_coalesced and reduce_add_coalesced
 * therefore pack tensors into groups of at most 10 MiB, greedily: a tensor joins the open group
 * unless the group is not empty and would grow past the limit. So a tensor above the limit is a
 * group of its own.
 *
 * Here nothing is packed: parameters lie side by side in one arena (nn/param.h), so a group is
 * simply a range. */
#ifndef SCATTER_GATHER_COALESCE_H
#define SCATTER_GATHER_COALESCE_H

#include <stddef.h>

#include "nn/param.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COALESCE_BYTES = 10 * 1024 * 1024 };

/* Elements [first, first + count) of a float32 arena. */
struct param_range {
    size_t first, count;
};

/* Groups pieces[0..n), taken in this order, each next to the one before (above or below it, but
 * for pads). The limit counts the pieces' own bytes, not the pads between them. groups has space
 * for n; returns their number. */
int coalesce(const struct param_range *pieces, int n, size_t limit_bytes,
             struct param_range *groups);

/* The groups of all values (gradients 0) or all gradients (1) of `set`, taken in registration
 * order as PyTorch does. groups has space for set->count; *group_count is set. ERR_FAILED where
 * the parameters of a group are not neighbours (a relaid gradient arena), ERR_MEMORY. */
int coalesce_params(const struct param_set *set, int gradients, size_t limit_bytes,
                    struct param_range *groups, int *group_count);

#ifdef __cplusplus
}
#endif
#endif
