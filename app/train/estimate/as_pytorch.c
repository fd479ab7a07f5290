/* Counts the memory of PyTorch, device by device: see as_pytorch.h. */
#include "train/estimate/as_pytorch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fsdp/fsdp.h"
#include "models/graph/graph.h"
#include "nn/autograd_memory.h"
#include "nn/params/optimizer.h"
#include "train/estimate/as_fsdp.h"
#include "train/estimate/estimate.h"
#include "train/session.h"

enum { BUFFER_BYTES = 10 << 20 }; /* as in reduce_add_coalesced */
static const double AGREES = 0.05;

/* Shared by all devices. */
struct count {
    const struct run_config *config;
    struct session *session;
    struct replica *replica;   /* on a dry device */
    duet_tape *loss;           /* on the same device */
    int half;                  /* 1: under autocast */
    int64_t known, known_once; /* bytes that autograd saves, per sample and batch; -1: use rules */
    uint64_t parameters;       /* bytes of all parameters */
    uint64_t trained;          /* bytes of those that are not frozen */
};

/* One device of the run. */
struct part {
    struct ledger *ledger;
    uint64_t *saved;
    int samples;      /* samples that the device's replica gets */
    int loss_samples; /* samples whose loss it computes; 0: another device computes it */
    enum mem_cause loss_cause;
    int replicated;          /* 1: its parameters are copies */
    uint64_t updated;        /* bytes of the parameters that are updated here */
    struct as_fsdp *sharded; /* NULL: the device has whole parameters */
    int accumulates;         /* 1: each gradient is added to an existing .grad */
};

static uint64_t output_bytes(const struct count *c, int samples) {
    return (c->half ? 2 : 4) * (uint64_t)samples * (uint64_t)c->session->model.classes;
}

/* int64 labels, one per sample or per token, or as many numbers as outputs. */
static uint64_t answer_bytes(const struct count *c, int samples) {
    int positions = c->session->model.positions, tokens = c->config->model.options.tokens;
    if (loss_of_targets(c->session->model.loss)) /* the loss is float32 */
        return output_bytes(c, samples) * (c->half ? 2 : 1);
    return 8 * (uint64_t)samples * (uint64_t)(positions ? positions : tokens ? tokens : 1);
}

static uint64_t sample_bytes(const struct model *m) {
    return 4 * (uint64_t)m->channels * (uint64_t)m->height * (uint64_t)m->width;
}

/* ---- forward and backward ---- */

/* The loss of `samples` outputs and its backward; dL/dy is left. */
static int loss_pass(const struct count *c, const struct part *p) {
    const struct model *m = &c->session->model;
    struct device *d = c->replica->device;
    const int shape[2] = {p->loss_samples, m->classes};
    const struct segments segments = {.count = 1, .n = shape[0], .seg = {{0, shape[0]}}};
    struct tape_step step = {.segments = &segments, .step = c->replica->step, .training = 1};
    struct tensor output = tensor_plain(NULL, DTYPE_F32, 2, shape),
                  answers = model_answers(m, c->replica->labels, shape[0]);
    struct autograd_config config = {.ledger = p->ledger, .cause = p->loss_cause, .half = c->half};
    struct autograd_memory *a = NULL;
    uint64_t saved = 0;
    CHECK(device_alloc(d, &output.data, tensor_bytes(&output), MEM_WORKSPACE));
    int code = tape_begin(c->loss, &step);
    duet_var *loss = model_loss(m, c->loss, tape_leaf(c->loss, &output, 1), &answers);
    if (!code) code = tape_error(c->loss);
    if (!code) code = autograd_memory_new(&a, c->loss, loss, &config, &saved);
    if (!code) autograd_memory_backward(a, 0, p->loss_cause);
    autograd_memory_free(a);
    device_free(d, output.data);
    *p->saved += saved;
    return code;
}

