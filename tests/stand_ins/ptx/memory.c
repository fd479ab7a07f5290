/* Loads and stores: where an address lies, whether the thread may access it, and the moves between
 * memory and registers. */
#include <string.h>

#include "tests/stand_ins/ptx/machine.h"

/* ---- where an address lies ---- */

/* The addresses of all lanes; those of lanes that are not active mean nothing. */
static void addresses(const struct ptx_warp *w, const struct ptx_access *access,
                      uint64_t at[PTX_LANES]) {
    const void *base = w->registers + access->base;
    const uint32_t *narrow = base;
    const uint64_t *wide = base, offset = (uint64_t)access->offset;
    if (access->wide)
        for (int l = 0; l < PTX_LANES; l++)
            at[l] = wide[l] + offset;
    else
        for (int l = 0; l < PTX_LANES; l++)
            at[l] = narrow[l] + offset;
}

static const char *verb(const struct ptx_access *access) {
    return access->writes ? "writes" : "reads";
}

static int misaligned(struct ptx_warp *w, const struct ptx_access *access, int l, uint64_t at) {
    ptx_fault(w, PTX_FAULT_ALIGNMENT, l, "%s %u bytes at %#llx, which is no multiple of %u",
              verb(access), access->bytes, (unsigned long long)at, access->bytes);
    return 0;
}

static int outside(struct ptx_warp *w, const struct ptx_access *access, int l, uint64_t at,
                   const char *what) {
    ptx_fault(w, PTX_FAULT_ADDRESS, l, "%s %u bytes at %#llx, outside of %s", verb(access),
              access->bytes, (unsigned long long)at, what);
    return 0;
}

/* Global memory: [at, at + bytes) lies in one allocation. The last one is tried first. */
static int may_access(struct ptx_warp *w, uint64_t at, uint64_t bytes) {
    const struct ptx_grid *grid = &w->machine->grid;
    const struct ptx_range *near = w->near;
    if (near && at >= near->from && at < near->to && bytes <= near->to - at) return 1;
    for (near = grid->ranges; near < grid->ranges + grid->range_count; near++)
        if (at >= near->from && at < near->to && bytes <= near->to - at) {
            w->near = near;
            return 1;
        }
    return 0;
}

/* 1: one of these lanes, whose kernel was started early, has not waited for the kernel in front. */
static int too_early(struct ptx_warp *w, const struct ptx_access *access, uint32_t lanes) {
    lanes &= ~w->follows;
    if (!w->machine->grid.dependent || !lanes) return 0;
    ptx_fault(w, PTX_FAULT_RACE, __builtin_ctz(lanes),
              "%s global memory before griddepcontrol.wait", verb(access));
    return 1;
}

static char *reach_global(struct ptx_warp *w, const struct ptx_access *access, int l, uint64_t at) {
    if (too_early(w, access, 1u << l)) return NULL;
    if (!may_access(w, at, access->bytes)) {
        outside(w, access, l, at, "all memory that the GPU may access");
        return NULL;
    }
    return (char *)(uintptr_t)at;
}

/* Shared memory, all lanes at once. */
static int reach_shared(struct ptx_warp *w, const struct ptx_access *access,
                        const uint64_t at[PTX_LANES], char *host[PTX_LANES]) {
    struct ptx_machine *m = w->machine;
    const uint64_t bytes = m->grid.program->shared_bytes;
    uint64_t most = 0;
    PTX_EACH_LANE(most = at[l] > most ? at[l] : most; host[l] = (char *)m->shared + at[l]);
    if (most >= bytes || access->bytes > bytes - most)
        PTX_EACH_LANE(if (at[l] >= bytes || access->bytes > bytes - at[l]) return outside(
            w, access, l, at[l], "the block's shared memory"));
    for (uint32_t lanes = access->writes ? w->mask : 0; lanes; lanes &= lanes - 1) {
        const int l = __builtin_ctz(lanes);
        if (!ptx_touch_write(w, l, (uint32_t)at[l], access->bytes)) return 0;
    }
    return access->writes || ptx_touch_reads(w, at, access->bytes);
}

/* Memory that each thread has for itself. */
static char *reach_own(struct ptx_warp *w, const struct ptx_access *access, int l, uint64_t at,
                       unsigned char *all, size_t bytes, const char *what) {
    if (at >= bytes || access->bytes > bytes - at) {
        outside(w, access, l, at, what);
        return NULL;
    }
    return (char *)all + (w->first_thread + (uint32_t)l) * bytes + at;
}

