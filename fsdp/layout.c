/* The layout of a sharded model in device memory.
 *
 *     shards     [ u2 | u1 | u0 ]                   a W-th of each unit: values, gradients
 *     slots      [ u0, u2, u4 ... ] [ u1, u3 ... ]  whole units, in turn
 *
 * Arrays that are not split have one slot per unit, and the shard of a rank is a block of that
 * slot. So ZeRO 1 and 2 hold each value once.
 *
 * Slots for gradients are allocated when the first backward begins, and slots for values again
 * after the first pass. Only then are the units known that need their own slot.
 *
 * Padding holds zeros or old contents of a slot; it belongs to no parameter. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fsdp/internal.h"
#include "group/group.h"

float *fsdp_block(const struct fsdp *f, const struct slot *slot, int unit, int frozen) {
    size_t part = frozen ? fsdp_trained(&f->units, unit) : 0;
    return slot->data + part + (size_t)f->rank * f->units.unit[unit].block[frozen];
}

static int alloc(struct fsdp *f, float **out, size_t count, enum mem_cause cause) {
    const int all = (int)count;
    CHECK(device_alloc(f->device, (void **)out, count * sizeof(float), cause));
    struct op_args args = {.out[0] = tensor_plain(*out, DTYPE_F32, 1, &all)};
    return launch(device_compute(f->device), OP_FILL, &args);
}

static int open_slot(struct fsdp *f, int kind, size_t count, struct slot **out) {
    struct slots *slots = &f->slots[kind];
    struct slot *p = *out = &slots->slot[slots->count++];
    p->unit = NO_UNIT;
    CHECK(event_create(f->device, &p->left));
    CHECK(event_create(f->device, &p->filled));
    CHECK(alloc(f, &p->data, count, kind == GRADS ? MEM_GRADS : MEM_PARAMS));
    /* peers may read it as soon as they have it */
    CHECK(stream_sync(device_compute(f->device)));
    return allreduce_register(slots->collectives, p->data, count); /* the same size on all ranks */
}

static size_t count_of(const struct fsdp *f, int unit, int kind) {
    return kind == GRADS ? fsdp_trained(&f->units, unit) : fsdp_flat(&f->units, unit);
}

/* Units that share slots take slots 0, 1, .. in turn; *next becomes the slot of this unit. */
static int takes_turns(const struct fsdp *f, int unit, int kind, int *next) {
    if ((kind == GRADS ? f->whole_grads : f->whole_values) || f->unit[unit].stays ||
        f->unit[unit].apart)
        return 0;
    *next = (*next + 1) % f->shared;
    return 1;
}

/* A slot is as large as the largest of its units. */
static int open_shared(struct fsdp *f, int kind, struct slot *shared[]) {
    size_t largest[FSDP_MOST_PREFETCH + 1] = {0};
    for (int u = 0, k = -1; u < f->units.count; u++)
        if (takes_turns(f, u, kind, &k) && count_of(f, u, kind) > largest[k])
            largest[k] = count_of(f, u, kind);
    for (int k = 0; k < f->shared; k++)
        if (largest[k]) CHECK(open_slot(f, kind, largest[k], &shared[k]));
    return OK;
}

static void close_slots(struct fsdp *f, int kind) {
    struct slots *slots = &f->slots[kind];
    allreduce_free(slots->collectives);
    for (int i = 0; i < slots->count; i++) {
        device_free(f->device, slots->slot[i].data);
        event_destroy(slots->slot[i].left);
        event_destroy(slots->slot[i].filled);
    }
    free(slots->slot);
    *slots = (struct slots){.count = 0};
}

