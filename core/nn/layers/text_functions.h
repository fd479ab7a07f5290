/* Tape functions that only exported models use (models/graph/graph_ops.c). The functions for
 * programs are in duet/functions.h, whose rules apply here, too.
 *
 *     function         applies a function of device/activation.h to each element. `number` is its
 *                      a; a function that divides by it refuses 0 and infinity
 *     random           torch.rand or torch.randn, drawn for each sample, in an evaluation too.
 *                      shape[0] is the number of samples, or -1. Seed and pass determine the
 *                      numbers, as in dropout's masks
 *     conv_transpose   F.conv_transpose2d and 1d: w (C,O/groups,K,L), b (O). output_padding adds
 *                      rows and columns at the bottom and the right, fewer than the stride; NULL:
 *                      none
 *     take_along_dim   torch.take_along_dim, and gather, along dimension dim, not 0. The indices
 *                      are integers, as argsort returns them; one out of range gives NaN. x and
 *                      index have the same rank, and are broadcast except in dim
 *     scatter_add      its gradient, torch.zeros(..).scatter_add(dim, index, src), of size `size`
 *                      in dim, added in the order of src; ignores an index out of range
 *     argsort          torch.argsort(x, dim, descending, stable=True). NaN is larger than all other
 *                      numbers. It has no gradient, but take_along_dim at its indices has one */
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