/* The loss, and dL/dy as the model's backward finds it: the caller charges it to the ledger. Other
 * devices get their rows as a copy. saved: 1: the output is already counted. */
static int loss_and_gradient(const struct count *c, const struct part *p, int saved, uint64_t *dy,
                             enum mem_cause *cause) {
    *dy = output_bytes(c, p->loss_samples ? p->loss_samples : p->samples);
    *cause = p->loss_samples ? p->loss_cause : MEM_ACTIVATIONS;
    if (!p->loss_samples) return OK;
    if (!saved || p->loss_cause == MEM_GATHERED) /* the program keeps the output in a variable */
        ledger_add(p->ledger, p->loss_cause, *dy);
    CHECK(loss_pass(c, p));
    ledger_remove(p->ledger, *cause, *dy);
    return OK;
}

/* Counts with the rule of each op. */
static int ruled_pass(const struct count *c, const struct part *p) {
    const struct segments segments = {.count = 1, .n = p->samples, .seg = {{0, p->samples}}};
    struct autograd_config config = {.ledger = p->ledger,
                                     .cause = MEM_ACTIVATIONS,
                                     .replicated = p->replicated,
                                     .accumulates = p->accumulates,
                                     .half = c->half,
                                     .use = p->sharded ? as_fsdp_use : NULL,
                                     .context = p->sharded};
    struct autograd_memory *a = NULL;
    enum mem_cause cause;
    duet_var *output;
    uint64_t dy;
    CHECK(replica_forward(c->replica, &segments, 1, &output));
    uint64_t gathered = p->loss_samples == p->samples ? 0 : output_bytes(c, p->samples);
    ledger_add(p->ledger, MEM_ACTIVATIONS, gathered); /* held until another device has read it */
    int code = autograd_memory_new(&a, c->replica->tape, output, &config, p->saved);
    ledger_remove(p->ledger, MEM_ACTIVATIONS, gathered);
    if (!code) code = loss_and_gradient(c, p, autograd_memory_saves(a, output), &dy, &cause);
    if (!code) autograd_memory_backward(a, dy, cause);
    autograd_memory_free(a);
    return code;
}

/* The parameters come one by one in registration order, and gradients in reverse. */
static void known_shards(const struct count *c, const struct part *p) {
    const struct param_set *set = &c->replica->params->set;
    for (int i = 0; i < set->count; i++)
        as_fsdp_use(p->sharded, &set->param[i], NULL, AUTOGRAD_FORWARD);
    for (int i = set->count - 1; i >= 0; i--) {
        const struct param *w = &set->param[i];
        as_fsdp_use(p->sharded, w, NULL, AUTOGRAD_BACKWARD);
        if (param_trains(w) && !p->accumulates)
            ledger_add(p->ledger, MEM_GRADS, sizeof(float) * w->count);
        as_fsdp_use(p->sharded, w, NULL, AUTOGRAD_DONE);
    }
}

/* Counts with only the number of bytes: everything stays until all gradients are complete. */
static int known_pass(const struct count *c, const struct part *p) {
    uint64_t saved = *p->saved = (uint64_t)(c->known * p->samples) + (uint64_t)c->known_once, dy;
    enum mem_cause cause;
    ledger_add(p->ledger, MEM_ACTIVATIONS, saved);
    CHECK(loss_and_gradient(c, p, 0, &dy, &cause));
    ledger_add(p->ledger, cause, dy);
    ledger_remove(p->ledger, cause, dy);
    if (p->sharded)
        known_shards(c, p);
    else if (!p->accumulates)
        ledger_add(p->ledger, MEM_GRADS, c->trained);
    ledger_remove(p->ledger, MEM_ACTIVATIONS, saved);
    if (p->replicated) ledger_remove(p->ledger, MEM_PARAMS, c->parameters);
    return OK;
}

/* ---- a device ---- */

/* reduce_add_coalesced: each device joins its gradients, where there are several in 10 MiB; device
 * 0 gets their sum. The joined gradients are freed when the next ones exist. */
