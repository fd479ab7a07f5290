/* duet/core.h: devices with their own memory, tensors on them, and the tape that records a forward
 * pass and runs it backward.
 *
 * This program prints the gradient of a sum of squares, 2 4 6 8:
 *
 *     int main(void) {
 *         float values[] = {1, 2, 3, 4};
 *         duet_device *device;
 *         duet_tensor *x = NULL, *slope = NULL;
 *         duet_tape *tape = NULL;
 *         if (duet_devices_open(&device, 1, "auto", 0)) return DUET_FAILED;
 *         duet_tensor_create(&x, device, DUET_F32, 2, (int[]){4, 1}, values);
 *         duet_tape_create(&tape, device);
 *         duet_tape_begin(tape, NULL, 4, DUET_TRAIN);
 *         duet_var *v = duet_leaf(tape, x);
 *         int code = duet_backward(
 *             tape, duet_sum(tape, duet_multiply(tape, v, v), NULL, 0, 0), NULL);
 *         if (!code) code = duet_var_grad(&slope, tape, v);
 *         if (!code) code = duet_tensor_read(slope, values);
 *         for (int i = 0; i < 4 && !code; i++) printf("%g\n", values[i]);
 *         if (code) fprintf(stderr, "%s\n", duet_error());
 *         duet_tensor_free(slope), duet_tensor_free(x), duet_tape_free(tape);
 *         duet_devices_close(&device, 1);
 *         return duet_exit_status(code);
 *     }
 */
#ifndef DUET_CORE_H
#define DUET_CORE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct duet_device duet_device;
typedef struct duet_tensor duet_tensor;
typedef struct duet_params duet_params;
typedef struct duet_optimizer duet_optimizer;
typedef struct duet_tape duet_tape;
typedef struct duet_var duet_var;
typedef struct duet_rng duet_rng;
typedef struct duet_dataset duet_dataset;
typedef struct duet_loader duet_loader;
typedef struct duet_group duet_group;
typedef struct duet_data_parallel duet_data_parallel;
typedef struct duet_ddp duet_ddp;
typedef struct duet_work duet_work;
typedef struct duet_module duet_module;

enum { DUET_MAX_DEVICES = 64, DUET_MAX_RANK = 8 };

/* ---- errors and time ---- */

enum duet_code {
    DUET_OK = 0,
    DUET_FAILED,  /* something failed at run time */
    DUET_USAGE,   /* an argument is wrong */
    DUET_CHECK,   /* a check of a result failed; only your own programs return it */
    DUET_MEMORY,  /* a device, or the host, is out of memory */
    DUET_TIMEOUT, /* a wait ran past its deadline */
    DUET_PEER     /* another process failed first */
};

/* The version of this header and of the library that the program runs with: "0.3.0". If the number
 * before the second point changes, structs or functions may differ, so programs must be rebuilt.
 * The linker's name of the library, libduet.so.0.3, contains that number. */
#define DUET_VERSION "0.3.0"
const char *duet_version(void);

/* The last error of the calling thread: one line, `what failed: which value: what to do`, without a
 * newline; "" if nothing failed. The string stays valid until the next failure in this thread. */
const char *duet_error(void);

/* The exit status for a program that ends with this code: 0 success, 1 a failure at run time, 2
 * wrong usage, 3 a failed check of a result. */
int duet_exit_status(int code);

/* Seconds on a clock that never goes back; only differences are meaningful. Any thread may call
 * it. */
double duet_time(void);

/* ---- devices ---- */

/* Opens the devices 0 .. n-1 and stores them in devices[0 .. n).
 * kind   "cpu"       emulated devices: each has its own memory, which can run out, and computes in
 *                    the thread that calls
 *        "cpu-async" the same, but computes in its own thread, as a GPU does
 *        "cpu-late"  emulated devices that do their work as late as the rules allow and check that
 *                    no device touches another's memory: slow, for tests of your program
 *        "cuda"      GPUs; with more devices than GPUs, several devices share one
 *        "auto"      "cuda" if there is a GPU, else "cpu"
 * memory_bytes is the memory of each device; 0 takes a default that suits the machine. n is 1 to
 * DUET_MAX_DEVICES. After a failure none of the devices is open and all are NULL. DUET_USAGE: a
 * launcher has started this process as one of several ranks, but the program does not act as a rank
 * (no process group, no duet_spawn, no MPI library), so each rank would do all the work. */
int duet_devices_open(duet_device **devices, int n, const char *kind, uint64_t memory_bytes);
/* Sets each to NULL. Free everything on a device first: a warning on stderr lists what remains. */
void duet_devices_close(duet_device **devices, int n);

/* Opens one device by its number, 0 to DUET_MAX_DEVICES - 1, as a rank of a process group does with
 * its local rank. If there are fewer GPUs than `index`, "cuda" takes GPU `index` modulo their
 * number. Processes that share a GPU or the memory of the host must each give memory_bytes: the
 * default assumes a single process. Close it with duet_devices_close(&device, 1). */
int duet_device_open(duet_device **out, const char *kind, int index, uint64_t memory_bytes);

