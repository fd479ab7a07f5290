/* The rows of an epoch: see epoch_rows.h. */
#include "data/epoch_rows.h"

#include <stdlib.h>

#include "base/error.h"

int epoch_rows_init(struct epoch_rows *r, int batches, size_t most,
                    int (*alloc)(void *context, void **out, size_t bytes), void *context) {
    void *index;
    if (most * (size_t)batches > INT32_MAX)
        return fail(ERR_USAGE,
                    "loader: %d batches of %zu samples: more than 2^31 in an epoch: use fewer",
                    batches, most);
    r->batches = batches;
    r->room = batches * (int)most;
    r->first = calloc((size_t)batches + 1, sizeof *r->first);
    if (!r->first)
        return fail(ERR_MEMORY, "loader: no memory for the order of %d batches: use fewer",
                    batches);
    CHECK(alloc(context, &index, (size_t)r->room * sizeof *r->index));
    r->index = index;
    return OK;
}

void epoch_rows_free(struct epoch_rows *r, void (*release)(void *context, void *memory),
                     void *context) {
    if (r->index) release(context, r->index);
    free(r->first);
    *r = (struct epoch_rows){0};
}

void epoch_rows_fill(struct epoch_rows *r, const struct split *s, const int32_t *order,
                     int64_t length, int batch_size, int first_device, int devices) {
    struct batch_plan plan;
    for (int k = 0; k < r->batches; k++) {
        int32_t *rows = order ? r->index + r->first[k] : NULL;
        batch_plan(s, order, length, batch_size, k, first_device, devices, &plan, rows);
        r->first[k + 1] = r->first[k] + plan.n;
    }
}
