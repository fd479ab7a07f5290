/* duet.h: Duet as a library. Devices with memory of their own, tensors on them, a tape that
 * records a forward pass and walks it back, and what a training program needs around that:
 * parameters, data, random numbers. Enough to write data parallelism yourself, as
 * examples/lenet_from_scratch.c does; start reading there.
 *
 * Not in it yet: the two finished strategies (DataParallel and DistributedDataParallel are run
 * by the command `duet`), other optimizers than plain SGD, gradients added up over several
 * backward passes.
 *
 * Conventions. A function that can fail returns DUET_OK (0) or one of enum duet_code and leaves
 * one line of text in duet_error(). Objects are opaque; what a function hands out through `out`
 * is yours, and NULL after a failure. Every *_free and *_close takes NULL. What lives on a
 * device is freed before the device is closed. Tensors are row-major, batch first, and hold at
 * most 2^31 - 1 elements.
 *
 * Threads. A device, with all that lives on it, is used by one thread at a time; different
 * devices by different threads at once. A copy between two devices uses both. Work is
 * asynchronous where a device can do that, and nobody can tell: whatever reads a result waits
 * for it.
 *
 *     cc program.c $(pkg-config --cflags --libs duet) */
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
typedef struct duet_tape duet_tape;
typedef struct duet_var duet_var;
typedef struct duet_rng duet_rng;
typedef struct duet_dataset duet_dataset;
typedef struct duet_loader duet_loader;

enum { DUET_MAX_DEVICES = 64, DUET_MAX_RANK = 4 };

/* ---- errors and time ---- */

enum duet_code {
    DUET_OK = 0,
    DUET_FAILED, /* failed at run time */
    DUET_USAGE,  /* an argument is wrong */
    /* a check of the result failed: for your own use, the library returns it nowhere */
    DUET_CHECK,
    DUET_MEMORY,  /* a device, or the host, is out of memory */
    DUET_TIMEOUT, /* a wait ran past its deadline */
    DUET_PEER     /* another process failed first */
};

/* The calling thread's last error: one line, `what failed: which value: what to do`, no newline
 * at its end; "" if there was none. Valid until the thread's next failure. */
const char *duet_error(void);

/* What a program should exit with: 0 done, 1 failed at run time, 2 wrong usage, 3 a check of the
 * result failed. */
int duet_exit_status(int code);

/* Seconds on a clock that never goes back; only differences mean something. Any thread. */
double duet_time(void);

/* ---- devices ---- */

/* Opens devices 0 .. n-1 into devices[0 .. n). kind: "cpu" are emulated devices: each has memory
 * of its own that runs out, and computes in the thread that calls; "cpu-late" does its work as
 * late as it may and checks that no device reaches into another's memory, slow, for tests of
 * your program; "cuda" are GPUs, which devices share in turn where n is above their number;
 * "auto" is cuda where a GPU is found, else cpu. memory_bytes: of each device; 0: a default that
 * fits the machine. On failure none stays open and all are NULL. */
int duet_devices_open(duet_device **devices, int n, const char *kind, uint64_t memory_bytes);
void duet_devices_close(duet_device **devices, int n); /* sets them to NULL */

const char *duet_device_name(const duet_device *device); /* "cpu(0)"; the device's own storage */

/* Waits until all work on the device is done; returns the first error of that work. */
int duet_device_sync(duet_device *device);

/* Bytes held on the device now, and the most ever held (peak may be NULL). Any thread. */
int duet_device_memory(const duet_device *device, uint64_t *now, uint64_t *peak);

/* Runs work(context, i) for i = 0 .. n-1 at once, each in a thread of its own (0 in the
 * caller's), and returns when all are done: 0, or what the lowest failing i returned, with its
 * error text. The place where devices compute side by side, so device i and all that lives on it
 * belongs to work(context, i) meanwhile. n: 1 .. DUET_MAX_DEVICES. */
int duet_parallel(int n, int (*work)(void *context, int i), void *context);

/* ---- tensors ---- */

enum duet_type { DUET_F32, DUET_I32, DUET_F64 }; /* float, int32_t, double */

/* A tensor on the device, copied from host memory (row-major; may be reused at once) or, where
 * host is NULL, zeros. rank 1 .. DUET_MAX_RANK; shape[0] >= 0, the others >= 1. DUET_MEMORY
 * where the device is full: the text says who holds what. */
int duet_tensor_create(duet_tensor **out, duet_device *device, enum duet_type type, int rank,
                       const int *shape, const void *host);

/* Waits for the work that may still use it. A tensor that belongs to a duet_params is left
 * alone. */
void duet_tensor_free(duet_tensor *tensor);

