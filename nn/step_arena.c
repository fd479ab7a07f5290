/* The step arena; step_arena.h draws it. */
#include "nn/step_arena.h"

#include <stdlib.h>

#include "base/error.h"

enum { ALIGNMENT = 256 };

static void free_blocks(struct step_arena *a) {
    for (int i = 0; i < a->block_count; i++)
        device_free(a->device, a->blocks[i].memory);
    a->block_count = 0;
    a->version++;
}

void step_arena_free(struct step_arena *a) {
    free_blocks(a);
    free(a->blocks);
    a->blocks = NULL;
}

static int add_block(struct step_arena *a, size_t bytes) {
    struct step_arena_block *blocks =
        realloc(a->blocks, (size_t)(a->block_count + 1) * sizeof *blocks);
    if (!blocks) return fail(ERR_MEMORY, "tape: no host memory");
    a->blocks = blocks;
    void *memory;
    CHECK(device_alloc(a->device, &memory, bytes, a->cause));
    a->blocks[a->block_count++] = (struct step_arena_block){memory, bytes};
    a->version++;
    return OK;
}

int step_arena_alloc(struct step_arena *a, size_t bytes, void **out) {
    struct step_arena_mark *m = &a->mark;
    if (!bytes) bytes = 1; /* an empty batch has an address too */
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    while (m->block < a->block_count && a->blocks[m->block].bytes - m->offset < bytes) {
        m->block++;
        m->offset = 0;
    }
    if (m->block == a->block_count) CHECK(add_block(a, bytes));
    *out = a->blocks[m->block].memory + m->offset;
    m->offset += bytes;
    m->in_use += bytes;
    if (a->high_water < m->in_use) a->high_water = m->in_use;
    return OK;
}

/* The blocks are freed before the one block is allocated, so the peak does not rise. Where the free
 * memory of the device lies in pieces too small for the one block, the next step asks for its own
 * pieces again. After a step that ran out of memory nothing is kept: a smaller batch must find all
 * the memory that it would have found without that step. */
int step_arena_restart(struct step_arena *a, int ran_out) {
    a->mark = (struct step_arena_mark){0};
    if (a->block_count < 2 && !ran_out) return OK;
    CHECK(stream_sync(device_compute(a->device)));
    free_blocks(a);
    if (ran_out) {
        a->high_water = 0;
        return OK;
    }
    int code = add_block(a, a->high_water);
    return code == ERR_MEMORY ? OK : code;
}
