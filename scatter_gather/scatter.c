/* Scatter copies each device's rows from the leading device. Rows are contiguous (row-major, batch
 * first), so a share is one copy, and the leading device's own share is not moved. */
#include <limits.h>

#include "base/error.h"
#include "scatter_gather/scatter_gather.h"

int row_offsets(const int *sizes, int k, int *offsets) {
    offsets[0] = 0;
    for (int i = 0; i < k; i++) {
        if (sizes[i] < 0 || sizes[i] > INT_MAX - offsets[i]) return -1;
        offsets[i + 1] = offsets[i] + sizes[i];
    }
    return 0;
}

int scatter(struct device_group *group, const struct tensor *source, const int *sizes,
            void *const *parts) {
    int offsets[MAX_DEVICES + 1];
    if (row_offsets(sizes, group->count, offsets) || offsets[group->count] != source->dims[0])
        return fail(ERR_FAILED, "scatter: %d rows: the sizes of %d devices do not sum to that",
                    source->dims[0], group->count);
    size_t row_bytes = tensor_sample_count(source) * dtype_bytes(source->dtype);
    CHECK(device_group_enter(group));
    for (int r = 0; r < group->count; r++) {
        const char *rows = (const char *)source->data + (size_t)offsets[r] * row_bytes;
        int in_place = r == group->lead && (!parts[r] || parts[r] == (const void *)rows);
        if (sizes[r] == 0 || in_place) continue;
        CHECK(copy_peer(group->stream, group->device[r], parts[r], group->device[group->lead], rows,
                        (size_t)sizes[r] * row_bytes));
    }
    return device_group_leave(group);
}
