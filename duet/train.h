/* duet/train.h: parameters and buffers, optimizers, data and loaders, checkpoints, random numbers.
 *
 * This function runs an epoch of softmax regression on images of 784 pixels:
 *
 *     static int epoch(duet_device *device, duet_tape *tape, duet_params *params,
 *                      duet_optimizer *optimizer, duet_loader *loader) {
 *         struct duet_batch b;
 *         int code = duet_loader_start(loader, 0);
 *         while (!code && !(code = duet_loader_next(loader, &b)) && b.n) {
 *             duet_tensor *X = NULL, *y = NULL;
 *             duet_tensor_create(&X, device, DUET_F32, 2, (int[]){b.n, 784}, b.X);
 *             duet_tensor_create(&y, device, DUET_I32, 1, &b.n, b.y);
 *             duet_tape_begin(tape, params, b.n, DUET_TRAIN);
 *             duet_var *scores = duet_linear(tape, duet_input(tape, X), 0, 1);
 *             duet_var *loss = duet_cross_entropy(tape, scores, y, DUET_MEAN, NULL);
 *             code = duet_backward(tape, loss, NULL);
 *             if (!code) code = duet_optimizer_step(optimizer);
 *             duet_tensor_free(X), duet_tensor_free(y);
 *         }
 *         return code;
 *     }
 * */
#ifndef DUET_TRAIN_H
#define DUET_TRAIN_H

#include "core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- parameters ---- */

/* The description of one parameter. */
struct duet_param {
    const char *name; /* its name in files, as in PyTorch: "W1", "fc1.weight" */
    int rank;         /* 1 to DUET_MAX_RANK */
    int shape[DUET_MAX_RANK];
    const float *values; /* start values in host memory, row-major; NULL: zeros */
};

/* Makes `count` parameters, 1 to 65536, on the device, each with a gradient, which is zero at
 * first. Each name must be UTF-8 of at most 200 bytes, and unique. It must not be "__metadata__" or
 * begin with "module.", which have other uses in files. `params` is not used after the call. Layers
 * refer to a parameter by its index in `params`. */
int duet_params_create(duet_params **out, duet_device *device, const struct duet_param *params,
                       int count);
void duet_params_free(duet_params *params);

/* The value and the gradient of parameter i: float tensors that belong to `params` and live as long
 * as it does. NULL: no parameter i exists, or it is frozen and has no gradient. */
duet_tensor *duet_params_value(duet_params *params, int i);
duet_tensor *duet_params_grad(duet_params *params, int i);
int duet_params_count(const duet_params *params);

/* Returns 1 if parameter i has a gradient; it has one even before the first backward. 0: its
 * gradient is PyTorch's None (see duet_optimizer_step), or i is out of range. */
int duet_params_has_grad(const duet_params *params, int i);

/* requires_grad_(False): freezes the parameter of this name and all whose names begin with the name
 * and a dot: "backbone" freezes "backbone.0.weight". From then on backward makes no gradients for
 * them and goes back only as far as needed. Optimizers do not change them, and no bucket of a
 * duet_ddp contains them. Files still hold them, and rank 0 or device 0 still sends them to the
 * others. Call it before the first training pass, and before you make an optimizer, a duet_ddp or a
 * duet_data_parallel. Tensors from duet_params_value stay valid. DUET_USAGE: the call is too late,
 * or no parameter has the name. */
int duet_params_freeze(duet_params *params, const char *name);

/* One step of stochastic gradient descent on every parameter:
 *     value -= (lr / batch_size) * gradient
 * where lr / batch_size is rounded to float once. If the loss is a sum over samples, pass the
 * number of all samples, on all devices, as batch_size; if it is a mean, pass 1. lr is at least 0.
 * The gradients do not change. */
int duet_sgd(duet_params *params, double lr, int batch_size);

/* zero_grad: all gradients become 0, and count as PyTorch's None (see duet_optimizer_step). A
 * training step does not need the call, because duet_backward overwrites gradients. The call drops
 * the sums of duet_tape_accumulate so far. */
int duet_zero_grad(duet_params *params);

/* torch.nn.utils.clip_grad_norm_: multiplies all gradients by max_norm / (norm + 1e-6), if that is
 * below 1. norm is the 2-norm of all gradients taken as one vector, before the call. If `norm` is
 * not NULL, the call waits for the norm and stores it there. The norm is summed in double, in the
 * order of the parameters, so it has the same bits on every device and rank. A norm that is not
 * finite is not an error: as in PyTorch, with an infinite norm infinite gradients become NaN and
 * the others 0, and with a norm of NaN all become NaN. max_norm is at least 0. Call it between
 * duet_backward and the step. */
int duet_clip_grad_norm(duet_params *params, double max_norm, double *norm);

