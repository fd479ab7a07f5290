/* The environment, as far as it changes what CUDA does: variables that other programs leave in a
 * shell, MPS, and GPUs that take one process at a time. Variables have a row only where they are
 * set. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor/check.h"
#include "doctor/cuda/gpu.h"

static const char *is_set(const char *name) {
    const char *value = getenv(name);
    return value && *value && strcmp(value, "0") != 0 ? value : NULL;
}

/* device/cuda/environment.c takes more, before CUDA reads the variable. */
static void look_at_queues(struct doctor *d) {
    enum { LEAST = 8 };
    const char *value = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (value && atoi(value) < LEAST)
        note(d, FINDING_OK, "hardware queues", "",
             "CUDA_DEVICE_MAX_CONNECTIONS=%s is too few for streams that wait for other ranks: 32 "
             "are taken, under MPS 8",
             value);
}

static void look_at_blocking(struct doctor *d) {
    const char *value = is_set("CUDA_LAUNCH_BLOCKING");
    if (value)
        note(
            d, FINDING_OFF, "launches", "CUDA_LAUNCH_BLOCKING is not set",
            "CUDA_LAUNCH_BLOCKING=%s: a launch waits for its kernel in the driver, in DDP also for "
            "other ranks, without a deadline; no time measured means anything: unset it",
            value);
}

static void look_at_p2p(struct doctor *d) {
    const char *value = is_set("NCCL_P2P_DISABLE");
    if (value)
        note(d, FINDING_OK, "P2P", "",
             "NCCL_P2P_DISABLE=%s: between GPUs everything goes through host memory", value);
}

enum { PATH_LENGTH = 512 };

/* 1 if the daemon of MPS is there; `path` is what it listens at. */
static int mps_runs(char path[PATH_LENGTH]) {
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    snprintf(path, PATH_LENGTH, "%s/control", folder ? folder : "/tmp/nvidia-mps");
    return !access(path, F_OK);
}

static void look_at_mps(struct doctor *d) {
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY"),
               *share = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    char path[PATH_LENGTH];
    if (mps_runs(path))
        note(d, FINDING_OK, "MPS", "",
             "%.200s: ranks that share a GPU run at once, and a fault of one ends all%s%.8s%s",
             path, share ? "; each has " : "", share ? share : "", share ? " % of the SMs" : "");
    else if (folder)
        note(d, FINDING_OFF, "MPS", "its daemon runs",
             "CUDA_MPS_PIPE_DIRECTORY=%.200s: no daemon is there: start it "
             "(nvidia-cuda-mps-control -d), or unset the variable",
             folder);
    else
        note(d, FINDING_NOT_HERE, "MPS", "",
             "no daemon: the ranks of a GPU take turns on it, which makes their steps many times "
             "as long: nvidia-cuda-mps-control -d starts one");
}

/* Under MPS its server is the one process that such a GPU takes. */
void look_at_compute_modes(struct doctor *d) {
    char list[64] = "", path[PATH_LENGTH];
    if (!d->progress->gpus) return;
    for (int gpu = 0; gpu < d->progress->gpus; gpu++) {
        struct gpu_facts facts;
        size_t used = strlen(list);
        if (!gpu_facts(gpu, &facts) && facts.exclusive)
            snprintf(list + used, sizeof list - used, " %d", gpu);
    }
    if (*list && mps_runs(path))
        note(d, FINDING_OK, "compute mode", "", "GPUs%s take one process at a time: that of MPS",
             list);
    else if (*list)
        note(d, FINDING_OFF, "compute mode", "processes may share a GPU",
             "GPUs%s take one process at a time: ranks cannot share them: start MPS "
             "(nvidia-cuda-mps-control -d), or nvidia-smi -c DEFAULT",
             list);
    else
        note(d, FINDING_OK, "compute mode", "", "processes may share a GPU");
}

void look_at_environment(struct doctor *d) {
    if (d->config.target == DOCTOR_CPU) return;
    look_at_queues(d);
    look_at_blocking(d);
    look_at_p2p(d);
    look_at_mps(d);
}
