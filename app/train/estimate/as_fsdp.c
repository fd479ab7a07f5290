/* Counts PyTorch's sharded parameters unit by unit: see as_fsdp.h. */
#include "train/estimate/as_fsdp.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fsdp/fsdp.h"
#include "fsdp/units.h"

struct held_unit {
    uint64_t whole;   /* bytes, with rows padded */
    uint64_t trained; /* the trained part of those bytes */
    uint64_t grads;   /* bytes of its gradients, without padding */
    int uses;         /* operands of ops whose backward has not run yet */
    int last;         /* the last use in forward */
    int flat, here;   /* 1: its flat buffer exists; 1: its parameters do */
};

struct as_fsdp {
    struct ledger *ledger;
    struct fsdp_units units;
    struct held_unit *unit;
    int keep, ranks;
    int now;         /* counts the uses of forward */
    uint64_t summed; /* bytes that the previous reduce-scatter reads */
};

static uint64_t rows_of(const struct param *p) {
    return p->spec->rank ? (uint64_t)p->spec->dims[0] : 1;
}

/* Bytes of that many rows of a parameter. */
static uint64_t rows_bytes(const struct param *p, uint64_t rows) {
    return sizeof(float) * (uint64_t)p->count / rows_of(p) * rows;
}

/* The rows of each rank but the last ones, as torch.chunk cuts. */
static uint64_t chunk(const struct param *p, int ranks) {
    return (rows_of(p) + (uint64_t)ranks - 1) / (uint64_t)ranks;
}

int as_fsdp_new(struct as_fsdp **out, const struct run_config *config, const struct param_set *set,
                struct ledger *ledger) {
    struct as_fsdp *f = *out = calloc(1, sizeof *f);
    if (!f) return fail(ERR_MEMORY, "estimate: out of host memory");
    *f = (struct as_fsdp){.ledger = ledger,
                          .keep = config->fsdp.shard == FSDP_GRADIENTS || config->fsdp.keep,
                          .ranks = run_devices(config)};
    CHECK(fsdp_units_cut(&f->units, set, f->ranks, config->fsdp.units));
    f->unit = calloc((size_t)f->units.count, sizeof *f->unit);
    if (!f->unit) return fail(ERR_MEMORY, "estimate: out of host memory");
    for (int i = 0; i < set->count; i++) {
        const struct param *p = &set->param[i];
        struct held_unit *u = &f->unit[f->units.of[i]];
        uint64_t whole = rows_bytes(p, chunk(p, f->ranks)) * (uint64_t)f->ranks;
        u->whole += whole;
        if (!param_trains(p)) continue;
        u->trained += whole;
        u->grads += rows_bytes(p, rows_of(p));
    }
    return OK;
}

void as_fsdp_free(struct as_fsdp *f) {
    if (!f) return;
    fsdp_units_free(&f->units);
    free(f->unit);
    free(f);
}

uint64_t as_fsdp_params(const struct as_fsdp *f) {
    uint64_t bytes = 0;
    for (int u = 0; u < f->units.count; u++)
        bytes += f->unit[u].whole / (uint64_t)f->ranks;
    return bytes;
}

/* ---- updated parameters ---- */

static void update_by_rows(const struct param_set *set, int ranks, uint64_t *bytes) {
    for (int i = 0; i < set->count; i++) {
        const struct param *p = &set->param[i];
        uint64_t left = param_trains(p) ? rows_of(p) : 0, most = chunk(p, ranks);
        for (int r = 0; r < ranks; r++) {
            uint64_t rows = left < most ? left : most;
            bytes[r] += rows_bytes(p, rows);
            left -= rows;
        }
    }
}

static void update_whole(const struct param_set *set, int ranks, uint64_t *bytes) {
    const struct param *last = NULL;
    for (int n = 0; n < set->count; n++) {
        const struct param *largest = NULL;
        int least = 0;
        for (int i = 0; i < set->count; i++) { /* the next smaller one; ties by index */
            const struct param *p = &set->param[i];
            if (last && (p->count > last->count || (p->count == last->count && p <= last)))
                continue;
            if (!largest || p->count > largest->count) largest = p;
        }
        last = largest;
        for (int r = 1; r < ranks; r++)
            if (bytes[r] < bytes[least]) least = r;
        if (param_trains(largest)) bytes[least] += rows_bytes(largest, rows_of(largest));
    }
}

void as_fsdp_updated(const struct param_set *set, int ranks, int whole, uint64_t *bytes) {
    memset(bytes, 0, (size_t)ranks * sizeof *bytes);
    (whole ? update_whole : update_by_rows)(set, ranks, bytes);
}

/* ---- a pass ---- */

static void gather(struct as_fsdp *f, struct held_unit *u) {
    if (u->flat || u->here) return;
    u->flat = 1;
    ledger_add(f->ledger, MEM_COMM, u->whole);
}

static void use_forward(struct as_fsdp *f, struct held_unit *u) {
    u->uses++;
    u->last = ++f->now;
    if (!f->keep || u->here) return;
    u->here = 1;
    ledger_add(f->ledger, MEM_PARAMS, u->whole);
}

/* Meanwhile the unit that forward used before this one is gathered. */
static void enter(struct as_fsdp *f, struct held_unit *u) {
    struct held_unit *next = NULL;
    if (u->here) return;
    gather(f, u);
    ledger_add(f->ledger, MEM_PARAMS, u->whole);
    ledger_remove(f->ledger, MEM_COMM, u->whole);
    u->here = 1;
    u->flat = 0;
    for (int k = 0; k < f->units.count; k++) {
        struct held_unit *v = &f->unit[k];
        if (v->uses && v->last < u->last && (!next || v->last > next->last)) next = v;
    }
    if (next) gather(f, next);
}

static void leave(struct as_fsdp *f, struct held_unit *u) {
    if (--u->uses) return;
    ledger_remove(f->ledger, MEM_PARAMS, u->whole);
    u->here = 0;
    if (!u->trained) return;
    ledger_remove(f->ledger, MEM_COMM, f->summed);
    ledger_add(f->ledger, MEM_COMM, f->summed = u->trained);
    ledger_remove(f->ledger, MEM_GRADS, u->grads);
    ledger_add(f->ledger, MEM_GRADS, u->trained / (uint64_t)f->ranks);
}

void as_fsdp_use(void *as_fsdp, const struct param *w, const struct param *b,
                 enum autograd_moment moment) {
    struct as_fsdp *f = as_fsdp;
    const struct param *both[] = {w, b};
    for (int i = 0; i < 2; i++) {
        if (!both[i] || both[i]->from) continue;
        struct held_unit *u = &f->unit[f->units.of[both[i]->index]];
        if (moment == AUTOGRAD_FORWARD) use_forward(f, u);
        if (moment == AUTOGRAD_BACKWARD) enter(f, u);
        if (moment == AUTOGRAD_DONE) leave(f, u);
    }
}
