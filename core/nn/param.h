/* Parameters: the values and gradients of one model on one device.
 *
 * All values are in one arena and all gradients in another, in REVERSE registration order, each
 * parameter 256-byte aligned, pads zero:
 *
 *     registration    W1 b1 W2 b2 ...            forward uses them in this order
 *     arena           ... b2 W2 b1 W1            backward completes gradients in about this order
 *
 * so that a bucket of DDP is a pointer and a count, reduced in place, and replication is one copy.
 * Frozen parameters, PyTorch's requires_grad=False, have only values, which come after all others.
 * So the gradients' arena and an optimizer's state end before them. Offsets and counts are in
 * elements (float32). Arenas are charged to MEM_PARAMS and MEM_GRADS.
 *
 * A set may be sharded (fsdp/); then it has no arenas. Each process keeps a shard of the values: a
 * separate set that has a range of each parameter. The whole value is in device memory only while
 * it is used. */
#ifndef NN_PARAM_H
#define NN_PARAM_H

#include "base/error.h"
#include "base/fold.h"
#include "device/device.h"

enum { PARAM_ALIGN = 64 }; /* in elements: 256 bytes */

/* The space that `count` elements take in an arena, in elements, pads included. */
static inline size_t param_padded(size_t count) {
    return (count + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
}

/* A model's description of a parameter. The name is static storage or the model's. */
struct param_spec {
    const char *name; /* PyTorch's: "cn1.weight" */
    int rank;
    int dims[MAX_RANK];
    int frozen; /* 1: it has no gradient, and no optimizer changes it */
};
size_t param_spec_count(const struct param_spec *spec); /* elements: the product of dims */

struct duet_var;
struct param {
    const struct param_spec *spec;
    int index;           /* in param[] of its set; the pass's own parameters follow */
    struct tensor value; /* PLAIN, device memory, inside the value arena */
    struct tensor grad;  /* PLAIN, device memory, inside the gradient arena; empty if frozen */
    size_t count;        /* elements, pads not counted */
    size_t value_offset; /* elements from the arena's start */
    size_t grad_offset;  /* unused if frozen */
    size_t begins;       /* in a shard: the first element of its range in the whole parameter */
    /* For a value computed from parameters (nn/tape/rows.c): the var whose rows hold it and which
     * gets its gradients. NULL: it belongs to a set. */
    struct duet_var *from;
};

/* 1: the parameter's name is `name`, or begins with it and a dot, so it is in that module. */
int param_is_of(const struct param_spec *spec, const char *name);

/* 1: backward makes its gradient. 0 for NULL, a parameter that a layer lacks. */
static inline int param_trains(const struct param *p) {
    return p && !p->spec->frozen;
}

struct param_set {
    struct device *device;
    int count;             /* parameters, in registration order in param[] */
    struct param *param;   /* owned */
    float *values, *grads; /* the arenas, device memory, owned */
    /* Gradients accumulated over several passes keep one sum for each segment until they are
     * complete. The sum of segment 0 is the gradient itself; the others are here, one arena after
     * another, laid out as the values. NULL: none. Device memory, owned. */
    float *segment_grads;
    int kept_segments;       /* segments whose sums are kept; 0: gradients come from one pass */
    size_t arena_count;      /* elements of the value arena, pads included */
    size_t grad_count;       /* elements of the gradient arena, the first of these */
    size_t total_count;      /* elements of all parameters, pads not counted */
    int trained;             /* parameters that are not frozen */
    uint64_t layout_version; /* grows when the gradients move */
    /* The order in which the gradients of segments are added, in elements of the value arena;
     * borrowed. NULL: the fold order. */
    const struct sum_pieces *sums;

    /* In a sharded set, this process's shard, owned by the code that sharded it; NULL: the set is
     * whole. `bring` enqueues a gather of a parameter's whole value into param[].value, or of its
     * whole gradient into param[].grad. It is collective. */
    struct param_set *shard;
    int (*bring)(void *context, int index, int grad);
    /* Also collective; it waits. It gathers an optimizer's state from the shards at `state` into
     * `whole`, in host memory, with `each` numbers per element of grad_count. It overwrites the
     * gradients. */
    int (*gather_state)(void *context, const float *state, int each, float *whole);
    void *context;
    int written; /* in a shard: 1: values or gradients were changed other than by an update */
    int leads;   /* in a shard: 1: this process writes files for all */
};

/* The set that an optimizer updates: the shard of a sharded set, or the set itself. */
static inline struct param_set *param_set_own(struct param_set *set) {
    return set->shard ? set->shard : set;
}

/* Calls `bring` for a sharded set and does nothing for a whole one. */
static inline int param_bring(const struct param_set *set, int index, int grad) {
    return set->bring ? set->bring(set->context, index, grad) : OK;
}

/* Lays out both arenas on `device` and enqueues zeros into them on its compute stream. */
int param_set_init(struct param_set *set, struct device *device, const struct param_spec *specs,
                   int count);
/* Makes the same layout without memory, for a sharded set. */
int param_set_init_apart(struct param_set *set, struct device *device,
                         const struct param_spec *specs, int count);
/* Frees the arenas of a set that is about to be sharded. The device must be idle. */
void param_set_take_apart(struct param_set *set);
/* Allocates memory for gradients accumulated over several passes of at most `segments` segments. It
 * is called once. */
int param_set_keep_segments(struct param_set *set, int segments);
/* The device must be idle. NULL, zeroed and half-built are fine. */
void param_set_free(struct param_set *set);

/* 1 if a parameter that is not frozen has no gradient. has_grad[i] is 1 if parameter i has one. */
int param_set_lacks(const struct param_set *set, const char *has_grad);

/* Enqueues zeros into the gradient of each parameter that is not frozen and has none (has_grad as
 * above; if it is NULL, into all gradients). */
int param_set_zero_unused(struct param_set *set, const char *has_grad);

/* Lays out the gradient arena in another order: order[0] first, then order[1], ... (a permutation
 * of the parameters that are not frozen). The pointers in param[].grad move; the contents are lost
 * and zeros are enqueued. It may be called only between steps. */
int param_set_relayout_grads(struct param_set *set, const int *order);

/* Copy the value or gradient of one parameter from or to host memory of p->count elements,
 * row-major. They wait for the copy. The gradient of a frozen parameter reads as zeros. In a
 * sharded set reading is collective, and each rank writes its own range. */
int param_read_value(struct param_set *set, int index, float *host);
int param_read_grad(struct param_set *set, int index, float *host);
int param_write_value(struct param_set *set, int index, const float *host);

#endif
