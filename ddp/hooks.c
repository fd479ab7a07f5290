/* Calls a program's communication hook for each full bucket, and keeps the hook's pending call
 * until the end of backward. */
#include "ddp/hooks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/group.h"

/* The slot of bucket `index`; buckets do not move, since hooks have pointers to them. */
static int hook_bucket_at(struct hooks *h, int index, struct hook_bucket **out) {
    while (h->count <= index) {
        struct hook_bucket **more =
            realloc(h->bucket, ((size_t)h->count + 1) * sizeof(struct hook_bucket *));
        if (more) h->bucket = more;
        struct hook_bucket *b = more ? calloc(1, sizeof *b) : NULL;
        if (!b) return fail(ERR_MEMORY, "ddp: out of host memory for bucket %d", index);
        h->bucket[h->count++] = b;
    }
    *out = h->bucket[index];
    return OK;
}

/* A program's function may return any number and set no message: `before` is the duet_error() from
 * before the call. */
static int returned(const struct hook_bucket *b, const char *what, int code, const char *before) {
    if (!code) return OK;
    if (code < 0 || code > ERR_PEER || !strcmp(before, error_message()))
        return fail(ERR_FAILED, "ddp: %s returned %d for bucket %d", what, code, b->seen.index);
    return code;
}

/* Ends the bucket's wait; it may then wait for something else. */
static int end_of(struct hook_bucket *b) {
    char before[ERROR_BYTES];
    duet_work *work = b->work;
    b->waiting = 0;
    b->work = NULL;
    int code = work ? duet_work_wait(work) : OK;
    snprintf(before, sizeof before, "%s", error_message());
    if (!code && b->then)
        code = returned(b, "the function of duet_bucket_then", b->then(&b->seen, b->state), before);
    duet_work_free(work);
    return code;
}

int hooks_call(void *context, const struct ddp_bucket *bucket) {
    struct hooks *h = context;
    struct hook_bucket *b = NULL;
    const int count = (int)bucket->count;
    CHECK(hook_bucket_at(h, bucket->index, &b));
    b->gradients = (struct duet_tensor){
        .device = h->device, .t = tensor_plain(bucket->data, DTYPE_F32, 1, &count), .borrowed = 1};
    b->seen = (struct duet_bucket){.index = bucket->index,
                                   .is_last = bucket->last,
                                   .count = bucket->count,
                                   .gradients = &b->gradients,
                                   .group = h->group};
    char before[ERROR_BYTES];
    snprintf(before, sizeof before, "%s", error_message());
    return returned(b, "the communication hook", h->hook(&b->seen, h->context), before);
}

int hooks_finish(struct hooks *h) {
    for (int i = 0; i < h->count; i++)
        while (h->bucket[i]->waiting)
            CHECK(end_of(h->bucket[i]));
    return OK;
}

int hook_bucket_of(struct hook_bucket **out, const struct duet_bucket *bucket, const char *what) {
    struct hook_bucket *b = (struct hook_bucket *)bucket;
    *out = b;
    if (!b) return fail(ERR_USAGE, "%s: no bucket was given", what);
    if (bucket->gradients != &b->gradients)
        return fail(ERR_USAGE, "%s: the bucket is a copy: give the pointer that the hook was given",
                    what);
    return OK;
}

int duet_bucket_then(const struct duet_bucket *bucket, duet_work *work,
                     int (*then)(const struct duet_bucket *bucket, void *state), void *state) {
    struct hook_bucket *b;
    CHECK(hook_bucket_of(&b, bucket, "duet_bucket_then"));
    if (b->waiting)
        return fail(ERR_USAGE, "duet_bucket_then: called twice for bucket %d: call it once",
                    bucket->index);
    b->waiting = 1;
    b->work = work;
    b->then = then;
    b->state = state;
    return OK;
}

void hooks_free_packed(struct hook_bucket *b) {
    work_free(b->sum); /* waits */
    free(b->packed);
    free(b->staged);
    b->sum = NULL;
    b->packed = NULL;
    b->staged = NULL;
    b->room = 0;
}

void hooks_free(struct hooks *h) {
    for (int i = 0; i < h->count; i++) {
        if (h->bucket[i]->waiting) duet_work_free(h->bucket[i]->work); /* only if backward failed */
        hooks_free_packed(h->bucket[i]);
        free(h->bucket[i]);
    }
    free(h->bucket);
    h->bucket = NULL;
    h->count = 0;
}
