/* DDP as a strategy of the trainer: this rank's replica has a ddp around its parameters. The pass
 * on the tape calls the ddp (ddp/ddp.c), so a step runs the same code as on a single device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ddp/ddp.h"
#include "syncbn/syncbn.h"
#include "train/remarks.h"
#include "train/session.h"

struct ddp_strategy {
    struct replica replica;
    struct duet_ddp *ddp;
};

static int ddp_strategy_open(struct session *s) {
    struct ddp_strategy *d = s->state = calloc(1, sizeof *d);
    if (!d) return fail(ERR_MEMORY, "ddp: out of host memory");
    const struct run_config *c = s->config;
    struct replica_config config =
        session_replica_config(s, batch_capacity(&s->split, s->largest_batch, 1));
    s->replicas[0] = &d->replica;
    struct ddp_config ddp = session_ddp_config(s);
    ddp.any_order = !s->virtual_devices;
    ddp.no_overlap = c->ddp.no_overlap;
    ddp.buffers_each_pass = 1;
    /* a step of several passes takes an empty batch like any other */
    if (c->data.join && c->update.passes == 1) ddp.join = DUET_JOIN;
    CHECK(allreduce_algorithm_parse(c->ddp.allreduce, &ddp.algorithm));
    CHECK(replica_init(&d->replica, s->device[0], &s->model, &config, s->values));
    CHECK(ddp_init(&d->ddp, s->comm, d->replica.params, NULL, &ddp));
    if (!c->warned) remarks_warn_of_gpus(s);
    if (!s->model.sync_bn) return OK;
    return syncbn_convert(d->replica.params, s->comm, NULL, s->split.virtual_devices, -1);
}

/* Replaces forward on a rank without input. */
static int without_forward(void *strategy) {
    struct ddp_strategy *d = strategy;
    struct replica *r = &d->replica;
    CHECK(ddp_broadcast_buffers(d->ddp, r->step_number));
    CHECK(replica_hash_values(r));
    CHECK(replica_log_nothing(r));
    memset(r->params->has_grad, 1, (size_t)r->params->set.count); /* so do the other ranks */
    return OK;
}

/* This rank has run out of input before the others. */
static int shadow(struct ddp_strategy *d, const struct step_block *step) {
    int active;
    CHECK(replica_write_step(&d->replica, step));
    CHECK(ddp_shadow_pass(d->ddp, d->replica.step_number, without_forward, d, &active));
    return active ? replica_update(&d->replica) : OK;
}

static int ddp_strategy_step(struct session *s, const struct step_block *step,
                             const struct batch *batch) {
    const struct run_config *c = s->config;
    struct ddp_strategy *d = s->state;
    if (c->data.join && c->update.passes == 1 && !batch->segments.n) return shadow(d, step);
    return replica_step(&d->replica, step, batch);
}

static int ddp_strategy_hash_values(struct session *s, const struct step_block *step) {
    struct ddp_strategy *d = s->state;
    CHECK(replica_write_other(&d->replica, step, PHASE_PROOF));
    CHECK(ddp_broadcast_buffers(d->ddp, (int32_t)step->step));
    return replica_hash_values(&d->replica);
}

/* PyTorch's warning, once. */
static void say_if_none_unused(const struct session *s, const struct duet_ddp *ddp) {
    const struct run_config *c = s->config;
    if (!c->ddp.find_unused || ddp_found_unused(ddp) || s->rank || c->quiet || c->unremarked ||
        c->hashes)
        return;
    printf(
        "DDP    find_unused_parameters=True was specified in DDP constructor, but did not find any "
        "unused parameters in the forward pass: leave out --find-unused-parameters: each step is "
        "slower with it\n");
}

/* Records which algorithm each bucket takes; none if host memory is short. */
static void describe_algorithms(struct ddp_strategy *d, struct run_record *r) {
    const struct bucket_plan *plan = ddp_buckets(d->ddp);
    r->bucket_algorithms = calloc((size_t)plan->bucket_count + 1, sizeof *r->bucket_algorithms);
    for (int b = 0; r->bucket_algorithms && b < plan->bucket_count; b++) {
        size_t count = plan->bucket[b].bytes / sizeof(float);
        const char *name = allreduce_algorithm_name(ddp_algorithm(d->ddp, count, NULL, 0));
        if (!(r->bucket_algorithms[b] = strdup(name))) return;
        r->bucket_algorithm_count++;
    }
}

/* Records the sizes of the buckets, and which algorithm the largest takes and why. */
static void ddp_strategy_describe(struct session *s) {
    struct ddp_strategy *d = s->state;
    struct run_record *r = s->record;
    say_if_none_unused(s, d->ddp);
    ddp_unfinished(d->ddp, r->unreduced, sizeof r->unreduced);
    const struct bucket_plan *plan = ddp_buckets(d->ddp);
    uint64_t largest = 0;
    r->bucket_bytes = malloc((size_t)plan->bucket_count * sizeof *r->bucket_bytes);
    for (int b = 0; b < plan->bucket_count; b++) {
        if (largest < plan->bucket[b].bytes) largest = plan->bucket[b].bytes;
        if (r->bucket_bytes) r->bucket_bytes[r->bucket_count++] = (int64_t)plan->bucket[b].bytes;
    }
    ddp_algorithm(d->ddp, largest / sizeof(float), r->choice, sizeof r->choice);
    describe_algorithms(d, r);
}

static int ddp_strategy_close(struct session *s) {
    struct ddp_strategy *d = s->state;
    if (!d) return 1;
    duet_ddp_free(d->ddp);
    replica_free(&d->replica);
    free(d);
    return 1;
}

const struct strategy strategy_ddp = {.open = ddp_strategy_open,
                                      .step = ddp_strategy_step,
                                      .evaluate = session_evaluate,
                                      .hash_values = ddp_strategy_hash_values,
                                      .describe = ddp_strategy_describe,
                                      .close = ddp_strategy_close};
