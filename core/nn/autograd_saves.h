/* What PyTorch's autograd saves for the backward of an op; see autograd_memory.h. */
#ifndef NN_AUTOGRAD_SAVES_H
#define NN_AUTOGRAD_SAVES_H

#include "nn/tape/tape_internal.h"

enum {
    SAVES_X = 1,       /* the first operand */
    SAVES_Y = 2,       /* the result */
    SAVES_W = 4,       /* the weight */
    SAVES_FACTORS = 8, /* of each operand that needs a gradient the other one */
    GIVES_X = 16,      /* the gradient of x is that of y: no memory of its own */
    GIVES_X2 = 32,     /* so is that of x2 */
    SAVES_OTHERS = 64, /* the second operand and the third */
};
struct autograd_rule {
    int flags;
    /* Bytes beside those tensors: indices, masks, statistics. NULL: none. */
    uint64_t (*more)(const struct node *node);
    /* Bytes that backward holds beside the gradients that it makes. NULL: none. */
    uint64_t (*work)(const struct node *node);
};

/* The rule of a node's op, with the settings that change it. */
struct autograd_rule autograd_rule_of(const struct node *node);

/* Bytes of a tensor as PyTorch has it, whatever its layout here. */
uint64_t autograd_bytes(const struct tensor *x);

#endif
