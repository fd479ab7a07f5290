/* The step arena; step_arena.h draws it. */
#include "nn/tape/step_arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/grow.h"

enum { ALIGNMENT = 256 };

/* ---- memory ---- */

static int is_inside(const struct step_arena *a, const struct step_arena_piece *p) {
    return a->block && p->offset + p->bytes <= a->block_bytes;
}

/* Frees returned pieces outside of the block, after the work that may still use them. */
static int free_ended(struct step_arena *a) {
    if (!a->ended_count) return OK;
    CHECK(stream_sync(device_compute(a->device)));
    while (a->ended_count)
        device_free(a->device, a->ended[--a->ended_count]);
    return OK;
}

static void free_memory(struct step_arena *a) {
    for (int i = 0; i < a->count; i++)
        if (!is_inside(a, &a->pieces[i])) device_free(a->device, a->pieces[i].memory);
    while (a->ended_count)
        device_free(a->device, a->ended[--a->ended_count]);
    device_free(a->device, a->block);
    a->block = NULL;
    a->block_bytes = 0;
    a->count = a->outside = 0;
}

void step_arena_free(struct step_arena *a) {
    free_memory(a);
    free(a->pieces);
    free(a->ended);
    a->pieces = NULL;
    a->ended = NULL;
    a->capacity = a->ended_capacity = 0;
}

/* Grows `ended` for all outside pieces, so that returning a piece cannot fail. */
static int reserve_ended(struct step_arena *a) {
    int most = a->outside + a->ended_count + 1, capacity = 2 * most;
    if (most <= a->ended_capacity) return OK;
    void **ended = realloc(a->ended, (size_t)capacity * sizeof *ended);
    if (!ended) return fail(ERR_MEMORY, "tape: out of host memory");
    a->ended = ended;
    a->ended_capacity = capacity;
    return OK;
}

static int find_memory(struct step_arena *a, struct step_arena_piece *p) {
    if (is_inside(a, p)) {
        p->memory = a->block + p->offset;
        return OK;
    }
    CHECK(free_ended(a));
    CHECK(reserve_ended(a));
    CHECK(device_alloc(a->device, (void **)&p->memory, p->bytes, a->cause));
    a->outside++;
    return OK;
}

/* ---- the plan ---- */

static int reserve_piece(struct step_arena *a) {
    return list_grow("tape", &a->pieces, a->count, &a->capacity, sizeof *a->pieces);
}

/* Finds the first gap of so many bytes: the piece after it. */
static int find_gap(const struct step_arena *a, size_t bytes, size_t *offset) {
    int i = 0;
    for (*offset = 0; i < a->count && a->pieces[i].offset - *offset < bytes; i++)
        *offset = a->pieces[i].offset + a->pieces[i].bytes;
    return i;
}

int step_arena_alloc(struct step_arena *a, size_t bytes, void **out) {
    struct step_arena_piece p = {.number = a->number};
    if (!bytes) bytes = 1; /* even an empty batch needs an address */
    p.bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    int at = find_gap(a, p.bytes, &p.offset);
    CHECK(reserve_piece(a));
    CHECK(find_memory(a, &p));
    memmove(&a->pieces[at + 1], &a->pieces[at], (size_t)(a->count - at) * sizeof p);
    a->pieces[at] = p;
    a->count++;
    a->number++;
    if (a->extent < p.offset + p.bytes) a->extent = p.offset + p.bytes;
    *out = p.memory;
    return OK;
}

/* The piece that `memory` is in; -1: none. */
static int find(const struct step_arena *a, const void *memory) {
    const char *at = memory;
    int low = 0, high = a->count; /* those below `low` begin at or before it, later ones after */
    if (a->block && at >= a->block && at < a->block + a->block_bytes) {
        const size_t offset = (size_t)(at - a->block);
        while (low < high) {
            int middle = (low + high) / 2;
            if (a->pieces[middle].offset <= offset)
                low = middle + 1;
            else
                high = middle;
        }
        const struct step_arena_piece *p = low ? &a->pieces[low - 1] : NULL;
        return p && offset < p->offset + p->bytes ? low - 1 : -1;
    }
    for (int i = a->count; a->outside && i-- > 0;)
        if (at >= a->pieces[i].memory && at < a->pieces[i].memory + a->pieces[i].bytes) return i;
    return -1;
}

void step_arena_hold(struct step_arena *a, const void *memory) {
    int i = find(a, memory);
    if (i >= 0) a->pieces[i].holders++;
}

int step_arena_holders(const struct step_arena *a, const void *memory) {
    int i = find(a, memory);
    return i < 0 ? 0 : a->pieces[i].holders;
}

/* A later read gets NaN. */
static int fill_with_nan(struct step_arena *a, const struct step_arena_piece *p) {
    const size_t most = (size_t)1 << 30;
    for (size_t done = 0; done < p->bytes; done += most) {
        size_t bytes = p->bytes - done < most ? p->bytes - done : most;
        int count = (int)(bytes / sizeof(float));
        struct op_args fill = {.out[0] = tensor_plain(p->memory + done, DTYPE_F32, 1, &count),
                               .p.fill.value = NAN};
        CHECK(launch(device_compute(a->device), OP_FILL, &fill));
    }
    return OK;
}

static int give_back(struct step_arena *a, int i) {
    struct step_arena_piece p = a->pieces[i];
    a->count--;
    memmove(&a->pieces[i], &a->pieces[i + 1], (size_t)(a->count - i) * sizeof p);
    if (!is_inside(a, &p)) {
        a->outside--;
        a->ended[a->ended_count++] = p.memory;
    }
    const struct device_config *config = device_config(a->device);
    /* Filling is not part of the step's work, so no span may cover it. */
    return config->check_operands && !config->spans ? fill_with_nan(a, &p) : OK;
}

int step_arena_drop(struct step_arena *a, const void *memory) {
    int i = find(a, memory);
    return i < 0 || --a->pieces[i].holders > 0 ? OK : give_back(a, i);
}

int step_arena_release(struct step_arena *a, int first, int end) {
    for (int i = a->count; first < end && i-- > 0;) {
        const struct step_arena_piece *p = &a->pieces[i];
        if (p->number >= first && p->number < end && p->holders <= 0) CHECK(give_back(a, i));
    }
    return OK;
}

/* ---- steps ---- */

/* All is freed before the block is allocated, so the peak does not rise. If the device's free
 * memory is in pieces too small for the block, the next step allocates its own pieces again. After
 * a step that ran out of memory nothing is kept: a smaller batch must find as much memory as
 * without that step. */
int step_arena_restart(struct step_arena *a, int ran_out) {
    a->number = 0;
    if (!a->outside && !a->ended_count && !ran_out) {
        a->count = 0;
        return OK;
    }
    CHECK(stream_sync(device_compute(a->device)));
    free_memory(a);
    if (ran_out) {
        a->extent = 0;
        return OK;
    }
    int code = device_alloc(a->device, (void **)&a->block, a->extent, a->cause);
    if (!code) a->block_bytes = a->extent;
    return code == ERR_MEMORY ? OK : code;
}
