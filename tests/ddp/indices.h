/* Prints the buckets of a plan like PyTorch's logging data: "9 8 7 6 4 5 3 2, 1 0". */
#ifndef TESTS_DDP_INDICES_H
#define TESTS_DDP_INDICES_H

#include <stdio.h>

#include "ddp/bucket.h"

static inline void bucket_indices(const struct bucket_plan *plan, char *text, size_t bytes) {
    size_t used = 0;
    *text = 0;
    for (int i = 0; i < plan->param_count && used < bytes; i++) {
        int p = plan->order[i], opens = i && plan->bucket[plan->bucket_of[p]].first == i;
        used += (size_t)snprintf(text + used, bytes - used, "%s%d",
                                 i == 0  ? ""
                                 : opens ? ", "
                                         : " ",
                                 p);
    }
}

/* Their sizes, as that data has them: "4052088, 1204000". */
static inline void bucket_sizes(const struct bucket_plan *plan, char *text, size_t bytes) {
    size_t used = 0;
    *text = 0;
    for (int b = 0; b < plan->bucket_count && used < bytes; b++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%llu", b ? ", " : "",
                                 (unsigned long long)plan->bucket[b].bytes);
}

#endif
