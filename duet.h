/* duet.h: Duet as a library.
 *
 * It gives you devices with memory of their own, tensors on them, parameters and optimizers, a
 * tape that records a forward pass and runs it backward, random numbers, data and checkpoints.
 * That is enough to write data parallelism yourself. The program examples/lenet_from_scratch.c
 * does so; it is a good place to start reading. A program is built by
 *
 *     cc program.c $(pkg-config --cflags --libs duet)
 *
 * One training step on one device looks like this:
 *
 *     duet_devices_open(&device, 1, "auto", 0);
 *     duet_params_create(&params, device, description, 2);   // 0: the weights, 1: the biases
 *     duet_tape_create(&tape, device);
 *     duet_tensor_create(&X, device, DUET_F32, 2, (int[]){32, 784}, pixels);
 *     duet_tensor_create(&y, device, DUET_I32, 1, (int[]){32}, labels);
 *
 *     duet_tape_begin(tape, params, 32, DUET_TRAIN);
 *     duet_var *scores = duet_linear(tape, duet_input(tape, X), 0, 1);
 *     duet_backward(tape, duet_cross_entropy(tape, scores, y, DUET_MEAN));
 *     duet_sgd(params, 0.1, 1);
 *
 * For several processes there are process groups, with the calls of torch.distributed. Both
 * finished strategies are here too: duet_ddp is DistributedDataParallel around your parameters,
 * and duet_data_parallel is DataParallel around your forward function (examples/ddp_train.c and
 * dp_train.c). Last, you may describe a model once: duet_command then gives your program the
 * whole command `duet` with this model (examples/my_model.c), and duet_params_create_model gives
 * its parameters to a training loop of your own. This header has all of it in this order.
 *
 * Errors. A function that returns int returns DUET_OK (0) or a code of enum duet_code, and then
 * duet_error() has one line of text that says what failed. The few that return a number instead
 * say so. A wrong argument is an error and never a crash: DUET_USAGE for a NULL where an object
 * is needed and for a number out of range. A function without a code then does nothing, or
 * returns 0.
 *
 * Ownership. All objects are opaque. An object that a function hands out through `out` belongs
 * to the caller, who frees it with the matching *_free; after a failure *out is NULL. Every
 * *_free and *_close takes NULL. Free everything that is on a device before you close the
 * device.
 *
 * Tensors are row-major, with the batch as the first dimension. The letters of a shape: N
 * samples, C channels, H height, W width, K features. A tensor has at most 2^31 - 1 elements.
 *
 * Threads. A device, and all that is on it, may be used by one thread at a time. Different
 * threads may use different devices at once; a copy between two devices uses both. A device
 * works asynchronously where it can, but you need not care: a function that reads a result waits
 * for it. Signals are left to your own threads. After fork() the child has none of the library's
 * threads. It may open devices of its own, but must not use or close those of its parent. */
#ifndef DUET_H
#define DUET_H

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

enum { DUET_MAX_DEVICES = 64, DUET_MAX_RANK = 4 };

/* ---- errors and time ---- */

enum duet_code {
    DUET_OK = 0,
    DUET_FAILED,  /* something failed at run time */
    DUET_USAGE,   /* an argument is wrong */
    DUET_CHECK,   /* a check of a result failed; for your programs, the library never returns it */
    DUET_MEMORY,  /* a device, or the host, is out of memory */
    DUET_TIMEOUT, /* a wait ran past its deadline */
    DUET_PEER     /* another process failed first */
};

/* The last error of the calling thread: one line, `what failed: which value: what to do`, without a
 * newline; "" if there was none. The text stays valid until the next failure in this thread. */
const char *duet_error(void);

/* The exit status with which a program should end after this code: 0 done, 1 failed at run time,
 * 2 wrong usage, 3 a check of the result failed. */
int duet_exit_status(int code);

/* Seconds on a clock that never goes back. Only differences mean something. Any thread may call
 * it. */
double duet_time(void);

/* ---- devices ---- */

/* Opens the devices 0 .. n-1 and stores them in devices[0 .. n).
 *
 * kind   "cpu"       emulated devices: each has its own memory, which can run out, and computes in
 *                    the thread that calls
 *        "cpu-late"  emulated devices that do their work as late as the rules allow and check that
 *                    no device touches another's memory: slow, for tests of your program
 *        "cuda"      GPUs; with more devices than GPUs, several devices share one
 *        "auto"      "cuda" if there is a GPU, else "cpu"
 *
 * memory_bytes is the memory of each device; 0 takes a default that suits the machine. n is 1 to
 * DUET_MAX_DEVICES. After a failure none of the devices is open and all are NULL. */
int duet_devices_open(duet_device **devices, int n, const char *kind, uint64_t memory_bytes);
void duet_devices_close(duet_device **devices, int n); /* sets each to NULL */

/* Opens one device by its number, 0 to DUET_MAX_DEVICES - 1, as a rank of a process group does with
 * its local rank. With a number that no GPU has, "cuda" takes GPU `index` modulo their number.
 * Processes that share a GPU or the memory of the host must each give memory_bytes: the default
 * is that of a device alone. Close it with duet_devices_close(&device, 1). */
int duet_device_open(duet_device **out, const char *kind, int index, uint64_t memory_bytes);

/* torch.cuda.device_count(): the number of GPUs, for "cuda"; of emulated devices there can be
 * DUET_MAX_DEVICES. 0: there is none, or no such kind, and duet_error() says why. */
int duet_device_count(const char *kind);

/* "cpu(0)". The text belongs to the device. */
const char *duet_device_name(const duet_device *device);

/* Waits until all work on the device is done. Returns the first error of that work. */
int duet_device_sync(duet_device *device);

/* Stores the bytes of memory in use on the device, and the largest number there has been. Either
 * pointer may be NULL. Any thread may call it. */
int duet_device_memory(const duet_device *device, uint64_t *now, uint64_t *peak);

/* Calls work(context, i) for i = 0 .. n-1 at the same time: i = 0 in the calling thread, each other
 * in a new thread. Returns when all calls have returned. The result is 0 if all returned 0, else
 * the code of the lowest i that failed, with its error text. Use it to let devices compute side by
 * side; call i then uses device i, and no other call does. n is 1 to DUET_MAX_DEVICES. */
int duet_parallel(int n, int (*work)(void *context, int i), void *context);

/* ---- tensors ---- */

/* float, int32_t, double; IEEE's half and bfloat16, as uint16_t in host memory; int64_t, uint8_t.
 * The last four are for process groups and copies; layers take none of them. */
enum duet_type { DUET_F32, DUET_I32, DUET_F64, DUET_F16, DUET_BF16, DUET_I64, DUET_U8 };

/* Makes a tensor on the device. Its elements are copied from `host`, which is row-major and may be
 * reused at once; host = NULL makes zeros. rank is 1 to DUET_MAX_RANK, shape[0] at least 0, and
 * every other size at least 1. DUET_MEMORY: the device is full; the error says what fills it. */
int duet_tensor_create(duet_tensor **out, duet_device *device, enum duet_type type, int rank,
                       const int *shape, const void *host);

/* Waits for work that may still use the tensor, then frees it; its memory lives on while views of
 * its rows do. Does nothing to a tensor that belongs to a duet_params. */
void duet_tensor_free(duet_tensor *tensor);

duet_device *duet_tensor_device(const duet_tensor *tensor);
enum duet_type duet_tensor_type(const duet_tensor *tensor);
int duet_tensor_rank(const duet_tensor *tensor);
int duet_tensor_dim(const duet_tensor *tensor, int i); /* 0 if there is no dimension i */
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

/* A view of the rows first .. first+n-1, tensor[first:first+n] in PyTorch: no copy, the same
 * memory. Every function that takes a tensor takes it. n may be 0. Free it like any tensor. The
 * memory lives until the tensor and all its views are freed; a view of a parameter or a gradient
 * ends with its duet_params, and one of a gradient with the next duet_tape_begin if there is a
 * duet_ddp. */
int duet_tensor_rows(duet_tensor **out, duet_tensor *tensor, int first, int n);

/* torch.cat: makes a tensor on `device` with the rows of n tensors, at least 1, one after another.
 * They may lie on different devices. All have one type, and the same shape but for the rows. */
int duet_tensor_cat(duet_tensor **out, duet_tensor *const *tensors, int n, duet_device *device);

/* torch.cuda.comm.scatter: parts[i] becomes a new tensor on devices[i] with the next rows. The
 * sizes are those of torch.chunk: each part has rows / n, rounded up, and the last one what is
 * left. Few rows may make fewer parts than n; the rest of parts[0 .. n) is then NULL. Without rows,
 * each part has none. n is 1 to DUET_MAX_DEVICES. After a failure all are NULL. */
int duet_tensor_scatter(duet_tensor **parts, int n, const duet_tensor *tensor,
                        duet_device *const *devices);

/* torch.cuda.comm.gather: as duet_tensor_cat, but parts that are NULL are left out, as they come
 * from duet_tensor_scatter. */
int duet_tensor_gather(duet_tensor **out, duet_tensor *const *parts, int n, duet_device *device);