/* A buffer is state of a model that no gradient changes, such as the running statistics of a
 * batch_norm. These are three buffers in this order; the last may be left out, unless momentum is
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
    double value; /* initial value of all elements */
};

/* register_buffer: adds all buffers to the parameters in one call, before a duet_ddp or a
 * duet_data_parallel is made. `buffers` is not used after the call. */
int duet_params_register_buffers(duet_params *params, const struct duet_buffer *buffers, int count);

/* Buffer i, which belongs to `params`. A buffer of rank 0 is a tensor of one element. NULL: no
 * buffer i exists. */
duet_tensor *duet_params_buffer(duet_params *params, int i);

/* Saves all values and buffers as a safetensors file, which appears whole or not at all. */
int duet_params_save(duet_params *params, const char *file);

/* Loads all values and buffers from a safetensors file; `python -m duet convert` makes one from a
 * torch.save file. The file must hold each of them under its name and with its shape; prefixes
 * "module." and "_orig_mod." of names in the file are ignored. Float16, bfloat16 and float64 become
 * float32. If anything is missing, no parameter changes. */
int duet_params_load(duet_params *params, const char *file);

/* ---- optimizers ----
 *
 * duet_sgd is a step of plain SGD. The other optimizers keep state from step to step, so they are
 * objects. Their formulas, defaults and names are PyTorch's:
 *
 *     duet_optimizer_defaults(&options, "adamw");
 *     options.weight_decay = 0.1;
 *     duet_optimizer_create(&optimizer, params, &options);
 *     for (int epoch = 0; epoch < 10; epoch++) {
 *         duet_optimizer_set_lr(optimizer, 0, 0.001 * pow(0.7, epoch));    // StepLR(1, 0.7)
 *         ...                                  // for each batch: forward, then
 *         duet_backward(tape, loss, NULL);
 *         duet_optimizer_step(optimizer);
 *     }
 *
 * The loss should be a mean over samples (DUET_MEAN). */

struct duet_optimizer_options {
    const char *name;    /* "sgd", "adadelta", "adam" or "adamw" */
    double lr;           /* the learning rate, at least 0 */
    double weight_decay; /* at least 0; adamw: decoupled from the gradient */
    double momentum;     /* sgd: at least 0 */
    double dampening;    /* sgd: the weight of a gradient in the momentum is 1 - dampening */
    int nesterov;        /* sgd: 1: Nesterov's momentum; needs momentum and no dampening */
    double rho;          /* adadelta: 0 to 1 */
    double beta1, beta2; /* adam, adamw: at least 0, below 1 */
    double eps;          /* adadelta, adam, adamw: at least 0 */
};

/* Fills in PyTorch's defaults for the optimizer `name`; sgd has a learning rate of 0.001. Only the
 * pointer to the name is kept. */
int duet_optimizer_defaults(struct duet_optimizer_options *options, const char *name);

/* Makes an optimizer for these parameters, which must outlive it. `options` is not used after the
 * call. Options for other kinds of optimizer are ignored. Momentum takes as much device memory as
 * the parameters, and adadelta, adam and adamw take twice as much. */
int duet_optimizer_create(duet_optimizer **out, duet_params *params,
                          const struct duet_optimizer_options *options);
void duet_optimizer_free(duet_optimizer *optimizer);

/* add_param_group: parameters with their own learning rate or weight decay, as in PyTorch's
 * optim.SGD([{"params": head, "lr": 0.1}, {"params": rest}], lr=0.01).
 *
 *     duet_optimizer_add_group(optimizer, &(struct duet_param_group){"head", 0.1, -1});
 *     duet_optimizer_add_group(optimizer, &(struct duet_param_group){"1d", -1, 0});
 *
 * params is the name of a parameter; the name of a module, for all parameters in it; a file pattern
 * ("*.bias"); or "1d", for all with one dimension, such as biases and norms. A group takes the
 * matching parameters that are trained and in no group yet. The groups are numbered 1 to 16.
 * DUET_USAGE: no parameter matches. */
struct duet_param_group {
    const char *params;      /* at most 63 bytes; kept as a copy */
    double lr, weight_decay; /* below 0: use the optimizer's */
};
int duet_optimizer_add_group(duet_optimizer *optimizer, const struct duet_param_group *group);

/* Updates every parameter from its gradient. The gradients do not change. A parameter without a
 * gradient (PyTorch's grad None) and its state do not change either; each parameter counts its own
 * updates. A parameter has no gradient if it did not affect the loss of the last duet_backward on
 * any rank of a duet_ddp or replica of a duet_data_parallel, nor after duet_zero_grad. The missing
 * gradient reads as zeros; once the program writes to it, it counts as a gradient again. */
int duet_optimizer_step(duet_optimizer *optimizer);

