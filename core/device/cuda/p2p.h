/* The parts of a trial of peer-to-peer access between two GPUs. p2p.c combines them for two devices
 * in one process, allreduce/cuda/trial.c for the ranks of a job. */
#ifndef DEVICE_CUDA_P2P_H
#define DEVICE_CUDA_P2P_H

#include "device/cuda/cuda.h"

/* Floats in a trial, 4 KiB in each direction; the seed of the initial contents. */
enum { CUDA_P2P_COUNT = 1024, CUDA_P2P_NOBODY = MAX_DEVICES };

/* The memory of one trial, CUDA_P2P_COUNT floats each. All but `host` is on a device. */
struct cuda_p2p_trial {
    cudaStream_t stream; /* the trial's own stream, since the trial may never end */
    float *loaded;       /* what a kernel loaded from the peer */
    float *copied;       /* what the copy engine copied from the peer */
    const float *own;    /* pattern `own_seed`, already written */
    unsigned own_seed;
    const float *theirs; /* in the peer's memory: pattern `their_seed`, already written */
    unsigned their_seed;
    float *inbox; /* in the peer's memory: a kernel stores its own pattern there */
    float *host;  /* pinned */
};

/* The trials of a device use one stream, one after another. close does not free a stuck stream. */
int cuda_p2p_open(struct cuda_device *device, cudaStream_t *stream);
void cuda_p2p_close(struct cuda_device *device, cudaStream_t stream);
/* Fills CUDA_P2P_COUNT floats of this device, and syncs. ERR_FAILED: the stream is stuck. */
int cuda_p2p_put(struct cuda_device *device, const struct cuda_p2p_trial *t, float *memory,
                 unsigned seed);
/* Sets *equal to 1 if the memory holds that pattern. */
int cuda_p2p_holds(struct cuda_device *device, const struct cuda_p2p_trial *t, const float *memory,
                   unsigned seed, int *equal);
/* Loads, copies and stores. *works is 1 if load and copy were right; the peer checks the store.
 * ERR_FAILED: it did not end in time (cuda_p2p.stuck). `who` names the two in the error. */
int cuda_p2p_try(struct cuda_device *device, const struct cuda_p2p_trial *t, const char *who,
                 int *works);
/* Keeps the result for the GPU with that UUID. If it has several results, the worst one counts. */
void cuda_p2p_learn(struct cuda_device *device, const unsigned char uuid[16], int works);
/* Sets the message of device_p2p_fault, if empty: P2P moves no bytes between `who`. */
void cuda_p2p_blame(struct cuda_device *device, const char *who);

#endif
