/* duet/autograd.h runs a backward pass through remote calls, and optimizers at the owners of the
 * parameters, as torch.distributed.autograd and DistributedOptimizer do.
 *
 * Each of two workers has a layer with a weight of 3. Worker 0 sends 1 through its own layer and
 * then the other's, runs backward, and prints the gradient of its weight, 3:
 *
 *     static int layer(duet_rpc_call *call, void *params) { // a function like any other
 *         duet_tape *tape;
 *         int code = duet_autograd_call_pass(&tape, call, params, 1);
 *         if (code) return code;
 *         duet_var *x = duet_autograd_arg(tape, call, 0);
 *         return duet_rpc_return(call, duet_rpc_var(duet_linear(tape, x, 0, DUET_NO_BIAS)));
 *     }
 *     static int go(duet_rpc *rpc, duet_params *params, duet_tensor *x) {
 *         struct duet_rpc_value y = {0};
 *         duet_autograd_context *context;
 *         duet_tensor *slope = NULL;
 *         duet_tape *tape;
 *         float value;
 *         int code = duet_autograd_context_create(&context, rpc);
 *         if (code) return code;
 *         code = duet_autograd_pass(&tape, context, params, 1);
 *         if (!code) {
 *             duet_var *h = duet_linear(tape, duet_input(tape, x), 0, DUET_NO_BIAS);
 *             code = duet_autograd_sync(tape, "w1", "layer", DUET_ARGS(duet_rpc_var(h)), 0, &y);
 *         }
 *         if (!code) code = duet_autograd_backward(context, &y.var, 1, 0);
 *         if (!code) code = duet_autograd_gradients(&slope, context, params, 0);
 *         if (!code) code = duet_tensor_read(slope, &value);
 *         if (!code) printf("%g\n", value);
 *         duet_tensor_free(slope), duet_autograd_context_free(context);
 *         return code;
 *     }
 *     static int work(int rank, void *context) {
 *         const float one = 1, three = 3;
 *         const struct duet_param weight = {"weight", 2, {1, 1}, &three};
 *         duet_device *device;
 *         duet_params *params = NULL;
 *         duet_tensor *x = NULL;
 *         duet_rpc *rpc = NULL;
 *         (void)context;
 *         int code = duet_device_open(&device, "cpu", rank, 1 << 26);
 *         if (!code) code = duet_params_create(&params, device, &weight, 1);
 *         if (!code) code = duet_tensor_create(&x, device, DUET_F32, 2, (int[]){1, 1}, &one);
 *         const struct duet_rpc_function functions[] = {{"layer", layer, params, NULL}};
 *         const struct duet_rpc_options options = {
 *             .functions = functions, .function_count = 1, .device = device};
 *         if (!code) code = duet_rpc_init(&rpc, rank ? "w1" : "w0", -1, 0, &options);
 *         if (!code && !rank) code = go(rpc, params, x);
 *         int end = duet_rpc_shutdown(&rpc, !code, 0);
 *         duet_tensor_free(x), duet_params_free(params), duet_devices_close(&device, 1);
 *         return code ? code : end;
 *     }
 *     int main(void) { return duet_exit_status(duet_spawn(2, work, NULL)); }
 *
 * A call is a node of its caller's tape. When backward reaches it, it sends the gradients of its
 * results to the worker that ran the function. That worker goes back over the tape of the call, and
 * through the calls that the function made, and returns the gradients of the arguments. Backward
 * skips calls whose results do not affect the roots, and never waits for them. Calls that ran at
 * the same time also run at the same time in backward.
 *
 * Each worker's parameter gradients go into the context at that worker, and do not change
 * duet_params_grad. The terms of one parameter are added in the order of the calls, from the
 * outermost on, in whatever order they arrive. So the bits are the same in every run. */
#ifndef DUET_AUTOGRAD_H
#define DUET_AUTOGRAD_H

#include "rpc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct duet_autograd_context duet_autograd_context;

/* A var as an argument of duet_autograd_sync and similar functions, or as a result of a function.
 * It must be a float var of the tape of that call. A message has at most 16 vars. */
static inline struct duet_rpc_value duet_rpc_var(duet_var *var) {
    struct duet_rpc_value v = {DUET_RPC_VAR, 0, 0, {0}};
    return v.var = var, v;
}

/* dist_autograd.context(): the state of one or more backward passes. free ends it on all workers,
 * with its tapes, vars and gradients. Many may exist at once. Free all before duet_rpc_shutdown. */
