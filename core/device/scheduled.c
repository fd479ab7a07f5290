/* Writes the calls of device.h as entries of a schedule; see scheduled.h. */
#include "device/scheduled.h"

#include "device/op_table.h"
#include "device/table.h"

/* ---- kernels ---- */

static double bytes_of(const struct tensor *t, int count) {
    double bytes = 0;
    for (int i = 0; i < count; i++)
        if (t[i].data) bytes += (double)tensor_count(&t[i]) * (double)dtype_bytes(t[i].dtype);
    return bytes;
}

static enum work_class class_of(enum op op) {
    const enum op_family family = op_table[op].family;
    if (family == LAYOUT || op == OP_PAD || op == OP_HASH) return WORK_FREE;
    if (op >= OP_CONV2D_FORWARD && op <= OP_CONV2D_BACKWARD_WEIGHT) return WORK_CONV;
    if (family == PRODUCT || family == ATTENTION || op == OP_MATMUL) return WORK_PRODUCT;
    if (family == NORM || op == OP_LAYER_NORM_BACKWARD_WEIGHT) return WORK_NORM;
    return WORK_POINTWISE;
}

/* How often an op passes over its output: twice if it also reads it. */
static int passes_of(enum op op) {
    return op == OP_CLIP || op == OP_SGD || op == OP_ADADELTA || op == OP_ADAM ? 2 : 1;
}

/* w, or dw: (O, C / groups, K, L). */
static void look_at_weights(enum op op, const struct op_args *args, struct work *w) {
    const int *dims = product_operands(op, args).w->dims;
    if (args->p.conv.groups > 1)
        w->of = WORK_CONV_GROUPED, w->groups = args->p.conv.groups, w->group_width = dims[1];
    else if (dims[2] == 1 && dims[3] == 1)
        w->of = WORK_CONV_1X1;
}

/* Under autocast: the conversions of weights, of the biases of products and of their gradients, and
 * of the inputs and outputs of an op in float32 whose neighbours use halves. */
static int casts_of(enum op op, const struct op_args *args) {
    switch (op) {
    case OP_LINEAR_FORWARD:
    case OP_LINEAR_BACKWARD_WEIGHT:
    case OP_SOFTMAX_FORWARD:
    case OP_SOFTMAX_BACKWARD: return 2;
    case OP_CONV2D_FORWARD:
    case OP_CONV2D_BACKWARD_WEIGHT:
    case OP_LAYER_NORM_FORWARD:
    case OP_LAYER_NORM_BACKWARD_WEIGHT: return 1;
    case OP_CROSS_ENTROPY_FORWARD:
    case OP_CROSS_ENTROPY_BACKWARD: return !args->p.loss.log_probabilities;
    default: return 0;
    }
}

/* 1: a view in an eager program but a copy in Duet: expand, and broadcast operands. */
static int is_view(const struct stream *s, enum op op) {
    return op == OP_SPREAD && s->phase == PHASE_FORWARD;
}

/* Work that Duet fuses into one kernel and an eager program does in several: a relu, a residual. */
static void unfuse(enum op op, const struct op_args *args, struct work *w) {
    int norm = op == OP_BATCH_NORM_FORWARD;
    int pool = op == OP_AVG_POOL_FORWARD || op == OP_MAX_POOL_FORWARD;
    int back = op == OP_AVG_POOL_BACKWARD || op == OP_MAX_POOL_BACKWARD;
    double x = bytes_of(args->in, 1);
    if (norm && args->in[2].data) w->eager_bytes += 2 * x; /* the residual r is already counted */
    if ((norm && args->p.norm.relu) || ((pool || back) && args->p.pool.relu))
        w->eager_bytes += back ? 3 * bytes_of(args->out, 1) : 2 * x;
}

/* ---- operations ---- */

void scheduled_operation(struct stream *s) {
    s->operations = 1;
}

void scheduled_more_operations(struct stream *s, int more) {
    s->operations += more;
}

void scheduled_additions(struct stream *s, int more) {
    s->additions += more;
}

void scheduled_concatenation(struct stream *s) {
    s->concatenates = 1;
}

void scheduled_copies_input(struct stream *s) {
    s->copies_input = 1;
}

/* Passes mark where operations begin; elsewhere each kernel is one, if a library has it. */
static void take_operations(struct stream *s, enum op op, const struct op_args *args,
                            struct work *w) {
    enum phase phase = s->phase;
    if (w->of == WORK_FREE || is_view(s, op)) return;
    if (phase != PHASE_FORWARD && phase != PHASE_LOSS && phase != PHASE_BACKWARD) {
        w->eager = op != OP_LOSS_SUM && op != OP_FILL;
        return;
    }
    w->eager = s->operations + s->copies_input;
    if (s->copies_input) w->eager_bytes += 2 * bytes_of(args->in, 1);
    w->additions = s->additions;
    w->concatenates = s->concatenates;
    s->operations = s->additions = s->concatenates = s->copies_input = 0;
}

