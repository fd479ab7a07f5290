/* The inside of distributed autograd, only for the files of rpc/. The contracts are in
 * duet/autograd.h.
 *
 *     context.c      contexts: how they begin, spread with calls, and end everywhere
 *     autograd.c     passes: a tape each, with its parameters and objects of equal life
 *     remote_op.c    a call as a node of its caller's tape
 *     backward.c     backward over the tapes, here and at the callees
 *     grad_sums.c    the gradients of a context: those of its passes, added in the order of paths
 *     distributed_optimizer.c
 *
 * A call from a pass P to a function that begins a pass Q, and its backward:
 *
 *     P   ..  send(arg) ................. fire  receive(result)  ..
 *                |                         |        ^
 *     Q          +--> arg  ..  ..  returned var ----+
 *
 *     P   ..  receive: stores the gradient; fire: calls "duet.backward" of Q; send: waits for it
 *     Q       one backward from the returned vars; its answer has the gradients of the arguments
 *
 * send, fire and receive are nodes of P's tape. So backward visits them in the reverse order of the
 * forward pass, and makes no call for a node that it does not reach. So no worker counts
 * dependencies on others, or waits for a gradient that never arrives.
 *
 * The worker's lock guards all lists. A tape, like its device, belongs to one thread at a time. */
#ifndef RPC_AUTOGRAD_H
#define RPC_AUTOGRAD_H

#include "nn/params/params.h"
#include "nn/tape/tape_internal.h"
#include "rpc/agent.h"

/* The vars of a message, in the order in which they are written. */
struct var_list {
    duet_tape *tape;
    int records; /* 0: no context exists, so vars are sent as tensors */
    int count;
    duet_var *var[MOST_VARS];
};

struct kept_tensor {
    duet_tensor *tensor;
    struct kept_tensor *next;
};

struct autograd {
    duet_autograd_context *context; /* NULL: the call was made without one */
    duet_rpc *rpc;
    uint64_t call; /* the call that it serves, also its reference's id; 0: the program's pass */
    struct path path;
    uint32_t calls; /* calls made from this pass so far */
    duet_device *device;
    duet_tape *tape;
    duet_params *params;       /* the program's own; NULL: none */
    struct duet_params shadow; /* the same values, and the gradients of this pass */
    duet_var *argument[MOST_VARS];
    struct var_list returned;
    struct duet_rpc_value args; /* the call's arguments, without references */
    struct kept_tensor *kept;
    struct remote_op *ops; /* the last one first */
    int walking, retain;
    struct autograd *next; /* in its context */
};

/* A call made from a pass. */
struct remote_op {
    struct autograd *pass;
    int to, left;     /* left: gradients of `sent` still to be taken by backward */
    duet_rref *there; /* the pass left at `to` by the call; NULL: none */
    struct var_list sent;
    duet_var *out; /* represents the whole call: all of `sent` lead to it */
    duet_var *received[MOST_VARS];
    duet_future *under_way; /* "duet.backward" */
    struct duet_rpc_value gradients;
    struct remote_op *next;
};

struct duet_autograd_context {
    duet_rpc *rpc;
    uint64_t id;
    int creator;
    int users; /* the program's handle and calls in flight */
    uint32_t own_passes;
    struct autograd *passes;    /* here: the program's own and those of calls, in order of paths */
    void (*end)(void *context); /* frees it if it has no other user than the caller (context.c) */
    duet_autograd_context *next;
};

/* ---- context.c ---- */
/* Returns the context of a received call with this id, and makes it if it is new. NULL: no memory,
 * or it is unknown and `only_known`. It stays until context_leave. Under the lock. */
duet_autograd_context *context_enter(duet_rpc *rpc, uint64_t id, int only_known);
/* The worker ends, and with it its contexts and values. Without the lock. */
void contexts_free_all(duet_rpc *rpc);

/* ---- refcount.c; under the lock ---- */
void context_leave(duet_autograd_context *c);
void context_check_end(duet_autograd_context *c); /* ends it if nothing uses it */

/* ---- autograd.c ---- */
void pass_free(struct autograd *pass); /* only the thread that holds its device calls it */
int pass_keep(struct autograd *pass, duet_tensor *tensor);
/* A parameter of the pass as a var with the parameter's own shape, for one sample. */
duet_var *pass_parameter(duet_tape *tape, int i);
/* Makes params without gradients, for the same values. */
int shadow_params(struct duet_params *out, duet_params *params);
int shadow_grads(struct duet_params *shadow); /* gives them gradients, of zeros */
void shadow_free(struct duet_params *shadow);

/* ---- remote_op.c ---- */
/* Begins a prepared call as an op of the tape. */
int remote_op_begin(duet_future **out, duet_tape *tape, struct outgoing *o);
/* The float tensors in the received result of a call become vars of the tape. */
int remote_op_result(struct remote_op *op, struct duet_rpc_value *result);
int remote_ops_finish(struct autograd *pass, int code); /* waits for pending calls */

/* The gradients of vars (NULL: none), as a list that borrows them. */
struct gradients {
    struct duet_tensor tensor[MOST_VARS];
    struct duet_rpc_value item[MOST_VARS];
};
struct duet_rpc_value gradients_of(struct gradients *g, struct device *device,
                                   duet_var *const vars[MOST_VARS]);
int is_gradient_of(const duet_tensor *grad, const duet_var *x); /* compares type and shape */

/* ---- backward.c ---- */
int serve_backward(duet_rpc_call *call, void *context);

/* ---- grad_sums.c ---- */
void passes_insert(struct autograd *pass); /* both under the lock */
void passes_remove(struct autograd *pass);
/* Enqueues the sum of the gradients of parameter i into `sum`. *has 0: there is none, and `sum` is
 * unchanged. Called by the thread that has the device. */
int grad_sum(duet_autograd_context *c, duet_params *params, int i, struct tensor *sum, char *has);

/* ---- distributed_optimizer.c ---- */
int is_optimizer(const struct owner *o);
int serve_optimizer(duet_rpc_call *call, void *context);
int serve_optimizer_step(duet_rpc_call *call, void *context);

#endif