/* param_groups[group]["lr"] = lr: the learning rate of the next steps, at least 0. Group 0 sets the
 * rate of all parameters whose group has no separate rate. */
int duet_optimizer_set_lr(duet_optimizer *optimizer, int group, double lr);

/* ---- data ----
 *
 * A data set has samples, and a loader splits it into batches in host memory:
 *
 *     duet_dataset_open(&set, "fashion-mnist", NULL, 1);
 *     duet_loader_create(&loader, set, &(struct duet_loader_options){
 *         .batch_size = 256, .shuffle = DUET_SHUFFLE, .workers = 1});
 *     for (int epoch = 0; epoch < 10; epoch++) {
 *         struct duet_batch batch;
 *         duet_loader_start(loader, epoch);
 *         while (!duet_loader_next(loader, &batch) && batch.n)
 *             ...                              // make tensors of batch.X and batch.y, and a step
 *     }
 *
 * With .device = device the loader also copies batches to the device, as pin_memory=True and
 * .to(device, non_blocking=True) do. Its own stream copies the next two batches during the kernels
 * of this one, and a step takes batch.samples and batch.answers. Both ways give equal bits.
 * */

/* Opens the training part (train = 1) or the test part (train = 0) of "fashion-mnist", "mnist" or
 * "synthetic", which needs no files; or "random", 6400 images from torch.randn with labels from
 * torch.randint after manual_seed(0), which has no test part. `folder` has the four IDX files, raw
 * or .gz. NULL searches ./data/NAME, then ./datasets/NAME, where `make data` puts its downloads,
 * then /usr/share/datasets/NAME. DUET_FAILED: the files are broken or missing; the error says how
 * to get them. */
int duet_dataset_open(duet_dataset **out, const char *name, const char *folder, int train);
void duet_dataset_free(duet_dataset *set);

/* Makes a data set of your own from arrays, or with a function that makes one sample at a time.
 *
 *     struct duet_data data = {.count = 1000, .rank = 1, .shape = {20}, .type = DUET_F32,
 *                              .samples = x, .targets = y, .outputs = 1};
 *     duet_dataset_create(&set, &data);
 *
 * Nothing is copied, so arrays and context must outlive the set. */
struct duet_data {
    int count;             /* samples */
    int rank, shape[3];    /* shape of one sample: 1 to 3 dimensions */
    enum duet_type type;   /* type of its elements: DUET_F32, or DUET_U8 for pixels */
    const void *samples;   /* (count, shape), row-major; NULL: `read` makes samples */
    const int32_t *labels; /* (count), each at least 0; or use targets */
    const float *targets;  /* (count, outputs) */
    int outputs;           /* the length of a target; 0: labels */
    int classes;           /* 0: 1 + the largest label, or 1 if `read` makes the labels */
    /* Writes sample i, 0 to count - 1, to `sample`, and its int32 label or its `outputs` floats to
     * `answer`. A loader's workers call it concurrently, so it must not change shared data. It
     * returns 0, or a code that duet_loader_next then returns. */
    int (*read)(void *context, int i, void *sample, void *answer);
    void *context;
};
int duet_dataset_create(duet_dataset **out, const struct duet_data *data);

/* The contents of a set; for NULL all are 0. */
struct duet_dataset_info {
    int count;    /* samples */
    int shape[3]; /* channels, height, width: 1, 28, 28 or what the files of `folder` hold; the
                   * shape of your own data is padded with ones */
    int classes;  /* 1 + the largest label, or 0 with targets */
};
struct duet_dataset_info duet_dataset_info(const duet_dataset *set);

/* Makes a loader, which splits a data set into batches. The set must outlive the loader. Each rank
 * gets its own batches, those of PyTorch's DataLoader(set, batch_size,
 * sampler=DistributedSampler(set, world_size, rank, shuffle, seed, drop_last)). The order of an
 * epoch is padded with its first samples until the ranks divide it evenly. The last batch of an
 * epoch may be smaller.
 *
 * A loader warns of two traps, in one line each. If the ranks cannot divide the samples evenly,
 * rank 0 says at the start how many samples are served twice in every epoch. The first time that
 * the same epoch begins twice in a row, the loader warns that the order of samples repeats, because
 * set_epoch was forgotten. */
