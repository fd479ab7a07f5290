/* Opens a session in the order data, model, devices, strategy, and closes it in reverse. */
#include "train/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cores.h"
#include "base/error.h"
#include "comm/environment.h"
#include "data/uploads.h"
#include "models/graph/graph.h"
#include "train/compare/bits.h"
#include "train/files/resume.h"
#include "train/shared_data.h"

/* Sanitizer builds (SAN=...) check that the operands of each op are in the memory of its own
 * device, and fill new memory with NaN. */
#ifdef DUET_CHECK_OPERANDS
enum { CHECK_OPERANDS = 1 };
#else
enum { CHECK_OPERANDS = 0 };
#endif

/* Without a given size a dry device is larger than any run needs. */
static const uint64_t DRY_MEMORY = 1ull << 48;

static int open_values(struct session *s) {
    const struct run_config *c = s->config;
    if (c->dry) return OK; /* dry runs do not read parameters */
    const char *from = *c->files.resume ? c->files.resume : run_weights(c);
    if (!from) return model_values_init(&s->model, c->seed, &s->values);
    CHECK(safetensors_open(&s->file, from));
    s->halves = safetensors_halves(&s->file);
    return OK;
}

/* The model follows the training set: its samples' shape, and 1 + its largest label as the number
 * of classes; --classes gives another number. */
static int open_model(struct session *s) {
    const struct run_config *c = s->config;
    const struct dataset *set = &s->train_set;
    struct model_options options = c->model.options;
    options.sample = set->shape;
    if (!options.classes && !graph_of(options.own)) /* a graph has a fixed number of classes */
        options.classes = dataset_model_outputs(set);
    return model_open(&s->model, c->model.name, &options);
}

/* The files of a folder may disagree with each other, and --classes with them. */
static int check_set(const struct session *s, const struct dataset *set, int train) {
    const struct model *m = &s->model;
    const struct sample_shape *is = &set->shape, *first = &s->train_set.shape;
    const char *part = train ? "training" : "test";
    char text[2][SAMPLE_SHAPE_BYTES];
    if (!set->outputs && dataset_answer_count(set) != (m->positions ? m->positions : 1))
        return fail(
            ERR_USAGE,
            "--dataset: %s: %d labels per sample: model %s has scores for %d: move its classes to "
            "dimension 1, or try --dataset random",
            set->name, dataset_answer_count(set), m->name, m->positions ? m->positions : 1);
    if (set->classes > model_label_classes(m))
        return fail(ERR_FAILED,
                    "%s labels of %s: up to %d: model %s has %d classes: give --classes %d", part,
                    set->name, set->classes - 1, m->name, model_label_classes(m), set->classes);
    if (set->outputs && set->outputs != m->classes)
        return fail(ERR_USAGE, "--classes: %d: the targets of %s have %d numbers: leave it out",
                    m->classes, set->name, set->outputs);
    const struct graph *graph = graph_of(s->config->model.options.own);
    if (graph && graph_below(graph) && !set->numbers)
        return fail(ERR_USAGE,
                    "--dataset: %s has images, but model %s takes integers from 0 to %d: give "
                    "--dataset random",
                    set->name, m->name, graph_below(graph) - 1);
    if (is->channels == first->channels && is->height == first->height && is->width == first->width)
        return OK;
    return fail(ERR_FAILED,
                "test images of %s are %s, the training images %s: give files of one data set",
                set->name, sample_shape_text(is, text[0]), sample_shape_text(first, text[1]));
}

_Static_assert((int)LABEL_IGNORED == (int)DUET_IGNORED, "data/dataset.h repeats it");

/* Labels of -100 do not count, as in PyTorch. At least one label counts. */
static void ignore_labels(struct session *s, const struct dataset *set) {
    if (set->ignored) s->model.ignored = 1 + DUET_IGNORED;
}

