/* Communication hooks of programs: this code connects ddp_comm_hook to the hooks of duet.h.
 *
 *     duet_backward    gradients ........ bucket 0 full ....... bucket 1 full ... end
 *     the same thread                     hook(0) begins a call  hook(1) begins   wait, then(0)
 *     the group's thread                  [ all_reduce 0 .......][ all_reduce 1 ] wait, then(1)
 *  */
#ifndef DDP_HOOKS_H
#define DDP_HOOKS_H

#include "ddp/ddp.h"
#include "duet.h"
#include "nn/params/params.h"
#include "nn/tape/tape_internal.h"

struct work;

/* A bucket in the form for hooks, and its pending call. */
struct hook_bucket {
    struct duet_bucket seen; /* first, so that a hook's pointer also points here */
    struct duet_tensor gradients;
    int waiting; /* 1: duet_bucket_then was called and is still pending */
    duet_work *work;
    int (*then)(const struct duet_bucket *bucket, void *state);
    void *state;
    /* For the compressing hooks: host memory of `room` elements, owned. */
    uint16_t *packed;
    float *staged; /* on a GPU: a copy of the gradients in host memory */
    size_t room;
    struct work *sum; /* the sum of `packed`; NULL: none in flight */
};

struct hooks {
    int (*hook)(const struct duet_bucket *bucket, void *context); /* NULL: no hook is registered */
    void *context;
    duet_group *group;
    struct device *device;
    struct hook_bucket **bucket; /* [count], owned, by index */
    int count;
};

/* The bucket that a hook's pointer refers to. It refuses a copy of struct duet_bucket, or one that
 * a program made, because no tensor of gradients belongs to it. */
int hook_bucket_of(struct hook_bucket **out, const struct duet_bucket *bucket, const char *what);

/* A ddp_comm_hook; its context is a struct hooks. */
int hooks_call(void *context, const struct ddp_bucket *bucket);

/* Ends a backward: waits for each pending bucket, in order. */
int hooks_finish(struct hooks *hooks);

/* Waits for calls in flight and frees everything. */
void hooks_free(struct hooks *hooks);

/* compress.c: waits for the sum of a bucket and frees its memory. */
void hooks_free_packed(struct hook_bucket *bucket);

#endif