/* ---- parameters ---- */

/* The description of one parameter. */
struct duet_param {
    const char *name; /* its name in files, as in PyTorch: "W1", "fc1.weight" */
    int rank;         /* 1 to DUET_MAX_RANK */
    int shape[DUET_MAX_RANK];
    const float *values; /* start values in host memory, row-major; NULL: zeros */
};

/* Makes `count` parameters, 1 to 65536, on the device, each with a gradient, which is zero at
 * first. Each name must be UTF-8 of at most 200 bytes, differ from the others, not be
 * "__metadata__" and not begin with "module.", which files use otherwise. Nothing of `params` is
 * used after the call. The layers below name a parameter by its index in `params`. */
int duet_params_create(duet_params **out, duet_device *device, const struct duet_param *params,
                       int count);
void duet_params_free(duet_params *params);

/* The value and the gradient of parameter i: float tensors that belong to `params` and live as long
 * as it does. NULL: there is no parameter i. */
duet_tensor *duet_params_value(duet_params *params, int i);
duet_tensor *duet_params_grad(duet_params *params, int i);
int duet_params_count(const duet_params *params);

/* One step of stochastic gradient descent on every parameter:
 *     value -= (lr / batch_size) * gradient
 * where lr / batch_size is rounded to float once. If the loss is a sum over samples, pass the
 * number of all samples, on all devices, as batch_size; if it is a mean, pass 1. lr is at least 0.
 * The gradients stay as they are. */
int duet_sgd(duet_params *params, double lr, int batch_size);

/* zero_grad: all gradients become 0, and count as PyTorch's None (see duet_optimizer_step). A
 * training step does not need it, since duet_backward overwrites them. It drops what the passes of
 * duet_tape_accumulate and of duet_data_parallel_accumulate have added up so far. */
int duet_zero_grad(duet_params *params);

/* torch.nn.utils.clip_grad_norm_: multiplies all gradients by max_norm / (norm + 1e-6), where
 * that is below 1. norm is the 2-norm of all gradients taken as one vector, as it was before. It
 * is stored in *norm, unless that is NULL. It is summed in double, in the order of the
 * parameters, so it has the same bits on every device and rank. A norm that is not finite is not
 * an error: as in PyTorch, with an infinite norm infinite gradients become NaN and the others 0,
 * and with a norm of NaN all become NaN. max_norm is at least 0. Waits, and reads all gradients
 * into host memory. Call it between duet_backward and the step. */
int duet_clip_grad_norm(duet_params *params, double max_norm, double *norm);

/* A buffer: state of a model that no gradient changes, such as the running statistics of a
 * batch_norm. Those are three buffers in this order; the last may be left out, unless momentum is
 * below 0:
 *
 *     {"bn1.running_mean", DUET_F32, 1, {16}, 0},
 *     {"bn1.running_var", DUET_F32, 1, {16}, 1},
 *     {"bn1.num_batches_tracked", DUET_I64, 0, {0}, 0}
 */
struct duet_buffer {
    const char *name;    /* its name in files, which differs from those of parameters */
    enum duet_type type; /* DUET_F32 or DUET_I64 */
    int rank;            /* 0 to DUET_MAX_RANK; 0: one number */
    int shape[DUET_MAX_RANK];
    double value; /* of all its elements at the start */
};

/* register_buffer: gives the parameters all their buffers, in one call, before a duet_ddp or a
 * duet_data_parallel is made of them. Nothing of `buffers` is used after the call. */
int duet_params_register_buffers(duet_params *params, const struct duet_buffer *buffers, int count);

/* Buffer i, which belongs to `params`; of rank 0 it is a tensor of one element. NULL: there is
 * no buffer i. */
duet_tensor *duet_params_buffer(duet_params *params, int i);

/* Saves all values and buffers as a safetensors file, which appears whole or not at all. */
int duet_params_save(duet_params *params, const char *file);

/* Loads all values and buffers from a safetensors file. The file must have every one of them by its
 * name, with its shape; a prefix "module." of a name in the file is ignored. If anything is
 * missing, no parameter changes. */
int duet_params_load(duet_params *params, const char *file);

/* ---- optimizers ----
 *
 * duet_sgd is a step of plain SGD. The other optimizers remember something from step to step, so
 * they are objects. Their formulas, defaults and names are PyTorch's:
 *
 *     duet_optimizer_defaults(&options, "adamw");
 *     options.weight_decay = 0.1;
 *     duet_optimizer_create(&optimizer, params, &options);
 *     for (int epoch = 0; epoch < 10; epoch++) {
 *         duet_optimizer_set_lr(optimizer, duet_lr_cosine(0.001, 10, epoch));
 *         ...                                  // for each batch: forward, then
 *         duet_backward(tape, loss);
 *         duet_optimizer_step(optimizer);
 *     }
 *
 * The gradients should be those of a mean, that is of a loss with DUET_MEAN. */

struct duet_optimizer_options {
    const char *name;    /* "sgd", "adadelta", "adam" or "adamw" */
    double lr;           /* the learning rate, at least 0 */
    double weight_decay; /* at least 0; adamw: decoupled from the gradient */
    double momentum;     /* sgd: at least 0 */
    double dampening;    /* sgd: a gradient weighs 1 - dampening in the momentum */
    int nesterov;        /* sgd: 1: Nesterov's momentum; it needs momentum, and no dampening */
    double rho;          /* adadelta: 0 to 1 */
    double beta1, beta2; /* adam, adamw: from 0 up to, but not, 1 */
    double eps;          /* adadelta, adam, adamw: at least 0 */
};

/* Fills in the defaults of the optimizer `name`, PyTorch's; sgd has a learning rate of 0.001. The
 * name is kept by its pointer. */
int duet_optimizer_defaults(struct duet_optimizer_options *options, const char *name);

/* Makes an optimizer of these parameters, which must outlive it. It keeps nothing of `options`. An
 * option that is not of its kind is ignored. Momentum takes as much device memory as the
 * parameters, and adadelta, adam and adamw take twice as much. */
int duet_optimizer_create(duet_optimizer **out, duet_params *params,
                          const struct duet_optimizer_options *options);
void duet_optimizer_free(duet_optimizer *optimizer);

/* Updates every parameter from its gradient. The gradients stay as they are. A parameter without a
 * gradient (PyTorch's grad None) and its state stay as they are too, and it counts its own updates.
 * It is one that had no part in the loss of the last duet_backward, of no rank where there is a
 * duet_ddp and of no replica where there is a duet_data_parallel; or all after duet_zero_grad. Its
 * gradient reads as zeros; once the program writes to it, it is a gradient again. */
int duet_optimizer_step(duet_optimizer *optimizer);

/* Sets the learning rate of the next steps, at least 0. */
int duet_optimizer_set_lr(duet_optimizer *optimizer, double lr);

/* The learning rate of an epoch, from that of epoch 0, which is `lr`. Epochs count from 0.
 *     step    as StepLR: multiplied by gamma every `step_size` epochs
 *     cosine  as CosineAnnealingLR with eta_min 0: along half a cosine, to 0 in epoch t_max
 * They are PyTorch's to the bit, as each rate follows from that of the epoch before; so a call
 * takes time in proportion to `epoch`. A wrong argument (step_size or t_max below 1, an epoch
 * below 0 or above 2^24) gives NaN, which duet_optimizer_set_lr refuses. */
double duet_lr_step(double lr, int step_size, double gamma, int epoch);
double duet_lr_cosine(double lr, int t_max, int epoch);

/* ---- the tape ----
 *
 * A forward function reads like the formula, and the tape records how to run it backward:
 *
 *     duet_tape_begin(t, params, 256, DUET_TRAIN);
 *     duet_var *h = duet_relu(t, duet_conv2d(t, duet_input(t, X), W1, b1, 1, 0));
 *     duet_var *scores = duet_matmul_add(t, duet_flatten(t, h), W2, b2);
 *     code = duet_backward(t, duet_cross_entropy(t, scores, y, DUET_SUM));
 *
 * A forward function needs no error checks. The tape keeps its first failure; the function that
 * failed returns NULL, and a function that is given NULL returns NULL. duet_backward and
 * duet_tape_error then return the code of that failure. A var belongs to the tape and is valid
 * until the next duet_tape_begin. */

int duet_tape_create(duet_tape **out, duet_device *device);
void duet_tape_free(duet_tape *tape);

/* Sets the seed of dropout, which is 0 at first. A mask is a function of the seed, the number of
 * the device, the number of the training pass, the layer and the element. */
void duet_tape_seed(duet_tape *tape, uint64_t seed);

/* Begins a pass over `samples` samples, which may be 0, with these parameters, or with none where
 * params is NULL. The parameters are on the same device as the tape and live until the pass ends.
 * In a pass of DUET_EVALUATE nothing is kept for backward, and dropout does nothing. */
enum duet_pass { DUET_EVALUATE, DUET_TRAIN };
int duet_tape_begin(duet_tape *tape, duet_params *params, int samples, enum duet_pass pass);

