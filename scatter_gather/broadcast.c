/* Broadcast copies the leading device's parameters to every device, as DataParallel does before
 * each forward. The n - 1 copies leave that device one after another, so its outgoing link carries
 * n - 1 times the model in every step. */
#include "base/error.h"
#include "scatter_gather/scatter_gather.h"

int broadcast_coalesced(struct device_group *group, float *const *arenas,
                        const struct param_range *groups, int group_count) {
    int lead = group->lead;
    CHECK(device_group_enter(group));
    for (int g = 0; g < group_count; g++)
        for (int r = 0; r < group->count; r++)
            if (r != lead)
                CHECK(copy_peer(group->stream, group->device[r], arenas[r] + groups[g].first,
                                group->device[lead], arenas[lead] + groups[g].first,
                                groups[g].count * sizeof(float)));
    return device_group_leave(group);
}
