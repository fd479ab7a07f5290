/* Whole values, gradients and optimizer state of a sharded model, for hashes, files and programs.
 * The functions are collective: all ranks request the same data in the same order. Units are
 * gathered into their slots as in a pass. */
#include <stdlib.h>
#include <string.h>

#include "fsdp/internal.h"

/* Gathers the summed gradients of a unit from all shards. */
static int gather_grads(struct fsdp *f, int unit) {
    struct slot *slot = f->unit[unit].grads;
    const float *own = f->whole_grads ? NULL : f->shard.grads + f->units.unit[unit].shard[0];
    if (!slot || slot->unit == unit) return OK;
    slot->unit = unit;
    CHECK(fsdp_lend(f, slot, PHASE_PROOF));
    CHECK(fsdp_gather(f, GRADS, slot, unit, 0, own));
    CHECK(event_record(slot->filled, device_comm(f->device)));
    return stream_wait(device_compute(f->device), slot->filled);
}

int fsdp_bring(void *context, int index, int grad) {
    struct fsdp *f = context;
    int unit = f->units.of[index];
    fsdp_notice_writes(f);
    if (grad) return fsdp_ended(f, gather_grads(f, unit));
    f->proved = 1;
    int code = fsdp_fetch(f, unit);
    return fsdp_ended(f, code ? code : fsdp_await(f, unit));
}

/* ---- the optimizer's state: `each` numbers of an element adjacent ---- */

/* Gathers part k of the optimizer state of a unit; each rank's part is as long as a shard. It uses
 * the slot of the unit's gradients, which are no longer needed. flat: the whole state of the
 * unit. */
static int gather_part(struct fsdp *f, const float *state, size_t each, int unit, size_t k,
                       float *host, float *flat) {
    struct stream *comm = device_comm(f->device);
    struct slot *slot = f->unit[unit].grads;
    size_t block = f->units.unit[unit].block[0], bytes = block * sizeof(float);
    const float *own = state + f->units.unit[unit].shard[0] * each + k * block;
    slot->unit = NO_UNIT;
    CHECK(fsdp_lend(f, slot, PHASE_NONE));
    CHECK(fsdp_gather(f, GRADS, slot, unit, 0, own));
    CHECK(copy_to_host(comm, host, slot->data, (size_t)f->ranks * bytes));
    CHECK(stream_sync(comm));
    for (size_t r = 0; r < (size_t)f->ranks; r++)
        memcpy(flat + r * block * each + k * block, host + r * block, bytes);
    return OK;
}

static int gather_unit(struct fsdp *f, const float *state, size_t each, int unit, float *host,
                       float *flat, float *whole) {
    for (size_t k = 0; k < each; k++)
        CHECK(gather_part(f, state, each, unit, k, host, flat));
    for (int i = 0; i < f->params->count; i++) {
        const struct param *p = &f->params->param[i];
        if (f->units.of[i] != unit || !param_trains(p)) continue;
        memcpy(whole + p->value_offset * each, flat + f->units.at[i] * each,
               p->count * each * sizeof(float));
    }
    return OK;
}

static int gather_state(struct fsdp *f, const float *state, int each, float *whole) {
    size_t most = 0;
    for (int u = 0; u < f->units.count; u++)
        if (fsdp_trained(&f->units, u) > most) most = fsdp_trained(&f->units, u);
    float *host = malloc((most * (size_t)(each + 1) + 1) * sizeof *host);
    int code = host ? OK : fail(ERR_MEMORY, "fsdp: out of host memory for the state of a unit");
    for (int u = 0; !code && u < f->units.count; u++)
        if (f->units.unit[u].trained)
            code = gather_unit(f, state, (size_t)each, u, host, host + most, whole);
    free(host);
    return code;
}

int fsdp_gather_state(void *context, const float *state, int each, float *whole) {
    struct fsdp *f = context;
    return fsdp_ended(f, gather_state(f, state, each, whole));
}