duet_device *duet_tensor_device(const duet_tensor *tensor);
enum duet_type duet_tensor_type(const duet_tensor *tensor);
int duet_tensor_rank(const duet_tensor *tensor);
/* 0 where the tensor has no such dimension */
int duet_tensor_dim(const duet_tensor *tensor, int i);
size_t duet_tensor_count(const duet_tensor *tensor); /* elements */

/* Between the tensor and host memory of duet_tensor_count elements of its type; the copy is done on
 * return. */
int duet_tensor_read(const duet_tensor *tensor, void *host);
int duet_tensor_write(duet_tensor *tensor, const void *host);

/* A new tensor on `device` with the same contents. In PyTorch: tensor.to(device), but always a
 * copy. */
int duet_tensor_to(duet_tensor **out, const duet_tensor *tensor, duet_device *device);

/* In place, into the memory `to` has already: to[:] = from (any two devices; same shape and
 * type), to[:] += from (one device, both float, same shape, two different tensors) and tensor[:]
 * *= factor (float). */
int duet_tensor_copy(duet_tensor *to, const duet_tensor *from);
int duet_tensor_add(duet_tensor *to, const duet_tensor *from);
int duet_tensor_scale(duet_tensor *tensor, float factor);

/* ---- parameters ---- */

struct duet_param {
    const char *name; /* in files, PyTorch's name: "W1", "fc1.weight" */
    int rank;
    int shape[DUET_MAX_RANK];
    const float *values; /* host memory, row-major; NULL: zeros */
};

/* Copies of `count` parameters on the device, each with a gradient (zeros at first). All of
 * `params` is copied. The layers below name parameters by their place in it. */
int duet_params_create(duet_params **out, duet_device *device, const struct duet_param *params,
                       int count);
void duet_params_free(duet_params *params);

/* Value and gradient of parameter i: float tensors that belong to `params` and live as long.
 * NULL: no such i. */
duet_tensor *duet_params_value(duet_params *params, int i);
duet_tensor *duet_params_grad(duet_params *params, int i);
int duet_params_count(const duet_params *params);

/* One step of stochastic gradient descent for every parameter: value -= (lr / batch_size) *
 * gradient, lr / batch_size rounded to float once. Where the loss is a sum over samples,
 * batch_size is the number of all samples behind the gradient, on all devices; where it is a
 * mean, 1. lr >= 0. Gradients stay as they are. */
int duet_sgd(duet_params *params, double lr, int batch_size);

/* Values as a safetensors file, whole or not at all; load wants every name with its shape
 * ("module." before names is ignored) and changes nothing if one is missing. */
int duet_params_save(duet_params *params, const char *file);
int duet_params_load(duet_params *params, const char *file);

/* ---- the tape ----
 *
 * A forward function reads like the formula; the tape remembers how to walk it back:
 *
 *     duet_tape_begin(t, params, 256, DUET_TRAIN);
 *     duet_var *h = duet_relu(t, duet_conv2d(t, duet_input(t, X), W1, b1, 1, 0));
 *     duet_var *l = duet_cross_entropy(t, duet_matmul_add(t, duet_flatten(t, h), W2, b2), y, DUET_SUM);
 *     code = duet_backward(t, l);
 *
 * The first failure stays in the tape, its op returns NULL, and ops given NULL return NULL;
 * duet_backward and duet_tape_error return the code, so a forward function needs no checks. A
 * var belongs to the tape and ends at the next duet_tape_begin. */

int duet_tape_create(duet_tape **out, duet_device *device);
void duet_tape_free(duet_tape *tape);

/* What dropout draws from; 0 at first. A mask is a function of seed, number of the device,
 * number of the training pass, layer and element. */
void duet_tape_seed(duet_tape *tape, uint64_t seed);

/* Starts a pass over `samples` samples (0 is legal) with these parameters (NULL: none), of the
 * tape's own device, which must outlive it. DUET_EVALUATE: nothing is kept for a way back, and
 * dropout does nothing. */
enum duet_pass { DUET_EVALUATE, DUET_TRAIN };
int duet_tape_begin(duet_tape *tape, duet_params *params, int samples, enum duet_pass pass);

/* The code of the first failure since duet_tape_begin, its text restored; DUET_OK if there was
 * none. */
int duet_tape_error(duet_tape *tape);

/* A float tensor (samples, ...) of the tape's device enters; it must live until backward. leaf
 * (16 a pass at most): backward also leaves the gradient with respect to it. */
duet_var *duet_input(duet_tape *tape, const duet_tensor *x);
duet_var *duet_leaf(duet_tape *tape, const duet_tensor *x);

