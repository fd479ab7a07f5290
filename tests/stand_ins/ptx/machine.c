/* Runs blocks: warps in turn, the lanes of a warp together as long as they are at one place. */
#include "tests/stand_ins/ptx/machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Shared and local memory that a block has not written yet holds this in each byte: a NaN as a
 * float, an index that is far outside. (Registers hold what the block before left there: to fill
 * those of a large kernel would take longer than to run it.) */
enum { RUBBISH = 0xff };

/* ---- faults ---- */

/* "thread 5 of block 2: st.shared.f32 (product.ptx:1234, made of device/cuda/kernels/tile.h:96)" */
static void where_text(const struct ptx_machine *m, uint32_t here, uint32_t thread, char *text,
                       size_t bytes) {
    const struct ptx_where *at = &m->grid.program->where[here];
    struct ptx_word source = ptx_source(at->file, at->source);
    const char *slash = strrchr(at->file->path, '/'), *kernels;
    if (source.length && (kernels = memmem(source.at, source.length, "/./", 3))) {
        source.length -= (size_t)(kernels + 3 - source.at); /* from the root of the repository */
        source.at = kernels + 3;
    }
    int used = snprintf(text, bytes, "thread %u of block %u: %.*s (%s:%d", thread, m->block[0],
                        PTX_WORD(at->opcode), slash ? slash + 1 : at->file->path, at->line);
    if (source.length && used > 0 && (size_t)used < bytes)
        used += snprintf(text + used, bytes - (size_t)used, ", made of %.*s:%u", PTX_WORD(source),
                         at->source_line);
    if (used > 0 && (size_t)used < bytes) snprintf(text + used, bytes - (size_t)used, ")");
}

void ptx_fault(struct ptx_warp *w, enum ptx_fault_kind kind, int lane, const char *format, ...) {
    struct ptx_machine *m = w->machine;
    char where[240], what[150];
    va_list list;
    if (m->fault.kind) return;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    where_text(m, w->here, w->first_thread + (uint32_t)lane, where, sizeof where);
    m->fault.kind = kind;
    snprintf(m->fault.text, sizeof m->fault.text, "%s: %s", where, what);
}

/* ---- a machine ---- */

/* The same value in all lanes of a register. */
static void fill(struct ptx_warp *w, uint32_t at, int bits, uint64_t value) {
    unsigned char *r = w->registers + at;
    if (bits == 1) {
        const uint32_t all = value ? 0xffffffffu : 0;
        memcpy(r, &all, sizeof all);
        return;
    }
    for (int l = 0; l < PTX_LANES; l++)
        memcpy(r + l * (bits / 8), &value, (size_t)bits / 8);
}

static void prepare_warp(struct ptx_machine *m, uint32_t number) {
    const struct ptx_program *p = m->grid.program;
    struct ptx_warp *w = &m->warps[number];
    w->machine = m;
    w->registers = m->registers + number * p->register_bytes;
    w->first_thread = number * PTX_LANES;
    for (uint32_t i = 0; i < p->constant_count; i++)
        fill(w, p->constants[i].at, p->constants[i].bits, p->constants[i].value);
    for (int k = 0; k < 3; k++) {
        fill(w, p->specials[PTX_NTID][k], 32, m->grid.threads[k]);
        fill(w, p->specials[PTX_NCTAID][k], 32, m->grid.blocks[k]);
    }
    for (uint32_t l = 0; l < PTX_LANES; l++) {
        uint32_t rest = w->first_thread + l;
        for (int k = 0; k < 3; k++) {
            uint32_t *tid = (uint32_t *)(void *)(w->registers + p->specials[PTX_TID][k]);
            tid[l] = rest % m->grid.threads[k];
            rest /= m->grid.threads[k];
        }
    }
}