/* From the next pass on, the gradients of each `passes` training passes are added up. Each pass
 * has a backward of its own; after the last of them the gradients are complete, and the
 * optimizer may use them. With 1, as at first, each backward overwrites them. With a duet_ddp
 * the ranks meet once for all these passes, as with PyTorch's no_sync. Where PyTorch's scripts
 * divide each loss by `passes`, scale the gradients before the step:
 *
 *     for (int i = 0; i < duet_params_count(params); i++)
 *         duet_tensor_scale(duet_params_grad(params, i), 1.0f / passes);
 *
 * An epoch may end with fewer passes: set their number before the first of them. In the middle of
 * such passes this function drops what they have added up. */
int duet_tape_accumulate(duet_tape *tape, int passes);

/* The code of the first failure since duet_tape_begin, with its text in duet_error(); DUET_OK if
 * there was none. */
int duet_tape_error(duet_tape *tape);

/* Enter a float tensor (samples, ...) on the tape's device into the pass. It must live until
 * backward is done. With duet_leaf, backward also computes the gradient with respect to it; there
 * are at most 16 leaves in a pass. duet_free_leaf is a leaf of any shape whose rows are not
 * samples, such as a matrix to multiply by. Layers with parameters, dropout and the losses refuse
 * it; all other functions take it. */
duet_var *duet_input(duet_tape *tape, const duet_tensor *x);
duet_var *duet_leaf(duet_tape *tape, const duet_tensor *x);
duet_var *duet_free_leaf(duet_tape *tape, const duet_tensor *x);

/* Layers with parameters. w and b are indices of parameters of the pass; DUET_NO_BIAS as b of
 * conv2d, linear, matmul_add and the norms of samples adds nothing. x is (N,C,H,W), or for linear
 * and matmul_add (N,K) or (N,...,K), of which each run of K numbers is a row.
 *     conv2d       w (O,C,k,k), b (O)    y (N,O,P,Q), P = (H + 2 padding - k) / stride + 1
 *     linear       w (M,K), b (M)        y (N,M) = x wT + b, as PyTorch's Linear
 *     matmul_add   w (K,M), b (M)        y (N,M) = x w + b, as "Dive into Deep Learning" writes it
 *     batch_norm   w (C), b (C)          of (N,C,H,W) or (N,C). `running`: the buffer with the
 *                  running mean, before that of the running variance; DUET_NO_BUFFERS: none. eps
 *                  is at least 0; momentum below 0 is PyTorch's None, the mean of all batches
 *     layer_norm   w, b (normalized_shape)  of the last `rank` dimensions of x, 1 to 3 of them.
 *                  DUET_NO_WEIGHT as w: elementwise_affine=False. eps: 1e-5 in PyTorch
 *     group_norm   w, b (C)              of (N,C,...): num_groups groups of channels
 *     embedding    w (R,D)               y (N,...,D), the rows of w that `index` names. index is
 *                  int32 (N,...) and must live until backward is done; an index of no row gives NaN
 * Here and below size and stride are 1 to 2^20, and padding is 0 to 2^20. */
enum { DUET_NO_BIAS = -1, DUET_NO_BUFFERS = -1, DUET_NO_WEIGHT = -1 };
duet_var *duet_conv2d(duet_tape *tape, duet_var *x, int w, int b, int stride, int padding);
duet_var *duet_linear(duet_tape *tape, duet_var *x, int w, int b);
duet_var *duet_matmul_add(duet_tape *tape, duet_var *x, int w, int b);
duet_var *duet_batch_norm(duet_tape *tape, duet_var *x, int w, int b, int running, double eps,
                          double momentum);
duet_var *duet_layer_norm(duet_tape *tape, duet_var *x, int rank, const int *normalized_shape,
                          int w, int b, double eps);
duet_var *duet_group_norm(duet_tape *tape, duet_var *x, int num_groups, int w, int b, double eps);
duet_var *duet_embedding(duet_tape *tape, const duet_tensor *index, int w);

/* Layers without parameters.
 *     relu, tanh, sigmoid                of each element; and with PyTorch's defaults
 *                  leaky_relu: negative_slope 0.01; elu: alpha 1; hardtanh: -1, 1; relu6: 0, 6;
 *                  gelu: DUET_GELU, or DUET_GELU_TANH for approximate="tanh"
 *     multiply_number, add_number        x * number, x + number, of each element
 *     abs, exp, log, sqrt, reciprocal, softplus      of each element. With these a loss of one's
 *                  own is a formula: binary_cross_entropy_with_logits is the mean of
 *                  softplus(x) - x * y
 *     pools        no padding            y (N,C,P,Q), P = (H - size) / stride + 1
 *     ..._padded   P = (H + 2 padding - size) / stride + 1, with ceil_mode rounded up. Averages
 *                  count the zeros of the padding, as PyTorch's default does. A padded copy of x
 *                  is made, and kept until backward
 *     pad2d        F.pad(x, (left, right, top, bottom), value=value); negative sides cut off
 *     adaptive     averages or maxima    y (N,C,height,width), cut as AdaptiveAvgPool2d cuts
 *     flatten                            y (N,C*H*W)
 *     reshape      to `rank` dimensions, 2 to 4: the first stays N, or is -1; one other may be -1
 *     narrow       torch.narrow: the places start .. start + length - 1 of dimension `dim`
 *     cat          torch.cat: 1 to 64 vars one behind the other in dimension `dim`. Here and in
 *                  narrow dim is not 0, that of the samples; -1 is the last one
 *     dropout      zeroes each element with probability p and scales the others by 1 / (1 - p);
 *                  dropout2d: each plane
 *     softmax, log_softmax               over the last dimension */
duet_var *duet_relu(duet_tape *tape, duet_var *x);
duet_var *duet_tanh(duet_tape *tape, duet_var *x);
duet_var *duet_sigmoid(duet_tape *tape, duet_var *x);
duet_var *duet_leaky_relu(duet_tape *tape, duet_var *x, double negative_slope);
duet_var *duet_elu(duet_tape *tape, duet_var *x, double alpha);
duet_var *duet_hardtanh(duet_tape *tape, duet_var *x, double min_val, double max_val);
duet_var *duet_relu6(duet_tape *tape, duet_var *x);
enum duet_gelu { DUET_GELU, DUET_GELU_TANH };
duet_var *duet_gelu(duet_tape *tape, duet_var *x, enum duet_gelu approximate);
duet_var *duet_multiply_number(duet_tape *tape, duet_var *x, double number);
duet_var *duet_add_number(duet_tape *tape, duet_var *x, double number);
duet_var *duet_abs(duet_tape *tape, duet_var *x);
duet_var *duet_exp(duet_tape *tape, duet_var *x);
duet_var *duet_log(duet_tape *tape, duet_var *x);
duet_var *duet_sqrt(duet_tape *tape, duet_var *x);
duet_var *duet_reciprocal(duet_tape *tape, duet_var *x);
duet_var *duet_softplus(duet_tape *tape, duet_var *x);
duet_var *duet_avg_pool2d(duet_tape *tape, duet_var *x, int size, int stride);
duet_var *duet_max_pool2d(duet_tape *tape, duet_var *x, int size, int stride);
duet_var *duet_avg_pool2d_padded(duet_tape *tape, duet_var *x, int size, int stride, int padding);
duet_var *duet_max_pool2d_padded(duet_tape *tape, duet_var *x, int size, int stride, int padding,
                                 int ceil_mode);
duet_var *duet_pad2d(duet_tape *tape, duet_var *x, int left, int right, int top, int bottom,
                     double value);
duet_var *duet_adaptive_avg_pool2d(duet_tape *tape, duet_var *x, int height, int width);
duet_var *duet_adaptive_max_pool2d(duet_tape *tape, duet_var *x, int height, int width);
duet_var *duet_flatten(duet_tape *tape, duet_var *x);
duet_var *duet_reshape(duet_tape *tape, duet_var *x, int rank, const int *shape);
duet_var *duet_narrow(duet_tape *tape, duet_var *x, int dim, int start, int length);
duet_var *duet_cat(duet_tape *tape, duet_var *const *vars, int count, int dim);
duet_var *duet_dropout(duet_tape *tape, duet_var *x, double p);
duet_var *duet_dropout2d(duet_tape *tape, duet_var *x, double p);
duet_var *duet_softmax(duet_tape *tape, duet_var *x);
duet_var *duet_log_softmax(duet_tape *tape, duet_var *x);

/* Arithmetic.
 *     add, subtract, multiply            a + b, a - b, a * b
 *     matmul       torch.matmul: (I,K) times (K,J) is (I,J); each may be a vector. With 3 or 4
 *                  dimensions one product for each of the leading ones, as for attention:
 *                  (N,L,K) times (N,K,M) is (N,L,M); or all matrices of one operand with the only
 *                  matrix or vector of the other
 *     sum, mean    of all elements, shape (1); with _dim over dimension `dim` (-1: the last one),
 *                  which the result lacks; with _dims over `count` dimensions, 0 of them being all,
 *                  which the result has with size 1 where keepdim is 1. They are computed in double
 *     transpose, permute                 two dimensions change places; dimension i of the result is
 *                  dimension order[i] of x, as many as x has
 * Shapes are broadcast as in PyTorch, those of matmul in their leading dimensions: compared from
 * the last dimension on, a size of 1 or a missing one fits any size. (N,L,K) + (K), (N,1,K) and
 * (N,L,1) are all (N,L,K). Broadcasting copies the operand; only a matrix or a vector as b of
 * matmul is used where it lies.
 * In a model's forward (struct duet_model) the samples of a batch may lie on several devices. So
 * sum and mean of all elements or over dimension 0, moving that dimension, operands of different
 * rank, and matmul with a matrix or a vector as b, are refused there. */
