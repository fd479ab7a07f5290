/* Which emulated devices a program sees. On a machine without GPUs CUDA_VISIBLE_DEVICES chooses
 * them as it would choose GPUs: with CUDA_VISIBLE_DEVICES=2,0 a program has two devices, its device
 * 0 is number 2 of the machine, and its device 1 is number 0. The machine's emulated devices have
 * the numbers 0 to MAX_DEVICES - 1. As with GPUs, -1 ends the list.
 *
 * A program sees all of them if the variable is not set, if it hides all GPUs (it is empty, or
 * begins with -1), or if it names real ones: the machine has NVIDIA's driver, or the list has
 * identifiers (GPU-..., MIG-...), which emulated devices do not have. */
#ifndef DEVICE_VISIBLE_H
#define DEVICE_VISIBLE_H

#include "base/limits.h"

#ifdef __cplusplus
extern "C" {
#endif

struct visible_devices {
    int count;
    int number[MAX_DEVICES]; /* [count] of the machine */
};

/* ERR_USAGE: the variable has something else than different numbers of devices. */
int visible_devices(struct visible_devices *visible);

/* ERR_USAGE where the program sees fewer than `devices` emulated devices. `what` names the one who
 * asked, such as "--devices". */
int visible_check(const char *what, int devices);

#ifdef __cplusplus
}
#endif
#endif