/* The data comes first: the model follows it. */
static int open_data_and_model(struct session *s) {
    CHECK(run_open_set(s->config, &s->train_set, 1));
    CHECK(open_model(s));
    CHECK(check_set(s, &s->train_set, 1));
    ignore_labels(s, &s->train_set);
    if (!run_evaluates(s->config)) return OK;
    CHECK(run_open_set(s->config, &s->test_set, 0));
    CHECK(check_set(s, &s->test_set, 0));
    ignore_labels(s, &s->test_set);
    return OK;
}

/* A wait inside the device layer ends if the job has failed elsewhere. */
static int job_failed(void *comm) {
    return comm_check(comm);
}

static const char *found_words(int gpus, char text[40]) {
    snprintf(text, 40, gpus ? "%d GPU%s" : "no GPU", gpus, gpus > 1 ? "s" : "");
    return text;
}

/* Each rank has looked for GPUs by itself. A rank that sees others than rank 0 would compute other
 * bits, and the two could not read each other's memory. Collective. */
static int agree_on_devices(const struct session *s, enum device_kind kind, int physical) {
    int mine = kind == DEVICE_CUDA ? physical : 0, all[MAX_DEVICES];
    char its[40], first[40];
    if (s->ranks == 1) return OK;
    CHECK(comm_gather(s->comm, &mine, sizeof mine, all));
    for (int r = 1; r < s->ranks; r++)
        if (all[r] != all[0])
            return fail(ERR_FAILED,
                        "devices: rank %d finds %s, rank 0 %s: all must see the same: look at duet "
                        "devices, or give --device cpu",
                        r, found_words(all[r], its), found_words(all[0], first));
    return OK;
}

static int open_devices(struct session *s, enum device_kind kind, int physical) {
    const struct run_config *c = s->config;
    struct job_rank self = {.local_world = 0};
    s->device_count = c->mode == MODE_DP ? s->devices : 1;
    s->first_device = s->rank;
    uint64_t usual = kind == DEVICE_CUDA  ? 0
                     : kind == DEVICE_DRY ? DRY_MEMORY
                                          : device_default_memory(s->devices);
    s->gpus = kind == DEVICE_CUDA ? (s->devices < physical ? s->devices : physical) : 0;
    /* compare, which sets `hash`, prints this itself */
    if (s->devices > physical && s->rank == 0 && !c->quiet && !c->unremarked && !c->hashes &&
        !comm_is_spread(s->comm))
        printf("%d devices share %d GPU%s\n", s->devices, physical, physical > 1 ? "s" : "");
    if (comm_is_spread(s->comm)) CHECK(read_job_rank_anywhere(&self, ""));
    for (int i = 0; i < s->device_count; i++) {
        uint64_t given = run_device_memory(c, s->first_device + i);
        struct device_config config = {.kind = kind,
                                       .devices = s->devices,
                                       .local = self.local_rank,
                                       .locals = self.local_world,
                                       .allow_tf32 = c->tf32,
                                       .math = c->cuda_math,
                                       .index = s->first_device + i,
                                       .rank = s->rank,
                                       .memory_bytes = given ? given : usual,
                                       .check_operands = CHECK_OPERANDS || c->late,
                                       .spans = c->spans,
                                       .schedule = c->schedule,
                                       /* comm's deadline comes first: it can name the rank */
                                       .timeout_s = s->ranks > 1 ? 2 * c->timeout : c->timeout,
                                       .interrupted = s->comm ? job_failed : NULL,
                                       .interrupt_context = s->comm};
        CHECK(device_open(&s->device[i], &config));
    }
    return OK;
}

/* What both loaders have in common. */
static struct loader_config common_loader(const struct session *s, const struct dataset *set) {
    struct loader_config config = {.set = set,
                                   .batch_size = s->config->batch_size,
                                   .first_device = s->first_device,
                                   .device_count = s->device_count,
                                   .means = {s->model.mean},
                                   .stds = {s->model.normalised ? s->model.std : 0},
                                   .timeout_s = s->config->timeout,
                                   .interrupted = s->comm ? job_failed : NULL,
                                   .interrupt_context = s->comm};
    if (!s->config->data.no_pin_memory) uploads_staging(s->device[0], &config);
    return config;
}

