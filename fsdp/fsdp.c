/* The step of sharded data parallel; fsdp.h has the drawing of a step. Before each op the tape
 * reports the parameters that the op uses, and later each complete gradient:
 *
 *     use(w, b):     gather the units of w and b into their slots, unless done
 *                    compute waits for them; begin the gather of the next unit
 *                    in backward: free their slot for gradients
 *     ready(p):      after the last gradient of a unit: reduce-scatter it
 *
 * The compute stream and the communication stream share the slots. Before comm overwrites a unit,
 * it waits until compute has finished with it (slot->left). Before compute reads a unit, it waits
 * until comm has filled the slot (slot->filled). Only compute writes the shards: the optimizer does
 * so after the last sum of a step, and the first gather of the next step waits for it. */
#include "fsdp/fsdp.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "fsdp/internal.h"
#include "nn/tensor.h"

int fsdp_ended(struct fsdp *f, int code) {
    if (code) comm_abort(f->comm, code, error_message());
    return code;
}

/* ---- units are gathered ---- */

int fsdp_lend(struct fsdp *f, struct slot *slot, enum phase phase) {
    struct stream *comm = device_comm(f->device);
    CHECK(event_record(slot->left, device_compute(f->device)));
    stream_set_phase(comm, phase, f->step);
    return stream_wait(comm, slot->left);
}

int fsdp_gather(struct fsdp *f, int kind, struct slot *slot, int unit, int frozen,
                const float *own) {
    struct stream *comm = device_comm(f->device);
    struct traffic *traffic = device_traffic_mutable(f->device);
    size_t block = f->units.unit[unit].block[frozen], bytes = block * sizeof *own;
    float *to = fsdp_block(f, slot, unit, frozen);
    if (!block) return OK;
    if (own) CHECK(copy_peer(comm, f->device, to, f->device, own, bytes));
    for (int r = 0; r < f->ranks && stream_phase(comm) == PHASE_PROOF; r++)
        if (r != f->rank) traffic_add(traffic, r, f->rank, -(uint64_t)bytes);
    return all_gather_enqueue(f->slots[kind].collectives, comm, to - (size_t)f->rank * block,
                              (size_t)f->ranks, block, unit, f->step);
}

/* Gathers in evaluation and for a proof do not count as training. */
static enum phase phase_of_gather(const struct fsdp *f) {
    enum phase now = stream_phase(device_compute(f->device));
    return now == PHASE_EVALUATE || now == PHASE_PROOF || !now ? now : PHASE_REPLICATE;
}

int fsdp_fetch(struct fsdp *f, int unit) {
    struct slot *slot = f->unit[unit].values;
    const float *shards = f->shards_in_slots ? NULL : f->shard.values;
    if (slot->unit == unit) return OK;
    slot->unit = unit;
    slot->waited = 0;
    CHECK(fsdp_lend(f, slot, phase_of_gather(f)));
    for (int frozen = 0; frozen < 2; frozen++) {
        const float *own = shards ? shards + f->units.unit[unit].shard[frozen] : NULL;
        CHECK(fsdp_gather(f, VALUES, slot, unit, frozen, own));
    }
    return event_record(slot->filled, device_comm(f->device));
}

/* This wait counts as time of the gather. */
static int await_slot(struct fsdp *f, struct slot *slot, enum phase phase) {
    struct stream *compute = device_compute(f->device);
    enum phase before = stream_swap_phase(compute, phase);
    int code = stream_wait(compute, slot->filled);
    stream_swap_phase(compute, before);
    return code;
}

int fsdp_await(struct fsdp *f, int unit) {
    struct slot *slot = f->unit[unit].values;
    if (slot->waited) return OK;
    slot->waited = 1;
    return await_slot(f, slot, phase_of_gather(f));
}

void fsdp_forget(struct fsdp *f) {
    for (int u = 0; u < f->units.count; u++)
        f->unit[u].values->unit = NO_UNIT;
}

void fsdp_notice_writes(struct fsdp *f) {
    if (!f->shard.written) return;
    f->shard.written = 0;
    fsdp_forget(f);
    for (int u = 0; u < f->units.count; u++)
        if (f->unit[u].grads) f->unit[u].grads->unit = NO_UNIT;
}

/* ---- the order of the units ---- */

static int is_in_use(const struct fsdp *f, const struct slot *slot) {
    for (int k = 0; k < 2; k++)
        if (f->current[k] != NO_UNIT && f->unit[f->current[k]].values == slot) return 1;
    return 0;
}

/* Starts to gather the units that followed this one in the previous pass, if their slots are
 * free. */
