/* The tensors that PyTorch's autograd saves for the backward of an op; see autograd_memory.h. */
#ifndef NN_AUTOGRAD_SAVES_H
#define NN_AUTOGRAD_SAVES_H

#include "nn/tape/tape_internal.h"

enum { SAVES_NOTHING = 16 };
struct autograd_rule {
    int saves;        /* the vars that it saves, as SPARES_X etc.; or SAVES_NOTHING */
    int gives;        /* SPARES_X, SPARES_X2: the vars whose gradient uses y's memory */
    int saves_weight; /* 1: it also saves its parameter */
    /* Bytes in addition to those tensors: indices, masks, statistics. NULL: none. */
    uint64_t (*more)(const struct node *node);
    /* Bytes that backward holds in addition to its gradients. NULL: none. */
    uint64_t (*work)(const struct node *node);
};

/* The rule for a node's op, depending on its settings. */
struct autograd_rule autograd_rule_of(const struct node *node);

/* Bytes of a tensor in PyTorch, whatever its layout here. */
uint64_t autograd_bytes(const struct tensor *x);

#endif