int duet_autograd_context_create(duet_autograd_context **out, duet_rpc *rpc);
void duet_autograd_context_free(duet_autograd_context *context);

/* ---- forward ---- */

/* Begins a training pass over `samples` samples, as duet_tape_begin does; params may be NULL. Only
 * the worker that created the context calls this. The tape is on the device of `params`, or else of
 * the worker, and belongs to the context. params must outlive the context. Dropout draws from seed
 * 0 and a number made from the context and the position of the call. duet_tape_begin,
 * duet_tape_seed and duet_tape_accumulate are refused.
 *
 * params may have a duet_ddp. All its ranks then begin the same passes, and backward leaves the
 * average gradients in the context, through duet_params_grad. Such a pass has one backward, which
 * waits for the other ranks without releasing the device. */
int duet_autograd_pass(duet_tape **out, duet_autograd_context *context, duet_params *params,
                       int samples);

/* The same in a function, once per call. The tape belongs to the context in which the call was
 * made. For a call outside a context, the tape is freed when the function returns, and returned
 * vars arrive as tensors. */
int duet_autograd_call_pass(duet_tape **out, duet_rpc_call *call, duet_params *params, int samples);

/* Argument i as a var of the call's tape. Its gradient goes back to the caller. Tensors among the
 * arguments live as long as the tape. NULL: it is not a float tensor; the tape has the error. */
duet_var *duet_autograd_arg(duet_tape *tape, duet_rpc_call *call, int i);

/* Gives the tensor, such as an input, to the tape, which frees it when the tape itself ends. */
int duet_autograd_keep(duet_tape *tape, duet_tensor *tensor);

/* duet_rpc_sync, duet_rpc_async and duet_rref_sync with vars. Float tensors in the result are vars
 * of `tape`; with async they become vars when duet_future_wait returns. Only these calls are
 * recorded: duet_rpc_sync and duet_rref_to_here return tensors. */
int duet_autograd_sync(duet_tape *tape, const char *to, const char *function,
                       const struct duet_rpc_value *args, int count, double timeout_s,
                       struct duet_rpc_value *result);
int duet_autograd_async(duet_future **out, duet_tape *tape, const char *to, const char *function,
                        const struct duet_rpc_value *args, int count, double timeout_s);
int duet_autograd_rref_sync(duet_tape *tape, duet_rref *rref, const char *method,
                            const struct duet_rpc_value *args, int count, double timeout_s,
                            struct duet_rpc_value *result);

/* Like duet_rref_to_here, but the gradient can travel back. The gradient of a parameter goes into
 * the context at its owner. It may be fetched any number of times. Float tensors of other
 * references become vars without a gradient. */
int duet_autograd_to_here(duet_tape *tape, duet_rref *rref, double timeout_s,
                          struct duet_rpc_value *value);

/* ---- backward ---- */

/* dist_autograd.backward(context_id, roots, retain_graph): runs backward from 1 to 16 vars on tapes
 * of duet_autograd_pass. Each has one element, or is a loss with a mean or a sum. Returns when all
 * workers are done. With retain_graph 1 it may be called again, and the gradients are added. */
int duet_autograd_backward(duet_autograd_context *context, duet_var *const *roots, int count,
                           int retain_graph);

/* get_gradients(context_id)[param i]: copies the gradient of a parameter of this worker.
 * DUET_USAGE: the context has no gradient of that parameter here. */
int duet_autograd_gradients(duet_tensor **out, duet_autograd_context *context, duet_params *params,
                            int i);

/* ---- DistributedOptimizer ----
 *
 * One optimizer at each distinct owner of the parameters. duet_rref_create_param makes the
 * references. All owners must be alive at each step. Free optimizers before duet_rpc_shutdown; the
 * parameters may be freed before or after. */

typedef struct duet_distributed_optimizer duet_distributed_optimizer;
int duet_distributed_optimizer_create(duet_distributed_optimizer **out, duet_rpc *rpc,
                                      duet_rref *const *params, int count,
                                      const struct duet_optimizer_options *options);
void duet_distributed_optimizer_free(duet_distributed_optimizer *optimizer);

/* Updates each parameter from its gradient in the context, at all owners at once. A parameter
 * without a gradient there does not change. Two steps at one owner run one after the other. */
int duet_distributed_optimizer_step(duet_distributed_optimizer *optimizer,
                                    duet_autograd_context *context);

#ifdef __cplusplus
}
#endif
#endif