/* Training batches are cut by virtual devices; without them, as in PyTorch: DP by the chunk rule,
 * DDP by the sampler. */
static int open_train_loader(struct session *s) {
    const struct run_config *c = s->config;
    s->split = (struct split){
        .kind = SPLIT_STRIDED, .devices = s->devices, .virtual_devices = s->virtual_devices};
    if (!s->virtual_devices) {
        s->split.virtual_devices = s->devices;
        if (!mode_has_ranks(c->mode)) s->split.kind = SPLIT_CHUNKED;
    }
    struct loader_config config = common_loader(s, &s->train_set);
    config.split = s->split;
    config.shuffle = c->data.shuffle ? SHUFFLE_DISTRIBUTED : SHUFFLE_NONE;
    config.seed = c->seed;
    config.end = c->data.join ? ORDER_EXACT : c->data.drop_last ? ORDER_CUT : ORDER_PAD;
    config.workers = c->data.workers;
    return loader_init(&s->train_loader, &config);
}

/* Evaluation counts every test sample once, so nothing is padded. Batches are cut as in training,
 * so that valid_loss has the same bits in all modes. */
static int open_test_loader(struct session *s) {
    struct loader_config config = common_loader(s, &s->test_set);
    config.split = s->split;
    config.end = ORDER_EXACT;
    return s->test_set.count ? loader_init(&s->test_loader, &config) : OK;
}

static void describe_update(const struct run_config *c, struct run_record *r) {
    struct optimizer_config o = run_optimizer(c);
    snprintf(r->optimizer, sizeof r->optimizer, "%s", optimizer_name(o.kind));
    r->lr = c->update.lr;
    r->momentum = o.momentum;
    r->weight_decay = o.weight_decay;
}

static void describe_session(struct session *s) {
    const struct run_config *c = s->config;
    struct run_record *r = s->record;
    r->mode = c->mode;
    snprintf(r->model, sizeof r->model, "%s", s->model.name);
    snprintf(r->dataset, sizeof r->dataset, "%s", s->train_set.name);
    snprintf(r->kind, sizeof r->kind, "%s",
             device_config(s->device[0])->kind == DEVICE_CUDA ? "cuda" : "cpu");
    snprintf(r->algorithm, sizeof r->algorithm, "%s", c->mode == MODE_DDP ? c->ddp.allreduce : "");
    r->gpus = s->gpus;
    r->cores = usable_cores();
    r->devices = s->devices;
    r->virtual_devices = s->virtual_devices;
    r->batch_size = c->batch_size;
    r->passes = c->update.passes;
    r->epochs = c->epochs;
    describe_update(c, r);
    r->seed = c->seed;
    r->loss_in_forward = c->dp.loss_in_forward;
    r->output_device = s->output_device;
    snprintf(r->dp_reduce, sizeof r->dp_reduce, "%s",
             c->mode != MODE_DP     ? ""
             : c->dp.sharded_reduce ? "sharded"
                                    : "first");
    r->first_step = s->first_step;
    r->resumed_from_step = *c->files.resume ? s->first_step : 0;
    r->timed = c->spans;
    r->data_seconds = c->data.seconds;
    r->pinned = !c->data.no_pin_memory;
    span_log_init(&s->loads, c->spans);
    span_log_init(&r->kept, c->spans && run_keeps_spans(c));
    s->steps_kept = *c->files.trace ? TRACE_STEPS : REPORT_STEPS;
    r->steps_per_epoch = session_steps(s);
    r->parameter_count = model_count(&s->model);
    r->trainable_count = model_trained(&s->model);
    r->train_samples = s->train_set.count;
    r->test_samples = s->test_set.count;
    r->channels = s->model.channels;
    r->height = s->model.height;
    r->width = s->model.width;
    r->classes = model_label_classes(&s->model);
    snprintf(r->loss, sizeof r->loss, "%s", loss_name(s->model.loss));
    r->duplicates = loader_duplicates(s->train_loader);
    r->bits_promised = bits_promised(c, r->why_not, sizeof r->why_not);
    bits_order_text(c, r->sum_order);
}

