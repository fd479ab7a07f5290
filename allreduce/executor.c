/* What all executors share: which kinds there are, and the accounts. */
#include "allreduce/executor.h"

#include <stdio.h>

#include "allreduce/allreduce.h"

const struct executor_kind *executor_kind(enum device_kind kind) {
    switch (kind) {
    case DEVICE_HOST:
    case DEVICE_HOST_LATE: return &host_executors;
    case DEVICE_CUDA: return cuda_executors;
    }
    return NULL;
}

void allreduce_libraries(enum device_kind device, char *text, size_t bytes) {
    const struct executor_kind *kind = executor_kind(device);
    snprintf(text, bytes, "%s", "");
    if (kind && kind->libraries) kind->libraries(text, bytes);
}

void executor_charge(const struct executor_ranks *ranks, const struct plan_step *s) {
    if (!ranks->traffic || s->length == 0) return;
    uint64_t loads = s->op == PLAN_SUM ? rank_all(ranks->n) : rank_bit(s->source_rank),
             bytes = s->length * sizeof(float);
    int me = ranks->rank;
    for (int r = 0; r < ranks->n; r++) {
        if (r != me && loads >> r & 1)
            traffic_add(ranks->traffic, ranks->link[r], ranks->link[me], bytes);
        if (r != me && s->dest_ranks >> r & 1)
            traffic_add(ranks->traffic, ranks->link[me], ranks->link[r], bytes);
    }
}