struct ptx_machine *ptx_machine_new(const struct ptx_grid *grid) {
    const struct ptx_program *p = grid->program;
    struct ptx_machine *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->grid = *grid;
    m->thread_count = grid->threads[0] * grid->threads[1] * grid->threads[2];
    m->warp_count = (m->thread_count + PTX_LANES - 1) / PTX_LANES;
    m->grain_shift = p->shared_grain == 1 ? 0 : p->shared_grain == 2 ? 1 : 2;
    const size_t lanes = (size_t)m->warp_count * PTX_LANES;
    m->warps = calloc(m->warp_count, sizeof *m->warps);
    m->registers = aligned_alloc(64, m->warp_count * p->register_bytes + 64 -
                                         m->warp_count * p->register_bytes % 64);
    m->shared = aligned_alloc(64, p->shared_bytes / 64 * 64 + 64);
    m->touches = calloc((p->shared_bytes >> m->grain_shift) + 1, sizeof *m->touches);
    m->local = malloc(lanes * p->local_bytes + 1);
    m->call = malloc(lanes * p->call_bytes + 1);
    if (!m->warps || !m->registers || !m->shared || !m->touches || !m->local || !m->call) {
        ptx_machine_free(m);
        return NULL;
    }
    for (uint32_t i = 0; i < m->warp_count; i++)
        prepare_warp(m, i);
    return m;
}

void ptx_machine_free(struct ptx_machine *m) {
    if (!m) return;
    for (uint32_t i = 0; m->warps && i < m->warp_count; i++)
        free(m->warps[i].copies);
    free(m->warps);
    free(m->registers);
    free(m->shared);
    free(m->touches);
    free(m->local);
    free(m->call);
    free(m);
}

uint64_t ptx_machine_count(const struct ptx_machine *m) {
    return m->count;
}

/* ---- a warp ---- */

static void put(struct ptx_warp *w, uint32_t lanes, uint32_t pc) {
    for (; lanes; lanes &= lanes - 1)
        w->pc[__builtin_ctz(lanes)] = pc;
}

static void call(struct ptx_warp *w, const struct ptx_instr *in, uint32_t lanes, uint32_t back) {
    struct ptx_machine *m = w->machine;
    const uint32_t *moves = m->grid.program->more + in->more;
    for (; lanes; lanes &= lanes - 1) {
        int l = __builtin_ctz(lanes);
        unsigned char *own =
            m->call + (w->first_thread + (uint32_t)l) * m->grid.program->call_bytes;
        if (w->depth[l] == PTX_CALLS) {
            ptx_fault(w, PTX_FAULT_OTHER, l, "calls deeper than %d", PTX_CALLS);
            return;
        }
        w->back[l][w->depth[l]++] = back;
        for (int i = 0; i < in->count; i++)
            memcpy(own + moves[2 * i + 1], own + moves[2 * i], 8);
        w->pc[l] = in->target;
    }
}

static void leave(struct ptx_warp *w, uint32_t lanes) {
    for (; lanes; lanes &= lanes - 1) {
        int l = __builtin_ctz(lanes);
        if (w->depth[l])
            w->pc[l] = w->back[l][--w->depth[l]];
        else
            w->live &= ~(1u << l);
    }
}

/* An instruction that decides where lanes go on; `lanes` are those of `group` whose guard holds.
 * Leaves the place of each lane in w->pc. */
static void turn(struct ptx_warp *w, const struct ptx_instr *in, uint32_t group, uint32_t lanes) {
    put(w, group & ~lanes, w->here + 1);
    switch ((enum ptx_flow)in->flow) {
    case PTX_FLOW_BRANCH: put(w, lanes, in->target); break;
    case PTX_FLOW_CALL: call(w, in, lanes, w->here + 1); break;
    case PTX_FLOW_RETURN: leave(w, lanes); break;
    case PTX_FLOW_BARRIER:
        put(w, lanes, w->here);
        w->waiting |= lanes;
        break;
    case PTX_FLOW_ON: break;
    }
}

/* The lanes at the lowest place, and at *next the lowest place of any other. */
static uint32_t choose(const struct ptx_warp *w, uint32_t *pc, uint32_t *next) {
    uint32_t group = 0;
    *pc = *next = UINT32_MAX;
    for (uint32_t m = w->live & ~w->waiting; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        if (w->pc[l] < *pc) {
            *next = *pc;
            *pc = w->pc[l];
            group = 0;
        }
        if (w->pc[l] == *pc)
            group |= 1u << l;
        else if (w->pc[l] < *next)
            *next = w->pc[l];
    }
    return group;
}

