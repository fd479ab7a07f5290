/* SPDX-License-Identifier: MIT
 *
 * duet.h: Duet as a library.
 *
 * It gives you devices with their own memory, tensors on them, parameters and optimizers, a tape
 * that records a forward pass and runs it backward, random numbers, data and checkpoints. That is
 * enough to write data parallelism yourself. The program examples/lenet_from_scratch.c does so; it
 * is a good place to start reading. `cc program.c $(pkg-config --cflags --libs duet)` builds a
 * program. This one trains a linear layer on three points and prints the loss before each of five
 * steps:
 *
 *     int main(void) {
 *         const struct duet_param net[] = {{"weight", 2, {2, 2}, NULL}, {"bias", 1, {2}, NULL}};
 *         const float points[] = {1, 0, 0, 1, 1, 1};
 *         const int32_t labels[] = {0, 1, 0};
 *         duet_device *device;
 *         duet_params *params = NULL;
 *         duet_tensor *X = NULL, *y = NULL;
 *         duet_tape *tape = NULL;
 *         double sum;
 *         if (duet_devices_open(&device, 1, "auto", 0)) return DUET_FAILED;
 *         int code = duet_params_create(&params, device, net, 2);
 *         if (!code) code = duet_tensor_create(&X, device, DUET_F32, 2, (int[]){3, 2}, points);
 *         if (!code) code = duet_tensor_create(&y, device, DUET_I32, 1, (int[]){3}, labels);
 *         if (!code) code = duet_tape_create(&tape, device);
 *         for (int step = 0; step < 5 && !code; step++) {
 *             duet_tape_begin(tape, params, 3, DUET_TRAIN);
 *             duet_var *scores = duet_linear(tape, duet_input(tape, X), 0, 1);
 *             duet_var *loss = duet_cross_entropy(tape, scores, y, DUET_MEAN, NULL);
 *             code = duet_backward(tape, loss, NULL);
 *             if (!code) code = duet_loss_read(tape, loss, &sum, NULL);
 *             if (!code) code = duet_sgd(params, 0.5, 1);
 *             if (!code) printf("%.4f\n", sum / 3);
 *         }
 *         if (code) fprintf(stderr, "%s\n", duet_error());
 *         duet_tensor_free(X), duet_tensor_free(y), duet_tape_free(tape);
 *         duet_params_free(params), duet_devices_close(&device, 1);
 *         return duet_exit_status(code);
 *     }
 *
 * Programs of several processes use process groups, with the calls of torch.distributed. The
 * library also contains both finished strategies. duet_ddp is DistributedDataParallel around your
 * parameters, and duet_data_parallel is DataParallel around your forward function
 * (examples/ddp_train.c and dp_train.c). You may also describe a model once. duet_command then
 * gives your program the whole command `duet` with this model (examples/my_model.c), and
 * duet_params_create_model gives its parameters to your own training loop.
 *
 * Errors. A function that returns int returns DUET_OK (0) or a code of enum duet_code, and then
 * duet_error() has one line that says what failed. The few that return a number instead say so. A
 * wrong argument is an error and never a crash: a NULL where an object is needed, or a number out
 * of range, is DUET_USAGE. A function without a code then does nothing, or returns 0.
 *
 * Ownership. All objects are opaque. An object that a function hands out through `out` belongs
 * to the caller, who frees it with the matching *_free; after a failure *out is NULL. Every
 * *_free and *_close takes NULL. Free everything that is on a device before you close the
 * device.
 *
 * Tensors are row-major, with the batch as the first dimension. Shapes use these symbols: N
 * samples, C channels, H height, W width, K features. A tensor has at most 2^31 - 1 elements.
 *
 * Threads. Only one thread at a time may use a device and everything on it. Different threads may
 * use different devices at once; a copy between two devices uses both. A device works
 * asynchronously where it can, but you need not care: a function that reads a result waits for it.
 * The library's threads block all signals, so your own threads get them. After fork() the child has
 * none of the library's threads. It may open its own devices, but must not use or close its
 * parent's. */
#ifndef DUET_H
#define DUET_H

#include "duet/core.h"        /* devices, tensors, the tape */
#include "duet/functions.h"   /* the layers, functions and losses of a forward pass */
#include "duet/train.h"       /* parameters, optimizers, data, checkpoints, random numbers */
#include "duet/distributed.h" /* process groups, DistributedDataParallel, SyncBatchNorm */
#include "duet/parallel.h"    /* DataParallel */
#include "duet/rpc.h"         /* remote calls, references */
#include "duet/autograd.h"    /* backward through remote calls, optimizers at the owners */
#include "duet/model.h"       /* a model of your own, and the command for it */

#endif
