/* Instructions that are more than arithmetic: copies that arrive later, tensor cores, time. */
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/stand_ins/ptx/machine.h"

/* ---- cp.async ---- */

/* The bytes are fetched when they are waited for, the latest moment at which a GPU may do it; until
 * then whoever touches where they go is found out. */
void ptx_async_copy(struct ptx_warp *w, const struct ptx_instr *in) {
    const struct ptx_access to = {.space = PTX_SHARED,
                                  .base = in->at[0],
                                  .wide = in->wide,
                                  .offset = in->offset,
                                  .bytes = in->bytes,
                                  .writes = 1},
                            from = {.space = PTX_GLOBAL,
                                    .base = in->at[1],
                                    .wide = 1,
                                    .offset = in->offset_from,
                                    .bytes = in->bytes};
    char *to_host[PTX_LANES], *from_host[PTX_LANES];
    if (!ptx_reach(w, &to, to_host) || !ptx_reach(w, &from, from_host)) return;
    if (w->copy_count + PTX_LANES > w->copy_room) {
        w->copy_room += w->copy_room + 1024;
        w->copies = realloc(w->copies, w->copy_room * sizeof *w->copies);
        if (!w->copies) abort();
    }
    for (uint32_t m = w->mask; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        uint32_t offset = (uint32_t)(to_host[l] - (char *)w->machine->shared);
        if (!ptx_touch_await(w, l, offset, in->bytes)) return;
        w->copies[w->copy_count++] = (struct ptx_copy){offset, (uint8_t)l, in->bytes, from_host[l]};
    }
}

void ptx_async_wait(struct ptx_warp *w, const struct ptx_instr *in) {
    (void)in;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->copy_count; i++) {
        const struct ptx_copy c = w->copies[i];
        if (!(w->mask >> c.lane & 1)) {
            w->copies[kept++] = c;
            continue;
        }
        memcpy(w->machine->shared + c.to, c.from, c.bytes);
        ptx_touch_arrived(w, c.lane, c.to, c.bytes);
    }
    w->copy_count = kept;
}

/* ---- mma.sync m16n8k8 of tf32 ---- */

static float tf32_at(const struct ptx_warp *w, uint32_t at, int lane) {
    uint32_t bits = ((const uint32_t *)(const void *)(w->registers + at))[lane] & ~0x1fffu;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* d = a b + c, with a (16, 8), b (8, 8), c and d (16, 8). Which lane holds which element is said in
 * device/cuda/kernels/tf32.h. A sum's terms are added from the first to the last, each by fma; the
 * hardware has its own way. Of an operand the hardware takes the upper 19 bits. */
void ptx_mma(struct ptx_warp *w, const struct ptx_instr *in) {
    const uint32_t *at = w->machine->grid.program->more + in->more, *of_d = at, *of_a = at + 4,
                   *of_b = at + 8, *of_c = at + 10;
    float a[16][8], b[8][8], d[4][PTX_LANES];
    if (w->mask != 0xffffffffu) {
        ptx_fault(w, PTX_FAULT_OTHER, 0, "mma by a part of its warp");
        return;
    }
    for (int l = 0; l < PTX_LANES; l++) {
        for (int i = 0; i < 4; i++)
            a[l / 4 + i % 2 * 8][l % 4 + i / 2 * 4] = tf32_at(w, of_a[i], l);
        for (int i = 0; i < 2; i++)
            b[l % 4 + i * 4][l / 4] = tf32_at(w, of_b[i], l);
    }
    for (int i = 0; i < 4; i++) {
        const float *c = (const float *)(void *)(w->registers + of_c[i]);
        for (int l = 0; l < PTX_LANES; l++) {
            float sum = c[l];
            for (int k = 0; k < 8; k++)
                sum = fmaf(a[l / 4 + i / 2 * 8][k], b[k][l % 4 * 2 + i % 2], sum);
            d[i][l] = sum;
        }
    }
    for (int i = 0; i < 4; i++)
        memcpy(w->registers + of_d[i], d[i], sizeof d[i]);
}

/* ---- time ---- */

void ptx_timer(struct ptx_warp *w, const struct ptx_instr *in) {
    uint64_t *d = PTX_AT(uint64_t, 0);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    PTX_EACH_LANE(d[l] = ns);
}

/* griddepcontrol.wait: the kernel in front has ended. */
void ptx_follow(struct ptx_warp *w, const struct ptx_instr *in) {
    (void)in;
    w->follows |= w->mask;
}

void ptx_sleep(struct ptx_warp *w, const struct ptx_instr *in) {
    (void)w, (void)in;
    sched_yield();
}

void ptx_poll(struct ptx_warp *w) {
    if (++w->polls % 64 == 0) sched_yield();
}
