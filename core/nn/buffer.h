/* Buffers are the state of a model that no gradient changes, such as the running statistics of
 * BatchNorm.
 *
 * All buffers of a model on one device are in one arena, in registration order, each aligned to the
 * size of its elements:
 *
 *     1.running_mean (C) | 1.running_var (C) | 1.num_batches_tracked I64 | next layer ...
 *
 * So the running mean and variance of a layer are one (2, C) tensor, and the whole state is copied,
 * broadcast or hashed as one range of bytes. The arena's size is a multiple of 8 bytes, its pads
 * are zero, and it is charged to MEM_PARAMS. A host copy of the arena has the same layout. */
#ifndef NN_BUFFER_H
#define NN_BUFFER_H

#include "device/device.h"

/* A model's description of a buffer. The name is static storage or the model's. */
struct buffer_spec {
    const char *name; /* PyTorch's: "1.running_mean" */
    enum dtype dtype; /* F32 or I64 */
    int rank;         /* 0: one number, like num_batches_tracked */
    int dims[MAX_RANK];
    double initial; /* the initial value of all its elements */
};
size_t buffer_spec_bytes(const struct buffer_spec *spec);

struct buffer {
    const struct buffer_spec *spec;
    struct tensor value; /* PLAIN, device memory, inside the arena; rank 1 if the spec's is 0 */
    size_t offset;       /* bytes from the arena's start */
};

struct buffer_set {
    struct device *device;
    int count;             /* buffers, in registration order in buffer[] */
    struct buffer *buffer; /* owned */
    void *arena;           /* device memory, owned; NULL if there are no buffers */
    size_t bytes;          /* size of the arena, pads included */
};

/* The offset of buffer `index` of specs[0 .. count) in an arena, in bytes; with index = count the
 * size of the arena. */
size_t buffer_offset(const struct buffer_spec *specs, int count, int index);

/* Fills a host copy of the arena, buffer_offset(specs, count, count) bytes, with the initial
 * values. */
void buffer_initial(const struct buffer_spec *specs, int count, void *arena);

/* Lays out the arena on `device`, fills it with the initial values, and waits for that. */
int buffer_set_init(struct buffer_set *set, struct device *device, const struct buffer_spec *specs,
                    int count);
/* The device must be idle. NULL, zeroed and half-built are fine. */
void buffer_set_free(struct buffer_set *set);

/* Copy the whole arena to or from host memory of set->bytes bytes. They wait for the copy. */
int buffer_set_read(struct buffer_set *set, void *host);
int buffer_set_write(struct buffer_set *set, const void *host);

#endif
