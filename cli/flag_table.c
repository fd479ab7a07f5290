/* The rows of the table of flags: see flag_table.h. */
#include "cli/flag_table.h"

#include <stddef.h>

#include "allreduce/plan.h"
#include "cli/flag_effects.h"
#include "cli/flag_readers.h"

enum {
    MOST_EPOCHS = 1000000,

    MOST_WORKERS = 64,
    MOST_PASSES = 4096,
    MOST_SAMPLES = 100000000,
    MOST_PARAMS = 2000000000
};
#define LARGEST_FLOAT 3.4e38      /* about FLT_MAX: devices compute in float */
#define SMALLEST_MEMORY (2 << 20) /* memory comes in pieces of 2 MiB */

#define AT(member) offsetof(struct run_config, member), sizeof(((struct run_config *)0)->member)
#define NO_MEMBER 0, 0
#define NO_LIMITS 0, 0
#define HEADING(text) \
    { NULL, NULL, text, NULL, NO_MEMBER, NO_LIMITS, NULL }
// clang-format off
const struct flag flag_table[] = {
    HEADING("mode and devices"),
    {"--mode", "single|dp|ddp",
     "train: on one device, as DataParallel, or as DistributedDataParallel (default single)",
     read_mode, NO_MEMBER, NO_LIMITS, by_train_or_scale},
    {"--device", "auto|cpu|cuda",
     "cpu: emulated devices; cuda: GPUs; auto: GPUs where there are any, else cpu (default)",
     read_text, AT(device), NO_LIMITS, always},
    {"--devices", "N",
     "the number of devices of dp and ddp (default 2); single uses one. Where there are fewer "
     "GPUs, the devices share them",
     read_int, AT(devices), 1, MAX_DEVICES, on_several_devices},
    {"--virtual-devices", "V|off",
     "cut each batch for V virtual devices, a multiple of N, so that runs with the same V can give "
     "the same bits in every mode (default: the number of devices; compare: N in every mode). off: "
     "each mode cuts the batch by its own number of devices",
     read_virtual, AT(virtual_devices), 1, MAX_DEVICES, always},
    {"--device-memory", "SIZE[,SIZE...]",
     "the memory of each device, as 512M or 4G: at least 2M, rounded up to a multiple of 2M; or "
     "that of device 0, device 1, ... (default: as `duet devices` says; cuda: a share of the GPU)",
     read_memory, NO_MEMBER, SMALLEST_MEMORY, 0x1p50, always},

    HEADING("model"),
    {"--model", "NAME|FILE",
     "lenet (default), convnet, mlp, resnet18, simple, complex or branches; or a file that holds "
     "what Python's print(model) says of an nn.Sequential (scripts/export_model.py)",
     read_model, NO_MEMBER, NO_LIMITS, always},
    {"--params", "N",
     "estimate: a model that is not here, described by numbers: N parameters, as 25.6M or 1.1B, "
     "with the sizes below",
     read_params, AT(model_options.params), 2, MOST_PARAMS, by_estimate},
    {"--buffers", "N", "estimate: elements of its buffers, as the running statistics (default 0)",
     read_count, AT(model_options.buffers), 0, MOST_PARAMS, beside_params},
    {"--activations", "SIZE",
     "estimate: what one sample leaves on the device for its backward pass, without parameters "
     "and outputs, as 90M",
     read_bytes, AT(model_options.activation_bytes), 0, 0x1p50, beside_params},
    {"--classes", "K",
     "the number of classes, or of numbers that the loss mse compares (default: 1 + the largest "
     "label, at least 10; of synthetic and random data 10)",
     read_int, AT(model_options.classes), 1, MODEL_MAX_CLASSES, always},
    {"--loss", "NAME",
     "cross-entropy, or mse: the mean squared error from random targets (default cross-entropy)",
     read_loss, NO_MEMBER, NO_LIMITS, always},
    {"--mlp-hidden", "H1,H2,...", "the widths of the hidden layers of mlp (default 256)",
     read_hidden, NO_MEMBER, NO_LIMITS, with_mlp},
    {"--dropout", "P", "the probability of dropout, instead of the model's own", read_number,
     AT(model_options.dropout), 0, 1, with_dropout},
    {"--init", "default|d2l",
     "initial weights. default: PyTorch's; d2l: those of the chapter, normal with deviation 0.01 "
     "(resnet18 alone; lenet always has the chapter's)",
     read_init, NO_MEMBER, NO_LIMITS, of_first_weights},
    {"--sync-bn", NULL,
     "every BatchNorm of the model is a SyncBatchNorm: normalised over the whole global batch "
     "(single and ddp)",
     read_on, AT(model_options.sync_bn), NO_LIMITS, of_sync_bn},
    {"--init-from", "FILE", "start from the weights in a safetensors file", read_text,
     AT(init_from), NO_LIMITS, by_all_but_estimate},

    HEADING("data"),
    {"--dataset", "NAME",
     "fashion-mnist, mnist, synthetic (drawn digits) or random: torch.randn samples with "
     "torch.randint labels, by the seed of the run (default fashion-mnist; in a program with data "
     "of its own: own)",
     read_text, AT(dataset), NO_LIMITS, always},
    {"--shape", "CxHxW|K",
     "synthetic, random: the shape of a sample; K makes vectors (default 1x28x28; random: what the "
     "model is made for, simple 10, complex 3x32x32)",
     read_shape, NO_MEMBER, NO_LIMITS, of_made_data},
    {"--samples", "N",
     "synthetic, random: the number of samples for training (default 60000, random 6400)", read_int,
     AT(samples), 1, MOST_SAMPLES, of_made_data},
    {"--data-dir", "DIR",
     "the folder with the four IDX files, plain or compressed (.gz), with pictures of any size and "
     "any number of classes: the model follows them",
     read_text, AT(data_dir), NO_LIMITS, of_files},
    {"--data-on", "auto|host|device",
     "where the data set lies. device: the device makes the batches; auto: device on a GPU if the "
     "data set fits into a quarter of its memory, else host (default)",
     read_text, AT(data_on), NO_LIMITS, always},
    {"--shuffle", NULL, "a new order of the samples in each epoch (default)", read_on, AT(shuffle),
     NO_LIMITS, always},
    {"--no-shuffle", NULL, "the order of the samples in the files", read_off, AT(shuffle),
     NO_LIMITS, always},
    {"--sampler", "distributed|random",
     "random: the order of PyTorch's DataLoader(shuffle=True) by the seed of the run; train in "
     "mode single or dp (default distributed: that of DistributedSampler, in every mode)",
     read_sampler, NO_MEMBER, NO_LIMITS, always},
    {"--drop-last", NULL,
     "leave samples out instead of using some twice; also leaves out a last batch that is not full",
     read_on, AT(drop_last), NO_LIMITS, always},
    {"--workers", "N",
     "the number of threads that prepare batches; 0: the training thread does it (default 1)",
     read_int, AT(workers), 0, MOST_WORKERS, always},
    {"--no-pin-memory", NULL,
     "prepare batches in plain host memory, which devices copy by a detour", read_on,
     AT(no_pin_memory), NO_LIMITS, from_the_host},
    {"--blocking-copies", NULL,
     "copy each batch to the device before its step, not beside the step before", read_on,
     AT(blocking_copies), NO_LIMITS, from_the_host},

    HEADING("training"),
    {"--epochs", "N", "the number of epochs (default 10; demo: 3)", read_int, AT(epochs), 1,
     MOST_EPOCHS, always},
    {"--steps", "N", "stop after N steps in all (profile: default 50)", read_int, AT(steps), 1,
     INT32_MAX - 1, always},
    {"--batch-per-device", "B",
     "samples of each device's batch: the global batch is B times the number of devices",
     read_int, AT(batch_per_device), 1, LARGEST_BATCH, where_no_batch_is_sought},
    {"--batch-size", "B", "samples of the GLOBAL batch, split over the devices (default 256)",
     read_int, AT(batch_size), 1, LARGEST_BATCH, where_no_batch_is_sought},
    {"--find-max-batch", NULL,
     "profile, estimate: find the largest global batch of each way that fits the given memory of a "
     "device; profile confirms it by runs of that batch and of the next larger one",
     read_on, AT(find_max_batch), NO_LIMITS, by_profile_or_estimate},
    {"--no-sync-steps", "K",
     "accumulate the gradients of K batches before each update, as PyTorch's no_sync: ddp sums "
     "over the ranks once in K batches (default 1)",
     read_int, AT(passes), 1, MOST_PASSES, always},
    {"--optimizer", "NAME", "sgd, adadelta, adam or adamw (default sgd)", read_optimizer,
     NO_MEMBER, NO_LIMITS, always},
    {"--lr", "X", "the learning rate (default: sgd 0.2, adadelta 1, adam and adamw 0.001)",
     read_number, AT(lr), 0, LARGEST_FLOAT, always},
    {"--lr-step", "N", "multiply the learning rate by a factor every N epochs, as StepLR does",
     read_int, AT(lr_step), 1, MOST_EPOCHS, always},
    {"--lr-gamma", "X", "the factor of StepLR (default 0.1)", read_number, AT(lr_gamma), 0,
     LARGEST_FLOAT, beside_lr_step},
    {"--lr-cosine", NULL,
     "lower the learning rate from epoch to epoch along a cosine, as CosineAnnealingLR does with "
     "T_max = the number of epochs and eta_min = 0",
     read_on, AT(lr_cosine), NO_LIMITS, always},
    {"--momentum", "X", "the momentum of sgd (default 0)", read_number, AT(momentum), 0,
     LARGEST_FLOAT, by_sgd},
    {"--nesterov", NULL, "sgd: Nesterov's momentum", read_on, AT(nesterov), NO_LIMITS, by_sgd},
    {"--dampening", "X", "sgd: a gradient weighs 1 - X in the momentum (default 0)", read_number,
     AT(dampening), 0, 1, beside_momentum},
    {"--weight-decay", "X",
     "weight decay, which is added to the gradient; adamw: which makes the weights smaller beside "
     "it (default 0; adamw 0.01)",
     read_number, AT(weight_decay), 0, LARGEST_FLOAT, always},
    {"--beta1", "X", "adam, adamw: the decay of the mean of gradients (default 0.9)", read_number,
     AT(beta1), 0, 1, by_adam},
    {"--beta2", "X", "adam, adamw: the decay of the mean of their squares (default 0.999)",
     read_number, AT(beta2), 0, 1, by_adam},
    {"--rho", "X", "adadelta: the decay of its means (default 0.9)", read_number, AT(rho), 0, 1,
     by_adadelta},
    {"--eps", "X",
     "what is added to the divisor (default: adadelta 1e-6, adam and adamw 1e-8)", read_number,
     AT(epsilon), 0, LARGEST_FLOAT, by_adadelta_or_adam},
    {"--label-smoothing", "X",
     "cross entropy: spread this part of each target evenly over all classes (default 0)",
     read_number, AT(model_options.label_smoothing), 0, 1, of_scores},
    {"--seed", "S",
     "the seed of the initial weights, the sampler and dropout, as torch.manual_seed takes it "
     "(default 0)",
     read_seed, NO_MEMBER, NO_LIMITS, always},
    {"--timeout", "SECONDS", "the deadline of every wait (default 300)", read_number, AT(timeout),
     0.01, 1e6, always},

    HEADING("dp and ddp"),
    {"--loss-in-forward", NULL,
     "dp: each device computes its own loss, and no outputs are gathered", read_on,
     AT(loss_in_forward), NO_LIMITS, in_dp_one_way},
    {"--output-device", "D",
     "dp: the device that gathers the outputs and computes the loss (default 0)", read_int,
     AT(output_device), 0, MAX_DEVICES - 1, in_dp},
    {"--dp-reduce", "first|sharded",
     "dp: who adds the gradients up. first: device 0 (default); sharded: the other devices, each a "
     "part, and device 0 gets the sums",
     read_reduce, NO_MEMBER, NO_LIMITS, in_dp},
    {"--host-serial", "US[,forward]",
     "dp: each launch of an op first holds a lock that all devices' threads share, for so many "
     "microseconds, as the lock of a Python interpreter (docs/gil.md). forward: only in forward",
     read_host_serial, NO_MEMBER, 0.01, 1e6, in_dp_with_threads},
    {"--allreduce", "NAME",
     "ddp: " ALLREDUCE_WORDS " (default auto)", read_algorithm,
     NO_MEMBER, NO_LIMITS, in_ddp},
    {"--bucket-cap-mb", "X",
     "ddp: the size of a bucket of gradients in MiB (default 25, the first bucket 1). Given alone "
     "it sets the first bucket too",
     read_number, AT(bucket_cap_mb), 1e-6, 1e6, in_ddp},
    {"--first-bucket-mb", "X", "ddp: the size of the first bucket in MiB", read_number,
     AT(first_bucket_mb), 1e-6, 1e6, in_ddp},
    {"--no-broadcast-buffers", NULL,
     "ddp: each rank keeps its own running statistics; default: rank 0's go to all before each "
     "forward",
     read_on, AT(no_broadcast_buffers), NO_LIMITS, in_ddp_with_buffers},
    {"--no-overlap", NULL, "ddp: allreduce after backward, not beside it", read_on, AT(no_overlap),
     NO_LIMITS, in_ddp},
    {"--join", "[=RULE]",
     "use every sample once, so ranks may have different numbers of batches: those that have none "
     "left shadow the others. RULE: samples (default): every sample weighs the same; ddp also "
     "initial, active: means of ranks, divided by all ranks or by those with samples; throw: end",
     read_join, NO_MEMBER, NO_LIMITS, always},
    {"--find-unused-parameters", NULL,
     "ddp: look in every step for parameters that have no part in the loss, so that a step may "
     "leave some out (--model branches does)",
     read_on, AT(find_unused), NO_LIMITS, in_ddp},
    {"--debug-collectives", NULL,
     "ddp: before each collective all ranks meet and compare what they are about to call; so does "
     "TORCH_DISTRIBUTED_DEBUG=DETAIL in the environment",
     read_on, AT(debug_collectives), NO_LIMITS, in_ddp},

    {"--link", "NAME|GB/s,us",
     "estimate: the link between the devices, for the times of transfers: pcie3, pcie4, nvlink2, "
     "nvlink3, nvlink4, or gigabytes per second in each direction and microseconds to begin",
     read_link, NO_MEMBER, NO_LIMITS, by_estimate},

    HEADING("GPUs"),
    {"--cuda-math", "own|library",
     "who computes matrix products and convolutions. own: Duet's kernels; library: cuBLAS and, "
     "where it is found, cuDNN (default own)",
     read_math, NO_MEMBER, NO_LIMITS, on_gpus},
    {"--tf32", NULL, "products may round their inputs to tf32", read_on, AT(tf32), NO_LIMITS,
     on_gpus},
    {"--no-graph", NULL,
     "enqueue each kernel anew in every step instead of replaying a graph (compare, profile and "
     "runs with a trace always do)",
     read_on, AT(no_graph), NO_LIMITS, with_graphs},

    HEADING("output (FILE /dev/stdout is standard output; - is refused)"),
    {"--save", "FILE", "train: write the weights at the end, as safetensors", read_text, AT(save),
     NO_LIMITS, by_train},
    {"--checkpoint", "FILE", "train: write all that is needed to go on, at the end, as safetensors",
     read_text, AT(checkpoint), NO_LIMITS, by_train},
    {"--checkpoint-every", "N", "and after every N steps", read_int, AT(checkpoint_every), 1, 1e9,
     beside_checkpoint},
    {"--resume", "FILE", "train: go on from a checkpoint of the same flags, with the same bits",
     read_text, AT(resume), NO_LIMITS, by_train},
    {"--module-prefix", NULL,
     "names in the saved weights begin with \"module.\", as those of a model that PyTorch wraps in "
     "DataParallel (both are read)",
     read_on, AT(module_prefix), NO_LIMITS, beside_save},
    {"--log-loss", "FILE", "train: write step,epoch,loss of every step, as CSV", read_text,
     AT(log_loss), NO_LIMITS, by_train},
    {"--json", "FILE", "write all results as JSON", read_text, AT(json), NO_LIMITS, always},
    {"--csv", "FILE",
     "write them as CSV: a row for each device of each run (scale: for each run)", read_text,
     AT(csv), NO_LIMITS, of_runs},
    {"--trace", "FILE",
     "write a timeline of the first 1000 steps, which ui.perfetto.dev opens", read_text, AT(trace),
     NO_LIMITS, by_all_but_scale},
    {"--tensorboard", "DIR",
     "write loss, accuracy, images/s and memory as TensorBoard's event files; commands that train "
     "several times write a folder in DIR for each run",
     read_text, AT(tensorboard), NO_LIMITS, by_all_but_profile},
    {"--report", "FILE",
     "write the results as a page for a browser: one file that needs nothing else", read_text,
     AT(report), NO_LIMITS, by_all_but_scale},
    {"--pictures", "DIR",
     "write the pictures of that page into a folder, as SVG for slides", read_text, AT(pictures),
     NO_LIMITS, by_all_but_scale},
    {"--log-interval", "N",
     "print the loss of each N-th step of an epoch (default: of none)", read_int, AT(log_interval),
     1, INT32_MAX - 1, with_progress},
    {"--live", NULL,
     "a dashboard in the terminal instead of lines of progress: memory, times, loss and accuracy "
     "of the run that goes on",
     read_on, AT(live), NO_LIMITS, with_dashboard},
    {"--quiet", NULL, "print no progress, and no warnings before training", read_on, AT(quiet),
     NO_LIMITS, always},
    {NULL, NULL, NULL, NULL, NO_MEMBER, NO_LIMITS, NULL},
};
// clang-format on
