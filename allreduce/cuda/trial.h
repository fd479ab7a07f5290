/* Ranks on GPUs test the paths between their GPUs. */
#ifndef ALLREDUCE_CUDA_TRIAL_H
#define ALLREDUCE_CUDA_TRIAL_H

#include "comm/comm.h"
#include "device/device.h"

/* Implements `meet` of executor.h; device_reaches and device_p2p_fault return the result. */
int cuda_meet_ranks(struct comm *comm, struct device *device);

#endif