enum duet_shuffle {
    DUET_IN_ORDER,
    DUET_SHUFFLE, /* DistributedSampler's order for this seed and epoch */
    /* DataLoader(shuffle=True) after torch.manual_seed(seed), for a world of 1 */
    DUET_SHUFFLE_RANDOM
};
struct duet_loader_options {
    int batch_size; /* samples per rank */
    enum duet_shuffle shuffle;
    uint64_t seed;
    int drop_last;        /* 1: truncates the order, and drops an incomplete last batch */
    int workers;          /* threads that prepare batches ahead; 0: duet_loader_next does that */
    int rank, world_size; /* world_size 0: 1 */
    /* NULL: batches stay in host memory. Otherwise they are copied to this device, which must have
     * memory for three batches and outlive the loader. The thread that uses the device calls the
     * loader's functions. */
    duet_device *device;
    /* Bytes become (byte / 255 - mean) / std, as in torchvision's Normalize: [0] for all channels,
     * or three values for three channels. std[0] = 0: they become 0 to 1. */
    double mean[3], std[3];
    void (*warn)(const char *text, void *context); /* receives the warnings; NULL: stderr */
    void *context;
};
int duet_loader_create(duet_loader **out, const duet_dataset *set,
                       const struct duet_loader_options *options);
void duet_loader_free(duet_loader *loader);
int duet_loader_steps(const duet_loader *loader); /* the number of batches in an epoch */

struct duet_batch {
    int n;                /* the number of samples */
    const float *X;       /* (n,channels,height,width); pixels are 0 to 1, floats unchanged */
    const int32_t *y;     /* (n), the labels; NULL if the set has targets */
    int shape[3];         /* shape of each image: channels, height, width */
    const float *targets; /* (n,outputs); NULL if the set has labels */
    int outputs;
    duet_tensor *samples; /* (n, shape of a sample) on the loader's device; NULL without one */
    duet_tensor *answers; /* (n) labels, DUET_I32, or (n,outputs) targets on that device */
};

/* start begins an epoch; epochs count from 0. next fills `batch`; after the last batch, n is 0. The
 * memory of a batch and its tensors belong to the loader and stay valid until the next call; work
 * that was enqueued before that call may still read the tensors after it. */
int duet_loader_start(duet_loader *loader, int epoch);
int duet_loader_next(duet_loader *loader, struct duet_batch *batch);

/* ---- checkpoints ----
 *
 * A checkpoint holds everything that a program needs to continue with the bits of an uninterrupted
 * run:
 *
 *     struct duet_checkpoint c = {.params = params, .optimizer = optimizer, .tape = tape};
 *     if (resume) duet_checkpoint_load(&c, "run.ckpt");
 *     for (; c.epoch < 10; c.epoch++) {
 *         duet_optimizer_set_lr(optimizer, 0, 0.001 * pow(0.7, c.epoch));
 *         duet_loader_start(loader, c.epoch);
 *         ...                                  // the batches of the epoch
 *         struct duet_checkpoint next = c;
 *         next.epoch++;                        // where a program that loads it begins
 *         if (rank == 0) duet_checkpoint_save(&next, "run.ckpt");
 *     }
 *
 * The file is a safetensors file. It holds values and buffers under their names, as
 * duet_params_load reads them, and the optimizer's state, as --checkpoint of the command writes it.
 * With several ranks, one saves and all load. The order of samples follows from the loader's seed
 * and the epoch, so the file stores nothing about a loader. The dropout masks inside a
 * duet_data_parallel are not kept either: they start again. */
struct duet_checkpoint {
    duet_params *params;
    duet_optimizer *optimizer; /* the optimizer of these parameters; NULL: none, as with duet_sgd */
    duet_tape *tape;           /* stores its count of training passes, for dropout; NULL: none */
    int epoch;                 /* the program's own position: saved and restored */
    int64_t step;
};

/* Saves a checkpoint; the file appears whole or not at all. Call it between two updates, because
 * gradients are not kept. */
int duet_checkpoint_save(const struct duet_checkpoint *checkpoint, const char *file);

/* Loads a file into params, optimizer and tape, which must be made like the saved ones, and fills
 * in epoch and step. The optimizer also gets the saved learning rate, and keeps its other options.
 * After DUET_FAILED or DUET_USAGE nothing has changed. */
int duet_checkpoint_load(struct duet_checkpoint *checkpoint, const char *file);

/* ---- random numbers: those of PyTorch on the CPU, bit for bit ---- */

int duet_rng_create(duet_rng **out, uint64_t seed); /* torch.manual_seed(seed) */
void duet_rng_free(duet_rng *rng);

/* x[0 .. count) = Tensor.normal_(mean, std), or Tensor.uniform_(from, to), for a float tensor of
 * `count` elements. */
void duet_rng_normal(duet_rng *rng, float *x, size_t count, double mean, double std);
void duet_rng_uniform(duet_rng *rng, float *x, size_t count, double from, double to);

/* x[0 .. count) = torch.randint(low, high, (count,), dtype=type). type is DUET_I32 or DUET_I64; low
 * is at least the type's smallest number, and high - 1 at most its largest. Both types get the same
 * numbers. */
int duet_rng_integers(duet_rng *rng, enum duet_type type, void *x, size_t count, int64_t low,
                      int64_t high);

#ifdef __cplusplus
}
#endif
#endif
