/* A run: what the user asked for, and what is open while it trains. Plain data, so that a
 * launcher can hand a configuration to its ranks as bytes. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "base/limits.h"
#include "device/device.h"
#include "models/model.h"
#include "nn/optimizer.h"
#include "trace/record.h"

enum { VIRTUAL_OFF = 0, VIRTUAL_DEFAULT = -1, PATH_BYTES = 512 };

struct run_config {
    enum run_mode mode;
    char device[16]; /* auto, cpu or cuda */
    int devices;     /* W; a single run uses one of them */
    /* V, VIRTUAL_OFF, or VIRTUAL_DEFAULT: W in train, the largest count in compare */
    int virtual_devices;
    uint64_t device_memory;     /* bytes; 0: device_default_memory */
    enum device_math cuda_math; /* cuda: who multiplies */
    int tf32;                   /* cuda: products may round their inputs to tf32 */
    /* cuda: every kernel is enqueued anew in each step, nothing is recorded and replayed */
    int no_graph;
    char model[16];
    struct model_options model_options;
    char dataset[16];
    char data_dir[PATH_BYTES];
    char data_on[8]; /* auto, host or device: where the data set lies that batches are made of */
    int epochs;
    int steps;      /* in all; 0: as the epochs say */
    int batch_size; /* global */
    enum optimizer_kind optimizer;
    double lr, momentum, weight_decay;
    uint64_t seed;
    int shuffle, drop_last;
    int workers;
    char allreduce[16];
    double bucket_cap_mb, first_bucket_mb; /* < 0: not given */
    int loss_in_forward;
    int no_overlap; /* ddp: no allreduce before backward has ended */
    double timeout; /* seconds */
    char init_from[PATH_BYTES], save[PATH_BYTES], log_loss[PATH_BYTES], json[PATH_BYTES];
    /* given, and spans on: the record keeps spans; the command writes them, not the trainer */
    char trace[PATH_BYTES];
    int quiet;
    /* now_ns when the run was asked for: the time to the first step counts from it */
    int64_t started_ns;
    int hashes;   /* compare: hash parameters and gradients every step */
    int spans;    /* compare, profile: record time by phase */
    int evaluate; /* test accuracy after each epoch */
    int late;     /* tests: host-late devices */
    /* lock step: begin at this global step; data order as if the steps before had run */
    int first_step;
    /* lock step: record the parameters before these steps; -1 ends the list */
    int snapshots[MAX_SNAPSHOTS];
    int dump_grads; /* lock step: record the reduced gradients of the last step */
};

/* The defaults that --help states. */
void run_config_default(struct run_config *config);

/* Clears the files that a run itself writes: --save, --log-loss and --json. A command that trains
 * several times, or once for a check, writes its results itself. --trace stays: it only asks the
 * record to keep its spans. */
void run_config_without_files(struct run_config *config);

/* Checks what is wrong on its own or together (batch below devices, V no multiple of W, unknown
 * names), before anything is opened. ERR_USAGE with one line. */
int run_config_check(const struct run_config *config);

/* Real devices that take part: 1 for single. V as it is in force: 0 for off. */
int run_devices(const struct run_config *config);
int run_virtual_devices(const struct run_config *config);

struct optimizer_config run_optimizer(const struct run_config *config);

/* The kind of device in force. Asked by whoever opens devices, not by a launcher, which stays
 * without CUDA. ERR_USAGE: a GPU is asked for, and why there is none. *count: physical ones. */
int run_device_kind(const struct run_config *config, enum device_kind *kind, int *count);

#endif
