/* The memory that PyTorch's eager mode would use for a pass that a tape has recorded. Duet's tape
 * keeps the memory of a step until the next one begins. Autograd keeps only the tensors that each
 * op saves, frees them right after the op's backward, and allocates gradients on the way. So the
 * bytes differ, though the ops are the same. nn/autograd_saves.c says what each op saves.
 *
 * The walk counts and computes nothing; each count goes into a ledger, whose peak is then
 * PyTorch's. Sizes are those of the tensors. Workspaces of kernels and the rounding of the caching
 * allocator are not counted.
 *
 * tests/golden/make_autograd_memory.py makes PyTorch's own counts, which a test compares. */
#ifndef NN_AUTOGRAD_MEMORY_H
#define NN_AUTOGRAD_MEMORY_H

#include "nn/tape/tape.h"
#include "trace/ledger.h"

struct autograd_memory;

/* The moment when an op uses parameters: in forward, before its backward, or after it. */
enum autograd_moment { AUTOGRAD_FORWARD, AUTOGRAD_BACKWARD, AUTOGRAD_DONE };

struct autograd_config {
    struct ledger *ledger; /* borrowed; already has the parameters and all other held memory */
    enum mem_cause cause;  /* the cause of saved tensors and of gradients on their way back */
    /* 1: parameters are the copies that DataParallel's replicate makes, charged to MEM_PARAMS. They
     * are views of buffers of at most 10 MiB. A buffer is freed when no op saves a part of it. */
    int replicated;
    int accumulates; /* 1: .grad already exists; each gradient is added to it and freed */
    /* 1: under autocast. Products and convolutions compute in half precision, and their results and
     * saved operands, weights included, are halves. Norms of rows, softmax and losses are float32
     * (op_autocast). All other ops keep the type of their operands. */
    int half;
    /* Called for each op that has parameters; w and b may be NULL. NULL: no call. */
    void (*use)(void *context, const struct param *w, const struct param *b,
                enum autograd_moment moment);
    void *context;
};

/* Adds the tensors that autograd has saved after the forward pass to `root`; *saved, which may be
 * NULL, is their sum. The pass must be for training and stay until autograd_memory_free. */
int autograd_memory_new(struct autograd_memory **out, duet_tape *tape, duet_var *root,
                        const struct autograd_config *config, uint64_t *saved);
/* 1: an op saves x's memory. */
int autograd_memory_saves(const struct autograd_memory *a, const duet_var *x);
/* Walks back from the root, whose gradient has this many bytes of `cause`; 0: no gradient. The
 * gradients of the parameters (MEM_GRADS) and of leaves remain. */
void autograd_memory_backward(struct autograd_memory *a, uint64_t bytes, enum mem_cause cause);
void autograd_memory_free(struct autograd_memory *a); /* NULL is fine */

#endif