/* torch.cuda.device_count(): for "cuda" the number of GPUs, otherwise DUET_MAX_DEVICES. 0 means no
 * GPU or an unknown kind; duet_error() says which. */
int duet_device_count(const char *kind);

/* "cpu(0)". The string belongs to the device. */
const char *duet_device_name(const duet_device *device);

/* Waits until all work on the device is done. Returns the first error of that work. */
int duet_device_sync(duet_device *device);

/* Stores the bytes of memory in use on the device, and the largest number so far. Either pointer
 * may be NULL. Any thread may call it. */
int duet_device_memory(const duet_device *device, uint64_t *now, uint64_t *peak);

/* Calls work(context, i) for i = 0 .. n-1 at the same time: i = 0 in the calling thread, every
 * other i in a new thread. Returns when all calls have returned. The result is 0 if all returned 0,
 * else the code of the lowest i that failed, with its error text. Use it to let devices compute
 * side by side; call i then uses device i, and no other call does. n is 1 to DUET_MAX_DEVICES. */
int duet_parallel(int n, int (*work)(void *context, int i), void *context);

/* ---- tensors ---- */

/* float, int32_t, double; IEEE half and bfloat16, as uint16_t in host memory; int64_t, uint8_t. The
 * last four are for process groups and copies; no layer takes them. */
enum duet_type { DUET_F32, DUET_I32, DUET_F64, DUET_F16, DUET_BF16, DUET_I64, DUET_U8 };

/* Makes a tensor on the device. Its elements are copied from `host`, which is row-major and may be
 * reused at once; host = NULL makes zeros. rank is 1 to DUET_MAX_RANK, shape[0] at least 0, and
 * every other size at least 1. DUET_MEMORY: the device is full; the error says what fills it. */
int duet_tensor_create(duet_tensor **out, duet_device *device, enum duet_type type, int rank,
                       const int *shape, const void *host);

/* torch.from_numpy: makes a tensor from the caller's own memory at `host`, row-major, without a
 * copy. The device must be an emulated one, whose memory is the host's; GPUs and "cpu-late" are
 * refused. The memory does not count as the device's, must outlive the tensor and its views, and
 * must be aligned for its type. A collective reads and writes such a tensor in place. `shape` as in
 * duet_tensor_create. */
int duet_tensor_from_host(duet_tensor **out, duet_device *device, enum duet_type type, int rank,
                          const int *shape, void *host);

/* Waits for work that may still use the tensor, then frees it. Its memory stays while views of its
 * rows exist. A tensor that belongs to a duet_params is not freed. */
void duet_tensor_free(duet_tensor *tensor);

duet_device *duet_tensor_device(const duet_tensor *tensor);
enum duet_type duet_tensor_type(const duet_tensor *tensor);
int duet_tensor_rank(const duet_tensor *tensor);
int duet_tensor_dim(const duet_tensor *tensor, int i); /* -1: the last; 0: no dimension i */
size_t duet_tensor_count(const duet_tensor *tensor);   /* the number of elements */

/* Copy all elements to or from host memory: duet_tensor_count elements of the tensor's type. The
 * copy is done when the function returns. */
int duet_tensor_read(const duet_tensor *tensor, void *host);
int duet_tensor_write(duet_tensor *tensor, const void *host);

/* Makes a copy of the tensor on `device`, even if it is the same device. In PyTorch:
 * tensor.to(device, copy=True). */
int duet_tensor_to(duet_tensor **out, const duet_tensor *tensor, duet_device *device);

/* These work in place, in the memory that the first tensor already has.
 *     copy   to[:] = from      any two devices; same shape and type
 *     add    to[:] += from     one device, both float, same shape, two different tensors
 *     scale  tensor[:] *= factor       float */
int duet_tensor_copy(duet_tensor *to, const duet_tensor *from);
int duet_tensor_add(duet_tensor *to, const duet_tensor *from);
int duet_tensor_scale(duet_tensor *tensor, float factor);

/* ---- rows and parts ---- */

/* Makes a view of the rows first .. first+n-1, in PyTorch tensor[first:first+n]: the same memory,
 * not a copy. Every function that takes a tensor also takes a view. n may be 0. Free it like any
 * tensor. The memory lives until the tensor and all its views are freed; a view of a parameter or a
 * gradient ends with its duet_params, and with a duet_ddp a view of a gradient ends at the next
 * duet_tape_begin. */
int duet_tensor_rows(duet_tensor **out, duet_tensor *tensor, int first, int n);

/* torch.cat(tensors, dim): makes a tensor on `device` that joins n tensors along dimension `dim`;
 * dim 0 joins their rows. They may be on different devices. All have one type, and the same shape
 * except in that dimension. NULL tensors are left out, so the result of duet_tensor_scatter can be
 * passed here; at least one is not NULL. n is 1 to 65536. In every function a negative dim counts
 * back from the last dimension, -1. */
int duet_tensor_cat(duet_tensor **out, duet_tensor *const *tensors, int n, duet_device *device,
                    int dim);

