/* Tensors on devices: copies to and from host memory, copies between devices, sums in place.
 *
 * A copy between two devices waits three times: until the source is written, until the destination
 * is no longer read, and until the copy is done. So the public library does not overlap copies with
 * computation. */
#include "nn/tensor.h"

#include <stdlib.h>

#include "base/error.h"

_Static_assert(DUET_F32 == (int)DTYPE_F32 && DUET_I32 == (int)DTYPE_I32 &&
                   DUET_F64 == (int)DTYPE_F64 && DUET_F16 == (int)DTYPE_F16 &&
                   DUET_BF16 == (int)DTYPE_BF16 && DUET_I64 == (int)DTYPE_I64 &&
                   DUET_U8 == (int)DTYPE_U8,
               "duet.h repeats the types of device/tensor.h");

int tensor_check_shape(const char *what, int rank, const int *shape) {
    int64_t count = 1;
    if (rank < 1 || rank > MAX_RANK || !shape)
        return fail(ERR_USAGE, "%s: rank %d: give 1 to %d dimensions", what, rank, MAX_RANK);
    for (int i = 0; i < rank; i++) {
        if (shape[i] < (i ? 1 : 0))
            return fail(ERR_USAGE, "%s: dimension %d is %d: give at least %d", what, i, shape[i],
                        i ? 1 : 0);
        count *= shape[i] ? shape[i] : 1; /* an empty dimension must not hide an overflow */
        if (count > INT32_MAX)
            return fail(ERR_USAGE, "%s: more than 2^31 - 1 elements: use several tensors", what);
    }
    return OK;
}

int tensor_new(duet_tensor **out, struct device *device, enum dtype dtype, int rank,
               const int *dims, enum mem_cause cause) {
    struct duet_tensor *tensor = calloc(1, sizeof *tensor);
    CHECK_OUT(out);
    if (!tensor) return fail(ERR_MEMORY, "tensor: out of host memory");
    tensor->device = device;
    tensor->t = tensor_plain(NULL, dtype, rank, dims);
    int code = device_alloc(device, &tensor->t.data, tensor_bytes(&tensor->t), cause);
    if (code)
        free(tensor);
    else
        *out = tensor;
    return code;
}

int tensor_zero(struct device *device, const struct tensor *t) {
    struct op_args args = {.out[0] = *t};
    return launch(device_compute(device), OP_FILL, &args);
}

static int zero_any_type(struct device *device, const struct tensor *t) {
    /* Zero bits mean zero in every type, so the memory is filled as floats. Narrower types are
     * rounded up: device memory comes in multiples of 256 bytes. */
    int words = (int)(dtype_bytes(t->dtype) / sizeof(float));
    int rows = words ? (int)tensor_count(t) : (int)((tensor_bytes(t) + 3) / sizeof(float));
    struct tensor as_floats =
        tensor_plain(t->data, DTYPE_F32, 2, (int[2]){rows, words ? words : 1});
    return tensor_zero(device, &as_floats);
}

static int check_new(const char *what, enum duet_type type, int rank, const int *shape) {
    if ((unsigned)type > DUET_U8)
        return fail(ERR_USAGE, "%s: type %d: there are 0 to %d", what, (int)type, (int)DUET_U8);
    return tensor_check_shape(what, rank, shape);
}

int duet_tensor_create(duet_tensor **out, duet_device *device, enum duet_type type, int rank,
                       const int *shape, const void *host) {
    CHECK_OUT(out);
    if (!device) return fail(ERR_USAGE, "tensor: no device was given");
    CHECK(check_new("tensor", type, rank, shape));
    struct duet_tensor *tensor;
    CHECK(tensor_new(&tensor, device_of(device), (enum dtype)type, rank, shape, MEM_INPUT));
    int code = host ? duet_tensor_write(tensor, host) : zero_any_type(tensor->device, &tensor->t);
    if (code)
        duet_tensor_free(tensor);
    else
        *out = tensor;
    return code;
}

int duet_tensor_from_host(duet_tensor **out, duet_device *device, enum duet_type type, int rank,
                          const int *shape, void *host) {
    CHECK_OUT(out);
    if (!device || !host)
        return fail(ERR_USAGE, "tensor from host: no %s was given", device ? "memory" : "device");
    CHECK(check_new("tensor from host", type, rank, shape));
    if (device_config(device_of(device))->kind != DEVICE_HOST)
        return fail(ERR_USAGE,
                    "tensor from host: %s has separate memory: copy with duet_tensor_create",
                    device_name(device_of(device)));
    if ((uintptr_t)host % dtype_bytes((enum dtype)type))
        return fail(ERR_USAGE, "tensor from host: %p is not aligned to elements of %zu bytes", host,
                    dtype_bytes((enum dtype)type));
    struct duet_tensor *tensor = calloc(1, sizeof *tensor);
    if (!tensor) return fail(ERR_MEMORY, "tensor: out of host memory");
    tensor->device = device_of(device);
    tensor->t = tensor_plain(host, (enum dtype)type, rank, shape);
    tensor->view = 1; /* its memory belongs to no tensor */
    *out = tensor;
    return OK;
}

/* Ends a view. The memory is freed if its tensor was freed before and this was the last view. */
static void free_view(duet_tensor *view) {
    duet_tensor *base = view->base;
    free(view);
    if (base && --base->views == 0 && base->freed) duet_tensor_free(base);
}

void duet_tensor_free(duet_tensor *tensor) {
    if (!tensor || tensor->borrowed) return;
    if (tensor->view) {
        free_view(tensor);
        return;
    }
    tensor->freed = 1;
    if (tensor->views) return;
    stream_sync(device_compute(tensor->device)); /* reading a result returns its errors */
    device_free(tensor->device, tensor->t.data);
    free(tensor);
}

