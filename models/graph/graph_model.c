/* The model that a graph describes: its parameters and buffers, forward, and the check of its
 * shapes. The check runs the ops themselves once, on a device that computes nothing, so no rule of
 * an op is written twice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/graph/graph_args.h"
#include "models/model_file.h"
#include "models/models.h"
#include "nn/tape/tape_internal.h"

/* ---- samples and classes ---- */

/* The reader has checked that their sum fits an int. */
static int numbers_of(const struct graph_shape *s) {
    int count = 1;
    for (int i = 1; i < s->rank; i++)
        count *= s->size[i];
    return count;
}

/* A sample as the data has it: channels, height, width. Several inputs follow each other. */
static void sample_of(const struct graph *g, int sample[3]) {
    const struct graph_shape *s = &g->values[g->inputs[0]].shape;
    sample[0] = 0;
    for (int i = 0; i < g->input_count; i++)
        sample[0] += numbers_of(&g->values[g->inputs[i]].shape);
    sample[1] = sample[2] = 1;
    for (int i = 1; g->input_count == 1 && s->rank <= 4 && i < s->rank; i++)
        sample[i - 1] = s->size[i];
}

static int check_sample(const struct graph *g, const duet_module *m) {
    const int *is = duet_module_sample(m);
    int want[3];
    char text[2][SAMPLE_SHAPE_BYTES];
    sample_of(g, want);
    if (is[0] == want[0] && is[1] == want[1] && is[2] == want[2]) return OK;
    struct sample_shape a = {want[0], want[1], want[2]}, b = {is[0], is[1], is[2]};
    return fail(ERR_USAGE,
                "%.200s: line %d: the graph is for samples of %s, the data has %s: give --dataset "
                "random without --shape, or export the model with such an example",
                g->path, g->values[g->inputs[0]].line, sample_shape_text(&a, text[0]),
                sample_shape_text(&b, text[1]));
}

/* ---- registration ---- */

static int dims_of(const struct graph_shape *s, int *dims) {
    memcpy(dims, s->size, (size_t)s->rank * sizeof *dims);
    return s->rank;
}

static void add_tensor(duet_module *m, const struct graph_tensor *t) {
    int dims[GRAPH_RANK] = {0}, rank = dims_of(&t->shape, dims);
    if (t->kind != GRAPH_PARAMETER) {
        struct buffer_spec spec = {.dtype = t->is_i64 ? DTYPE_I64 : DTYPE_F32, .rank = rank};
        memcpy(spec.dims, dims, sizeof spec.dims);
        module_buffer(m, t->name, &spec);
        return;
    }
    int i = duet_module_parameter(m, t->name, rank, dims, (struct duet_init){DUET_CONSTANT, 0, 0});
    if (i >= 0) model_of(m)->params[i].frozen = t->frozen;
}

static void describe_graph(duet_module *m, void *context) {
    const struct graph *g = context;
    int targets = loss_of_targets(module_options(m)->loss), classes = graph_classes(g, targets),
        line = g->values[g->result].line;
    int code = check_sample(g, m);
    if (!code && !targets && g->values[g->result].shape.rank < 2)
        code =
            fail(ERR_USAGE, "%.200s: line %d: the result has no class dimension: give --loss mse",
                 g->path, line);
    if (!code && module_options(m)->classes > classes)
        code = fail(
            ERR_USAGE,
            "%.200s: line %d: %d outputs for %d classes: give fewer, or a model with more outputs",
            g->path, line, classes, module_options(m)->classes);
    module_fail(m, code);
    if (code) return;
    model_of(m)->positions = targets ? 0 : graph_positions(g);
    model_of(m)->classes = classes * (model_of(m)->positions ? model_of(m)->positions : 1);
    for (int i = 0; i < g->tensor_count; i++)
        add_tensor(m, &g->tensors[i]);
    for (int i = 0; i < g->node_count; i++)
        if (!strncmp(g->nodes[i].op->name, "dropout", 7))
            model_of(m)->dropout = module_options(m)->dropout;
        else if (!strcmp(g->nodes[i].op->name, "batch_norm"))
            model_of(m)->norms = 1;
}

/* ---- forward ---- */

/* The tape's error becomes one that names the line. */
static void name_line(duet_tape *t, const struct graph *g, const struct graph_node *n) {
    char why[sizeof t->message];
    memcpy(why, t->message, sizeof why);
    fail(t->error, "%.200s: line %d: %s", g->path, g->values[n->y].line, why);
    snprintf(t->message, sizeof t->message, "%s", error_message());
}

static int shape_is(const struct graph_run *r, const struct graph_node *n) {
    int dims[GRAPH_RANK + 1], rank = result_shape(r, n, dims);
    const struct tensor *v = &r->at[n->y].var->value;
    int same = v->rank == rank;
    for (int i = 0; same && i < rank; i++)
        same = v->dims[i] == dims[i] || dims[i] == GRAPH_ANY;
    return same;
}