duet_var *duet_add(duet_tape *tape, duet_var *a, duet_var *b);
duet_var *duet_subtract(duet_tape *tape, duet_var *a, duet_var *b);
duet_var *duet_multiply(duet_tape *tape, duet_var *a, duet_var *b);
duet_var *duet_matmul(duet_tape *tape, duet_var *a, duet_var *b);
duet_var *duet_sum(duet_tape *tape, duet_var *x);
duet_var *duet_mean(duet_tape *tape, duet_var *x);
duet_var *duet_sum_dim(duet_tape *tape, duet_var *x, int dim);
duet_var *duet_mean_dim(duet_tape *tape, duet_var *x, int dim);
duet_var *duet_sum_dims(duet_tape *tape, duet_var *x, const int *dims, int count, int keepdim);
duet_var *duet_mean_dims(duet_tape *tape, duet_var *x, const int *dims, int count, int keepdim);
duet_var *duet_transpose(duet_tape *tape, duet_var *x, int dim0, int dim1);
duet_var *duet_permute(duet_tape *tape, duet_var *x, const int *order);

/* The losses. cross_entropy takes scores (N,M), nll_loss the result of log_softmax. labels are
 * int32 (N), each 0 .. M-1; any other label gives NaN. The value of the var is the loss of each
 * sample, double (N). The reduction says where backward starts: from the mean over the samples of
 * this pass, from their sum, or, with DUET_NONE, from the gradient that you give to
 * duet_backward_from. */
enum duet_reduction {
    DUET_MEAN,
    DUET_SUM,
    DUET_NONE,
    /* of process groups alone, which take the mean and the sum too */
    DUET_PRODUCT,
    DUET_MIN,
    DUET_MAX
};
duet_var *duet_cross_entropy(duet_tape *tape, duet_var *scores, const duet_tensor *labels,
                             enum duet_reduction r);
/* With a part of each target, 0 to 1, spread evenly over all classes. */
duet_var *duet_cross_entropy_smoothed(duet_tape *tape, duet_var *scores, const duet_tensor *labels,
                                      double label_smoothing, enum duet_reduction r);
duet_var *duet_nll_loss(duet_tape *tape, duet_var *log_probabilities, const duet_tensor *labels,
                        enum duet_reduction r);
/* targets: float, shaped as x (N,M). A sample's loss is the mean of its (x - target)^2. */
duet_var *duet_mse_loss(duet_tape *tape, duet_var *x, const duet_tensor *targets,
                        enum duet_reduction r);

/* Waits, then stores the sum of the losses of all samples, whatever the reduction, and how many
 * samples have their highest score at their label. Either pointer may be NULL. */
int duet_loss_read(duet_tape *tape, duet_var *loss, double *sum, int64_t *right);

/* Runs the tape backward from a loss with the reduction mean or sum, or from a var of one
 * number, as duet_mean(...) makes it, and writes the gradient of every parameter; a parameter
 * that took no part gets zeros. Where gradients are added up, over passes or by a duet_ddp over
 * ranks, a pass has one backward. */
int duet_backward(duet_tape *tape, duet_var *loss);

/* Runs the tape backward from any var, given the gradient with respect to it: a float tensor of the
 * same shape, which must live until backward is done. */
int duet_backward_from(duet_tape *tape, duet_var *root, const duet_tensor *grad);

/* The same from `count` different vars at once, 1 to 16, as torch.autograd.backward(tensors,
 * grad_tensors). A grads[i] of NULL: roots[i] is what duet_backward takes. */
int duet_backward_all(duet_tape *tape, duet_var *const *roots, const duet_tensor *const *grads,
                      int count);

/* Copy the value of a var into a new tensor or, after backward, the gradient with respect to a
 * leaf. */
int duet_var_value(duet_tensor **out, duet_tape *tape, duet_var *x);
int duet_var_grad(duet_tensor **out, duet_tape *tape, duet_var *leaf);

/* ---- random numbers: those of PyTorch on the CPU, bit for bit ---- */

int duet_rng_create(duet_rng **out, uint64_t seed); /* torch.manual_seed(seed) */
void duet_rng_free(duet_rng *rng);

/* x[0 .. count) = Tensor.normal_(mean, std), or Tensor.uniform_(from, to), of a float tensor of
 * `count` elements. */
void duet_rng_normal(duet_rng *rng, float *x, size_t count, double mean, double std);
void duet_rng_uniform(duet_rng *rng, float *x, size_t count, double from, double to);

/* x[0 .. count) = torch.randint(low, high, (count,)), of int32 or of int64 numbers: low is at least
 * the type's smallest, and high - 1 at most its largest. The engine gives both types the same
 * numbers. */
int duet_rng_integers(duet_rng *rng, int32_t *x, size_t count, int64_t low, int64_t high);
int duet_rng_integers64(duet_rng *rng, int64_t *x, size_t count, int64_t low, int64_t high);

/* order[0 .. n) = torch.randperm(n), for n below 214748364. */
int duet_rng_permutation(duet_rng *rng, int32_t *order, int n);

/* ---- data ----
 *
 * A data set has samples, and a loader cuts it into batches in host memory:
 *
 *     duet_dataset_open(&set, "fashion-mnist", NULL, 1);
 *     duet_loader_create(&loader, set, 256, 1, 0, 1);
 *     for (int epoch = 0; epoch < 10; epoch++) {
 *         struct duet_batch batch;
 *         duet_loader_start(loader, epoch);
 *         while (!duet_loader_next(loader, &batch) && batch.n)
 *             ...                              // make tensors of batch.X and batch.y, and a step
 *     }
 */

/* Opens the training part (train = 1) or the test part (train = 0) of "fashion-mnist", "mnist" or
 * "synthetic", which needs no files; or "random", 6400 pictures of torch.randn with labels of
 * torch.randint after manual_seed(0), which has no test part. `folder` has the four IDX files, raw
 * or .gz; NULL searches the usual places. DUET_FAILED: the files are broken, or there are none; the
 * error says how to get them. */
int duet_dataset_open(duet_dataset **out, const char *name, const char *folder, int train);
void duet_dataset_free(duet_dataset *set);

/* A data set of your own: arrays, or a function that makes one sample at a time.
 *
 *     struct duet_data data = {.count = 1000, .rank = 1, .shape = {20}, .type = DUET_F32,
 *                              .samples = x, .targets = y, .outputs = 1};
 *     duet_dataset_create(&set, &data);
 *
 * Nothing is copied: arrays and context must outlive the set. */
struct duet_data {
    int count;             /* samples */
    int rank, shape[3];    /* of one sample: 1 to 3 dimensions */
    enum duet_type type;   /* of its elements: DUET_F32, or DUET_U8, which enter as pixels */
    const void *samples;   /* (count, shape), row-major; NULL: `read` makes them */
    const int32_t *labels; /* (count), each at least 0; or */
    const float *targets;  /* (count, outputs) */
    int outputs;           /* numbers of a target; 0: labels */
    int classes;           /* 0: 1 + the largest label, or 1 where `read` makes them */
    /* Writes sample i, 0 to count - 1, to `sample`, and its int32 label or its `outputs` floats to
     * `answer`. The workers of a loader call it at once, so it must not change what they share. It
     * returns 0, or a code with which duet_loader_next then fails. */
    int (*read)(void *context, int i, void *sample, void *answer);
    void *context;
};
int duet_dataset_create(duet_dataset **out, const struct duet_data *data);

/* count: the number of samples. shape: their channels, height and width. For the sets above that is
 * 1, 28, 28 or what the files of `folder` hold; the shape of your own data is filled up with 1.
 * classes: 1 + the largest label, or 0 with targets. Of NULL all are 0. */
int duet_dataset_count(const duet_dataset *set);
void duet_dataset_shape(const duet_dataset *set, int shape[3]);
int duet_dataset_classes(const duet_dataset *set);

/* Makes a loader, which cuts a data set into batches. The set must outlive the loader. With
 * shuffle, each epoch has its own order, the one of PyTorch's DistributedSampler for this seed. The
 * last batch of an epoch may be smaller. `workers` threads prepare batches ahead; with 0 workers
 * duet_loader_next prepares each batch itself. */
int duet_loader_create(duet_loader **out, const duet_dataset *set, int batch_size, int shuffle,
                       uint64_t seed, int workers);

/* The batches of one rank of `world_size`: those of PyTorch's DataLoader(set, batch_size,
 * sampler=DistributedSampler(set, world_size, rank, shuffle, seed, drop_last)). batch_size is that
 * of each rank. The order of an epoch is padded with its first samples until it divides by the
 * ranks, or with drop_last cut, and then a last batch that is not full is left out too. */