/* Layers. w and b are places in the tape's duet_params. x is (N,C,H,W), or (N,K) for the linear
 * ones.
 *     conv2d      w (O,C,k,k), b (O)      y (N,O,P,Q), P = (H + 2 padding - k) / stride + 1 (F.conv2d)
 *     linear      w (M,K), b (M)          y (N,M) = x wT + b, PyTorch's Linear
 *     matmul_add  w (K,M), b (M)          y (N,M) = x w + b, as d2l writes it
 *     pools       no padding              y (N,C,P,Q), P = (H - size) / stride + 1
 *     flatten                             y (N,C*H*W)
 *     dropout     zeroes with probability p and scales the rest by 1 / (1 - p)
 *     log_softmax over the last dimension of (N,M) */
duet_var *duet_conv2d(duet_tape *tape, duet_var *x, int w, int b, int stride, int padding);
duet_var *duet_linear(duet_tape *tape, duet_var *x, int w, int b);
duet_var *duet_matmul_add(duet_tape *tape, duet_var *x, int w, int b);
duet_var *duet_relu(duet_tape *tape, duet_var *x);
duet_var *duet_avg_pool2d(duet_tape *tape, duet_var *x, int size, int stride);
duet_var *duet_max_pool2d(duet_tape *tape, duet_var *x, int size, int stride);
duet_var *duet_flatten(duet_tape *tape, duet_var *x);
duet_var *duet_dropout(duet_tape *tape, duet_var *x, double p);
duet_var *duet_log_softmax(duet_tape *tape, duet_var *x);

/* Losses of scores (N,M), or of log_softmax's result, and labels: int32 (N), each 0 .. M-1
 * (others give NaN). The value is each sample's own loss, double (N). What differs is where
 * backward starts: from their sum, from their mean over the samples of this pass, or, with
 * DUET_NONE, from the gradient you give to duet_backward_from. */
enum duet_reduction { DUET_MEAN, DUET_SUM, DUET_NONE };
duet_var *duet_cross_entropy(duet_tape *tape, duet_var *scores, const duet_tensor *labels,
                             enum duet_reduction r);
duet_var *duet_nll_loss(duet_tape *tape, duet_var *log_probabilities, const duet_tensor *labels,
                        enum duet_reduction r);

/* The sum of all samples' losses (in double, whatever the reduction) and how many samples have
 * their highest score at their label. Waits. Either pointer may be NULL. */
int duet_loss_read(duet_tape *tape, duet_var *loss, double *sum, int64_t *right);

/* Writes the gradient of every parameter (zero where it took no part) from a loss of reduction
 * mean or sum. */
int duet_backward(duet_tape *tape, duet_var *loss);

/* The same from any var, given the gradient with respect to it: float, shaped like it, alive until
 * backward is done. */
int duet_backward_from(duet_tape *tape, duet_var *root, const duet_tensor *grad);

/* A copy of a var's value; and, after backward, of the gradient with respect to a leaf. */
int duet_var_value(duet_tensor **out, duet_tape *tape, duet_var *x);
int duet_var_grad(duet_tensor **out, duet_tape *tape, duet_var *leaf);

/* ---- random numbers: PyTorch's on the CPU, bit for bit ---- */

int duet_rng_create(duet_rng **out, uint64_t seed); /* torch.manual_seed(seed) */
void duet_rng_free(duet_rng *rng);
/* Tensor.normal_ */
void duet_rng_normal(duet_rng *rng, float *x, size_t count, double mean, double std);
/* Tensor.uniform_ */
void duet_rng_uniform(duet_rng *rng, float *x, size_t count, double from, double to);
/* torch.randperm */
int duet_rng_permutation(duet_rng *rng, int32_t *order, int n);

/* ---- data ---- */

/* "fashion-mnist", "mnist" or "synthetic" (needs no files), the training or the test part.
 * folder: where the four IDX files lie, raw or .gz; NULL: the known places. DUET_FAILED: not
 * found (the text says how to get it) or broken. */
int duet_dataset_open(duet_dataset **out, const char *name, const char *folder, int train);
void duet_dataset_free(duet_dataset *set);
int duet_dataset_count(const duet_dataset *set); /* pictures: 28 x 28, one channel, 10 classes */

/* Batches of a data set, which must outlive the loader. shuffle: a new order each epoch, that of
 * DistributedSampler in PyTorch for this seed. The last batch may be smaller. workers: threads that
 * prepare batches ahead; 0: none. */
int duet_loader_create(duet_loader **out, const duet_dataset *set, int batch_size, int shuffle,
                       uint64_t seed, int workers);
void duet_loader_free(duet_loader *loader);
int duet_loader_steps(const duet_loader *loader); /* batches in an epoch */

struct duet_batch {
    int n;
    const float *X;   /* (n,1,28,28), each pixel 0 .. 1 */
    const int32_t *y; /* (n) labels */
};

/* next fills the batch, n = 0 after the last one; its memory is the loader's and holds until the
 * next call. */
int duet_loader_start(duet_loader *loader, int epoch);
int duet_loader_next(duet_loader *loader, struct duet_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
