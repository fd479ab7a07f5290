/* Parts of tensors: views of rows, tensors joined from others along a dimension, and tensors
 * scattered over devices and gathered again, as in the first and the last step of DataParallel.
 *
 * Cut along dimension `dim`, a part has one block for each index in the dimensions before it:
 *
 *     (2, 4) along 1 into two parts     0 1|2 3      part 0: 0 1     part 1: 2 3
 *                                       4 5|6 7              4 5             6 7 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "nn/tensor.h"

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
        return fail(ERR_USAGE, "rows: %d rows starting at row %d: the tensor has %d", n, first,
                    rows);
    struct duet_tensor *view = calloc(1, sizeof *view);
    if (!view) return fail(ERR_MEMORY, "rows: out of host memory");
    view->device = tensor->device;
    view->t = rows_of(&tensor->t, first, n);
    view->view = 1;
    view->has_grad = tensor->has_grad;
    view->base = tensor->view ? tensor->base : tensor->borrowed ? NULL : tensor;
    if (view->base) view->base->views++;
    *out = view;
    return OK;
}

/* ---- blocks ---- */

/* How many blocks a part has along `dim`, and the elements of a block by its length there. */
static void count_blocks(const struct tensor *t, int dim, size_t *blocks, size_t *each) {
    *blocks = *each = 1;
    for (int d = 0; d < dim; d++)
        *blocks *= (size_t)t->dims[d];
    for (int d = dim + 1; d < t->rank; d++)
        *each *= (size_t)t->dims[d];
}

/* Copies `length` indices of `dim`, from index from_first of `from` to index to_first of `to`. */
static int copy_blocks(struct duet_tensor *to, int to_first, const struct duet_tensor *from,
                       int from_first, int length, int dim) {
    size_t blocks, each, size = dtype_bytes(from->t.dtype);
    count_blocks(&from->t, dim, &blocks, &each);
    const int count = (int)((size_t)length * each);
    for (size_t b = 0; b < blocks && count; b++) {
        size_t here = b * (size_t)to->t.dims[dim] + (size_t)to_first,
               there = b * (size_t)from->t.dims[dim] + (size_t)from_first;
        const struct duet_tensor block = {
            .device = from->device,
            .t =
                tensor_plain((char *)from->t.data + there * each * size, from->t.dtype, 1, &count)};
        struct duet_tensor place = {
            .device = to->device,
            .t = tensor_plain((char *)to->t.data + here * each * size, to->t.dtype, 1, &count)};
        CHECK(duet_tensor_copy(&place, &block));
    }
    return OK;
}

/* *dim, which may count from -1 backwards, as one that counts from 0. In PyTorch's words. */
static int find_dim(const char *what, const struct tensor *t, int *dim) {
    if (*dim < -t->rank || *dim >= t->rank)
        return fail(ERR_USAGE,
                    "%s: Dimension out of range (expected to be in range of [%d, %d], but got %d)",
                    what, -t->rank, t->rank - 1, *dim);
    if (*dim < 0) *dim += t->rank;
    return OK;
}

/* ---- many tensors into one ---- */

enum { MOST_JOINED = 65536 };

/* The first one that exists; NULL: none. */
static const struct tensor *first_of(duet_tensor *const *tensors, int n) {
    for (int i = 0; i < n; i++)
        if (tensors[i]) return &tensors[i]->t;
    return NULL;
}

/* ERR_USAGE: tensor number i cannot be joined to the first. In PyTorch's words. */
static int check_fits(const char *what, const struct tensor *first, const struct tensor *t, int i,
                      int dim) {
    if (t->dtype != first->dtype)
        return fail(ERR_USAGE, "%s: tensor number %d in the list is of another type: convert it",
                    what, i);
    if (t->rank != first->rank)
        return fail(ERR_USAGE, "%s: Tensors must have same number of dimensions: got %d and %d",
                    what, first->rank, t->rank);
    for (int d = 0; d < t->rank; d++)
        if (d != dim && t->dims[d] != first->dims[d])
            return fail(ERR_USAGE,
                        "%s: Sizes of tensors must match except in dimension %d. Expected size %d "
                        "but got size %d for tensor number %d in the list",
                        what, dim, first->dims[d], t->dims[d], i);
    return OK;
}

