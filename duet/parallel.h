/* duet/parallel.h: DataParallel, for one process with several devices, and models in parts.
 *
 * DataParallel. Each forward splits the samples among the devices, copies the parameters to all of
 * them, runs your forward function on each in its own thread, and gathers the outputs. Each
 * backward sums the gradients on the first device. In PyTorch: nn.DataParallel(model, device_ids,
 * output_device).
 *
 *     static duet_var *forward(duet_tape *t, duet_var *x, void *context) {
 *         (void)context;
 *         return duet_linear(t, x, 0, 1);
 *     }
 *     static int train(duet_device *const *devices, int n, duet_params *params, duet_tape *tape,
 *                      duet_tensor *x, duet_tensor *labels, int steps) {
 *         duet_data_parallel *dp;
 *         int code = duet_data_parallel_create(&dp, devices, n, params, forward, NULL, NULL);
 *         for (int i = 0; i < steps && !code; i++) {
 *             duet_tape_begin(tape, params, duet_tensor_dim(x, 0), DUET_TRAIN);
 *             duet_var *y = duet_data_parallel_call(tape, dp, x);   // forward(tape, x) elsewhere
 *             duet_var *loss = duet_cross_entropy(tape, y, labels, DUET_MEAN, NULL);
 *             code = duet_backward(tape, loss, NULL);
 *             if (!code) code = duet_sgd(params, 0.1, 1);
 *         }
 *         duet_data_parallel_free(dp);
 *         return code;
 *     }
 *
 * Samples are split as by torch.chunk: 10 over 4 devices are 3 3 3 1, and 9 are 3 3 3 0. A device
 * without samples calls no forward, and its gradients count as zeros. The n gradients are added in
 * the fold order of docs/design.md, so each sum has the bits of the same chunks added on one device
 * in that order. One pass over all samples on one device adds in another order, and so differs in
 * the last bits.
 *
 * If replicas fail, all threads finish first. Then the call returns the code of the lowest failed
 * replica, with "Caught RuntimeError in replica 1 on device 1. " before its message; the parameters
 * do not change, and the gradients are undefined. After DUET_TIMEOUT every later call fails and
 * duet_data_parallel_free frees nothing. Do not close the devices or free the parameters then.
 *
 * One thread makes all calls. During a call the library's threads use all devices. */
#ifndef DUET_PARALLEL_H
#define DUET_PARALLEL_H

#include "core.h"
#include "train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The arguments of forward_multi. */
struct duet_replica {
    int index;                         /* the replica's index in devices[0 .. n) */
    int inputs, outputs;               /* how many tensors the call has */
    const duet_tensor *const *tensors; /* [inputs] the replica's rows of each input */
    duet_var *const *x;                /* [inputs] the same as vars; NULL if it is not float */
};

struct duet_data_parallel_options {
    int output_device; /* index in devices[0 .. n) of the device that gathers outputs and losses */
    uint64_t seed;     /* seed of dropout */
    int input_grad;    /* 1: backward also computes the gradient with respect to x */
    /* Inputs are split, and outputs gathered, along this dimension: 1 for x (L,N,H), where the
     * sequence is first. Every input and output must have this dimension; x is float, other tensors
     * have 4-byte elements. Tensors are copied to move the dimension to the front and back. */
    int dim;
    double timeout_s; /* how long a replica may take for forward or backward; 0: 300 */
    /* A forward(*args) that returns a tuple, used if `forward` is NULL. It stores each of its
     * outputs: a float var, or a loss with DUET_MEAN or DUET_SUM. */
    void (*forward_multi)(duet_tape *tape, const struct duet_replica *replica, duet_var **outputs,
                          void *context);
    /* Receives PyTorch's warnings, one line each, and a warning if the driver offers P2P between
     * the GPUs but no bytes arrive. NULL sends them to stderr. */
    void (*warn)(const char *text, void *context);
};

/* devices[0 .. n) are different and of one kind; params are on devices[0] and have no duet_ddp. All
 * replicas get the buffers, too. Only the first replica's changes to the buffers are kept, so
 * running statistics are those of the first chunk. forward may be called by several threads at
 * once, each with its own tape, in which parameter i is the replica's copy of parameter i. It must
 * not begin a pass, run one backward or call duet_tape_accumulate. options NULL means that every
 * option is 0. Devices and params must outlive the result. */
int duet_data_parallel_create(duet_data_parallel **out, duet_device *const *devices, int n,
                              duet_params *params,
                              duet_var *(*forward)(duet_tape *tape, duet_var *x, void *context),
                              void *context, const struct duet_data_parallel_options *options);
void duet_data_parallel_free(duet_data_parallel *dp);

/* Calls the wrapped model, as model(x): runs forward on all devices, in the current pass of the
 * tape. x is float (N, ...) on devices[0] and must live until backward is done; N may be 0. Returns
 * the output of all N samples, a var of the tape, which is on the output device; on failure NULL,
 * and the tape has the error. A later duet_backward goes back through all replicas and leaves the
 * gradients in params: zeros for a parameter that took no part. The tape may have been begun with
 * params, if it is on devices[0], with other parameters, or without; only the replicas may use
 * params in that pass. Run one backward before the next forward of dp. duet_tape_accumulate adds up
 * passes as usual, and each of them may use dp or not. */