static int prefetch(struct fsdp *f) {
    const struct order *order = &f->order[f->backward];
    for (int k = 0; k < f->config.prefetch && f->at + k < order->count; k++) {
        int next = order->unit[f->at + k];
        if (is_in_use(f, f->unit[next].values)) return OK;
        CHECK(fsdp_fetch(f, next));
    }
    return OK;
}

/* If the pass uses units in another order than the previous one, the rest of that order is
 * dropped. */
static int note_order(struct fsdp *f, int unit) {
    struct order *order = &f->order[f->backward];
    if (f->at == order->count || order->unit[f->at] != unit) {
        order->count = f->at;
        CHECK(list_grow("fsdp", &order->unit, f->at, &order->capacity, sizeof *order->unit));
        order->unit[order->count++] = unit;
    }
    f->at++;
    return OK;
}

/* A unit that is entered twice in a forward pass stays in memory from the next step on, because its
 * gradients are still incomplete while those of other units are summed. */
static int learn(struct fsdp *f) {
    const struct order *order = &f->order[0];
    f->learned = 1;
    for (int k = 0; k < order->count && f->shared < f->units.count; k++)
        for (int before = 0; before < k; before++)
            if (order->unit[before] == order->unit[k]) f->unit[order->unit[k]].stays = f->moves = 1;
    return f->whole_grads ? OK : fsdp_open_slots(f, GRADS);
}

static int give_slots(struct fsdp *f) {
    f->moves = 0;
    if (!f->whole_values) CHECK(fsdp_open_slots(f, VALUES));
    f->order[0].count = f->order[1].count = 0;
    return OK;
}

/* ---- gradients are summed ---- */

/* Gradients that this backward did not compute are zeros. */
static int zero_missing(struct fsdp *f, int unit) {
    for (int i = 0; i < f->params->count && f->unit[unit].pending; i++) {
        struct param *p = &f->params->param[i];
        if (f->units.of[i] != unit || !param_trains(p) || f->is_ready[i]) continue;
        CHECK(tensor_zero(f->device, &p->grad));
    }
    return OK;
}

/* Keeps the sum of this rank's shard; the rest of the slot is no longer needed. */
static int reduce(struct fsdp *f, int unit) {
    struct stream *comm = device_comm(f->device);
    struct slot *slot = f->unit[unit].grads;
    const struct fsdp_unit *u = &f->units.unit[unit];
    CHECK(zero_missing(f, unit));
    f->unit[unit].reduced = 1;
    CHECK(fsdp_lend(f, slot, PHASE_REDUCE));
    CHECK(reduce_scatter_enqueue(f->slots[GRADS].collectives, comm, slot->data, u->block[0],
                                 f->scale, unit, f->step));
    if (!f->whole_grads)
        CHECK(copy_peer(comm, f->device, f->shard.grads + u->shard[0], f->device,
                        fsdp_block(f, slot, unit, 0), u->block[0] * sizeof(float)));
    slot->summing = 1;
    slot->unit = NO_UNIT;
    return event_record(slot->filled, comm);
}

/* If another unit still has the slot, its backward is over, and it is summed now. */
static int take_slot(struct fsdp *f, int unit) {
    struct slot *slot = f->unit[unit].grads;
    if (slot->unit == unit) return OK;
    if (f->unit[unit].reduced)
        return fail(ERR_FAILED,
                    "fsdp: unit %d gets gradients after its sum: its parameters are used in "
                    "another order than in the first step: make its layers one unit, by name",
                    unit);
    if (slot->unit != NO_UNIT) CHECK(reduce(f, slot->unit));
    if (slot->summing) CHECK(await_slot(f, slot, PHASE_REDUCE));
    slot->summing = 0;
    slot->unit = unit;
    return OK;
}

int fsdp_ready(void *context, int index) {
    struct fsdp *f = context;
    int unit = f->units.of[index];
    if (!f->expecting || f->is_ready[index]) return OK;
    f->is_ready[index] = 1;
    if (--f->unit[unit].pending) return OK;
    return fsdp_ended(f, reduce(f, unit));
}

/* ---- a pass ---- */

static int turn(struct fsdp *f) {
    f->backward = 1;
    f->at = 0;
    return f->learned ? OK : learn(f);
}

