/* The options of train, compare, profile, estimate, scale and demo, one row each, in the order of
 * --help. option.h explains the columns, and effects.h explains their bits. */
#include "allreduce/plan.h"
#include "cli/options/effects.h"
#include "cli/options/run_options.h"

enum {
    MOST_EPOCHS = 1000000,
    MOST_WORKERS = 64,
    MOST_PASSES = 4096,
    MOST_SAMPLES = 100000000,
    MOST_PARAMS = 2000000000
};
#define LARGEST_FLOAT 3.4e38      /* about FLT_MAX, since devices compute in float */
#define SMALLEST_MEMORY (2 << 20) /* memory comes in pieces of 2 MiB */

#define AT(member) OPTION_AT(struct run_config, member)
#define BY_RUNS_BUT(command) (BY_RUNS & ~(command))
#define EVERYWHERE BY_ALL, IN_ANY_MODE, 0

// clang-format off
const struct option run_options[] = {
    OPTION_HEADING("mode and devices"),
    {"--mode", "single|dp|ddp|fsdp",
     "train: on one device, as DataParallel, as DistributedDataParallel, or sharded (default "
     "single)",
     read_choice, AT(mode), NO_LIMITS,
     OFTEN | BY_TRAIN | BY_SCALE, IN_ANY_MODE, 0},
    {"--modes", "A,B,...",
     "the modes to compare, such as ddp,fsdp, or all (default single,dp,ddp). estimate shows fsdp "
     "three times, as ZeRO 1, 2 and 3",
     read_modes, NO_MEMBER, NO_LIMITS,
     OFTEN | BY_COMPARE | BY_DEMO | BY_ESTIMATE, IN_ANY_MODE, 0},
    {"--device", "auto|cpu|cuda",
     "cpu: emulated devices; cuda: GPUs; auto: GPUs if there are any, else cpu (default)",
     read_text, AT(device), NO_LIMITS,
     OFTEN | EVERYWHERE},
    {"--devices", "N",
     "the number of devices of dp, ddp and fsdp (default 2); single uses one. If there are fewer "
     "GPUs, the devices share them",
     read_int, AT(devices), 1, MAX_DEVICES,
     OFTEN | BY_ALL, IN_ANY_MODE, ON_SEVERAL_DEVICES},
    {"--virtual-devices", "V|off",
     "split each batch into V parts, a multiple of the number of devices: runs with the same V "
     "agree bit for bit in every mode (default: the number of devices; in compare, that of dp and "
     "ddp for every mode). off: split by the mode's own number of devices",
     read_virtual, AT(virtual_devices), 1, MAX_DEVICES,
     OFTEN | EVERYWHERE},
    {"--device-memory", "SIZE[,SIZE...]",
     "the memory of each device, such as 512M or 4G, or a list for device 0, device 1, ... "
     "(default: see `duet devices`; cuda: a share of the GPU)",
     read_memory, NO_MEMBER, SMALLEST_MEMORY, 0x1p50,
     OFTEN | EVERYWHERE},

    OPTION_HEADING("model"),
    {"--model", "NAME|FILE",
     "lenet (default), convnet, mlp, resnet18, simple, complex, wide or branches; or a file that "
     "duet.export wrote of a PyTorch model. estimate also knows torchvision-resnet18, resnet50, "
     "vgg16, gpt2-small, bert-base and more (docs/models.md). Without --model and --dataset, "
     "profile and estimate use wide on 4 devices",
     read_model, AT(model.name), NO_LIMITS,
     OFTEN | EVERYWHERE},
    {"--params", "N",
     "estimate: a model described by its sizes: N parameters, such as 25.6M or 1.1B, and the "
     "options below",
     read_params, AT(model.options.params), 2, MOST_PARAMS,
     OFTEN | BY_ESTIMATE, IN_ANY_MODE, 0},
    {"--buffers", "N", "estimate: elements of its buffers, such as running statistics (default 0)",
     read_count, AT(model.options.buffers), 0, MOST_PARAMS,
     BY_ESTIMATE, IN_ANY_MODE, BESIDE_PARAMS},
    {"--activations", "SIZE",
     "estimate: activation memory per sample kept for backward, without parameters and outputs, "
     "such as 90M",
     read_bytes, AT(model.options.activation_bytes), 0, 0x1p50,
     OFTEN | BY_ESTIMATE, IN_ANY_MODE, BESIDE_PARAMS},
    {"--classes", "K",
     "the number of outputs, one per class (default: 1 + the largest label, at least 10; for "
     "synthetic and random data 10, for model wide 2000). With --params also TxK: T tokens with K "
     "classes each, such as 512x30522",
     read_classes, AT(model.options.classes), 1, MODEL_MAX_CLASSES,
     OFTEN | EVERYWHERE},
    {"--loss", "cross-entropy|mse|smooth-l1|bce-with-logits",
     "the loss: cross-entropy (default) compares with labels, the others with targets",
     read_choice, AT(model.options.loss), NO_LIMITS, EVERYWHERE},
    {"--mlp-hidden", "H1,H2,...",
     "the widths of the hidden layers of mlp (default 256; wide: 512,512)", read_hidden,
     NO_MEMBER, NO_LIMITS,
     BY_ALL, IN_ANY_MODE, WITH_MLP},
    {"--init", "default|d2l",
     "initial weights. default: PyTorch's; d2l: the chapter's, normal with standard deviation 0.01 "
     "(only resnet18; lenet always has the chapter's)",
     read_choice, AT(model.options.init_d2l), NO_LIMITS,
     BY_ALL, IN_ANY_MODE, WITH_RESNET | WITHOUT_INIT_FROM | WITHOUT_RESUME},
    {"--sync-bn", NULL,
     "replace every BatchNorm by SyncBatchNorm, which normalises over the global batch (not dp)",
     read_on, AT(model.options.sync_bn), NO_LIMITS,
     BY_ALL, IN_ANY_MODE, WITH_NORMS},
    {"--init-from", "FILE",
     "start from the weights in a safetensors file (python -m duet convert OLD NEW makes one from "
     "a torch.save file)",
     read_text, AT(model.init_from), NO_LIMITS,
     BY_RUNS, IN_ANY_MODE, 0},

    OPTION_HEADING("data"),
    {"--dataset", "NAME|FILE",
     "fashion-mnist, mnist, synthetic (drawn digits) or random (torch.randn samples, torch.randint "
     "labels); or a safetensors file with your tensors x and y, and optionally x_test and y_test "
     "(docs/models.md). Default: fashion-mnist; for wide random; own in a program that supplies "
     "its own data",
     read_text, AT(data.name), NO_LIMITS,
     OFTEN | EVERYWHERE},
    {"--shape", "CxHxW|K",
     "synthetic, random: the shape of a sample: CxHxW for images, K for a vector or tokens "
     "(default 1x28x28; random: what the model expects, for simple 10, for complex 3x32x32)",
     read_shape, NO_MEMBER, NO_LIMITS,
     BY_ALL, IN_ANY_MODE, OF_MADE_DATA},
    {"--samples", "N",
     "synthetic, random: the number of training samples (default 60000, random 6400)", read_int,
     AT(data.samples), 1, MOST_SAMPLES,
     BY_ALL, IN_ANY_MODE, OF_MADE_DATA},
    {"--data-dir", "DIR",
     "the folder with the four IDX files, plain or .gz; the model adapts to their image size and "
     "number of classes",
     read_text, AT(data.folder), NO_LIMITS,
     BY_ALL, IN_ANY_MODE, OF_FILES},
    {"--no-shuffle", NULL, "take the samples in the order of the files", read_off, AT(data.shuffle),
     NO_LIMITS, EVERYWHERE},
    {"--drop-last", NULL,
     "drop samples instead of using some twice, and drop an incomplete last batch",
     read_on, AT(data.drop_last), NO_LIMITS, EVERYWHERE},
    {"--workers", "N",
     "the number of threads that prepare batches; 0: the training thread does it (default 1)",
     read_int, AT(data.workers), 0, MOST_WORKERS, EVERYWHERE},
    {"--no-pin-memory", NULL,
     "prepare batches in pageable host memory, and copy each before its step instead of during the "
     "previous one, as without pin_memory and non_blocking", read_on,
     AT(data.no_pin_memory), NO_LIMITS,
     EVERYWHERE},

    OPTION_HEADING("training"),
    {"--epochs", "N", "the number of epochs (default 10; demo: 3)", read_int, AT(epochs), 1,
     MOST_EPOCHS, OFTEN | EVERYWHERE},
    {"--steps", "N", "stop after N steps in total (profile: default 50)", read_int, AT(steps), 1,
     INT32_MAX - 1, OFTEN | EVERYWHERE},
    {"--batch-per-device", "B",
     "samples per device, as PyTorch's DDP programs count: the global batch is B times the number "
     "of devices",
     read_int, AT(batch_per_device), 1, LARGEST_BATCH,
     EVERYWHERE},
    {"--batch-size", "B", "samples of the GLOBAL batch, split over the devices, also in ddp "
     "(default 256)",
     read_int, AT(batch_size), 1, LARGEST_BATCH,
     OFTEN | EVERYWHERE},
    {"--no-sync-steps", "K",
     "accumulate the gradients of K batches before each update, like PyTorch's no_sync: ddp runs "
     "allreduce once per K batches (default 1)",
     read_int, AT(update.passes), 1, MOST_PASSES, EVERYWHERE},
    {"--optimizer", "sgd|adadelta|adam|adamw", "the optimizer (default sgd)",
     read_choice, AT(update.optimizer), NO_LIMITS,
     OFTEN | EVERYWHERE},
    {"--lr", "X", "the learning rate (default: sgd 0.2, adadelta 1, adam and adamw 0.001)",
     read_number, AT(update.lr), 0, LARGEST_FLOAT, OFTEN | EVERYWHERE},
    {"--momentum", "X", "the momentum of sgd (default 0)", read_number, AT(update.momentum), 0,
     LARGEST_FLOAT,
     OFTEN | BY_ALL, IN_ANY_MODE, BY_SGD},
    {"--weight-decay", "X",
     "weight decay, added to the gradient; adamw: applied to the weights directly (default 0; "
     "adamw 0.01)",
     read_number, AT(update.weight_decay), 0, LARGEST_FLOAT, EVERYWHERE},
    {"--seed", "S",
     "the seed of initial weights, sampler and dropout, as for torch.manual_seed (default 0)",
     read_seed, AT(seed), NO_LIMITS, OFTEN | EVERYWHERE},
    {"--timeout", "SECONDS", "the deadline of every wait (default 300)", read_number, AT(timeout),
     0.01, 1e6, EVERYWHERE},

    OPTION_HEADING("dp, ddp and fsdp"),
    {"--loss-in-forward", NULL,
     "dp: each device computes its own loss, and no outputs are gathered", read_on,
     AT(dp.loss_in_forward), NO_LIMITS,
     BY_RUNS_BUT(BY_PROFILE), IN_DP, 0},
    {"--output-device", "D",
     "dp: the device that gathers the outputs and computes the loss (default 0)", read_int,
     AT(dp.output_device), 0, MAX_DEVICES - 1,
     BY_ALL, IN_DP, 0},
    {"--dp-reduce", "first|sharded",
     "dp: which device sums the gradients. first: device 0 (default); sharded: every other device "
     "sums a part and sends it to device 0",
     read_choice, AT(dp.sharded_reduce), NO_LIMITS,
     BY_ALL, IN_DP, 0},
    {"--allreduce", ALLREDUCE_WORDS,
     "ddp: the algorithm (default auto). fsdp: nccl, on GPUs. single, dp: with ring or tree, "
     "sum gradients in the order of ddp on --devices ranks, for identical bits",
     read_choice, AT(ddp.allreduce), NO_LIMITS,
     OFTEN | BY_ALL, IN_ANY_MODE, ADDS_AS_DDP},
    {"--bucket-cap-mb", "X",
     "ddp: the size of each gradient bucket in MiB (default: 1 for the first and 25 for the "
     "others; for model wide 1)",
     read_number, AT(ddp.bucket_cap_mb), 1e-6, 1e6,
     BY_ALL, IN_ANY_MODE, ADDS_AS_DDP},
    {"--no-overlap", NULL, "ddp: run allreduce after backward instead of during it",
     read_on, AT(ddp.no_overlap), NO_LIMITS,
     BY_ALL, IN_DDP, 0},
    {"--shard", "optimizer|gradients|parameters",
     "fsdp: what is split over the ranks, as in ZeRO 1, 2 or 3 (default parameters)",
     read_choice, AT(fsdp.shard), NO_LIMITS,
     OFTEN | BY_RUNS_BUT(BY_PROFILE), IN_FSDP, 0},
    {"--units", "MIB|NAME,...",
     "fsdp: what is gathered together: blocks of layers until they hold so many MiB, larger blocks "
     "by layer, or each named module and the rest (default: a sixteenth of the parameters)",
     read_text, AT(fsdp.units), NO_LIMITS,
     BY_ALL & ~BY_PROFILE, IN_FSDP, 0},
    {"--prefetch", "N", "fsdp: how many units to gather ahead, 0 to 4 (default 1)", read_int,
     AT(fsdp.prefetch), 0, 4,
     BY_ALL & ~BY_PROFILE, IN_FSDP, 0},
    {"--reshard-after-forward", "on|off",
     "fsdp: off: keep gathered parameters from forward to backward (default on)", read_choice,
     AT(fsdp.keep), NO_LIMITS,
     BY_ALL & ~BY_PROFILE, IN_FSDP, SPLITS_PARAMETERS},
    {"--join", NULL,
     "use every sample exactly once: ranks that run out of batches keep taking part in the "
     "collectives of the others, and every sample weighs the same",
     read_on, AT(data.join), NO_LIMITS, EVERYWHERE},
    {"--find-unused-parameters", NULL,
     "ddp: find the parameters that a step does not use, for models that leave some out (as "
     "--model branches does)",
     read_on, AT(ddp.find_unused), NO_LIMITS,
     BY_ALL, IN_ANY_MODE, ADDS_AS_DDP},
    OPTION_HEADING("modelled times (docs/clock.md)"),
    {"--gpu", "NAME",
     "show the times predicted for this GPU instead of measured ones; `duet devices --gpus` lists "
     "the names",
     read_text, AT(clock.gpu), NO_LIMITS,
     OFTEN | EVERYWHERE},
    {"--machine", "NAME|FILE",
     "with --gpu: the machine of the GPUs (default: a PC with their PCIe), or your own file",
     read_text, AT(clock.machine), NO_LIMITS,
     OFTEN | BY_ALL, IN_ANY_MODE, BESIDE_GPU},
    {"--nodes", "M",
     "with --gpu: spread the devices over M such machines, joined by their network (default 1)",
     read_int, AT(clock.nodes), 1, MAX_DEVICES,
     BY_ALL & ~BY_DEMO, IN_DDP | IN_FSDP, BESIDE_GPU},
    {"--precision", "default|fp32|tf32|amp",
     "with --gpu: predict for fp32, for TF32 in convolutions and matrix products, or for autocast "
     "with channels_last (default: TF32 in convolutions only, as in PyTorch). Runs compute in "
     "float32",
     read_precision, AT(clock.precision), NO_LIMITS,
     BY_ESTIMATE, IN_ANY_MODE, BESIDE_GPU},
    {"--what-if", "KEY=X,...",
     "with --gpu: change link, launch, compute or memory by a factor, such as link=2x,launch=0, or "
     "remove Python's lock with gil=off",
     read_text, AT(clock.what_if), NO_LIMITS,
     BY_ALL, IN_ANY_MODE, BESIDE_GPU},

    OPTION_HEADING("GPUs"),
    {"--cuda-math", "own|library",
     "what computes linear layers. own: Duet's kernels (default); library: cuBLAS",
     read_choice, AT(cuda_math), NO_LIMITS,
     BY_ALL, IN_ANY_MODE, ON_GPUS},
    {"--tf32", NULL, "allow matrix products to round their inputs to tf32", read_on, AT(tf32),
     NO_LIMITS,
     BY_ALL, IN_ANY_MODE, ON_GPUS},

    OPTION_HEADING("output (FILE /dev/stdout is standard output; - is refused)"),
    {"--save", "FILE", "train: write the weights at the end, as safetensors",
     read_text, AT(files.save), NO_LIMITS,
     OFTEN | BY_TRAIN, IN_ANY_MODE, 0},
    {"--checkpoint", "FILE", "train: write a checkpoint at the end, as safetensors",
     read_text, AT(files.checkpoint), NO_LIMITS,
     BY_TRAIN, IN_ANY_MODE, 0},
    {"--checkpoint-every", "N", "train: write it after every N steps, too",
     read_int, AT(files.checkpoint_every), 1, 1e9,
     BY_TRAIN, IN_ANY_MODE, BESIDE_CHECKPOINT},
    {"--resume", "FILE", "train: resume from a checkpoint saved with the same options: the result "
     "is that of an uninterrupted run, bit for bit",
     read_text, AT(files.resume), NO_LIMITS,
     BY_TRAIN, IN_ANY_MODE, 0},
    {"--log-loss", "FILE", "train: write step, epoch and loss of every step as CSV", read_text,
     AT(files.log_loss), NO_LIMITS,
     BY_TRAIN, IN_ANY_MODE, 0},
    {"--json", "FILE", "write all results as JSON", read_text, AT(files.json), NO_LIMITS,
     OFTEN | EVERYWHERE},
    {"--trace", "FILE",
     "write a timeline of the first 1000 steps, for ui.perfetto.dev",
     read_text, AT(files.trace), NO_LIMITS,
     BY_RUNS_BUT(BY_SCALE), IN_ANY_MODE, 0},
    {"--tensorboard", "DIR",
     "write loss, accuracy, samples/s and memory as TensorBoard event files, one folder in DIR per "
     "run",
     read_text, AT(files.tensorboard), NO_LIMITS,
     BY_RUNS_BUT(BY_PROFILE), IN_ANY_MODE, 0},
    {"--report", "FILE",
     "write the results as a page for a browser: one file that needs nothing else", read_text,
     AT(files.report), NO_LIMITS,
     OFTEN | BY_RUNS_BUT(BY_SCALE), IN_ANY_MODE, 0},
    {"--pictures", "DIR",
     "write the report's pictures for slides, as SVG and, where rsvg-convert is installed, PNG",
     read_text, AT(files.pictures), NO_LIMITS,
     BY_RUNS_BUT(BY_SCALE), IN_ANY_MODE, 0},
    {"--as", "duet|pytorch",
     "pytorch: also show the memory that PyTorch's DataParallel and DDP would hold on each device "
     "(default duet)",
     read_choice, AT(as_pytorch), NO_LIMITS,
     BY_PROFILE | BY_ESTIMATE, IN_ANY_MODE, 0},
    {"--details", NULL, "profile, estimate: show every way to train, every row, and the "
     "differences",
     read_on, AT(details), NO_LIMITS,
     OFTEN | BY_PROFILE | BY_ESTIMATE, IN_ANY_MODE, 0},
    {"--quiet", NULL, "print no progress, and no warnings before training",
     read_on, AT(quiet), NO_LIMITS, EVERYWHERE},
    OPTION_END,
};
// clang-format on
