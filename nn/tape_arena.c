/* The step arena: the device memory of one step, handed out from the front and taken back all at
 * once.
 *
 *     first step    | x | y0 | y1 | ... |       a block for each piece, made as it is asked for
 *     later         | x   y0   y1   ... |       one block of the most ever in use: the same calls fit again
 *
 * so a steady step allocates nothing, and the ledger shows what a step truly needs. Pieces of a
 * shorter life (the buffers of a fold) are taken back to a mark, as on a stack. */
#include <stdlib.h>

#include "base/error.h"
#include "nn/tape_internal.h"

enum { ALIGNMENT = 256 };

void tape_free_blocks(struct tape *t) {
    for (int i = 0; i < t->block_count; i++)
        device_free(t->device, t->blocks[i].memory);
    t->block_count = 0;
    t->arena_version++;
}

uint64_t tape_arena_version(const struct tape *t) {
    return t->arena_version;
}

/* A new block of just the bytes asked for. */
static int add_block(struct tape *t, size_t bytes) {
    struct tape_block *blocks = realloc(t->blocks, (size_t)(t->block_count + 1) * sizeof *blocks);
    if (!blocks) return fail(ERR_MEMORY, "tape: no host memory");
    t->blocks = blocks;
    void *memory;
    CHECK(device_alloc(t->device, &memory, bytes, t->cause));
    t->blocks[t->block_count++] = (struct tape_block){memory, bytes};
    t->arena_version++;
    return OK;
}

void *tape_alloc(struct tape *t, size_t bytes) {
    if (t->error) return NULL;
    if (!bytes) bytes = 1; /* an empty batch has an address too */
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct tape_mark *m = &t->mark;
    while (m->block < t->block_count && t->blocks[m->block].bytes - m->offset < bytes) {
        m->block++;
        m->offset = 0;
    }
    if (m->block == t->block_count && tape_fail(t, add_block(t, bytes))) return NULL;
    void *memory = t->blocks[m->block].memory + m->offset;
    m->offset += bytes;
    m->in_use += bytes;
    if (t->high_water < m->in_use) t->high_water = m->in_use;
    return memory;
}

/* Blocks are given back before the one block is made, so that the peak is not raised. Where the
 * device's free memory lies in pieces too small for it, the next step asks for its own pieces
 * again. After a step that ran out of memory nothing is kept: a smaller batch must find all that
 * it would have found without that step. */
int tape_restart_arena(struct tape *t, int ran_out) {
    t->mark = (struct tape_mark){0};
    if (t->block_count < 2 && !ran_out) return OK;
    CHECK(stream_sync(t->stream));
    tape_free_blocks(t);
    if (ran_out) {
        t->high_water = 0;
        return OK;
    }
    int code = add_block(t, t->high_water);
    return code == ERR_MEMORY ? OK : code;
}

struct tensor tape_tensor(struct tape *t, enum dtype dtype, enum layout layout, int rank,
                          const int *dims) {
    struct tensor x = tensor_plain(NULL, dtype, rank, dims);
    x.layout = layout;
    x.groups = layout == LAYOUT_N16 ? segments_groups(&t->segments) : 0;
    x.data = tape_alloc(t, tensor_bytes(&x));
    return x;
}