duet_device *duet_tensor_device(const duet_tensor *tensor) {
    return tensor ? (duet_device *)tensor->device : NULL;
}

enum duet_type duet_tensor_type(const duet_tensor *tensor) {
    return tensor ? (enum duet_type)tensor->t.dtype : DUET_F32;
}

int duet_tensor_rank(const duet_tensor *tensor) {
    return tensor ? tensor->t.rank : 0;
}

int duet_tensor_dim(const duet_tensor *tensor, int i) {
    int rank = tensor ? tensor->t.rank : 0;
    return i < -rank || i >= rank ? 0 : tensor->t.dims[i < 0 ? i + rank : i];
}

size_t duet_tensor_count(const duet_tensor *tensor) {
    return tensor ? tensor_count(&tensor->t) : 0;
}

int duet_tensor_read(const duet_tensor *tensor, void *host) {
    if (!tensor || !host)
        return fail(ERR_USAGE, "tensor read: no %s was given", tensor ? "host memory" : "tensor");
    struct stream *stream = device_compute(tensor->device);
    CHECK(copy_to_host(stream, host, tensor->t.data, tensor_bytes(&tensor->t)));
    return stream_sync(stream);
}

int duet_tensor_write(duet_tensor *tensor, const void *host) {
    if (!tensor || !host)
        return fail(ERR_USAGE, "tensor write: no %s was given", tensor ? "host memory" : "tensor");
    struct stream *stream = device_compute(tensor->device);
    tensor_written(tensor);
    CHECK(copy_to_device(stream, tensor->t.data, host, tensor_bytes(&tensor->t)));
    return stream_sync(stream);
}

int duet_tensor_to(duet_tensor **out, const duet_tensor *tensor, duet_device *device) {
    CHECK_OUT(out);
    if (!tensor || !device)
        return fail(ERR_USAGE, "tensor to: no %s was given", tensor ? "device" : "tensor");
    const struct tensor *t = &tensor->t;
    enum mem_cause cause = device_of(device) == tensor->device ? MEM_WORKSPACE : MEM_COMM;
    CHECK(tensor_new(out, device_of(device), t->dtype, t->rank, t->dims, cause));
    int code = duet_tensor_copy(*out, tensor);
    if (code) {
        duet_tensor_free(*out);
        *out = NULL;
    }
    return code;
}

/* ---- in place ---- */

int tensor_overlap(const struct tensor *a, const struct tensor *b) {
    uintptr_t a_at = (uintptr_t)a->data, b_at = (uintptr_t)b->data;
    size_t a_bytes = tensor_bytes(a), b_bytes = tensor_bytes(b);
    if (!a_bytes || !b_bytes || (a_at == b_at && a_bytes == b_bytes)) return 0;
    return a_at < b_at + b_bytes && b_at < a_at + a_bytes;
}

static int check_pair(const char *what, const duet_tensor *to, const duet_tensor *from) {
    if (!to || !from) return fail(ERR_USAGE, "%s: no tensor was given", what);
    if (to->device == from->device && tensor_overlap(&to->t, &from->t))
        return fail(ERR_USAGE, "%s: the two tensors overlap: copy one with duet_tensor_to first",
                    what);
    if (to->t.dtype == from->t.dtype && tensor_same_shape(&to->t, &from->t)) return OK;
    return fail(ERR_USAGE, "%s: to %s of %s from %s of %s: shape and type must agree", what,
                SHAPE(&to->t), dtype_name(to->t.dtype), SHAPE(&from->t), dtype_name(from->t.dtype));
}

int duet_tensor_copy(duet_tensor *to, const duet_tensor *from) {
    CHECK(check_pair("tensor copy", to, from));
    if (to->t.data == from->t.data) return OK;
    tensor_written(to);
    struct stream *stream = device_compute(to->device);
    int between = to->device != from->device;
    if (between) CHECK(stream_sync(device_compute(from->device)));
    CHECK(copy_peer(stream, to->device, to->t.data, from->device, from->t.data,
                    tensor_bytes(&to->t)));
    return between ? stream_sync(stream) : OK;
}

int duet_tensor_add(duet_tensor *to, const duet_tensor *from) {
    CHECK(check_pair("tensor add", to, from));
    if (to->t.dtype != DTYPE_F32)
        return fail(ERR_USAGE, "tensor add: of %s: must be float32", dtype_name(to->t.dtype));
    if (to->device != from->device)
        return fail(
            ERR_USAGE,
            "tensor add: one is on %s, the other is on %s: bring it over with duet_tensor_to",
            device_name(to->device), device_name(from->device));
    if (to->t.data == from->t.data && tensor_bytes(&to->t))
        return fail(ERR_USAGE,
                    "tensor add: the two tensors overlap: copy one with duet_tensor_to first");
    struct op_args args = {.in = {to->t, from->t}, .out[0] = to->t};
    tensor_written(to);
    return launch(device_compute(to->device), OP_ADD_FORWARD, &args);
}

int duet_tensor_scale(duet_tensor *tensor, float factor) {
    if (!tensor) return fail(ERR_USAGE, "tensor scale: no tensor was given");
    if (tensor->t.dtype != DTYPE_F32)
        return fail(ERR_USAGE, "tensor scale: of %s: must be float32", dtype_name(tensor->t.dtype));
    struct op_args args = {
        .in[0] = tensor->t, .out[0] = tensor->t, .p.activation = {ACTIVATION_SCALE, factor, 0}};
    return launch(device_compute(tensor->device), OP_ACTIVATION_FORWARD, &args);
}