static uint32_t allowed(const struct ptx_warp *w, const struct ptx_instr *in, uint32_t group) {
    uint32_t guard;
    if (!in->guarded) return group;
    memcpy(&guard, w->registers + in->guard, sizeof guard);
    return group & (in->guard_not ? ~guard : guard);
}

/* Until all lanes have ended or wait at a barrier. */
static void run_warp(struct ptx_warp *w) {
    struct ptx_machine *m = w->machine;
    const struct ptx_instr *code = m->grid.program->code;
    uint32_t pc, next, group;
    while ((group = choose(w, &pc, &next)) && !m->fault.kind) {
        while (pc < next) {
            const struct ptx_instr *in = &code[pc];
            const uint32_t lanes = allowed(w, in, group);
            w->here = pc;
            m->count++;
            if (in->flow == PTX_FLOW_ON) {
                w->mask = lanes;
                if (lanes) in->run(w, in);
                if (m->fault.kind) return;
                pc++;
            } else if (in->flow == PTX_FLOW_BRANCH && (lanes == group || !lanes)) {
                pc = lanes ? in->target : pc + 1;
            } else {
                turn(w, in, group, lanes);
                group = 0;
                break;
            }
        }
        put(w, group, pc);
    }
}

/* ---- a block ---- */

static void begin_block(struct ptx_machine *m, const uint32_t block[3]) {
    const struct ptx_program *p = m->grid.program;
    memcpy(m->block, block, sizeof m->block);
    memset(m->shared, RUBBISH, p->shared_bytes);
    memset(m->local, RUBBISH, (size_t)m->warp_count * PTX_LANES * p->local_bytes);
    for (uint32_t i = 0; i < m->warp_count; i++) {
        struct ptx_warp *w = &m->warps[i];
        const uint32_t threads = m->thread_count - i * PTX_LANES;
        w->live = threads >= PTX_LANES ? 0xffffffffu : (1u << threads) - 1;
        for (uint32_t c = 0; c < w->copy_count; c++) /* of the block before */
            ptx_touch_arrived(w, w->copies[c].lane, w->copies[c].to, w->copies[c].bytes);
        w->waiting = w->copy_count = w->follows = 0;
        memset(w->pc, 0, sizeof w->pc);
        memset(w->depth, 0, sizeof w->depth);
        for (int k = 0; k < 3; k++)
            fill(w, p->specials[PTX_CTAID][k], 32, block[k]);
    }
    m->interval++;
}

/* All warps have come to a barrier or to their end. Returns 1 if the block goes on: then no thread
 * has ended, and all wait at the same place. */
static int meet(struct ptx_machine *m) {
    struct ptx_warp *first = NULL;
    int lane = 0;
    for (uint32_t i = 0; i < m->warp_count && !first; i++)
        if (m->warps[i].waiting) first = &m->warps[i], lane = __builtin_ctz(first->waiting);
    if (!first) return 0;
    const uint32_t here = first->pc[lane];
    for (uint32_t thread = 0; thread < m->thread_count; thread++) {
        struct ptx_warp *w = &m->warps[thread / PTX_LANES];
        const uint32_t l = thread % PTX_LANES;
        if (w->live >> l & 1 && w->pc[l] == here) continue;
        first->here = here;
        if (w->live >> l & 1)
            ptx_fault(first, PTX_FAULT_BARRIER, lane, "thread %u waits at another barrier, line %d",
                      thread, m->grid.program->where[w->pc[l]].line);
        else
            ptx_fault(first, PTX_FAULT_BARRIER, lane, "waits for ever: thread %u has ended",
                      thread);
        return 0;
    }
    for (uint32_t i = 0; i < m->warp_count; i++) {
        put(&m->warps[i], m->warps[i].waiting, here + 1);
        m->warps[i].waiting = 0;
    }
    m->interval++;
    return 1;
}

int ptx_run_block(struct ptx_machine *m, const uint32_t block[3], struct ptx_fault *fault) {
    begin_block(m, block);
    do {
        for (uint32_t i = 0; i < m->warp_count && !m->fault.kind; i++)
            run_warp(&m->warps[i]);
    } while (!m->fault.kind && meet(m));
    if (m->fault.kind) *fault = m->fault;
    return !m->fault.kind;
}