int session_open(struct session *s, const struct run_config *config, struct comm *comm,
                 struct run_record *record) {
    static const struct strategy *const strategies[MODE_COUNT] = {&strategy_single, &strategy_dp,
                                                                  &strategy_ddp, &strategy_fsdp};
    enum device_kind kind;
    int physical;
    /* first, so that a missing GPU is reported at once */
    CHECK(run_device_kind(config, &kind, &physical));
    s->config = config;
    s->comm = comm;
    s->rank = comm ? comm_rank(comm) : 0;
    s->ranks = comm ? comm_world_size(comm) : 1;
    CHECK(agree_on_devices(s, kind, physical));
    s->devices = run_devices(config);
    s->virtual_devices = run_virtual_devices(config);
    s->record = record;
    s->output_device = config->mode == MODE_DP ? config->dp.output_device : 0;
    CHECK(open_data_and_model(s));
    CHECK(shared_data_agree(comm, &s->train_set));
    CHECK(open_values(s));
    CHECK(open_devices(s, kind, physical));
    if (*config->files.resume) CHECK(resume_check(s));
    CHECK(open_train_loader(s));
    CHECK(open_test_loader(s));
    s->largest_batch = loader_largest_batch(s->train_loader);
    if (s->test_loader && loader_largest_batch(s->test_loader) > s->largest_batch)
        s->largest_batch = loader_largest_batch(s->test_loader);
    s->segments_per_device =
        s->split.kind == SPLIT_CHUNKED ? 1 : s->split.virtual_devices / s->devices;
    describe_session(s);
    s->strategy = strategies[config->mode];
    CHECK(s->strategy->open(s));
    /* DataParallel copies them to its other devices in each step */
    const int resumes = *config->files.resume != 0;
    if (s->file.path)
        CHECK(params_read(s->replicas[0]->params, resumes ? s->replicas[0]->optimizer : NULL,
                          &s->file, s->first_step, s->first_step));
    if (resumes) CHECK(resume_agree(s));
    safetensors_close(&s->file);
    return OK;
}

int session_is_stuck(struct session *s) {
    const struct failures kept = failures_of(ERR_FAILED);
    int stuck = 0;
    for (int i = 0; i < s->device_count && s->device[i]; i++)
        stuck |= device_is_stuck(s->device[i]);
    if (stuck) return 1;
    for (int i = 0; s->gpus && s->ranks == 1 && i < s->device_count && s->device[i]; i++) {
        stuck |= stream_sync(device_compute(s->device[i])) == ERR_TIMEOUT;
        stuck |= stream_sync(device_comm(s->device[i])) == ERR_TIMEOUT;
        stuck |= stream_sync(device_copy(s->device[i])) == ERR_TIMEOUT;
    }
    failures_end(&kept);
    return stuck;
}

int session_close(struct session *s) {
    if (s->strategy && !s->strategy->close(s)) return 0;
    loader_free(s->train_loader);
    loader_free(s->test_loader);
    for (int i = 0; i < s->device_count; i++)
        device_close(s->device[i]);
    span_log_free(&s->loads);
    dataset_free(&s->train_set);
    dataset_free(&s->test_set);
    model_values_free(s->values);
    free(s->ready_order);
    sums_free(&s->sums);
    for (int d = 0; d < MAX_DEVICES; d++)
        step_times_free(&s->step_times[d]);
    safetensors_close(&s->file);
    model_free(&s->model);
    memset(s, 0, sizeof *s);
    return 1;
}
