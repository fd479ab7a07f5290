/* Rows of tensors: views of them, tensors put together from the rows of others, and tensors spread
 * over devices and brought back, as in the first and the last step of DataParallel. */
#include "api/api.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The rows first .. first+n-1, in the memory of `t`. */
static struct tensor rows_of(const struct tensor *t, int first, int n) {
    struct tensor rows = *t;
    rows.dims[0] = n;
    rows.data = (char *)t->data + (size_t)first * tensor_sample_count(t) * dtype_bytes(t->dtype);
    return rows;
}

int duet_tensor_rows(duet_tensor **out, duet_tensor *tensor, int first, int n) {
    CHECK_OUT(out);
    if (!tensor) return fail(ERR_USAGE, "rows: no tensor was given");
    int rows = tensor->t.dims[0];
    if (first < 0 || n < 0 || first > rows || n > rows - first)
        return fail(ERR_USAGE, "rows: %d rows from %d on: the tensor has %d", n, first, rows);
    struct duet_tensor *view = calloc(1, sizeof *view);
    if (!view) return fail(ERR_MEMORY, "rows: no host memory");
    view->device = tensor->device;
    view->t = rows_of(&tensor->t, first, n);
    view->view = 1;
    view->has_grad = tensor->has_grad;
    view->base = tensor->view ? tensor->base : tensor->borrowed ? NULL : tensor;
    if (view->base) view->base->views++;
    *out = view;
    return OK;
}

/* ---- many tensors into one ---- */

/* The first of them that is there; NULL: none. */
static const struct tensor *first_of(duet_tensor *const *tensors, int n) {
    for (int i = 0; i < n; i++)
        if (tensors[i]) return &tensors[i]->t;
    return NULL;
}

/* ERR_USAGE: tensor number i cannot stand behind the first. In PyTorch's words. */
static int check_fits(const char *what, const struct tensor *first, const struct tensor *t, int i) {
    if (t->dtype != first->dtype)
        return fail(ERR_USAGE, "%s: tensor number %d in the list is of another type: convert it",
                    what, i);
    if (t->rank != first->rank)
        return fail(ERR_USAGE, "%s: Tensors must have same number of dimensions: got %d and %d",
                    what, first->rank, t->rank);
    for (int d = 1; d < t->rank; d++)
        if (t->dims[d] != first->dims[d])
            return fail(ERR_USAGE,
                        "%s: Sizes of tensors must match except in dimension 0. Expected size %d "
                        "but got size %d for tensor number %d in the list",
                        what, first->dims[d], t->dims[d], i);
    return OK;
}

/* Says the shape of all rows together. */
static int join_shapes(const char *what, duet_tensor *const *tensors, int n, struct tensor *all) {
    const struct tensor *first = tensors ? first_of(tensors, n) : NULL;
    int64_t rows = 0;
    if (!first) return fail(ERR_USAGE, "%s: expected a non-empty list of Tensors", what);
    for (int i = 0; i < n; i++) {
        if (!tensors[i]) continue;
        CHECK(check_fits(what, first, &tensors[i]->t, i));
        rows += tensors[i]->t.dims[0];
        if (rows > INT_MAX)
            return fail(ERR_USAGE, "%s: more than 2^31 - 1 rows: use several tensors", what);
    }
    *all = *first;
    all->dims[0] = (int)rows;
    return tensor_check_shape(what, all->rank, all->dims);
}

static int join(const char *what, duet_tensor **out, duet_tensor *const *tensors, int n,
                duet_device *device) {
    struct tensor all;
    struct duet_tensor *joined;
    int row = 0, code = OK;
    if (!device) return fail(ERR_USAGE, "%s: no device was given", what);
    CHECK(join_shapes(what, tensors, n, &all));
    CHECK(tensor_new(&joined, device_of(device), all.dtype, all.rank, all.dims, MEM_COMM));
    for (int i = 0; i < n && !code; i++) {
        if (!tensors[i]) continue;
        int rows = tensors[i]->t.dims[0];
        struct duet_tensor place = {.device = joined->device, .t = rows_of(&joined->t, row, rows)};
        code = duet_tensor_copy(&place, tensors[i]);
        row += rows;
    }
    if (code)
        duet_tensor_free(joined);
    else
        *out = joined;
    return code;
}

int duet_tensor_cat(duet_tensor **out, duet_tensor *const *tensors, int n, duet_device *device) {
    CHECK_OUT(out);
    return join("cat", out, tensors, n, device);
}

/* ---- one tensor onto many devices ---- */

static int scatter(duet_tensor **parts, int n, const duet_tensor *tensor,
                   duet_device *const *devices) {
    int rows = tensor->t.dims[0], size = rows / n + (rows % n != 0);
    for (int i = 0, first = 0; i < n && (first < rows || !rows); i++, first += size) {
        int here = rows - first < size ? rows - first : size;
        struct duet_tensor chunk = {.device = tensor->device,
                                    .t = rows_of(&tensor->t, first, here)};
        CHECK(duet_tensor_to(&parts[i], &chunk, devices[i]));
    }
    return OK;
}

int duet_tensor_scatter(duet_tensor **parts, int n, const duet_tensor *tensor,
                        duet_device *const *devices) {
    if (n < 1 || n > MAX_DEVICES)
        return fail(ERR_USAGE, "scatter: %d parts: give 1 to %d", n, MAX_DEVICES);
    if (!parts) return fail(ERR_USAGE, "scatter: no place for the parts was given");
    memset(parts, 0, (size_t)n * sizeof *parts);
    if (!tensor) return fail(ERR_USAGE, "scatter: no tensor was given");
    for (int i = 0; i < n; i++)
        if (!devices || !devices[i])
            return fail(ERR_USAGE, "scatter: no device was given for part %d", i);
    int code = scatter(parts, n, tensor, devices);
    for (int i = 0; i < n && code; i++) {
        duet_tensor_free(parts[i]);
        parts[i] = NULL;
    }
    return code;
}