static void reduce(const struct count *c, const struct part *p, int leads) {
    const struct param_set *set = &c->replica->params->set;
    uint64_t before = 0, bytes = 0;
    int tensors = 0;
    for (int i = 0; i <= set->count; i++) {
        if (i < set->count && !param_trains(&set->param[i])) continue;
        uint64_t next = i < set->count ? 4 * (uint64_t)set->param[i].count : 0;
        if (i == set->count || (bytes && bytes + next > BUFFER_BYTES)) {
            uint64_t joined = tensors > 1 ? bytes : 0;
            ledger_add(p->ledger, MEM_COMM, joined);
            ledger_remove(p->ledger, MEM_COMM, before);
            if (leads) ledger_add(p->ledger, MEM_GRADS, bytes);
            before = joined;
            bytes = 0;
            tensors = 0;
        }
        bytes += next;
        tensors++;
    }
    ledger_remove(p->ledger, MEM_COMM, before);
}

static int one_device(const struct count *c, const struct part *p) {
    const struct model *m = &c->session->model;
    const struct optimizer *o = &c->replica->optimizer->optimizer;
    ledger_add(p->ledger, MEM_PARAMS, p->sharded ? as_fsdp_params(p->sharded) : c->parameters);
    ledger_add(p->ledger, MEM_PARAMS, model_buffer_bytes(m));
    ledger_add(p->ledger, MEM_OPTIMIZER, p->updated * (uint64_t)o->each);
    if (p->updated && c->config->update.passes > 1) ledger_add(p->ledger, MEM_GRADS, c->trained);
    if (mode_has_ranks(c->config->mode) && !p->sharded) ledger_add(p->ledger, MEM_COMM, c->trained);
    ledger_add(p->ledger, MEM_INPUT, sample_bytes(m) * (uint64_t)p->samples);
    ledger_add(p->ledger, MEM_INPUT, answer_bytes(c, p->loss_samples));
    return c->known < 0 ? ruled_pass(c, p) : known_pass(c, p);
}

/* The optimizer's state is always there. */
static void keep_otherwise(struct ledger *l, uint64_t more) {
    l->now[MEM_OPTIMIZER] += more;
    l->peak[MEM_OPTIMIZER] += more;
    l->at_peak[MEM_OPTIMIZER] += more;
    l->total += more;
    l->total_peak += more;
}

/* Single, or the ranks of DDP and of FSDP. */
static int alone(const struct count *c, struct as_pytorch *out) {
    const struct param_set *set = &c->replica->params->set;
    const struct optimizer *o = &c->replica->optimizer->optimizer;
    int n = (c->config->batch_size + out->devices - 1) / out->devices, code = OK;
    int fsdp = c->config->mode == MODE_FSDP, whole = c->config->fsdp.shard == FSDP_OPTIMIZER;
    uint64_t updated[MAX_DEVICES] = {c->trained};
    struct part p = {.ledger = &out->device[0],
                     .saved = &out->saved[0],
                     .samples = n,
                     .loss_samples = n,
                     .loss_cause = MEM_ACTIVATIONS,
                     .accumulates = c->config->update.passes > 1};
    if (fsdp) as_fsdp_updated(set, out->devices, whole, updated);
    if (fsdp && !whole) code = as_fsdp_new(&p.sharded, c->config, set, p.ledger);
    p.updated = updated[0];
    if (!code) code = one_device(c, &p);
    as_fsdp_free(p.sharded);
    for (int d = 1; d < out->devices; d++) {
        out->device[d] = out->device[0];
        out->saved[d] = out->saved[0];
        if (fsdp) keep_otherwise(&out->device[d], (updated[d] - updated[0]) * (uint64_t)o->each);
    }
    return code;
}