static int run_node(struct graph_run *r, const struct graph_node *n) {
    if (r->at[n->y].var) return OK; /* already run as part of another op */
    duet_var *y = graph_run_op(r, n);
    if (!y || r->tape->error) {
        if (!r->tape->error) tape_fail(r->tape, fail(ERR_FAILED, "%s: gave nothing", n->op->name));
        name_line(r->tape, r->graph, n);
        return r->tape->error;
    }
    r->at[n->y].var = y;
    if (shape_is(r, n)) return OK;
    const struct tensor seen =
        tensor_plain(NULL, DTYPE_F32, y->value.rank - n->in_rows, y->value.dims + n->in_rows);
    tape_fail(r->tape, fail(ERR_USAGE, "%s gives %s for N = %d, not the shape that this line says",
                            n->op->name, SHAPE(&seen), r->samples));
    name_line(r->tape, r->graph, n);
    return r->tape->error;
}

/* Drops a value after its last use. An op's result may be its operand under another name. */
static void end_value(struct graph_run *r, int y) {
    if (!--r->at[y].var->names) tape_forget(r->tape, r->at[y].var);
}

/* Called after the node, which made the vars from `first` on; only its result is still needed. */
static void end_operands(struct graph_run *r, const struct graph_node *n, int first) {
    r->at[n->y].var->names++;
    tape_forget_since(r->tape, first, r->at[n->y].var);
    for (int i = 0; i < n->operand_count; i++)
        if (n->operands[i] >= 0 && !--r->at[n->operands[i]].uses_left) end_value(r, n->operands[i]);
    if (!r->at[n->y].uses_left) end_value(r, n->y);
}

/* The inputs out of x (N,channels,height,width). */
static void cut_inputs(struct graph_run *r, duet_var *x) {
    const struct graph *g = r->graph;
    int at = 0;
    duet_var *flat = g->input_count > 1 ? duet_flatten(r->tape, x) : x;
    for (int i = 0; i < g->input_count; i++) {
        const struct graph_shape *s = &g->values[g->inputs[i]].shape;
        int dims[GRAPH_RANK], count = numbers_of(s), rank = dims_of(s, dims);
        duet_var *one = g->input_count > 1 ? duet_narrow(r->tape, flat, 1, at, count) : flat;
        dims[0] = r->samples;
        one = rank == 4 && g->input_count == 1 ? one : duet_reshape(r->tape, one, rank, dims);
        if (one) one->names++;
        r->at[g->inputs[i]].var = one;
        at += count;
    }
}

/* The model's outputs, (N,numbers). If a sample has several labels, the scores of each follow each
 * other. */
static duet_var *result_of(struct graph_run *r) {
    const struct graph *g = r->graph;
    duet_tape *t = r->tape;
    duet_var *y = r->at[g->result].var;
    if (!y || !t->model->positions) return y && y->value.rank != 2 ? duet_flatten(t, y) : y;
    int order[GRAPH_RANK] = {0}, rank = y->value.rank;
    for (int i = 1; i < rank; i++)
        order[i] = i < rank - 1 ? i + 1 : 1;
    y = duet_permute(t, y, order);
    return y ? duet_flatten(t, y) : NULL;
}

/* All replicas compute the same, so their buffers stay equal. */
static int update(struct graph_run *r, const struct graph_update *u) {
    const struct param *from = graph_computed(r, u->value);
    const struct tensor *to = &r->tape->buffers->buffer[r->graph->tensors[u->tensor].index].value;
    CHECK(tape_error(r->tape));
    return copy_peer(r->tape->stream, r->tape->device, to->data, r->tape->device, from->value.data,
                     tensor_bytes(to));
}

static duet_var *run(struct graph_run *r, duet_var *x) {
    const struct graph *g = r->graph;
    duet_tape *t = r->tape;
    for (int i = 0; i < g->value_count; i++)
        r->at[i].uses_left = g->values[i].uses;
    cut_inputs(r, x);
    for (int i = 0; !t->error && i < g->node_count; i++) {
        const int first = tape_var_count(t);
        if ((r->in_rows = g->nodes[i].in_rows)) tape_swap_rows(t);
        if (!run_node(r, &g->nodes[i])) end_operands(r, &g->nodes[i], first);
        if (r->in_rows) tape_swap_rows(t);
    }
    r->in_rows = 0;
    for (int i = 0; !t->error && t->step.training && i < g->update_count; i++)
        tape_fail(t, update(r, &g->updates[i]));
    return t->error ? NULL : result_of(r);
}

