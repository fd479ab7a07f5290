/* Checks whether the devices are equal. DataParallel gives each the same share of the batch, so a
 * smaller or slower one delays all others. PyTorch warns of that when it wraps a module. */
#ifndef DP_BALANCE_H
#define DP_BALANCE_H

#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

/* Applies PyTorch's rule: the smallest of n devices has less than 75 % of the largest's memory or,
 * if the memories are similar, of its cores. If so, it writes a line in PyTorch's words to `text`
 * and returns 1; otherwise it returns 0. If several devices tie, it names the first. */
int dp_imbalance(const uint64_t *memory, const int *cores, int n, char *text, size_t bytes);

/* The same for open devices. */
int dp_imbalance_of(struct device *const *devices, int n, char *text, size_t bytes);

#endif