static char *reach_one(struct ptx_warp *w, const struct ptx_access *access, int l, uint64_t at,
                       enum ptx_space space) {
    struct ptx_machine *m = w->machine;
    const struct ptx_program *p = m->grid.program;
    switch (space) {
    case PTX_GLOBAL: return reach_global(w, access, l, at);
    case PTX_LOCAL:
        return reach_own(w, access, l, at, m->local, p->local_bytes, "the thread's local memory");
    case PTX_CALL: return reach_own(w, access, l, at, m->call, p->call_bytes, "a call's arguments");
    case PTX_PARAM:
        if (!access->writes && at < p->param_bytes && access->bytes <= p->param_bytes - at)
            return (char *)(uintptr_t)m->grid.param + at;
        outside(w, access, l, at, "the kernel's parameter");
        return NULL;
    default: break;
    }
    outside(w, access, l, at, "every memory");
    return NULL;
}

/* A generic address: its upper byte says which memory it is in. Lanes may differ in it. */
static int reach_generic(struct ptx_warp *w, const struct ptx_access *access,
                         uint64_t at[PTX_LANES], char *host[PTX_LANES]) {
    const uint32_t all = w->mask;
    int fine = 1;
    for (uint32_t lanes = all; lanes && fine; lanes &= lanes - 1) {
        const int l = __builtin_ctz(lanes);
        const uint64_t tag = at[l] >> PTX_TAG_SHIFT;
        const enum ptx_space space = tag ? (enum ptx_space)(tag - 1) : PTX_GLOBAL;
        at[l] -= tag << PTX_TAG_SHIFT;
        w->mask = 1u << l;
        fine = space == PTX_SHARED ? reach_shared(w, access, at, host)
                                   : !!(host[l] = reach_one(w, access, l, at[l], space));
    }
    w->mask = all;
    return fine;
}

int ptx_reach(struct ptx_warp *w, const struct ptx_access *access, char *host[PTX_LANES]) {
    uint64_t at[PTX_LANES], bits = 0, low = UINT64_MAX, high = 0;
    addresses(w, access, at);
    PTX_EACH_LANE(bits |= at[l]);
    if (bits & (access->bytes - 1))
        PTX_EACH_LANE(if (at[l] & (access->bytes - 1)) return misaligned(w, access, l, at[l]));
    if (access->space == PTX_SHARED) return reach_shared(w, access, at, host);
    if (access->space == PTX_GENERIC) return reach_generic(w, access, at, host);
    if (access->space == PTX_GLOBAL && too_early(w, access, w->mask)) return 0;
    if (access->space == PTX_GLOBAL) { /* mostly all lanes are in one allocation */
        PTX_EACH_LANE(low = at[l] < low ? at[l] : low; high = at[l] > high ? at[l] : high);
        if (may_access(w, low, high - low + access->bytes)) {
            PTX_EACH_LANE(host[l] = (char *)(uintptr_t)at[l]);
            return 1;
        }
    }
    for (uint32_t m = w->mask; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        host[l] = reach_one(w, access, l, at[l], access->space);
        if (!host[l]) return 0;
    }
    return 1;
}

/* ---- loads and stores ---- */

static int reach(struct ptx_warp *w, const struct ptx_instr *in, int writes,
                 char *host[PTX_LANES]) {
    const struct ptx_access access = {.space = in->space,
                                      .base = in->at[4],
                                      .wide = in->wide,
                                      .offset = in->offset,
                                      .bytes = (uint32_t)in->bytes * in->count,
                                      .writes = writes};
    return ptx_reach(w, &access, host);
}

/* An element may be read by the bytes of two others: memcpy tells the compiler so. */
#define LOAD(name, from, to)                                                            \
    static void name(struct ptx_warp *w, const struct ptx_instr *in) {                  \
        char *host[PTX_LANES];                                                          \
        if (!reach(w, in, 0, host)) return;                                             \
        for (int i = 0; i < in->count; i++) {                                           \
            to *d = PTX_AT(to, i);                                                      \
            PTX_EACH_LANE(from x; memcpy(&x, host[l] + (size_t)i * sizeof x, sizeof x); \
                          d[l] = (to)x);                                                \
        }                                                                               \
    }
#define STORE(name, of_register, type)                                           \
    static void name(struct ptx_warp *w, const struct ptx_instr *in) {           \
        char *host[PTX_LANES];                                                   \
        if (!reach(w, in, 1, host)) return;                                      \
        for (int i = 0; i < in->count; i++) {                                    \
            const of_register *a = PTX_AT(of_register, i);                       \
            PTX_EACH_LANE(const type x = (type)a[l];                             \
                          memcpy(host[l] + (size_t)i * sizeof x, &x, sizeof x)); \
        }                                                                        \
    }
