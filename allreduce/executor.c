/* Charges the bytes of a step to the links that they cross; all executors use it. */
#include "allreduce/executor.h"

void executor_charge(const struct executor_ranks *ranks, const struct plan_step *step) {
    if (!ranks->traffic) return;
    int me = ranks->rank;
    uint64_t loads = plan_step_loads(step, ranks->n, me), stores = plan_step_stores(step, me),
             bytes = step->length * sizeof(float);
    for (int r = 0; r < ranks->n; r++) {
        if (loads >> r & 1) traffic_add(ranks->traffic, ranks->link[r], ranks->link[me], bytes);
        if (stores >> r & 1) traffic_add(ranks->traffic, ranks->link[me], ranks->link[r], bytes);
    }
}
