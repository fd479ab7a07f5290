/* Functions of a tape that only the texts of exported models use (models/graph/graph_ops.c); the
 * functions for programs are in duet/functions.h, whose rules apply here, too.
 *     function     any of device/activation.h, of each element; number: its `a`. What divides
 *                  by it refuses 0, and what is not finite
 *     random       torch.rand, from 0 up to 1, or torch.randn, of which each sample has its own;
 *                  shape[0] is that of the samples, or -1. Drawn as dropout's masks are, by seed
 *                  and pass; in an evaluation too
 *     conv_transpose       F.conv_transpose2d and 1d: w (C,O/groups,K,L), b (O). output_padding:
 *                  pixels that y has more at the bottom and the right, fewer than the stride; NULL:
 *                  none
 *     take_along_dim                     torch.take_along_dim, and gather: of dimension dim, not 0,
 *                  what is at the places that index says, integers as argsort gives them;
 *                  NaN for an index out of range. x and index have one rank, and are broadcast
 *                  but in dim
 *     scatter_add  its gradient, torch.zeros(..).scatter_add(dim, index, src), of `size` places:
 *                  what goes to one place is added in the order of src; an index out of range is
 *                  ignored
 *     argsort      torch.argsort(x, dim, descending, stable=True): the places of x in its order,
 *                  those of equal numbers as they stand; NaN is larger than all others. It has no
 *                  gradient; take_along_dim at these places is the sorted x, which has one */
#ifndef NN_LAYERS_TEXT_FUNCTIONS_H
#define NN_LAYERS_TEXT_FUNCTIONS_H

#include "device/activation.h"
#include "duet/functions.h"

enum tape_draw { RANDOM_UNIFORM, RANDOM_NORMAL };

duet_var *tape_function(duet_tape *tape, duet_var *x, enum activation kind, double number);
duet_var *tape_random(duet_tape *tape, int rank, const int *shape, enum tape_draw how);
duet_var *tape_conv_transpose(duet_tape *tape, duet_var *x, int w, int b,
                              const struct duet_conv *how, const int output_padding[2]);
duet_var *tape_take_along_dim(duet_tape *tape, duet_var *x, duet_var *index, int dim);
duet_var *tape_scatter_add(duet_tape *tape, duet_var *index, duet_var *src, int dim, int size);
duet_var *tape_argsort(duet_tape *tape, duet_var *x, int dim, int descending);

#endif
