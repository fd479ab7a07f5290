/* The configuration of a run, as the user requested it. It is plain data, so a launcher can pass it
 * to its ranks as bytes. Its one pointer, model.options.own, is set by each process itself. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "base/limits.h"
#include "clock/choice.h"
#include "data/dataset.h"
#include "device/device.h"
#include "models/model.h"
#include "nn/optimizer/optimizer.h"
#include "trace/record.h"

enum { VIRTUAL_OFF = 0, VIRTUAL_DEFAULT = -1, PATH_BYTES = 512 };

/* The model. */
struct run_model {
    char name[PATH_BYTES];
    struct model_options options;
    char init_from[PATH_BYTES]; /* a file of weights to start with; empty: initial values */
};

/* The training data, its order, and its way to the devices. */
struct run_data {
    char name[PATH_BYTES]; /* or the path of a file of tensors */
    char folder[PATH_BYTES];
    int samples; /* of a generated data set; 0: not given. Their shape and the number of classes are
                  * in the model's options */
    /* Memory files of the training set and the test set, which ranks map (train/shared_data.h); 0:
     * a process opens the set itself. seconds is the time that reading them took. */
    int fd[2];
    double seconds;
    int shuffle;
    int drop_last;
    int join; /* an epoch is not padded or truncated, and every sample has the same weight */
    int workers;
    int no_pin_memory; /* batches are in pageable memory, and each is copied before its step */
};

/* How parameters are updated. */
struct run_update {
    int passes; /* batches per update; 1: no accumulation */
    enum optimizer_kind optimizer;
    double lr, momentum;
    double weight_decay; /* < 0: the optimizer's default */
};

struct run_dp {
    int loss_in_forward; /* 1: each device computes its own loss */
    int output_device;   /* the device that gathers the outputs and computes the loss */
    int sharded_reduce;  /* 1: every device sums a shard of the gradients */
};

struct run_ddp {
    char allreduce[16];
    double bucket_cap_mb; /* MiB; < 0: not given */
    int no_overlap;       /* 1: no allreduce before the end of backward */
    int find_unused;      /* see ddp_config.find_unused */
};

/* See struct fsdp_config. */
struct run_fsdp {
    int shard; /* enum fsdp_shard */
    char units[PATH_BYTES];
    int prefetch;
    int keep;
};

/* The files that the run reads and writes; an empty path: none. */
struct run_paths {
    char save[PATH_BYTES], log_loss[PATH_BYTES], json[PATH_BYTES];
    char checkpoint[PATH_BYTES], resume[PATH_BYTES];
    int checkpoint_every;         /* steps between checkpoints; 0: only one at the end */
    char trace[PATH_BYTES];       /* if given, and spans are on, the record keeps spans for it */
    char report[PATH_BYTES];      /* the same, for fewer steps */
    char pictures[PATH_BYTES];    /* likewise */
    char tensorboard[PATH_BYTES]; /* the folder of this run's event file (train/files/curves.h) */
};

struct run_config {
    enum run_mode mode;
    unsigned modes;      /* compare: bit m: runs enum run_mode m */
    char device[16];     /* auto, cpu or cuda */
    int devices;         /* W; single uses one device, but adds in the order of DDP on W */
    int spread;          /* 1 + the rank of this process if mpirun has started it: train/spread.h */
    int virtual_devices; /* V, VIRTUAL_OFF, or VIRTUAL_DEFAULT: W (compare: in all modes) */
    /* Bytes of each device, or one number for all; none: device_default_memory. */
    uint64_t device_memory[MAX_DEVICES];
    int device_memory_count;
    enum device_math cuda_math; /* cuda: whose kernels compute products */
    int tf32;                   /* cuda: products may round their inputs to tf32 */

    struct run_model model;
    struct run_data data;
    struct run_update update;
    struct run_dp dp;
    struct run_ddp ddp;
    struct run_fsdp fsdp;
    struct run_paths files;