/* Computes the shape of all together. */
static int join_shapes(const char *what, duet_tensor *const *tensors, int n, int dim,
                       struct tensor *all) {
    const struct tensor *first = first_of(tensors, n);
    int64_t rows = 0;
    for (int i = 0; i < n; i++) {
        if (!tensors[i]) continue;
        CHECK(check_fits(what, first, &tensors[i]->t, i, dim));
        rows += tensors[i]->t.dims[dim];
        if (rows > INT_MAX)
            return fail(ERR_USAGE, "%s: more than 2^31 - 1 rows: use several tensors", what);
    }
    *all = *first;
    all->dims[dim] = (int)rows;
    return tensor_check_shape(what, all->rank, all->dims);
}

int duet_tensor_cat(duet_tensor **out, duet_tensor *const *tensors, int n, duet_device *device,
                    int dim) {
    struct tensor all;
    struct duet_tensor *joined;
    int at = 0, code = OK;
    CHECK_OUT(out);
    if (!device) return fail(ERR_USAGE, "cat: no device was given");
    if (n > MOST_JOINED) return fail(ERR_USAGE, "cat: %d tensors: give 1 to %d", n, MOST_JOINED);
    if (!tensors || !first_of(tensors, n))
        return fail(ERR_USAGE, "cat: expected a non-empty list of Tensors");
    CHECK(find_dim("cat", first_of(tensors, n), &dim));
    CHECK(join_shapes("cat", tensors, n, dim, &all));
    CHECK(tensor_new(&joined, device_of(device), all.dtype, all.rank, all.dims, MEM_COMM));
    for (int i = 0; i < n && !code; i++) {
        if (!tensors[i]) continue;
        int length = tensors[i]->t.dims[dim];
        code = copy_blocks(joined, at, tensors[i], 0, length, dim);
        at += length;
    }
    if (code)
        duet_tensor_free(joined);
    else
        *out = joined;
    return code;
}

/* ---- one tensor onto many devices ---- */

static int scatter(duet_tensor **parts, int n, const duet_tensor *tensor,
                   duet_device *const *devices, int dim) {
    int all = tensor->t.dims[dim], size = all / n + (all % n != 0);
    for (int i = 0, first = 0; i < n && (first < all || !all); i++, first += size) {
        struct tensor part = tensor->t;
        part.dims[dim] = all - first < size ? all - first : size;
        CHECK(tensor_new(&parts[i], device_of(devices[i]), part.dtype, part.rank, part.dims,
                         MEM_COMM));
        CHECK(copy_blocks(parts[i], 0, tensor, first, part.dims[dim], dim));
    }
    return OK;
}

int duet_tensor_scatter(duet_tensor **parts, int n, const duet_tensor *tensor,
                        duet_device *const *devices, int dim) {
    if (n < 1 || n > MAX_DEVICES)
        return fail(ERR_USAGE, "scatter: %d parts: give 1 to %d", n, MAX_DEVICES);
    if (!parts) return fail(ERR_USAGE, "scatter: parts is NULL");
    memset(parts, 0, (size_t)n * sizeof *parts);
    if (!tensor) return fail(ERR_USAGE, "scatter: no tensor was given");
    CHECK(find_dim("scatter", &tensor->t, &dim));
    for (int i = 0; i < n; i++)
        if (!devices || !devices[i])
            return fail(ERR_USAGE, "scatter: no device was given for part %d", i);
    int code = scatter(parts, n, tensor, devices, dim);
    for (int i = 0; i < n && code; i++) {
        duet_tensor_free(parts[i]);
        parts[i] = NULL;
    }
    return code;
}