duet_var *duet_data_parallel_call(duet_tape *tape, duet_data_parallel *dp, const duet_tensor *x);

/* Does the same without a tape, for forward_multi and for callers that compute the gradients of the
 * outputs themselves.
 *
 *     static void forward(duet_tape *t, const struct duet_replica *r, duet_var **out, void *c) {
 *         duet_var *each = duet_embedding(t, r->tensors[0], E, -1),
 *                  *words = duet_mean(t, each, (int[]){1}, 1, 0);
 *         out[0] = duet_linear(t, duet_add(t, words, r->x[1]), W, B);              // scores
 *         out[1] = duet_cross_entropy(t, out[0], r->tensors[2], DUET_MEAN, NULL);  // the loss
 *     }
 *     duet_tensor *inputs[3] = {words, images, labels}, *outputs[2], *grads[2];
 *     duet_data_parallel_forward(dp, inputs, 3, outputs, 2, DUET_TRAIN);
 *     ...                                  // grads[1] = 1/R for each of the R losses
 *     duet_data_parallel_backward(dp, grads, 2);           // grads[0] NULL: only the loss
 *
 * inputs[0 .. input_count) are 1 to 16 tensors on devices[0], which are only read and must live
 * until backward is done; with `forward` only x, float (N, ...), where N may be 0. Each input is
 * split along its own rows, whatever its type. Input 0 has the samples; an input with another
 * number of rows enters the tape like a duet_leaf. If an input makes fewer chunks, fewer replicas
 * run. The last chunks of the other inputs are then not used, with a warning, as in PyTorch. Pass
 * data that is the same for all replicas in `context`.
 *
 * outputs[0 .. output_count) become 1 to 16 new float tensors on the output device, which the
 * caller frees. They hold the rows of the replicas one after another. A loss, or any output of one
 * number, becomes a vector with one element for each replica. After a failure all are NULL. */
int duet_data_parallel_forward(duet_data_parallel *dp, duet_tensor *const *inputs, int input_count,
                               duet_tensor **outputs, int output_count, enum duet_pass pass);

/* Call it once after each of these forwards with DUET_TRAIN. It overwrites the gradients of params;
 * a parameter that took no part gets zeros. `count` is the number of outputs. grads[i] is the
 * gradient with respect to outputs[i], of its shape and on its device, and is only read; NULL means
 * that nothing depends on that output. */
int duet_data_parallel_backward(duet_data_parallel *dp, duet_tensor *const *grads, int count);

/* Makes a tensor on devices[0] with the gradient of the last backward with respect to inputs[i],
 * which must be float (x is input 0). It needs input_grad, and no forward since that backward. Rows
 * that no output uses have zeros. */
int duet_data_parallel_input_grad(duet_data_parallel *dp, int i, duet_tensor **grad);

/* ---- model parallelism ---- */

/* x.to(device), for a model in parts on several devices: copies x, a var of the tape `from`, to the
 * tape `to`. Each part has its own tape and parameters; begin all passes in the same way before the
 * first value moves. One duet_backward then goes back through all parts, along every path of the
 * values, and each device's parameters get their gradients. The loss stays on its device.
 *
 *     h = duet_var_to(t1, t0, duet_relu(t0, duet_linear(t0, duet_input(t0, X), W0, B0)));
 *     duet_var *scores = duet_linear(t1, h, W1, B1);
 *     duet_backward(t1, duet_cross_entropy(t1, scores, y, DUET_MEAN, NULL), NULL);
 *
 * The gradients have the bits of the undivided model, unless a value is read three times or more:
 * its gradients may then be added in another order. */
duet_var *duet_var_to(duet_tape *to, duet_tape *from, duet_var *x);

/* For layers split over the ranks of a group (docs/lessons/model_parallel.md). Each has a backward.
 *
 *     to_group     x, the same on all ranks; its gradient is the sum of the ranks' gradients
 *     all_reduce   the sum of the ranks' x; its gradient goes to x unchanged, because it is the
 *                  same on all ranks
 *     all_gather   x (N,M) of all ranks side by side, (N, ranks * M); a rank's x gets its columns
 *                  of the gradient
 *
 * x is float, with the same shape on all ranks. All ranks make the same calls in the same order,
 * including backward. The group must live until the tape's next pass. */
duet_var *duet_var_to_group(duet_tape *tape, duet_group *group, duet_var *x);
duet_var *duet_var_all_reduce(duet_tape *tape, duet_group *group, duet_var *x);
duet_var *duet_var_all_gather(duet_tape *tape, duet_group *group, duet_var *x);

/* ---- when a device computed ----
 *
 * After duet_device_profile(device, 1) an emulated device records when each of its operations and
 * copies ran; with 0 it drops the records and stops. Both wait for the device. DUET_USAGE: the
 * device is a GPU; only the command makes timelines of GPUs (--trace). */
int duet_device_profile(duet_device *device, int on);

/* Waits for the n devices, 1 to DUET_MAX_DEVICES, and writes their spans as a Chrome trace.
 * ui.perfetto.dev opens the file, and `duet report FILE` draws a lane for each device and the
 * bubble between them. */
int duet_devices_timeline(duet_device *const *devices, int n, const char *file);

#ifdef __cplusplus
}
#endif
#endif
