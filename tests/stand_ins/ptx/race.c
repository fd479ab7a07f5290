/* Looks for races in shared memory. Between two barriers a thread may not touch what another has
 * written, nor write what another has touched: nothing orders them, though one warp runs before
 * the other here. The threads of a warp are not ordered either.
 *
 * For each few bytes it is kept who wrote and who read them last, and in which interval between
 * barriers. So a missing barrier is found whatever the order in which the warps ran. */
#include <stdio.h>
#include <string.h>

#include "tests/stand_ins/ptx/machine.h"

static int race(struct ptx_warp *w, int lane, uint32_t at, const char *does, const char *did,
                uint32_t other) {
    char who[20];
    snprintf(who, sizeof who, other == PTX_MANY ? "several threads" : "thread %u", other);
    ptx_fault(w, PTX_FAULT_RACE, lane,
              "%s shared memory at %u, which %s %s with no barrier between", does, at, who, did);
    return 0;
}

static int await(struct ptx_warp *w, int lane, uint32_t at, uint32_t by) {
    ptx_fault(w, PTX_FAULT_RACE, lane,
              "touches shared memory at %u, which cp.async of thread %u has not been waited for",
              at, by);
    return 0;
}

#define EACH_TOUCH(m, t, offset, bytes)                                                        \
    for (struct ptx_touch *t = (m)->touches + ((offset) >> (m)->grain_shift),                  \
                          *end_ = (m)->touches + (((offset) + (bytes)-1) >> (m)->grain_shift); \
         t <= end_; t++)

static uint32_t offset_of(const struct ptx_machine *m, const struct ptx_touch *t) {
    return (uint32_t)(t - m->touches) << m->grain_shift;
}

static int read_refused(struct ptx_warp *w, int lane, const struct ptx_touch *t) {
    const uint32_t at = offset_of(w->machine, t);
    return t->awaited ? await(w, lane, at, t->awaited - 1)
                      : race(w, lane, at, "reads", "wrote", t->writer);
}

/* Many lanes read the same: an address is looked at for the first two of them, which is enough to
 * know that more than one thread has read there. */
int ptx_touch_reads(struct ptx_warp *w, const uint64_t at[PTX_LANES], uint32_t bytes) {
    struct ptx_machine *m = w->machine;
    const uint32_t now = m->interval;
    const int shift = __builtin_ctz(bytes);
    uint64_t once[PTX_LANES];
    uint32_t twice = 0;
    memset(once, 0xff, sizeof once);
    for (uint32_t lanes = w->mask; lanes; lanes &= lanes - 1) {
        const int l = __builtin_ctz(lanes);
        const uint16_t thread = (uint16_t)(w->first_thread + (uint32_t)l);
        const uint32_t slot = (uint32_t)(at[l] >> shift) % PTX_LANES;
        if (once[slot] != at[l])
            twice &= ~(1u << slot);
        else if (twice >> slot & 1)
            continue;
        else
            twice |= 1u << slot;
        once[slot] = at[l];
        EACH_TOUCH(m, t, (uint32_t)at[l], bytes) {
            if (t->awaited || (t->written == now && t->writer != thread))
                return read_refused(w, l, t);
            t->reader = t->read != now || t->reader == thread ? thread : PTX_MANY;
            t->read = now;
        }
    }
    return 1;
}

/* What a write and the arrival of cp.async's bytes have in common. */
static int touch_write(struct ptx_warp *w, int lane, uint32_t offset, uint32_t bytes,
                       uint32_t awaited) {
    struct ptx_machine *m = w->machine;
    const uint32_t now = m->interval;
    const uint16_t thread = (uint16_t)(w->first_thread + (uint32_t)lane);
    EACH_TOUCH(m, t, offset, bytes) {
        if (t->awaited) return await(w, lane, offset_of(m, t), t->awaited - 1);
        if (t->written == now && t->writer != thread)
            return race(w, lane, offset_of(m, t), "writes", "wrote", t->writer);
        if (t->read == now && t->reader != thread)
            return race(w, lane, offset_of(m, t), "writes", "read", t->reader);
        t->written = now;
        t->writer = thread;
        t->awaited = awaited;
    }
    return 1;
}

int ptx_touch_write(struct ptx_warp *w, int lane, uint32_t offset, uint32_t bytes) {
    return touch_write(w, lane, offset, bytes, 0);
}

int ptx_touch_await(struct ptx_warp *w, int lane, uint32_t offset, uint32_t bytes) {
    return touch_write(w, lane, offset, bytes, w->first_thread + (uint32_t)lane + 1);
}

void ptx_touch_arrived(struct ptx_warp *w, int lane, uint32_t offset, uint32_t bytes) {
    struct ptx_machine *m = w->machine;
    EACH_TOUCH(m, t, offset, bytes) {
        t->awaited = 0;
        t->written = m->interval;
        t->writer = (uint16_t)(w->first_thread + (uint32_t)lane);
    }
}