int duet_loader_create_distributed(duet_loader **out, const duet_dataset *set, int batch_size,
                                   int shuffle, int drop_last, uint64_t seed, int workers, int rank,
                                   int world_size);

/* The same with all options, also for data of your own:
 *
 *     duet_loader_create_from(&loader, set, &(struct duet_loader_options){
 *         .batch_size = 32, .shuffle = DUET_SHUFFLE, .rank = rank, .world_size = n});
 *
 * This loader warns of two traps, in one line each. At the start rank 0 says how many samples
 * are served twice in every epoch, because their number does not divide by that of the ranks.
 * And the first time that the same epoch begins twice in a row, a line says that the order of
 * samples is the same again: somebody forgot set_epoch. */
enum duet_shuffle {
    DUET_IN_ORDER,
    DUET_SHUFFLE, /* DistributedSampler's order for this seed and epoch */
    /* DataLoader(shuffle=True) after torch.manual_seed(seed), for a world of 1 */
    DUET_SHUFFLE_RANDOM
};
struct duet_loader_options {
    int batch_size; /* of each rank */
    enum duet_shuffle shuffle;
    uint64_t seed;
    int drop_last;        /* 1: the order is cut, and so is a last batch that is not full */
    int workers;          /* threads that prepare batches ahead */
    int rank, world_size; /* world_size 0: 1 */
    /* Bytes enter as (byte / 255 - mean) / std, as by torchvision's Normalize: [0] alone for all
     * channels, or three for three. std[0] = 0: they stay 0 to 1. */
    double mean[3], std[3];
    void (*warn)(const char *text, void *context); /* is given the warnings; NULL: stderr */
    void *context;
};
int duet_loader_create_from(duet_loader **out, const duet_dataset *set,
                            const struct duet_loader_options *options);

/* How many samples an epoch serves twice, over all ranks. */
int duet_loader_duplicates(const duet_loader *loader);
void duet_loader_free(duet_loader *loader);
int duet_loader_steps(const duet_loader *loader); /* the number of batches in an epoch */

struct duet_batch {
    int n;                /* the number of samples */
    const float *X;       /* (n,channels,height,width), each pixel 0 to 1; numbers as they are */
    const int32_t *y;     /* (n), the labels; NULL where there are targets */
    int shape[3];         /* of each picture: channels, height, width */
    const float *targets; /* (n,outputs); NULL where there are labels */
    int outputs;
};

/* start begins an epoch; epochs count from 0. next fills `batch`; after the last batch, n is 0. The
 * memory of a batch belongs to the loader and stays valid until the next call. */
int duet_loader_start(duet_loader *loader, int epoch);
int duet_loader_next(duet_loader *loader, struct duet_batch *batch);

/* ---- checkpoints ----
 *
 * A checkpoint holds all that a program needs to go on with the bits of a program that was not
 * interrupted:
 *
 *     struct duet_checkpoint c = {.params = params, .optimizer = optimizer, .tape = tape};
 *     if (resume) duet_checkpoint_load(&c, "run.ckpt");
 *     for (; c.epoch < 10; c.epoch++) {
 *         duet_optimizer_set_lr(optimizer, duet_lr_cosine(0.001, 10, c.epoch));
 *         duet_loader_start(loader, c.epoch);
 *         ...                                  // the batches of the epoch
 *         struct duet_checkpoint next = c;
 *         next.epoch++;                        // where a program that loads it begins
 *         if (rank == 0) duet_checkpoint_save(&next, "run.ckpt");
 *     }
 *
 * The file is a safetensors file: values and buffers under their names, as duet_params_load reads
 * them, and beside them the optimizer's state, as --checkpoint of the command writes it. Of several
 * ranks one saves and all load. The order of samples follows from the loader's seed and the epoch,
 * so nothing of a loader is kept. The masks of dropout inside a duet_data_parallel are not kept
 * either: they begin anew. */
struct duet_checkpoint {
    duet_params *params;
    duet_optimizer *optimizer; /* of these parameters; NULL: there is none, as with duet_sgd */
    duet_tape *tape;           /* its number of training passes, for dropout; NULL: none */
    int epoch;                 /* where the program is, as it counts: kept and given back */
    int64_t step;
};

/* Saves all of it; the file appears whole or not at all. Call it between two updates: gradients
 * are not kept. */
int duet_checkpoint_save(const struct duet_checkpoint *checkpoint, const char *file);

/* Loads it into params, optimizer and tape, which must be made like those saved, and fills
 * in epoch and step. The optimizer gets its learning rate back too; its other options stay those
 * it was made with. After DUET_FAILED or DUET_USAGE nothing has changed. */
int duet_checkpoint_load(struct duet_checkpoint *checkpoint, const char *file);

/* ---- process groups: torch.distributed ----
 *
 * Several processes, the ranks, that compute together; each has devices and tensors of its own.
 * They come from the program itself, as with torch.multiprocessing.spawn:
 *
 *     static int work(int rank, void *context) {
 *         duet_group *group;
 *         if (duet_group_init(&group, 0)) return DUET_FAILED;
 *         duet_device_open(&device, "auto", duet_group_local_rank(group), 0);
 *         ...
 *         int code = duet_all_reduce(group, tensor, DUET_SUM, NULL);
 *         duet_group_destroy(&group);
 *         return code;
 *     }
 *
 *     int main(void) { return duet_exit_status(duet_spawn(4, work, NULL)); }
 *
 * Or `duet run`, torchrun, mpirun or n shells start them, with RANK and WORLD_SIZE in the
 * environment of each. All ranks are on one machine. Of jobs that are started by hand at the
 * same time each needs a MASTER_PORT of its own; no port is opened, it is a name.
 *
 * Calls are collective: all ranks of the group make the same calls in the same order, each with
 * a tensor of the same type and size. The ranks that differ are told so, and a rank that does
 * not come is named when the timeout has passed. After any error but DUET_USAGE the job has
 * failed: all that is left is to destroy the group and to end.
 *
 * The last argument of a call is its handle. NULL: the call returns when its result is there
 * (async_op=False). Else it returns at once, and *work is to be waited for; until then the
 * tensors must be neither used nor freed.
 *
 * Terms are added in one fixed order, whatever the number of elements, so all ranks get the same
 * bits, run after run. DUET_MEAN multiplies each term by 1/n before it is added; it takes floats
 * of any width. Sums of 16-bit floats are rounded after each addition, and integers wrap around.
 *
 * Threads: one thread at a time uses a group. */

enum { DUET_ANY_SOURCE = -1 };

/* Starts n processes, each of which runs work(rank, context) on a copy of this program, and waits
 * for all of them. work returns a code of enum duet_code, and has destroyed its group. If a rank
 * fails, the others are ended, and the result is the first failure. Call it while no device
 * and no group is open (else DUET_USAGE), and while no other thread runs. */
int duet_spawn(int n, int (*work)(int rank, void *context), void *context);

/* init_process_group: waits until all ranks have come. timeout_s: after how many seconds a wait
 * fails; 0: 300. A process that duet_spawn started can do so once. */
int duet_group_init(duet_group **out, double timeout_s);

/* new_group: a group of n ranks of `world`, the group of all ranks, which numbers them 0 .. n-1 in
 * the order of the list. All ranks of `world` call it with the same arguments; on those that are
 * not in the list *out becomes NULL. timeout_s 0: that of `world`. It may outlive `world`. */
int duet_group_new(duet_group **out, duet_group *world, const int *ranks, int n, double timeout_s);

/* Ends the calls under way, leaves the group and sets *group to NULL. Waits for no other rank. Free
 * the handles of its calls before. */
void duet_group_destroy(duet_group **group);

/* The rank in this group, the number of its ranks, the rank on this machine (for the choice of a
 * device), and the rank in the job of rank `rank` of the group. Of NULL: -1. */
int duet_group_rank(const duet_group *group);
int duet_group_size(const duet_group *group);
int duet_group_local_rank(const duet_group *group);
int duet_group_global_rank(const duet_group *group, int rank);

/* The collectives. n: the size of the group.
 *     broadcast        every rank's tensor becomes that of `root`
 *     reduce           the root's tensor becomes the sum; the others stay as they are
 *     all_reduce       every rank's tensor becomes the sum
 *     gather           output (n times as many elements) on the root: the tensors of all ranks, one
 *                      after another; NULL elsewhere
 *     all_gather       the same on every rank
 *     scatter          input (n times as many) on the root, NULL elsewhere: output becomes part
 *                      number `rank` of it
 *     reduce_scatter   the sum of the inputs, of which each rank gets part number `rank`
 *     all_to_all       output part r becomes part number `rank` of rank r's input (same size)
 * "Sum" stands for op: DUET_SUM, DUET_PRODUCT, DUET_MIN, DUET_MAX or DUET_MEAN. A tensor may be
 * a view of rows. An output must not overlap its input, but some calls work in place: the output
 * may be the input itself; the input of all_gather and gather may be this rank's part of the
 * output; the output of reduce_scatter and scatter may be this rank's part of the input. */
