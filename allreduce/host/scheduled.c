/* Marks the group that the stream of a dry device has begun as a collective. The modelled clock
 * gives all its ranks one time (clock/cost.c). */
#include "allreduce/host/executor.h"
#include "device/scheduled.h"

static enum scheduled_collective collective_of(const struct plan *plan) {
    switch (plan->what) {
    case COLLECTIVE_BROADCAST: return SCHEDULED_BROADCAST;
    case COLLECTIVE_ALL_GATHER: return SCHEDULED_ALL_GATHER;
    case COLLECTIVE_REDUCE_SCATTER: return SCHEDULED_REDUCE_SCATTER;
    default: return SCHEDULED_SUM;
    }
}

void host_schedule(const struct executor_ranks *ranks, const struct executor_call *call) {
    struct schedule *schedule = device_config(ranks->device)->schedule;
    if (!schedule || !call->plan) return;
    schedule_collective(schedule, ranks->rank, collective_of(call->plan), ranks->n,
                        call->count * sizeof(float));
}