static int data_parallel(const struct count *c, struct as_pytorch *out) {
    const struct run_config *config = c->config;
    int all = config->batch_size, chunk = (all + out->devices - 1) / out->devices;
    for (int d = 0; d < out->devices; d++) {
        int left = all - d * chunk, own = config->dp.loss_in_forward;
        struct part p = {.ledger = &out->device[d],
                         .saved = &out->saved[d],
                         .samples = left < chunk ? left : chunk,
                         .loss_cause = own ? MEM_ACTIVATIONS : MEM_GATHERED,
                         .replicated = d > 0,
                         .updated = d ? 0 : c->trained};
        if (left <= 0) break; /* PyTorch uses fewer devices */
        p.loss_samples = own ? p.samples : d == config->dp.output_device ? all : 0;
        CHECK(one_device(c, &p));
        /* now that backward is over, nothing holds the chunk */
        ledger_remove(p.ledger, MEM_INPUT, sample_bytes(&c->session->model) * (uint64_t)p.samples);
        reduce(c, &p, d == 0);
    }
    return OK;
}

/* ---- the run ---- */

/* 1: the rules give the bytes that the model file states for autograd, within a few percent. They
 * also know when each tensor is freed, and the gradients of activations. */
static int rules_agree(const struct count *c, int *agree) {
    const int n = c->config->batch_size;
    const struct segments segments = {.count = 1, .n = n, .seg = {{0, n}}};
    struct ledger ledger = {.total = 0};
    const struct autograd_config config = {.ledger = &ledger, .cause = MEM_ACTIVATIONS};
    struct autograd_memory *a = NULL;
    double said = (double)c->known * n + (double)c->known_once;
    uint64_t saved;
    duet_var *output;
    CHECK(replica_forward(c->replica, &segments, 1, &output));
    int code = autograd_memory_new(&a, c->replica->tape, output, &config, &saved);
    autograd_memory_free(a);
    *agree = fabs((double)saved - said) <= AGREES * said;
    return code;
}

static int64_t described_bytes(const struct run_config *config) {
    return strcmp(config->model.name, "described")
               ? -1
               : (int64_t)config->model.options.activation_bytes;
}

static int open_count(struct count *c, const struct run_config *dry, struct run_record *record) {
    const struct graph *g = graph_of(dry->model.options.own);
    int graph = g && !strcmp(dry->model.name, g->model.name) && g->pytorch_sample >= 0;
    CHECK(session_open(c->session, dry, NULL, record));
    c->replica = c->session->replicas[0];
    c->known = graph ? g->pytorch_sample : described_bytes(dry);
    c->known_once = graph ? g->pytorch_shared : 0;
    c->parameters = 4 * (uint64_t)model_count(&c->session->model);
    c->trained = 4 * (uint64_t)model_trained(&c->session->model);
    int agree = 0;
    if (graph) CHECK(rules_agree(c, &agree));
    if (agree) c->known = -1;
    return tape_init(&c->loss, c->replica->device);
}

int as_pytorch(const struct run_config *config, struct as_pytorch *out) {
    struct run_config dry = estimate_dry_config(config);
    struct count c = {.config = config,
                      .session = calloc(1, sizeof *c.session),
                      .half = config->clock.precision == CLOCK_AMP};
    struct run_record *record = NULL;
    memset(out, 0, sizeof *out);
    out->devices = run_devices(config);
    dry.mode = MODE_SINGLE; /* number of devices that get a part of the batch */
    dry.virtual_devices = VIRTUAL_OFF;
    dry.update.passes = 1;
    dry.device_memory_count = 0;
    int code = c.session ? record_new(&record) : fail(ERR_MEMORY, "estimate: out of host memory");
    if (!code) code = open_count(&c, &dry, record);
    if (!code)
        code =
            config->mode == MODE_DP && out->devices > 1 ? data_parallel(&c, out) : alone(&c, out);
    duet_tape_free(c.loss);
    if (c.session) session_close(c.session);
    record_delete(record);
    free(c.session);
    return code;
}
