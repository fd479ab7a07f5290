/* Gather joins the rows of all devices on the leading device, in the order of the devices. So one
 * device holds the output of the whole batch, and later its gradient, too. No other device needs
 * this memory. */
#include "base/error.h"
#include "base/text/text.h"
#include "scatter_gather/scatter_gather.h"

/* The input must have the output's shape, with `size` rows. The error has PyTorch's words, because
 * users search for them. */
static int check_input(const struct tensor *input, int size, const struct tensor *output,
                       const char *device) {
    int expected[MAX_RANK], same = input->rank == output->rank && input->dims[0] == size;
    for (int i = 0; i < output->rank; i++) {
        expected[i] = i ? output->dims[i] : size;
        if (same && input->dims[i] != expected[i]) same = 0;
    }
    if (!same) {
        char got[64], want[64];
        return fail(ERR_FAILED,
                    "Gather got an input of invalid size: got [%s], but expected [%s]: from %s",
                    text_sizes(got, sizeof got, input->rank, input->dims),
                    text_sizes(want, sizeof want, output->rank, expected), device);
    }
    if (input->dtype != output->dtype || input->layout != LAYOUT_PLAIN)
        return fail(ERR_FAILED, "gather: an input of another type or layout: from %s", device);
    return OK;
}

/* The leading device's own rows move first, since they may occupy the destination of others. */
static int gather_rows(struct device_group *group, const struct tensor *inputs, const int *sizes,
                       const int *offsets, const struct tensor *output) {
    size_t row_bytes = tensor_sample_count(output) * dtype_bytes(output->dtype);
    for (int i = 0; i < group->count; i++) {
        int r = i == 0 ? group->lead : i - (i <= group->lead);
        char *rows = (char *)output->data + (size_t)offsets[r] * row_bytes;
        if (sizes[r] == 0 || inputs[r].data == (void *)rows) continue;
        CHECK(copy_peer(group->stream, group->device[group->lead], rows, group->device[r],
                        inputs[r].data, (size_t)sizes[r] * row_bytes));
    }
    return OK;
}

int gather(struct device_group *group, const struct tensor *inputs, const int *sizes,
           const struct tensor *output) {
    int offsets[MAX_DEVICES + 1];
    if (row_offsets(sizes, group->count, offsets) || offsets[group->count] != output->dims[0])
        return fail(ERR_FAILED, "gather: %d rows: the sizes of %d devices do not sum to that",
                    output->dims[0], group->count);
    for (int r = 0; r < group->count; r++)
        if (sizes[r] > 0)
            CHECK(check_input(&inputs[r], sizes[r], output, device_name(group->device[r])));

    CHECK(device_group_enter(group));
    CHECK(gather_rows(group, inputs, sizes, offsets, output));
    return device_group_leave(group);
}