static duet_var *graph_forward(duet_tape *t, duet_var *x, void *context) {
    const struct graph *g = context;
    struct graph_run r = {.tape = t, .graph = g, .samples = x ? x->value.dims[0] : 0};
    r.at = calloc((size_t)g->value_count + 1, sizeof *r.at);
    if (!r.at) tape_fail(t, fail(ERR_MEMORY, "%s: out of host memory", g->path));
    duet_var *y = r.at ? run(&r, x) : NULL;
    free(r.at);
    return y;
}

void graph_make_model(struct graph *g) {
    int at = g->node_count - 1;
    while (at > 0 &&
           (!strcmp(g->nodes[at].op->name, "transpose") ||
            !strcmp(g->nodes[at].op->name, "permute")) &&
           g->nodes[at].operands[0] == g->nodes[at - 1].y)
        at--;
    int logs = at >= 0 && g->nodes[g->node_count - 1].y == g->result &&
               !strcmp(g->nodes[at].op->name, "log_softmax");
    g->model = (struct duet_model){.name = g->name,
                                   .describe = describe_graph,
                                   .forward = graph_forward,
                                   .loss = logs ? DUET_NLL : DUET_CROSS_ENTROPY,
                                   .context = g};
    model_file_name(g->path, "graph", g->name);
    sample_of(g, g->model.sample);
}

int graph_classes(const struct graph *g, int targets) {
    const struct graph_shape *s = &g->values[g->result].shape;
    return targets ? numbers_of(s) : s->rank > 1 ? s->size[1] : 1;
}

int graph_positions(const struct graph *g) {
    const struct graph_shape *s = &g->values[g->result].shape;
    int positions = 1;
    for (int i = 2; i < s->rank; i++)
        positions *= s->size[i];
    return s->rank > 2 ? positions : 0;
}

int graph_below(const struct graph *g) {
    int i = 0;
    while (i < g->input_count && !g->parts[i].below)
        i++;
    return i < g->input_count ? g->parts[i].below : 0;
}

const struct graph *graph_of(const struct duet_model *model) {
    return model && model->forward == graph_forward ? model->context : NULL;
}

/* ---- the checks ---- */

enum { CHECK_SAMPLES = 2 };

static int run_dry(const struct model *m, struct device *device, duet_tape *tape,
                   struct param_set *params, struct buffer_set *buffers) {
    const struct segments segments = {1, CHECK_SAMPLES, {{0, CHECK_SAMPLES}}};
    const int dims[4] = {CHECK_SAMPLES, m->channels, m->height, m->width};
    void *memory = NULL, *block = NULL;
    size_t numbers = (size_t)m->channels * (size_t)m->height * (size_t)m->width;
    CHECK(param_set_init(params, device, m->params, m->param_count));
    CHECK(buffer_set_init(buffers, device, m->buffers, m->buffer_count));
    CHECK(device_alloc(device, &memory, CHECK_SAMPLES * numbers * sizeof(float), MEM_INPUT));
    CHECK(device_alloc(device, &block, sizeof(struct step_block), MEM_WORKSPACE));
    struct tape_step step = {.segments = &segments, .params = params, .step = block, .training = 1};
    struct tensor x = tensor_plain(memory, DTYPE_F32, 4, dims);
    CHECK(tape_begin(tape, &step));
    model_forward(m, tape, buffers, tape_leaf(tape, &x, 0));
    return tape_error(tape); /* closing the device frees the memory */
}

/* Checks that the result depends on a trained parameter; otherwise backward would report it much
 * later. */
static int check_trained(const struct graph *g) {
    char *reached = calloc((size_t)g->value_count + 1, 1);
    if (!reached) return fail(ERR_MEMORY, "%s: out of host memory", g->path);
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].operand_count; k++) {
            int what = g->nodes[i].operands[k];
            if (what == GRAPH_NONE) continue;
            const struct graph_tensor *t = what < 0 ? &g->tensors[~what] : NULL;
            reached[g->nodes[i].y] |= t ? t->kind == GRAPH_PARAMETER && !t->frozen : reached[what];
        }
    int trained = reached[g->result];
    free(reached);
    return trained ? OK
                   : fail(ERR_USAGE, "%.200s: line %d: the result depends on no trained parameter",
                          g->path, g->values[g->result].line);
}

int graph_check(const struct model *m) {
    const struct device_config config = {.kind = DEVICE_DRY, .memory_bytes = 1ull << 46};
    struct device *device = NULL;
    duet_tape *tape = NULL;
    struct param_set params = {0};
    struct buffer_set buffers = {0};
    CHECK(device_open(&device, &config));
    int code = tape_init(&tape, device);
    if (!code) code = run_dry(m, device, tape, &params, &buffers);
    duet_tape_free(tape);
    buffer_set_free(&buffers);
    param_set_free(&params);
    device_close(device);
    return code ? code : check_trained(m->context);
}