/* torch.cuda.comm.scatter(tensor, devices, dim=dim): parts[i] becomes a new tensor on devices[i]
 * with the next rows, or the next part of dimension `dim`. The sizes are those of torch.chunk: each
 * part has rows / n rows, rounded up, and the last part has the rest. Few rows may make fewer than
 * n parts; the other entries of parts are then NULL. A tensor without rows makes n parts without
 * rows. n is 1 to DUET_MAX_DEVICES. After a failure all are NULL. */
int duet_tensor_scatter(duet_tensor **parts, int n, const duet_tensor *tensor,
                        duet_device *const *devices, int dim);

/* ---- the tape ----
 *
 * A forward function reads like the formula, and the tape records how to run it backward:
 *
 *     duet_tape_begin(t, params, 256, DUET_TRAIN);
 *     duet_var *h = duet_relu(t, duet_conv2d(t, duet_input(t, X), W1, b1, NULL));
 *     duet_var *scores = duet_matmul_add(t, duet_flatten(t, h), W2, b2);
 *     code = duet_backward(t, duet_cross_entropy(t, scores, y, DUET_SUM, NULL), NULL);
 *
 * A forward function needs no error checks. The tape keeps its first failure. The function that
 * failed returns NULL, and a function that gets NULL returns NULL. duet_backward and
 * duet_tape_error then return the code of that failure. A var belongs to the tape and is valid
 * until the next duet_tape_begin. */

int duet_tape_create(duet_tape **out, duet_device *device);
void duet_tape_free(duet_tape *tape);

/* Sets the seed of dropout, which is 0 at first. A mask depends on the seed, the number of the
 * device, the number of the training pass, the layer and the element. */
void duet_tape_seed(duet_tape *tape, uint64_t seed);

/* Begins a pass over `samples` samples, which may be 0. params may be NULL: a pass without
 * parameters. The parameters are on the same device as the tape and live until the pass ends. In a
 * pass of DUET_EVALUATE nothing is kept for backward, and dropout does nothing. */
enum duet_pass {
    DUET_EVALUATE,
    DUET_TRAIN,
    DUET_EVALUATE_MODULE /* ddp.module(x): a duet_ddp does not broadcast buffers first, so one rank
                          * may evaluate alone */
};
int duet_tape_begin(duet_tape *tape, duet_params *params, int samples, enum duet_pass pass);

/* From the next pass on, the gradients of `passes` training passes are added up. Each pass has its
 * own backward. After the last of them the gradients are complete, and the optimizer may use them.
 * With 1, the default, each backward overwrites the gradients. With a duet_ddp the ranks sum once
 * for all these passes, as with PyTorch's no_sync. PyTorch scripts divide each loss by `passes`;
 * here scale the gradients before the step instead:
 *
 *     for (int i = 0; i < duet_params_count(params); i++)
 *         duet_tensor_scale(duet_params_grad(params, i), 1.0f / passes);
 *
 * An epoch may end with fewer passes: set the smaller number before the first of them. A call in
 * the middle of such passes drops their sum. */
int duet_tape_accumulate(duet_tape *tape, int passes);

/* The code of the first failure since duet_tape_begin, with its message in duet_error(); DUET_OK if
 * nothing failed. */
int duet_tape_error(duet_tape *tape);

/* Enter a float tensor on the tape's device into the pass. The tensor must live until backward is
 * done. An input has the shape (samples, ...). For a leaf backward also computes a gradient; a pass
 * has at most 16 leaves. A leaf may have any shape. Layers with parameters, dropout and the losses
 * refuse a leaf whose rows are not the samples. */
duet_var *duet_input(duet_tape *tape, const duet_tensor *x);
duet_var *duet_leaf(duet_tape *tape, const duet_tensor *x);

/* The layers, functions and losses of a forward pass are in duet/functions.h. */

/* Waits, then stores the sum of the losses of all samples, whatever the reduction, and the number
 * of samples whose label has the highest score. Either pointer may be NULL. */
int duet_loss_read(duet_tape *tape, duet_var *loss, double *sum, int64_t *right);

/* Runs the tape backward from `root` and writes the gradient of every parameter; a parameter that
 * took no part gets zeros. grad is the gradient with respect to root, a float tensor of its shape,
 * which must live until backward is done. grad may be NULL if root is a loss with the reduction
 * mean or sum, or a var with one element, as from duet_mean. If root is a loss, grad (N) is the
 * gradient of each sample's loss, and the reduction does not matter. If gradients are added up over
 * passes, or over ranks by a duet_ddp, a pass has only one backward. */
int duet_backward(duet_tape *tape, duet_var *root, const duet_tensor *grad);

/* The same from `count` (1 to 16) different vars at once, as torch.autograd.backward(tensors,
 * grad_tensors). grads[i] may be NULL, as for duet_backward. */
int duet_backward_all(duet_tape *tape, duet_var *const *roots, const duet_tensor *const *grads,
                      int count);

/* Copy the value of a var into a new tensor or, after backward, the gradient with respect to a
 * leaf. */
int duet_var_value(duet_tensor **out, duet_tape *tape, duet_var *x);
int duet_var_grad(duet_tensor **out, duet_tape *tape, duet_var *leaf);

#ifdef __cplusplus
}
#endif

#endif