int duet_barrier(duet_group *group, duet_work **work);
int duet_broadcast(duet_group *group, duet_tensor *tensor, int root, duet_work **work);
int duet_reduce(duet_group *group, duet_tensor *tensor, int root, enum duet_reduction op,
                duet_work **work);
int duet_all_reduce(duet_group *group, duet_tensor *tensor, enum duet_reduction op,
                    duet_work **work);
int duet_gather(duet_group *group, duet_tensor *output, const duet_tensor *input, int root,
                duet_work **work);
int duet_all_gather(duet_group *group, duet_tensor *output, const duet_tensor *input,
                    duet_work **work);
int duet_scatter(duet_group *group, duet_tensor *output, const duet_tensor *input, int root,
                 duet_work **work);
int duet_reduce_scatter(duet_group *group, duet_tensor *output, const duet_tensor *input,
                        enum duet_reduction op, duet_work **work);
int duet_all_to_all(duet_group *group, duet_tensor *output, const duet_tensor *input,
                    duet_work **work);

/* The same with parts of different lengths. Split sizes count rows of dimension 0, one entry for
 * each rank; NULL: equal parts. What rank a gives to rank b must be as long as b expects, else all
 * ranks are told which two differ.
 *     all_to_all       all_to_all_single with output_split_sizes and input_split_sizes
 *     all_gather       output is the inputs of all ranks, of which rank r's has
 *                      output_split_sizes[r] rows
 *     gather           the same on the root alone; output and sizes are NULL elsewhere
 *     scatter          output becomes part number `rank` of the root's input, of which rank r gets
 *                      input_split_sizes[r] rows; input and sizes are NULL elsewhere
 *     reduce_scatter   rank r gets the sum of part r, input_split_sizes[r] rows */
int duet_all_to_all_uneven(duet_group *group, duet_tensor *output, const duet_tensor *input,
                           const int *output_split_sizes, const int *input_split_sizes,
                           duet_work **work);
int duet_all_gather_uneven(duet_group *group, duet_tensor *output, const duet_tensor *input,
                           const int *output_split_sizes, duet_work **work);
int duet_gather_uneven(duet_group *group, duet_tensor *output, const duet_tensor *input,
                       const int *output_split_sizes, int root, duet_work **work);
int duet_scatter_uneven(duet_group *group, duet_tensor *output, const duet_tensor *input,
                        const int *input_split_sizes, int root, duet_work **work);
int duet_reduce_scatter_uneven(duet_group *group, duet_tensor *output, const duet_tensor *input,
                               const int *input_split_sizes, enum duet_reduction op,
                               duet_work **work);

/* Bytes of any length, which the other ranks need not know beforehand: what Python sends as an
 * object. Each object that a call brings lies in memory of its own, which the caller frees by
 * free(). After a failure there is nothing to free.
 *     broadcast_object_list   the root's `count` objects; on other ranks `list` is overwritten
 *     all_gather_object       list[r] becomes rank r's object, its own included
 *     gather_object           the same on the root alone; list is NULL elsewhere
 *     scatter_object_list     *object becomes list[rank] of the root; list is NULL elsewhere
 *     send_object_list        `count` objects to rank `to`, where recv_object_list with the same
 *                             count overwrites `list`. from DUET_ANY_SOURCE: of the first rank that
 *                             sends; *source, unless NULL, says which. They are messages like those
 *                             of duet_send, of tag 0 */
struct duet_object {
    void *data;
    size_t bytes;
};
int duet_broadcast_object_list(duet_group *group, struct duet_object *list, int count, int root);
int duet_all_gather_object(duet_group *group, struct duet_object *list,
                           const struct duet_object *object);
int duet_gather_object(duet_group *group, struct duet_object *list,
                       const struct duet_object *object, int root);
int duet_scatter_object_list(duet_group *group, struct duet_object *object,
                             const struct duet_object *list, int root);
int duet_send_object_list(duet_group *group, const struct duet_object *list, int count, int to);
int duet_recv_object_list(duet_group *group, struct duet_object *list, int count, int from,
                          int *source);

/* Messages from one rank to one other, which arrive in the order in which they were sent. A
 * short message is on its way when send returns; a long one waits for its receiver. With from =
 * DUET_ANY_SOURCE a receive takes the first message that comes, from any rank, and *source says
 * which rank sent it. source may be NULL, and with a handle it must be: see duet_work_source. */
int duet_send(duet_group *group, const duet_tensor *tensor, int to, duet_work **work);
int duet_recv(duet_group *group, duet_tensor *tensor, int from, int *source, duet_work **work);

/* The same with a tag, 0 or more (without one: 0): a receive takes the first message of its tag.
 * Messages of other tags wait for their receives meanwhile, in memory of the receiver. */
int duet_send_tag(duet_group *group, const duet_tensor *tensor, int to, int tag, duet_work **work);
int duet_recv_tag(duet_group *group, duet_tensor *tensor, int from, int tag, int *source,
                  duet_work **work);

/* A barrier that finds out who does not come within timeout_s: rank 0 names all missing ranks, or
 * with all = 0 the first one. */
int duet_monitored_barrier(duet_group *group, double timeout_s, int all);

/* The handle of a call. wait returns the code of the call when it has ended. done returns 1 if
 * it has ended, and never waits. source returns the rank that a recv came from, once it was
 * waited for. free waits too. */
int duet_work_wait(duet_work *work);
int duet_work_done(duet_work *work);
int duet_work_source(const duet_work *work);
void duet_work_free(duet_work *work);

/* ---- DistributedDataParallel ----
 *
 * A duet_ddp is made around the parameters of each rank. From then on the gradients that
 * duet_backward leaves are averages over the ranks, which are summed in buckets while backward
 * still runs. All else stays as in a program of one process:
 *
 *     duet_ddp_create(&ddp, group, params, NULL);
 *     for (...) {                                     // on every rank, with samples of its own
 *         duet_tape_begin(tape, params, n, DUET_TRAIN);
 *         ...
 *         duet_backward(tape, loss);                  // the ranks meet here
 *         duet_sgd(params, 0.1, 1);
 *     }
 *     duet_ddp_free(ddp);
 *
 * All ranks do the same number of training passes, or end with duet_ddp_join. A parameter that
 * has no part in the loss of some rank makes the next duet_tape_begin fail, in PyTorch's words,
 * unless find_unused_parameters is set. After an error the job has failed, as in process groups. */
enum duet_join { DUET_JOIN_OFF, DUET_JOIN, DUET_JOIN_ACTIVE, DUET_JOIN_THROW };
struct duet_ddp_options {
    double bucket_cap_mb;       /* size of a bucket in MiB; 0: PyTorch's 25, the first one 1 */
    const char *allreduce;      /* as --allreduce of the command; NULL: auto */
    int find_unused_parameters; /* 1: a pass may leave parameters out: each step is slower */
    int no_overlap;             /* 1: sums only after backward, to see what the overlap is worth */
    int no_broadcast_buffers;   /* 1: broadcast_buffers=False: each rank keeps its own buffers */
    enum duet_join join;        /* see duet_ddp_join */
};

/* Collective. Copies the values and buffers of rank 0 to all ranks and checks that all have
 * parameters of the same shapes and were given the same options; NULL: zeros. `group` must be that
 * of all ranks; it and the parameters must outlive the ddp.
 *
 * From then on rank 0's buffers go to all ranks before each forward that follows one whose
 * gradients were averaged, be it in training or in evaluation. So where there are buffers, all
 * ranks must evaluate, as in PyTorch; a rank that does so alone waits until the timeout. */
int duet_ddp_create(duet_ddp **out, duet_group *group, duet_params *params,
                    const struct duet_ddp_options *options);
void duet_ddp_free(duet_ddp *ddp); /* collective, unless the job has failed */

/* The number of buckets: one in the first step, which finds out the order of the gradients. */
int duet_ddp_buckets(const duet_ddp *ddp);

/* Uneven inputs, as PyTorch's `with model.join()`. With options.join each rank calls it after its
 * last pass. A rank that calls it early shadows the passes of the others, with gradients of zero,
 * until all have come. Then all ranks get the parameters and buffers of one rank: of those that
 * trained longest, the one with the highest number. The state of an optimizer is not copied.
 *     DUET_JOIN          sums are divided by the number of all ranks
 *     DUET_JOIN_ACTIVE   by that of those that still have batches:
 *                        divide_by_initial_world_size=False
 *     DUET_JOIN_THROW    the job ends where some ranks have batches and others have none
 * Each step is slower with it. With SyncBatchNorm only DUET_JOIN_THROW is allowed. */
int duet_ddp_join(duet_ddp *ddp);

