/* Finds an imbalance of devices; see balance.h. */
#include "dp/balance.h"

#include <stdio.h>

#include "base/limits.h"
#include "trace/ledger.h"

static const double LEAST = 0.75; /* of the largest value */

/* Sets the indices of the smallest and the largest. Returns 1 if they are too far apart. */
static int apart(const uint64_t *values, int n, int *low, int *high) {
    *low = *high = 0;
    for (int i = 1; i < n; i++) {
        if (values[i] < values[*low]) *low = i;
        if (values[i] > values[*high]) *high = i;
    }
    return (double)values[*low] < LEAST * (double)values[*high];
}

int dp_imbalance(const uint64_t *memory, const int *cores, int n, char *text, size_t bytes) {
    uint64_t counts[MAX_DEVICES];
    int low, high, by_memory = apart(memory, n, &low, &high);
    char less[48], more[48];
    for (int i = 0; i < n; i++)
        counts[i] = (uint64_t)cores[i];
    if (!by_memory && !apart(counts, n, &low, &high)) return 0;
    if (by_memory) {
        format_bytes(memory[low], less, sizeof less);
        format_bytes(memory[high], more, sizeof more);
    } else {
        snprintf(less, sizeof less, "%d cores", cores[low]);
        snprintf(more, sizeof more, "%d cores", cores[high]);
    }
    snprintf(
        text, bytes,
        "There is an imbalance between your GPUs. You may want to exclude GPU %d which has less "
        "than 75%% of the memory or cores of GPU %d: %s and %s: each gets the same share of the "
        "batch",
        low, high, less, more);
    return 1;
}

int dp_imbalance_of(struct device *const *devices, int n, char *text, size_t bytes) {
    uint64_t memory[MAX_DEVICES];
    int cores[MAX_DEVICES];
    for (int i = 0; i < n; i++) {
        memory[i] = device_ledger(devices[i]).capacity;
        cores[i] = device_cores(devices[i]);
    }
    return dp_imbalance(memory, cores, n, text, bytes);
}
