/* Sends gradients as 16-bit floats, like PyTorch's fp16_compress_hook and bf16_compress_hook.
 *
 *     float     g            of each rank
 *     16 bits   g / n        rounded, divided, rounded again
 *     16 bits   their sum    in fold order, rounded after each addition
 *     float     the sum
 *
 * Half the bytes travel, and the average keeps 11 or 8 bits. The process group computes the sum in
 * host memory, on its thread, during the rest of backward. */
#include <stdlib.h>

#include "allreduce/element.h"
#include "ddp/hooks.h"
#include "group/group.h"

static int on_gpu(const struct hook_bucket *b) {
    return device_config(b->gradients.device)->kind == DEVICE_CUDA;
}

static int make_room(struct hook_bucket *b) {
    size_t count = b->seen.count;
    if (count <= b->room) return OK;
    hooks_free_packed(b);
    b->packed = malloc(count * sizeof *b->packed);
    if (b->packed && on_gpu(b)) b->staged = malloc(count * sizeof *b->staged);
    if (!b->packed || (on_gpu(b) && !b->staged))
        return fail(ERR_MEMORY, "compress hook: out of host memory for %zu gradients", count);
    b->room = count;
    return OK;
}

/* The gradients in host memory, complete. */
static int bring(struct hook_bucket *b, float **out) {
    struct stream *stream = device_compute(b->gradients.device);
    *out = b->gradients.t.data;
    if (on_gpu(b)) {
        CHECK(copy_to_host(stream, b->staged, *out, b->seen.count * sizeof(float)));
        *out = b->staged;
    }
    return stream_sync(stream);
}

static void pack(struct hook_bucket *b, const float *from, int half, float n) {
    for (size_t i = 0; i < b->seen.count; i++)
        b->packed[i] = half ? f16_of_float(float_of_f16(f16_of_float(from[i])) / n)
                            : bf16_of_float(float_of_bf16(bf16_of_float(from[i])) / n);
}

static int unpack(struct hook_bucket *b, int half) {
    struct stream *stream = device_compute(b->gradients.device);
    float *to = on_gpu(b) ? b->staged : b->gradients.t.data;
    int code = work_wait(b->sum);
    work_free(b->sum);
    b->sum = NULL;
    CHECK(code);
    for (size_t i = 0; i < b->seen.count; i++)
        to[i] = half ? float_of_f16(b->packed[i]) : float_of_bf16(b->packed[i]);
    if (!on_gpu(b)) return OK;
    CHECK(copy_to_device(stream, b->gradients.t.data, to, b->seen.count * sizeof(float)));
    return stream_sync(stream);
}

static int unpack_half(const struct duet_bucket *bucket, void *state) {
    (void)state;
    return unpack((struct hook_bucket *)bucket, 1);
}

static int unpack_bf16(const struct duet_bucket *bucket, void *state) {
    (void)state;
    return unpack((struct hook_bucket *)bucket, 0);
}

static int compress(const struct duet_bucket *bucket, int half) {
    struct hook_bucket *b;
    float *gradients;
    CHECK(hook_bucket_of(&b, bucket, "compress hook"));
    if (b->waiting)
        return fail(ERR_USAGE, "compress hook: bucket %d waits for another call: make one",
                    bucket->index);
    CHECK(make_room(b));
    CHECK(bring(b, &gradients));
    pack(b, gradients, half, (float)duet_group_size(bucket->group));
    struct group_call call = {.what = COLLECTIVE_ALL_REDUCE,
                              .count = b->seen.count,
                              .how = {half ? DTYPE_F16 : DTYPE_BF16, ELEMENT_SUM},
                              .input = b->packed,
                              .output = b->packed};
    CHECK(group_run((struct group *)bucket->group, &call, &b->sum));
    return duet_bucket_then(bucket, NULL, half ? unpack_half : unpack_bf16, NULL);
}

int duet_fp16_compress_hook(const struct duet_bucket *bucket, void *context) {
    (void)context;
    return compress(bucket, 1);
}

int duet_bf16_compress_hook(const struct duet_bucket *bucket, void *context) {
    (void)context;
    return compress(bucket, 0);
}