/* unit[k]: what the op uses; writes[k]: 1: it makes gradients of it. */
static int use(struct fsdp *f, const int unit[2], const int writes[2], int backward) {
    if (f->proved) fsdp_forget(f);
    f->proved = 0;
    if (backward && !f->backward) CHECK(turn(f));
    int same = unit[0] == f->current[0] && unit[1] == f->current[1];
    for (int k = 0; k < 2 && !same; k++) {
        if (unit[k] == NO_UNIT) continue;
        CHECK(fsdp_fetch(f, unit[k]));
        if (!f->unit[unit[k]].stays && unit[k] != f->current[0] && unit[k] != f->current[1])
            CHECK(note_order(f, unit[k]));
    }
    f->current[0] = unit[0];
    f->current[1] = unit[1];
    if (!same) CHECK(prefetch(f));
    for (int k = 0; k < 2; k++) {
        if (unit[k] == NO_UNIT) continue;
        CHECK(fsdp_await(f, unit[k]));
        if (backward && f->expecting && writes[k]) CHECK(take_slot(f, unit[k]));
    }
    return OK;
}

static int unit_of(const struct fsdp *f, const struct param *p) {
    return p && !p->from ? f->units.of[p->index] : NO_UNIT;
}

/* An op needs both of its units at once, as that of a tied weight and a bias of its own. So the
 * second leaves the slots that take turns: those of values here, if it shares one with the first,
 * and those of gradients when they are opened. */
static int part(struct fsdp *f, const int unit[2]) {
    if (unit[0] == NO_UNIT || unit[1] == NO_UNIT) return OK;
    struct unit_state *first = &f->unit[unit[0]], *second = &f->unit[unit[1]];
    second->apart = 1;
    if (first->grads && first->grads == second->grads)
        return fail(ERR_USAGE,
                    "fsdp: an op uses units %d and %d together, but did not in the first step: "
                    "make their layers one unit, by name",
                    unit[0], unit[1]);
    return first->values == second->values ? fsdp_open_apart(f, unit[1]) : OK;
}

int fsdp_use(void *context, const struct param *w, const struct param *b, int backward) {
    struct fsdp *f = context;
    int unit[2] = {unit_of(f, w), unit_of(f, b)};
    int writes[2] = {param_trains(w), param_trains(b)};
    if (unit[0] == NO_UNIT && unit[1] == NO_UNIT) return OK;
    if (unit[0] == unit[1]) {
        writes[0] |= writes[1];
        unit[1] = NO_UNIT;
    }
    CHECK(fsdp_ended(f, part(f, unit)));
    return fsdp_ended(f, use(f, unit, writes, backward));
}

static void open_step(struct fsdp *f, int32_t step) {
    for (int u = 0; u < f->units.count; u++) {
        f->unit[u].pending = f->units.unit[u].trained;
        f->unit[u].reduced = 0;
        if (f->unit[u].grads) f->unit[u].grads->unit = NO_UNIT;
    }
    memset(f->is_ready, 0, (size_t)f->params->count);
    f->step = step < 0 ? f->step + 1 : step;
}

/* Rank 0's buffers come before each pass. */
int fsdp_enter(void *context, int32_t step, int opens, int reduces) {
    struct fsdp *f = context;
    f->backward = f->at = 0;
    f->current[0] = f->current[1] = NO_UNIT;
    if (opens && f->moves) CHECK(fsdp_ended(f, give_slots(f)));
    fsdp_notice_writes(f);
    if (opens && !reduces && !f->whole_grads)
        return fsdp_ended(f, fail(ERR_USAGE, "fsdp: gradients of several passes are added up: set "
                                             "accumulate when the parameters are wrapped"));
    if (opens) open_step(f, step);
    f->expecting = reduces;
    return fsdp_broadcast_buffers(f, step < 0 ? f->step : step);
}

static int finish(struct fsdp *f) {
    struct stream *compute = device_compute(f->device), *comm = device_comm(f->device);
    f->expecting = 0;
    if (!f->learned) CHECK(learn(f));
    for (int u = f->units.count - 1; u >= 0; u--) {
        if (!f->units.unit[u].trained || f->unit[u].reduced) continue;
        CHECK(take_slot(f, u));
        CHECK(reduce(f, u));
    }
    CHECK(event_record(f->all, comm));
    stream_set_phase(compute, PHASE_REDUCE, f->step);
    CHECK(stream_wait(compute, f->all));
    for (int u = 0; u < f->units.count; u++)
        if (f->unit[u].grads) f->unit[u].grads->summing = 0;
    fsdp_forget(f); /* the update follows */
    return OK;
}

int fsdp_finish(void *context) {
    struct fsdp *f = context;
    return f->expecting ? fsdp_ended(f, finish(f)) : OK;
}

int fsdp_broadcast_buffers(struct fsdp *f, int32_t step) {
    return fsdp_ended(f, ddp_buffers_broadcast(f->buffers, step));
}