int fsdp_open_slots(struct fsdp *f, int kind) {
    struct slot *shared[FSDP_MOST_PREFETCH + 1] = {0};
    struct slots *slots = &f->slots[kind];
    struct allreduce_config config = allreduce_config_default();
    config.algorithm = f->config.nccl ? ALLREDUCE_NCCL : ALLREDUCE_DIRECT;
    config.group = group_order(f->group);
    /* peers no longer need this rank's data */
    CHECK(stream_sync(device_compute(f->device)));
    CHECK(stream_sync(device_comm(f->device)));
    close_slots(f, kind);
    slots->slot = calloc((size_t)f->units.count, sizeof *slots->slot);
    if (!slots->slot) return fail(ERR_MEMORY, "fsdp: the host is out of memory");
    CHECK(allreduce_init(&slots->collectives, f->comm, f->device, &config));
    CHECK(open_shared(f, kind, shared));
    for (int u = 0, k = -1; u < f->units.count; u++) {
        struct slot **to = kind == GRADS ? &f->unit[u].grads : &f->unit[u].values;
        if (takes_turns(f, u, kind, &k))
            *to = count_of(f, u, kind) ? shared[k] : NULL;
        else if (count_of(f, u, kind))
            CHECK(open_slot(f, kind, count_of(f, u, kind), to));
    }
    fsdp_show(f);
    return OK;
}

int fsdp_open_apart(struct fsdp *f, int unit) {
    CHECK(stream_sync(device_compute(f->device)));
    CHECK(stream_sync(device_comm(f->device)));
    CHECK(open_slot(f, VALUES, count_of(f, unit, VALUES), &f->unit[unit].values));
    fsdp_show(f);
    return OK;
}

/* ---- where each parameter lies ---- */

void fsdp_show(struct fsdp *f) {
    for (int i = 0; i < f->params->count; i++) {
        struct param *p = &f->params->param[i];
        const struct unit_state *u = &f->unit[f->units.of[i]];
        p->value.data = u->values->data + f->units.at[i];
        if (param_trains(p)) p->grad.data = u->grads ? u->grads->data + f->units.at[i] : NULL;
    }
}

/* The shard of the unit's values or gradients: in the arena of the shards, or in its slot. */
static float *shard_data(const struct fsdp *f, const struct param *p, size_t offset, int of_grads) {
    int unit = f->units.of[p->index], frozen = p->spec->frozen;
    const struct unit_state *u = &f->unit[unit];
    if (!(of_grads ? f->whole_grads : f->shards_in_slots))
        return (of_grads ? f->shard.grads : f->shard.values) + offset;
    return fsdp_block(f, of_grads ? u->grads : u->values, unit, frozen) +
           (offset - f->units.unit[unit].shard[frozen]);
}

static int show_shard(struct fsdp *f) {
    struct param_set *s = &f->shard;
    s->param = calloc((size_t)f->params->count + 1, sizeof *s->param);
    if (!s->param) return fail(ERR_MEMORY, "fsdp: the host is out of memory");
    s->count = f->params->count;
    s->trained = f->params->trained;
    for (int i = 0; i < s->count; i++) {
        struct param *p = &s->param[i];
        *p = f->params->param[i];
        size_t offset =
            fsdp_shard_of(&f->units, &f->params->param[i], f->rank, &p->begins, &p->count);
        const int count = (int)p->count;
        p->value_offset = p->grad_offset = offset;
        s->total_count += p->count;
        p->value = tensor_plain(shard_data(f, p, offset, 0), DTYPE_F32, 1, &count);
        if (param_trains(p))
            p->grad = tensor_plain(shard_data(f, p, offset, 1), DTYPE_F32, 1, &count);
    }
    return OK;
}

static int make_shards(struct fsdp *f) {
    struct param_set *s = &f->shard;
    s->device = f->device;
    s->arena_count = f->units.all;
    s->grad_count = f->units.trained;
    if (!f->shards_in_slots) CHECK(alloc(f, &s->values, s->arena_count, MEM_PARAMS));
    if (!f->whole_grads && s->grad_count) CHECK(alloc(f, &s->grads, s->grad_count, MEM_GRADS));
    return show_shard(f);
}

int fsdp_make_layout(struct fsdp *f) {
    CHECK(event_create(f->device, &f->all));
    CHECK(fsdp_open_slots(f, VALUES));
    if (f->whole_grads) CHECK(fsdp_open_slots(f, GRADS));
    return make_shards(f);
}

void fsdp_free_layout(struct fsdp *f) {
    stream_sync(device_compute(f->device));
    stream_sync(device_comm(f->device));
    close_slots(f, VALUES);
    close_slots(f, GRADS);
    event_destroy(f->all);
    param_set_free(&f->shard);
}
