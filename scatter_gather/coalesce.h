/* Coalescing: many small parameters travel as few large pieces. It needs only integers.
 *
 * A model has dozens of tensors, most of them tiny (a bias of 10 floats), and each move has a
 * start-up cost whatever its size. So PyTorch's broadcast_coalesced and reduce_add_coalesced pack
 * tensors into groups of at most 10 MiB, greedily: a tensor joins the open group unless that group
 * is not empty and would grow past the limit. A tensor above the limit is its own group.
 *
 * Duet packs nothing. Parameters are adjacent in one arena (nn/param.h), so a group is simply a
 * range of it. */
#ifndef SCATTER_GATHER_COALESCE_H
#define SCATTER_GATHER_COALESCE_H

#include <stddef.h>

#include "nn/param.h"

enum { COALESCE_BYTES = 10 * 1024 * 1024 }; /* PyTorch's limit for a group */

/* Elements [first, first + count) of a float32 arena. */
struct param_range {
    size_t first, count;
};

/* Groups pieces[0..n) in this order. Each piece is adjacent to the one before it, above or below,
 * with only pads between them. The limit counts the pieces' own bytes, not the pads. Returns the
 * number of groups, at most n. */
int coalesce(const struct param_range *pieces, int n, size_t limit_bytes,
             struct param_range *groups /* [n] */);

/* Groups all values (gradients 0) or all gradients (1) of `set`, in registration order as in
 * PyTorch. The values of frozen parameters, which are stored after all others, come first; they
 * have no gradients. `groups` has space for set->count. Gradients that a ddp has moved cannot be
 * grouped: dp/setup.c refuses them. ERR_MEMORY. */
int coalesce_params(const struct param_set *set, int gradients, size_t limit_bytes,
                    struct param_range *groups, int *group_count);

#endif