    int epochs;
    int steps;            /* in total; 0: all steps of the epochs */
    int batch_size;       /* samples in the global batch */
    int batch_per_device; /* if given, batch_size is set from it; 0: not given */
    uint64_t seed;
    double timeout; /* seconds */

    /* What is measured and printed. */
    int quiet;
    int unremarked;     /* 1: profile: shows progress on a terminal, but no other message */
    int warned;         /* 1: no warnings at the start: --quiet, or an earlier job printed them */
    int stoppable;      /* SIGINT and SIGTERM end the run after a step, leaving a record */
    int64_t started_ns; /* now_ns of the request: first_step_seconds counts from then */
    int dump_grads;     /* compare: the record gets the reduced gradients of the last step */
    int hashes;         /* compare: parameters and gradients are hashed at every step */
    int spans;          /* compare, profile: time is recorded by phase */
    int evaluate;       /* 1: compute test accuracy after each epoch */
    int as_pytorch;     /* profile, estimate: 1: also show what PyTorch would hold */
    int details;        /* profile, estimate: 1: show every row of the tables */
    int late;           /* tests: devices of kind host-late */
    int fold_elsewhere; /* profile: 1: single and DP add in the fold order, whatever DDP does */

    struct clock_words clock;  /* the hardware for modelled times (estimate/retime.h) */
    int dry;                   /* 1: dry devices and no data; see train/estimate/estimate.h */
    struct schedule *schedule; /* borrowed; with `dry` it records what the run issues */
};

/* The defaults that --help states. */
void run_config_default(struct run_config *config);

/* Makes `own`, the program's own model, the default. NULL: nothing changes. */
void run_config_own(struct run_config *config, const struct duet_model *own);

/* Clears the files that a run itself writes (--save, --log-loss, --checkpoint and --tensorboard)
 * and --json. A command with several runs writes its files from the records. --trace stays, because
 * it only makes the record keep its spans. */
void run_config_without_files(struct run_config *config);

/* For one of several runs of a command: run_config_without_files, but if `base` has --tensorboard,
 * the run writes to the folder `name` in it. ERR_USAGE: that path is too long. */
int run_config_of_several(struct run_config *config, const struct run_config *base,
                          const char *name);

/* Finds wrong values and combinations (a batch smaller than the devices, V no multiple of W, an
 * unknown name) before anything is opened. ERR_USAGE with one line. Options without effect pass:
 * only the command knows which were given (cli/options/effects.h). */
int run_config_check(const struct run_config *config);

/* The memory requested for device `index`, in bytes; 0: not given. */
uint64_t run_device_memory(const struct run_config *config, int index);

/* Returns 1 if the record keeps the spans of its first steps for a file of the command. */
int run_keeps_spans(const struct run_config *config);

/* Returns 1 if the command writes results with --json, --trace, --report or --pictures. */
int run_writes_results(const struct run_config *config);

/* The file of initial parameters and buffers: --init-from, or a graph's; NULL: none. */
const char *run_weights(const struct run_config *config);

/* W and V in force: 1 device for single; V is VIRTUAL_OFF, or a number. */
int run_devices(const struct run_config *config);
int run_virtual_devices(const struct run_config *config);

/* The optimizer with all its numbers. */
struct optimizer_config run_optimizer(const struct run_config *config);
/* ERR_USAGE: SyncBatchNorm in DP. */
int run_check_sync_bn(const struct run_config *config);

/* The data set of the run. It points into config. */
struct dataset_config run_dataset(const struct run_config *config);

/* The options of the run's model, with what is known about its data set before it is read. */
struct model_options run_model_options(const struct run_config *config);
/* Returns 1 if each epoch ends with test accuracy. Random data has no test part. */
int run_evaluates(const struct run_config *config);

/* The kind of device in force, and in *count the number of physical devices. Only the process that
 * opens devices calls it; a launcher must not start CUDA. ERR_USAGE: a GPU was requested but none
 * exists; the error says why. */
int run_device_kind(const struct run_config *config, enum device_kind *kind, int *count);

#endif
