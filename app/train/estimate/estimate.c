/* Estimates a run without running it: see estimate.h. */
#include "train/estimate/estimate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/advice.h"
#include "base/error.h"
#include "comm/comm.h"
#include "train/trainer.h"

enum { ENOUGH_SAMPLES = 100000000 };

/* The samples of a described model. Without sizes it would get those of some data set. */
static int describe_samples(struct run_config *c) {
    struct model_options *o = &c->model.options;
    if (strcmp(c->model.name, "described"))
        return fail(ERR_USAGE, "--params: --model %s is given too: give one", c->model.name);
    if (!o->sample.channels || !o->classes)
        return fail(ERR_USAGE,
                    "--params: the sizes of a sample and of its output are missing: give --shape "
                    "and --classes");
    if (!strcmp(c->data.name, "fashion-mnist"))
        snprintf(c->data.name, sizeof c->data.name, "random");
    if (!c->data.samples) c->data.samples = ENOUGH_SAMPLES;
    return OK;
}

int estimate_prepare(struct run_config *c) {
    if (!strcmp(c->device, "cuda"))
        return fail(ERR_USAGE, "--device: cuda: only emulated devices are counted; the memory of "
                               "kernels and libraries is unknown without a GPU: leave it out");
    if (!strcmp(c->ddp.allreduce, "nccl"))
        return fail(ERR_USAGE, "--allreduce: nccl: the bytes that it moves are unknown: leave it "
                               "out, or give one of Duet's algorithms");
    if (c->data.join)
        return fail(ERR_USAGE, "--join: its ranks differ, and only one is counted: leave it out");
    return c->model.options.params ? describe_samples(c) : OK;
}

/* ---- one run ---- */

void estimate_enlarge(struct run_config *c, int64_t samples) {
    if (*c->data.folder || dataset_is_file(c->data.name)) return;
    if (strcmp(c->data.name, "random") != 0 && strcmp(c->data.name, "synthetic") != 0) {
        /* a named set: its images have the synthetic set's shape */
        snprintf(c->data.name, sizeof c->data.name, "synthetic");
        c->data.samples = 0;
    }
    if (c->data.samples < samples)
        c->data.samples = (int)(samples < INT32_MAX ? samples : INT32_MAX);
}

struct run_config estimate_dry_config(const struct run_config *config) {
    struct run_config c = *config;
    c.dry = c.spans = c.quiet = c.warned = 1;
    c.evaluate = c.hashes = c.stoppable = c.data.workers = 0;
    c.data.fd[0] = c.data.fd[1] = 0;
    snprintf(c.device, sizeof c.device, "cpu");
    run_config_without_files(&c);
    *c.files.trace = *c.files.report = *c.files.pictures = *c.files.resume = *c.model.init_from = 0;
    return c;
}

/* Times and values of a dry run are meaningless. */
static void forget_outcome(struct run_record *r) {
    for (int i = 0; i < r->steps; i++)
        r->losses[i] = 0;
    r->computed = 1;
    r->timed = 0;
    r->training_seconds = r->first_step_seconds = r->data_seconds = 0;
    r->epoch_count = 0;
    for (int d = 0; d < r->devices; d++) {
        struct device_record *x = &r->device[d];
        x->busy_ns = x->no_core_ns = x->copy_ns = x->wait_ns = 0;
        x->comm_ns = x->exposed_ns = 0;
        x->host_ns = x->pinned_ns = x->step_median_ns = x->step_spread_ns = 0;
        memset(x->phase_ns, 0, sizeof x->phase_ns);
    }
}

/* One process of the run: rank `rank` of `ranks`; if there is one rank, it has all devices. */
static int run_rank(const struct run_config *config, int rank, int ranks,
                    struct run_record *record) {
    struct comm *comm = NULL;
    struct failures unwritten = {0};
    int in_use = 0;
    if (mode_has_ranks(config->mode)) CHECK(comm_imagine(&comm, rank, ranks));
    int code = trainer_run(config, comm, record, &unwritten, &in_use);
    if (!in_use) comm_close(comm);
    if (code && ranks > 1) return fail(code, "rank %d: %s", rank, error_message());
    return code;
}

/* Adds what rank `rank` held and moved to the record of rank 0. */
static void add_rank(struct run_record *to, const struct run_record *from, int rank) {
    to->device[rank] = from->device[rank];
    traffic_join(to->traffic, from->traffic);
    for (int d = 0; d < to->devices; d++) {
        to->device[d].bytes_in = traffic_into(to->traffic, d);
        to->device[d].bytes_out = traffic_out_of(to->traffic, d);
    }
}

int estimate_run(const struct run_config *config, struct run_record *record) {
    struct run_config c = estimate_dry_config(config);
    int ranks = mode_has_ranks(c.mode) ? c.devices : 1;
    int code = run_rank(&c, 0, ranks, record);
    for (int rank = 1; !code && rank < ranks; rank++) {
        struct run_record *one = calloc(1, sizeof *one);
        if (!one) return fail(ERR_MEMORY, "estimate: out of host memory");
        code = run_rank(&c, rank, ranks, one);
        if (!code) add_rank(record, one, rank);
        record_free(one);
        free(one);
    }
    if (!code) forget_outcome(record);
    for (int d = 0; !code && !c.device_memory_count && d < record->devices; d++)
        record->device[d].memory.capacity = 0; /* the limit was not given */
    if (code) error_with_options();
    return code;
}