LOAD(load_u8_16, uint8_t, uint16_t)
LOAD(load_u8_32, uint8_t, uint32_t)
LOAD(load_u8_64, uint8_t, uint64_t)
LOAD(load_s8_16, int8_t, int16_t)
LOAD(load_s8_32, int8_t, int32_t)
LOAD(load_u16_16, uint16_t, uint16_t)
LOAD(load_u16_32, uint16_t, uint32_t)
LOAD(load_s16_32, int16_t, int32_t)
LOAD(load_u16_64, uint16_t, uint64_t)
LOAD(load_u32_32, uint32_t, uint32_t)
LOAD(load_u32_64, uint32_t, uint64_t)
LOAD(load_s32_64, int32_t, int64_t)
LOAD(load_u64_64, uint64_t, uint64_t)
STORE(store_8, uint16_t, uint8_t)
STORE(store_16, uint16_t, uint16_t)
STORE(store_32, uint32_t, uint32_t)
STORE(store_64, uint64_t, uint64_t)

/* Loads and stores with an order. A relaxed load may be a poll: now and then the machine's other
 * threads get the core. An acquire is more than relaxed needs. */
#define ORDERED(bits, type)                                                            \
    static void load_ordered_##bits(struct ptx_warp *w, const struct ptx_instr *in) {  \
        char *host[PTX_LANES];                                                         \
        type *d = PTX_AT(type, 0);                                                     \
        if (!reach(w, in, 0, host)) return;                                            \
        ptx_poll(w);                                                                   \
        for (uint32_t m = w->mask; m; m &= m - 1) {                                    \
            int l = __builtin_ctz(m);                                                  \
            d[l] = __atomic_load_n((const type *)(void *)host[l], __ATOMIC_ACQUIRE);   \
        }                                                                              \
    }                                                                                  \
    static void store_ordered_##bits(struct ptx_warp *w, const struct ptx_instr *in) { \
        char *host[PTX_LANES];                                                         \
        const type *a = PTX_AT(type, 0);                                               \
        if (!reach(w, in, 1, host)) return;                                            \
        for (uint32_t m = w->mask; m; m &= m - 1) {                                    \
            int l = __builtin_ctz(m);                                                  \
            __atomic_store_n((type *)(void *)host[l], a[l], __ATOMIC_RELEASE);         \
        }                                                                              \
    }
ORDERED(32, uint32_t)
ORDERED(64, uint64_t)

ptx_run *ptx_load(int bits, int is_signed, int of_register, int ordered) {
    static const struct {
        int bits, is_signed, of_register;
        ptx_run *run;
    } all[] = {{8, 0, 16, load_u8_16},   {8, 0, 32, load_u8_32},   {8, 0, 64, load_u8_64},
               {16, 0, 64, load_u16_64}, {8, 1, 16, load_s8_16},   {8, 1, 32, load_s8_32},
               {16, 0, 16, load_u16_16}, {16, 1, 16, load_u16_16}, {16, 0, 32, load_u16_32},
               {16, 1, 32, load_s16_32}, {32, 0, 32, load_u32_32}, {32, 1, 32, load_u32_32},
               {32, 0, 64, load_u32_64}, {32, 1, 64, load_s32_64}, {64, 0, 64, load_u64_64},
               {64, 1, 64, load_u64_64}};
    if (ordered)
        return bits != of_register ? NULL
               : bits == 32        ? load_ordered_32
               : bits == 64        ? load_ordered_64
                                   : NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].bits == bits && all[i].is_signed == is_signed &&
            all[i].of_register == of_register)
            return all[i].run;
    return NULL;
}

ptx_run *ptx_store(int bits, int ordered) {
    if (ordered) return bits == 32 ? store_ordered_32 : bits == 64 ? store_ordered_64 : NULL;
    return bits == 8 ? store_8 : bits == 16 ? store_16 : bits == 32 ? store_32 : store_64;
}

/* ---- atomics: as strong as the host has them ---- */

#define ATOMIC(name, type, ...)                                 \
    void name(struct ptx_warp *w, const struct ptx_instr *in) { \
        char *host[PTX_LANES];                                  \
        type *d = PTX_AT(type, 0);                              \
        const type *b = PTX_AT(type, 2), *c = PTX_AT(type, 3);  \
        if (!reach(w, in, 1, host)) return;                     \
        (void)c;                                                \
        for (uint32_t m = w->mask; m; m &= m - 1) {             \
            int l = __builtin_ctz(m);                           \
            type *at = (type *)(void *)host[l];                 \
            __VA_ARGS__;                                        \
        }                                                       \
    }
ATOMIC(ptx_atomic_add_32, uint32_t, d[l] = __atomic_fetch_add(at, b[l], __ATOMIC_ACQ_REL))
ATOMIC(ptx_atomic_add_64, uint64_t, d[l] = __atomic_fetch_add(at, b[l], __ATOMIC_ACQ_REL))
ATOMIC(ptx_atomic_cas_32, uint32_t, uint32_t was = b[l];
       __atomic_compare_exchange_n(at, &was, c[l], 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
       d[l] = was)