/* A communication hook takes the place of the average of a bucket: register_comm_hook.
 * duet_backward calls it, in the thread of duet_backward, for each bucket as soon as the bucket's
 * gradients are there, in the same order on all ranks. What `gradients` holds when the hook returns
 * DUET_OK is the gradient, so the hook itself divides by the number of ranks. Any other code ends
 * the job with the text of duet_error().
 *
 *     static int hook(const struct duet_bucket *bucket, void *context) {
 *         return duet_all_reduce(bucket->group, bucket->gradients, DUET_MEAN, NULL);
 *     }
 *
 * If the hook begins the call with a handle, &work, and returns
 * duet_bucket_then(bucket, work, NULL, NULL), backward goes on meanwhile. It stands for PyTorch's
 * Future. At its end duet_backward goes through the buckets: it waits for the work, which may be
 * NULL, calls then(bucket, state), unless `then` is NULL, and frees the handle. `then` may begin
 * another call and return duet_bucket_then once more. `bucket` is valid until all that is done;
 * these functions take that very pointer, and no copy of what it points to. */
struct duet_bucket {
    int index;              /* from 0 */
    int is_last;            /* 1: the last of this backward */
    size_t count;           /* elements, with a few zeros between parameters */
    duet_tensor *gradients; /* float (count): those of this rank. Belongs to the ddp */
    duet_group *group;      /* of the ddp */
};
int duet_bucket_then(const struct duet_bucket *bucket, duet_work *work,
                     int (*then)(const struct duet_bucket *bucket, void *state), void *state);

/* Registers a hook: once for each ddp, before the first step, and the same on all ranks. The first
 * step finds out a rank that has none, or that alone has one. */
int duet_ddp_register_comm_hook(duet_ddp *ddp,
                                int (*hook)(const struct duet_bucket *bucket, void *context),
                                void *context);

/* Hooks that come with Duet, to be registered with context NULL: the plain average, and PyTorch's
 * fp16_compress_hook and bf16_compress_hook. The last two round each gradient to 16 bits, divide by
 * the number n of ranks and then sum, and round to 16 bits after each step. So they err by at most
 * (n + 2) u times the mean of |gradient| over the ranks, where u is 2^-11 for fp16 and 2^-8 for
 * bf16. In fp16, numbers below 6e-5 err by up to (n + 1) 2^-24, and numbers beyond 65504 become
 * infinite. */
int duet_allreduce_hook(const struct duet_bucket *bucket, void *context);
int duet_fp16_compress_hook(const struct duet_bucket *bucket, void *context);
int duet_bf16_compress_hook(const struct duet_bucket *bucket, void *context);

/* SyncBatchNorm: collective, once. From then on every duet_batch_norm in a training pass with
 * these parameters normalises over the samples of all ranks, and the running statistics are
 * theirs. A rank may have any number of samples, 0 too. `group` must be that of all ranks.
 * duet_params_free then is collective, unless the job has failed, and must come before
 * duet_group_destroy. */
int duet_convert_sync_batchnorm(duet_params *params, duet_group *group);

/* ---- DataParallel ----
 *
 * One process, several devices: each forward cuts the samples among the devices, copies the
 * parameters to all of them, runs your forward function on each in a thread of its own, and gathers
 * the outputs; each backward sums the gradients on the first device. In PyTorch:
 * nn.DataParallel(model, device_ids, output_device).
 *
 *     duet_data_parallel_create(&dp, devices, n, params, forward, context, NULL);
 *     for (...) {
 *         duet_data_parallel_forward(dp, x, &output, DUET_TRAIN);
 *         duet_tape_begin(tape, NULL, N, DUET_TRAIN);           // a tape on the output device
 *         duet_var *y = duet_leaf(tape, output);
 *         duet_backward(tape, duet_cross_entropy(tape, y, labels, DUET_MEAN));
 *         duet_var_grad(&grad, tape, y);
 *         duet_data_parallel_backward(dp, grad);                // into the gradients of params
 *         duet_sgd(params, 0.1, 1);
 *         duet_tensor_free(grad);
 *         duet_tensor_free(output);
 *     }
 *     duet_data_parallel_free(dp);
 *
 * Samples are cut as torch.chunk cuts: 10 over 4 devices are 3 3 3 1, and 9 are 3 3 3 0. A device
 * without samples calls no forward, and its gradients count as zeros. The n gradients are added in
 * the fold order of docs/design.md, whatever the devices: each sum has the bits of the same chunks
 * on one device, added in that order. One pass over all samples on one device adds in another
 * order, and so differs in the last bits.
 *
 * Where replicas fail, all threads come to an end first. Then the call returns the code of the
 * lowest replica that failed, and "Caught RuntimeError in replica 1 on device 1. " stands before
 * its text; the parameters stay, the gradients are undefined. After DUET_TIMEOUT every later call
 * fails, duet_data_parallel_free frees nothing, and devices and parameters must stay open.
 *
 * Threads: one thread makes all calls. Meanwhile the library's threads use all devices. */
struct duet_data_parallel_options {
    int output_device; /* gathers outputs or losses: its place in devices[0 .. n) */
    uint64_t seed;     /* of dropout */
    int input_grad;    /* 1: backward also computes the gradient with respect to x */
    double timeout_s;  /* how long a replica may take for forward or backward; 0: 300 */
    /* For duet_data_parallel_loss: the loss of a replica, with DUET_MEAN or DUET_SUM, from the
     * output of forward and the replica's rows of y. NULL: that function is not used. */
    duet_var *(*loss)(duet_tape *tape, duet_var *output, const duet_tensor *y, void *context);
    /* Is given PyTorch's warnings, and one where the driver advertises P2P between the GPUs that
     * moves no bytes; a line each. NULL: they go to stderr. */
    void (*warn)(const char *text, void *context);
};

/* devices[0 .. n) are different and of one kind; params are on devices[0] and have no duet_ddp.
 * Their buffers go to all replicas too; what the first replica does to them stays, and what the
 * others do is lost: running statistics are those of the first chunk.
 * forward may be called by several threads at once, each with a tape of its own, in which parameter
 * i is the replica's copy of parameter i. It must not begin a pass, run one backward or call
 * duet_tape_accumulate. options NULL: zeros. Devices and params must outlive the result. */
int duet_data_parallel_create(duet_data_parallel **out, duet_device *const *devices, int n,
                              duet_params *params,
                              duet_var *(*forward)(duet_tape *tape, duet_var *x, void *context),
                              void *context, const struct duet_data_parallel_options *options);
void duet_data_parallel_free(duet_data_parallel *dp);

/* x: float (N, ...) on devices[0], which must live until backward is done; N may be 0. *output is a
 * new tensor on the output device, and the caller's: the rows of the replicas' outputs one below
 * the other, (N, ...) as a rule. */
int duet_data_parallel_forward(duet_data_parallel *dp, const duet_tensor *x, duet_tensor **output,
                               enum duet_pass pass);

/* The same with the loss in forward. y: labels or targets of the N samples, on devices[0]; it must
 * live as long as x. *losses is a new tensor, double (R), on the output device: the loss of each of
 * the R replicas that had samples, the mean or the sum over its own. */
int duet_data_parallel_loss(duet_data_parallel *dp, const duet_tensor *x, const duet_tensor *y,
                            duet_tensor **losses, enum duet_pass pass);

/* Once after each of these forwards with DUET_TRAIN. Overwrites the gradients of params; a
 * parameter that took no part gets zeros. After duet_data_parallel_forward: grad is the gradient
 * with respect to the output, of its shape and on its device, and is only read. After
 * duet_data_parallel_loss: grad is NULL, and backward starts from the mean of the R losses, as
 * losses.mean().backward() does. That weighs replicas alike, not samples. */
int duet_data_parallel_backward(duet_data_parallel *dp, const duet_tensor *grad);

/* From the next forward with DUET_TRAIN on, the gradients of `passes` backwards are added up: each
 * leaves the sum so far, as PyTorch's does, until duet_zero_grad. 1, as at first: each overwrites
 * them. More than 1 takes as much memory as the parameters on devices[0]. */
int duet_data_parallel_accumulate(duet_data_parallel *dp, int passes);

/* With input_grad, between a backward and the next forward: the gradient of that backward with
 * respect to x, a new tensor of its shape on devices[0]. */
int duet_data_parallel_input_grad(duet_data_parallel *dp, duet_tensor **grad);

/* Several inputs and outputs: forward(*args) that returns a tuple.
 *
 *     static void forward(duet_tape *t, const struct duet_replica *r, duet_var **out, void *c) {
 *         duet_var *words = duet_mean_dim(t, duet_embedding(t, r->tensors[0], E), 1);
 *         out[0] = duet_linear(t, duet_add(t, words, r->x[1]), W, B);         // scores
 *         out[1] = duet_cross_entropy(t, out[0], r->tensors[2], DUET_MEAN);   // the loss
 *     }
 *     const duet_tensor *inputs[3] = {words, pictures, labels}, *grads[2];
 *     duet_tensor *outputs[2];
 *     duet_data_parallel_create_multi(&dp, devices, n, params, forward, context, NULL);
 *     duet_data_parallel_forward_multi(dp, inputs, 3, outputs, 2, DUET_TRAIN);
 *     ...                                  // grads[1] = 1/R for each of the R losses
 *     duet_data_parallel_backward_multi(dp, grads, 2);     // grads[0] NULL: the loss alone
 *
 * Each input is cut by its own rows, whatever its type. Those with other numbers of rows than input
 * 0, which has the samples, enter the tape as duet_free_leaf does. Where they make fewer chunks,
 * there are fewer replicas, and the rows of the others' last chunks are not used, with a warning;
 * PyTorch does so too. What is the same for all replicas comes with `context`. */
