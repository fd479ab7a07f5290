/* What DataParallel moves in a step: see moves.h. */
#include "report/pictures/moves.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* In the order of a step. Device 0 leads all but what the output device does. */
static const struct {
    enum phase phase;
    enum dp_collective kind;
    const char *what, *before, *after[2];
} usual[MOST_DP_MOVES] = {
    {PHASE_SCATTER,
     DP_SCATTER,
     "the batch",
     "Device 0 has the whole batch.",
     {"Device 0 copies its part to each other device, one after another.", NULL}},
    {PHASE_REPLICATE,
     DP_BROADCAST,
     "the parameters",
     "Device 0 has the parameters, which its optimizer changed in the step before.",
     {"Device 0 copies all of them to each other device, one after another.", NULL}},
    {PHASE_GATHER,
     DP_GATHER,
     "the outputs",
     "Each device has computed the outputs of its part of the batch.",
     {"The output device collects them, to compute the loss of the whole batch.", NULL}},
    {PHASE_SCATTER_GRAD,
     DP_SCATTER,
     "the gradient of the outputs",
     "The output device has computed the loss and its gradient; the others wait.",
     {"It copies to each other device the gradient of that device's outputs; now all can go "
      "backward.",
      NULL}},
    {PHASE_REDUCE,
     DP_REDUCE,
     "the gradients",
     "Each device has the gradients of its part of the batch.",
     {"Device 0 reads those of all others and adds them up; its optimizer needs the sum.", NULL}},
};

const char *dp_move_name(const struct dp_move *move) {
    return phase_name(move->phase);
}

int dp_move_copies(const struct dp_move *move) {
    return move->kind != DP_REDUCE && move->kind != DP_REDUCE_SHARDED;
}

/* Devices that have samples; PyTorch's chunks and the rule of virtual devices leave out the last
 * ones of all. */
static size_t parts_of(const struct run_record *r) {
    int n = r->devices, batch = r->batch_size, share = (batch + n - 1) / n;
    if (r->virtual_devices) return (size_t)(batch < n ? batch : n);
    return share ? (size_t)((batch + share - 1) / share) : 0;
}

static void set_reduce(struct dp_move *move, const struct run_record *r) {
    if (strcmp(r->dp_reduce, "sharded") != 0) return;
    move->kind = DP_REDUCE_SHARDED;
    move->after[0] = "Each device with a shard of the gradients reads it from all others and adds "
                     "it up, all at the same time.";
    move->after[1] = "Device 0 copies the sums of the shards; its optimizer needs them.";
}

static void set_gather(struct dp_move *move, const struct run_record *r) {
    if (!r->loss_in_forward) return;
    move->what = "the losses";
    move->before = "Each device has computed the loss of its part of the batch.";
    move->after[0] = "The output device collects them: a few numbers, not the outputs.";
    move->count = (size_t)r->devices;
}

int dp_moves_of(const struct run_record *r, struct dp_move moves[MOST_DP_MOVES]) {
    int n = 0;
    if (!r || r->mode != MODE_DP || r->devices < 2 || !r->steps) return 0;
    for (int k = 0; k < MOST_DP_MOVES; k++) {
        int whole = usual[k].kind == DP_BROADCAST || usual[k].kind == DP_REDUCE;
        int is_output = usual[k].phase == PHASE_GATHER || usual[k].phase == PHASE_SCATTER_GRAD;
        struct dp_move *move = &moves[n];
        *move = (struct dp_move){.phase = usual[k].phase,
                                 .kind = usual[k].kind,
                                 .devices = r->devices,
                                 .lead = is_output ? r->output_device : 0,
                                 .count = whole ? r->parameter_count : parts_of(r),
                                 .what = usual[k].what,
                                 .before = usual[k].before,
                                 .after = {usual[k].after[0], usual[k].after[1]}};
        for (int d = 0; d < r->devices; d++)
            move->bytes += record_per_step(r, (double)r->device[d].phase_bytes[move->phase]);
        if (move->phase == PHASE_REDUCE) set_reduce(move, r);
        if (move->phase == PHASE_GATHER) set_gather(move, r);
        n += move->bytes > 0 && move->count > 0;
    }
    return n;
}

int dp_move_hops(const struct dp_move *move, struct hops *hops) {
    struct plan *plans = calloc((size_t)move->devices, sizeof *plans);
    if (!plans) return fail(ERR_MEMORY, "report: no host memory");
    int code = OK;
    for (int d = 0; !code && d < move->devices; d++)
        code = dp_plan(&plans[d], move->kind, move->devices, move->lead, d, move->count);
    if (!code) code = hops_of_plans(hops, plans, move->devices);
    for (int d = 0; d < move->devices; d++)
        plan_free(&plans[d]);
    free(plans);
    return code;
}

uint64_t dp_move_terms(const struct dp_move *move, int chunk, uint64_t terms) {
    switch (move->kind) {
    case DP_SCATTER:
    case DP_BROADCAST: return terms == rank_bit(move->lead) ? terms : 0;
    case DP_GATHER: return terms == rank_bit(chunk) ? terms : 0;
    default: return terms;
    }
}