/* A kernel's work, from its operands and from what its pass has told. */
static struct work op_work(struct stream *s, enum op op, const struct op_args *args) {
    struct work w = {.of = class_of(op), .flops = op_flops(op, args)};
    take_operations(s, op, args, &w);
    if (w.of == WORK_CONV) look_at_weights(op, args, &w);
    w.bytes = bytes_of(args->in, OP_INPUTS) + passes_of(op) * bytes_of(args->out, OP_OUTPUTS);
    if (is_view(s, op)) w.eager_bytes = -w.bytes;
    unfuse(op, args, &w);
    w.stays_float32 = op_autocast(op) < 0;
    if (w.eager || s->phase != PHASE_BACKWARD) w.casts = casts_of(op, args);
    if (op == OP_CONV2D_FORWARD || op == OP_LINEAR_FORWARD)
        w.weight_bytes = bytes_of(&args->in[1], 1);
    if (op == OP_CONV2D_BACKWARD_WEIGHT || op == OP_LINEAR_BACKWARD_WEIGHT)
        w.weight_bytes = bytes_of(args->out, 1);
    return w;
}

/* ---- entries ---- */

static struct schedule *of(const struct device *device) {
    return device->config.schedule;
}

static struct scheduled entry_of(const struct stream *s, enum scheduled_kind kind,
                                 const char *name) {
    struct scheduled e = {.kind = (uint8_t)kind};
    stream_facts(s, name, 0, &e.facts);
    return e;
}

void scheduled_launch(struct stream *s, enum op op, const struct op_args *args) {
    if (!of(s->device)) return;
    struct scheduled e = entry_of(s, SCHEDULED_KERNEL, op_name_of(op, args));
    e.work = op_work(s, op, args);
    e.facts.flops = e.work.flops;
    schedule_add(of(s->device), &e);
}

static int end_of(const struct device *device) {
    return device ? device->config.index : SCHEDULED_HOST;
}

void scheduled_copy(struct stream *s, const char *name, const struct device *from,
                    const struct device *to, uint64_t bytes) {
    if (!of(s->device) || !bytes) return;
    struct scheduled e = entry_of(s, SCHEDULED_COPY, name);
    e.from = (int16_t)end_of(from);
    e.to = (int16_t)end_of(to);
    e.bytes = bytes;
    e.facts.bytes = e.from != e.to ? bytes : 0;
    schedule_add(of(s->device), &e);
}

void scheduled_record(struct stream *s, struct event *event) {
    if (!of(s->device)) return;
    struct scheduled e = entry_of(s, SCHEDULED_RECORD, "record");
    if (!event->scheduled) event->scheduled = schedule_new_event(of(s->device));
    e.key = event->scheduled;
    e.value = ++event->records;
    schedule_add(of(s->device), &e);
}

static void add_wait(struct stream *s, const struct event *event, enum scheduled_kind kind) {
    if (!of(s->device) || !event->records) return;
    struct scheduled e = entry_of(s, kind, "wait");
    e.key = event->scheduled;
    e.value = event->records;
    schedule_add(of(s->device), &e);
}

void scheduled_wait(struct stream *s, const struct event *event) {
    add_wait(s, event, SCHEDULED_WAIT);
}

/* An event without a schedule may have outlived its device, so the device is not accessed. */
void scheduled_host_wait(const struct event *event) {
    if (event->records) add_wait(event->device->compute, event, SCHEDULED_HOST_WAIT);
}

void scheduled_sync(struct stream *s) {
    if (!of(s->device)) return;
    struct scheduled e = entry_of(s, SCHEDULED_HOST_SYNC, "sync");
    schedule_add(of(s->device), &e);
}

void scheduled_group_begin(struct stream *s, const char *name, uint64_t bytes) {
    if (!of(s->device)) return;
    struct scheduled e = entry_of(s, SCHEDULED_GROUP, name);
    e.facts.bytes = e.bytes = bytes;
    schedule_group_begin(of(s->device), &e);
}

void scheduled_group_end(struct stream *s) {
    if (of(s->device)) schedule_group_end(of(s->device), s->device->config.rank);
}

void scheduled_move(const struct device *d, int from, int to, uint64_t bytes) {
    if (!of(d) || !bytes || from == to) return;
    struct scheduled e = {
        .kind = SCHEDULED_MOVE,
        .from = (int16_t)from,
        .to = (int16_t)to,
        .bytes = bytes,
        .facts = {.rank = (int16_t)d->config.rank, .device = (int16_t)d->config.index}};
    schedule_add(of(d), &e);
}