struct duet_replica {
    int index;                         /* its place in devices[0 .. n) */
    int inputs, outputs;               /* how many there are */
    const duet_tensor *const *tensors; /* [inputs] the replica's rows of each input */
    duet_var *const *x;                /* [inputs] the same on the tape; NULL: it is not float */
};

/* As duet_data_parallel_create. forward stores each of its outputs: a float var, or a loss with
 * DUET_MEAN or DUET_SUM. options->loss is NULL. */
int duet_data_parallel_create_multi(duet_data_parallel **out, duet_device *const *devices, int n,
                                    duet_params *params,
                                    void (*forward)(duet_tape *tape,
                                                    const struct duet_replica *replica,
                                                    duet_var **outputs, void *context),
                                    void *context,
                                    const struct duet_data_parallel_options *options);

/* inputs[0 .. input_count): 1 to 16 tensors on devices[0], which must live until backward is done.
 * outputs[0 .. output_count), 1 to 16: new float tensors on the output device, the caller's: the
 * rows of the replicas, however many each has. Losses, and what else is one number in each of the R
 * replicas, become a vector (R). After a failure all of them are NULL. */
int duet_data_parallel_forward_multi(duet_data_parallel *dp, const duet_tensor *const *inputs,
                                     int input_count, duet_tensor **outputs, int output_count,
                                     enum duet_pass pass);

/* As duet_data_parallel_backward. grads[i] is shaped as outputs[i], and is on its device; NULL:
 * nothing depends on that output. `count` is the number of outputs. */
int duet_data_parallel_backward_multi(duet_data_parallel *dp, const duet_tensor *const *grads,
                                      int count);

/* As duet_data_parallel_input_grad, of inputs[i], a float one. Rows that were not used have zeros:
 * they are in no output. */
int duet_data_parallel_input_grad_of(duet_data_parallel *dp, int i, duet_tensor **grad);

/* The replicas that took part in the last forward; before it: n. */
int duet_data_parallel_replicas(const duet_data_parallel *dp);

/* ---- a model of your own, and the command for it ----
 *
 * Describe the model, write its forward function, and hand both to duet_command. The program
 * then is the command `duet` with this model: train, compare, profile, every flag, the proof of
 * equal bits.
 *
 *     enum { FC1, FC2 };                               // the layers, in the order of describe
 *
 *     static void describe(duet_module *m, void *context) {
 *         duet_module_linear(m, "fc1", 784, 100, 1);
 *         duet_module_linear(m, "fc2", 100, duet_module_classes(m), 1);
 *     }
 *     static duet_var *forward(duet_tape *t, duet_var *x, void *context) {
 *         return duet_layer(t, FC2, duet_relu(t, duet_layer(t, FC1, duet_flatten(t, x))));
 *     }
 *     int main(int argc, char **argv) {
 *         const struct duet_model model = {
 *             .name = "mynet", .describe = describe, .forward = forward};
 *         return duet_command(argc, argv, &model);
 *     }
 *
 * The models of `duet` itself are made in this way: models/convnet.c with layers, models/lenet.c
 * with parameters alone. */

enum duet_loss { DUET_CROSS_ENTROPY, DUET_NLL, DUET_MSE };

struct duet_model {
    const char *name; /* as --model takes it */
    /* The samples that it is made for: channels, height, width; zeros: 1, 28, 28. Random data has
     * this shape; else the data set says what a sample is, and describe is told. */
    int sample[3];
    double mean, std; /* pixels enter as (x - mean) / std; std 0: as they are, 0 to 1 */
    /* Lists the parameters, buffers and layers. It may be called often, and must do the same. */
    void (*describe)(duet_module *module, void *context);
    /* NULL, or called when the initialisers below have drawn all parameters, to change what they
     * drew: values[i] is parameter i, row-major. */
    void (*init)(const duet_module *module, duet_rng *rng, float *const *values, void *context);
    /* x is (N,channels,height,width). Returns (N,classes): scores, or log-probabilities where loss
     * is DUET_NLL. Several threads may call it at once, each with a tape of its own. */
    duet_var *(*forward)(duet_tape *tape, duet_var *x, void *context);
    enum duet_loss loss;
    int forward_changes; /* 1: forward is not the same in every step, so none can be replayed */
    void *context;       /* passed on to these functions; may be NULL */
    /* Data of the program's own (struct duet_data), on which the command trains unless --dataset
     * names another; test may be NULL. All processes of a job run main and are given it, but only
     * the first reads samples; the others share its memory. */
    const struct duet_data *train, *test;
};

/* What describe is told: channels, height and width of a sample, and the number of classes. */
const int *duet_module_sample(const duet_module *module);
int duet_module_classes(const duet_module *module);

/* Registers a layer of PyTorch's name, parameters, buffers and initial values: NAME.weight and,
 * with bias 1, NAME.bias; of a batch_norm also NAME.running_mean, NAME.running_var and
 * NAME.num_batches_tracked. Returns its number for duet_layer: layers count from 0. */
int duet_module_conv2d(duet_module *module, const char *name, int in, int out, int kernel,
                       int stride, int padding, int bias);
int duet_module_linear(duet_module *module, const char *name, int in, int out, int bias);
int duet_module_batch_norm(duet_module *module, const char *name, int channels, double eps,
                           double momentum); /* PyTorch's defaults: 1e-5, 0.1; below 0: its None */
int duet_module_layer_norm(duet_module *module, const char *name, int rank,
                           const int *normalized_shape, double eps, int elementwise_affine,
                           int bias); /* PyTorch's defaults: 1e-5, 1, 1 */
int duet_module_group_norm(duet_module *module, const char *name, int num_groups, int channels,
                           double eps, int affine, int bias); /* PyTorch's defaults: 1e-5, 1, 1 */
int duet_module_dropout(duet_module *module, const char *name, double p); /* as --dropout sets it */
int duet_module_dropout2d(duet_module *module, const char *name, double p);

/* The initial values of a parameter that belongs to no layer. DUET_WEIGHT and DUET_BIAS are
 * those of PyTorch's Linear and Conv2d, where a is the fan-in: how many inputs an output sums. */
enum duet_init_kind {
    DUET_CONSTANT, /* a */
    DUET_NORMAL,   /* mean a, standard deviation b */
    DUET_UNIFORM,  /* from a to b */
    DUET_WEIGHT,
    DUET_BIAS
};
struct duet_init {
    enum duet_init_kind kind;
    double a, b;
};

/* Register a parameter, and a buffer of floats that are all `value` at first. They return its
 * index, for the functions that take one: all parameters count from 0, those of layers too, and
 * so do all buffers. Values are drawn in the order of registration. */
int duet_module_parameter(duet_module *module, const char *name, int rank, const int *shape,
                          struct duet_init init);
int duet_module_buffer(duet_module *module, const char *name, int rank, const int *shape,
                       double value);

/* The elements of parameter i; 0: there is none. */
size_t duet_module_count(const duet_module *module, int i);

/* Says that the model cannot be made for these samples or classes; `why` ends the error text. The
 * second does so where the picture is lower or narrower than `side`. After the first failure the
 * functions above do nothing and return -1, so describe needs no checks. */
void duet_module_refuse(duet_module *module, const char *why);
void duet_module_needs_pixels(duet_module *module, int side);

/* In forward: layer number `layer` of x; relu of that; and relu of that plus `residual`. The latter
 * two take one pass where the layer is a batch_norm. */
duet_var *duet_layer(duet_tape *tape, int layer, duet_var *x);
duet_var *duet_layer_relu(duet_tape *tape, int layer, duet_var *x);
duet_var *duet_layer_add_relu(duet_tape *tape, int layer, duet_var *x, duet_var *residual);
int duet_layer_count(const duet_tape *tape);

/* For a forward that changes: 1 in a training step, and the number of the batch in the run. */
int duet_tape_training(const duet_tape *tape);
int64_t duet_tape_number(const duet_tape *tape);

/* The command `duet` with this model, which is the default of --model. Call it first in main, and
 * return what it returns. It starts this program anew for each process of a job: main then runs
 * again, up to this call, with other words in argv. */
int duet_command(int argc, char **argv, const struct duet_model *model);

/* The same model in a program with a training loop of its own: makes its parameters and buffers on
 * the device, for samples of model->sample and `classes` classes, with the initial values of
 * torch.manual_seed(seed). They may be used as those of duet_params_create, also by a duet_ddp or a
 * duet_data_parallel. In a pass with them model->forward, or any other forward function, may call
 * duet_layer. Nothing of `model` is used after the call.
 *
 *     duet_params_create_model(&params, device, &model, 10, 0);
 *     duet_tape_begin(tape, params, n, DUET_TRAIN);
 *     duet_var *scores = model.forward(tape, duet_input(tape, X), model.context); */
int duet_params_create_model(duet_params **out, duet_device *device, const struct duet_model *model,
                             int classes, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
