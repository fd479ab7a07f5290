/* duet_data_parallel cuts tensors into rows and joins them again, as PyTorch does with every tensor
 * among the arguments and results of forward:
 *
 *     input i    [rows .............]   on device 0
 *                [0   |1   |2   |3  ]   torch.chunk, for each input separately
 *     output o   [0  |1  |2  |3     ]   the replicas' rows, any number each
 *     gradient   [0  |1  |2  |3     ]   cut as the output was joined */
#include <stdio.h>
#include <string.h>

#include "base/program_name.h"
#include "dp/dp.h"

/* ---- inputs ---- */

/* As torch.chunk: ceil(N / devices) rows each until they are used up. Returns the number of chunks;
 * without rows there are as many as devices, all empty. */
static int chunk(struct pieces *p, int rows, int devices) {
    int most = rows / devices + (rows % devices > 0), left = rows, used = 0;
    p->rows = rows;
    for (int r = 0; r < devices; r++) {
        p->sizes[r] = left < most ? left : most;
        left -= p->sizes[r];
        if (p->sizes[r]) used = r + 1;
    }
    return rows ? used : devices;
}

static void warn_of_chunks(struct duet_data_parallel *m, int least, int most) {
    char text[160];
    if (least == most || m->warned_of_chunks) return;
    snprintf(text, sizeof text,
             "DataParallel: inputs are cut into %d to %d chunks: only the first %d of each are "
             "used, as in PyTorch",
             least, most, least);
    data_parallel_warn(m, text);
    m->warned_of_chunks = 1;
}

/* The shares of the command's replicas. */
static void cut_to_shares(struct duet_data_parallel *m) {
    struct pieces *p = &m->x[0];
    p->rows = 0;
    for (int r = 0; r < m->dp.count; r++)
        p->rows += p->sizes[r] = m->shares->sizes[r];
    m->used = m->dp.count;
}

/* There are as many replicas as chunks of the input with the fewest. Without any rows the first
 * device still runs, so that there is an output. */
static void cut(struct duet_data_parallel *m, const duet_tensor *const *x, int count) {
    int least = m->dp.count, most = 0, rows = 0;
    for (int i = 0; i < count; i++) {
        int chunks = chunk(&m->x[i], x[i]->t.dims[0], m->dp.count);
        if (chunks < least) least = chunks;
        if (chunks > most) most = chunks;
        rows |= m->x[i].rows;
    }
    m->used = rows ? least : 1;
    warn_of_chunks(m, least, most);
    for (int i = 0; i < count; i++)
        for (int r = m->used; r < m->dp.count; r++)
            m->x[i].sizes[r] = 0;
}

int data_parallel_take(struct duet_data_parallel *m, const duet_tensor *const *x, int inputs,
                       const duet_tensor *y, struct dp_rows *rows) {
    struct duet_tensor front[MOST_INPUTS];
    const duet_tensor *whole[MOST_INPUTS];
    for (int i = 0; i < inputs; i++) {
        CHECK(data_parallel_to_front(m, 0, x[i], &m->x[i], MEM_INPUT, &front[i]));
        whole[i] = &front[i];
    }
    if (m->shares)
        cut_to_shares(m);
    else
        cut(m, whole, inputs);
    for (int i = 0; i < inputs; i++)
        CHECK(data_parallel_place(m, 0, whole[i], &m->x[i], MEM_INPUT, &rows[i]));
    if (!y) return OK;
    memcpy(m->y.sizes, m->x[0].sizes, sizeof m->y.sizes);
    return data_parallel_place(m, 0, y, &m->y, MEM_INPUT, &rows[inputs]);
}

void data_parallel_lend(struct pieces *p, int r, void *memory, size_t bytes) {
    p->memory[r] = memory;
    p->room[r] = bytes;
    p->lent[r] = 1;
}

void data_parallel_warn(const struct duet_data_parallel *m, const char *text) {
    if (m->warn)
        m->warn(text, m->context);
    else
        fprintf(stderr, "%s: warning: %s\n", program_name(), text);
}

int data_parallel_place(struct duet_data_parallel *m, int lead, const duet_tensor *whole,
                        struct pieces *p, enum mem_cause cause, struct dp_rows *rows) {
    size_t row = tensor_sample_count(&whole->t) * dtype_bytes(whole->t.dtype), before = 0;
    *rows = (struct dp_rows){.whole = whole->t, .sizes = p->sizes};
    rows->whole.dims[0] = 0; /* rows that no device takes do not move */
    for (int r = 0; r < m->dp.count; r++) {
        struct duet_tensor *part = &p->part[r];
        size_t bytes = (size_t)p->sizes[r] * row;
        *part = (struct duet_tensor){.device = m->dp.group.device[r], .t = whole->t, .borrowed = 1};
        part->t.dims[0] = p->sizes[r];
        rows->whole.dims[0] += p->sizes[r];
        if (r == lead) {
            part->t.data = (char *)whole->t.data + before;
        } else {
            CHECK(data_parallel_room(m, p, r, bytes, cause));
            part->t.data = p->memory[r];
        }
        rows->parts[r] = part->t.data;
        before += bytes;
    }
    return OK;
}

/* ---- outputs ---- */

/* The gathered output has the first replica's shape, with the rows of all. */
static struct tensor gathered(const struct duet_data_parallel *m, const struct output *o) {
    struct tensor whole = o->root[0]->value;
    if (o->is_loss[0]) whole = tensor_plain(NULL, DTYPE_F32, 1, (int[]){0});
    whole.dims[0] = 0;
    for (int r = 0; r < m->used; r++)
        whole.dims[0] += o->rows[r];
    return whole;
}

static void warn_of_scalars(struct duet_data_parallel *m) {
    if (m->dp.count > 1 && !m->warned_of_scalars)
        data_parallel_warn(m, "Was asked to gather along dimension 0, but all input tensors were "
                              "scalars; will instead unsqueeze and return a vector.");
    m->warned_of_scalars = 1;
}

/* A scalar is of shape (1) here, as one row of a vector is. */
static int are_scalars(const struct duet_data_parallel *m, const struct output *o) {
    int samples = 0;
    for (int r = 0; r < m->used; r++) {
        const struct tensor *value = &o->root[r]->value;
        if (!o->is_loss[r] && (value->rank > 1 || value->dims[0] != 1)) return 0;
        if (samples < m->x[0].sizes[r]) samples = m->x[0].sizes[r];
    }
    return o->is_loss[0] || samples > 1;
}

struct gathering {
    struct duet_data_parallel *m;
    const struct output *output;
    const struct tensor *whole;
};

/* gather names the replica whose output has another shape. */
static int gather_rows(void *gathering) {
    const struct gathering *g = gathering;
    struct tensor parts[MAX_DEVICES];
    int rows[MAX_DEVICES] = {0};
    for (int r = 0; r < g->m->used; r++) {
        parts[r] = g->output->root[r]->value;
        rows[r] = g->output->rows[r];
    }
    return dp_gather(&g->m->dp, parts, rows, g->whole);
}

/* Losses are numbers in host memory. */
static int write_losses(struct duet_data_parallel *m, const struct output *o,
                        const struct tensor *whole) {
    struct stream *stream = device_compute(m->dp.group.device[m->dp.output_device]);
    float losses[MAX_DEVICES];
    for (int r = 0; r < m->used; r++)
        losses[r] = (float)o->loss[r];
    CHECK(copy_to_device(stream, whole->data, losses, tensor_bytes(whole)));
    return stream_sync(stream);
}

int data_parallel_shape(struct duet_data_parallel *m, struct output *o, struct tensor *whole) {
    for (int r = 1; r < m->used; r++)
        if (o->is_loss[r] != o->is_loss[0])
            return fail(ERR_USAGE,
                        "DataParallel: output %d is a loss only in replica %d: give "
                        "the same in all",
                        (int)(o - m->output), o->is_loss[r] ? r : 0);
    if (are_scalars(m, o)) warn_of_scalars(m);
    *whole = gathered(m, o);
    return OK;
}

int data_parallel_gather_into(struct duet_data_parallel *m, struct output *o,
                              struct tensor *whole) {
    struct gathering g = {m, o, whole};
    return o->is_loss[0] ? write_losses(m, o, whole) : dp_at_output(&m->dp, gather_rows, &g);
}

int data_parallel_gather(struct duet_data_parallel *m, struct output *o, duet_tensor **whole) {
    struct tensor shape;
    CHECK(data_parallel_shape(m, o, &shape));
    CHECK(tensor_new(whole, m->dp.group.device[m->dp.output_device], DTYPE_F32, shape.rank,
                     shape.dims, MEM_GATHERED));
    CHECK(data_parallel_gather_into(m, o, &(*whole)->t));
    return o->is_loss[0] ? OK : data_parallel_turn_back(m, whole);
}

/* ---- gradients of the outputs ---- */

static int check_grad(const struct duet_data_parallel *m, const struct output *o,
                      const duet_tensor *grad) {
    struct device *device = m->dp.group.device[m->dp.output_device];
    struct tensor output = gathered(m, o);
    if (!o->is_loss[0] && !o->on_tape) data_parallel_turn(m, &output, 1);
    if (grad->device != device)
        return fail(ERR_USAGE,
                    "DataParallel: the gradient is on %s, the output is on %s: bring it "
                    "over with duet_tensor_to",
                    device_name(grad->device), device_name(device));
    if (grad->t.dtype == DTYPE_F32 && tensor_same_shape(&grad->t, &output)) return OK;
    return fail(ERR_USAGE,
                "DataParallel: a gradient of %zu elements for an output of %zu: "
                "type and shape must agree",
                tensor_count(&grad->t), tensor_count(&output));
}

/* The gradient of a replica's loss is that of each of its samples, divided as the loss is. */
static int fill_loss_grads(struct duet_data_parallel *m, struct output *o) {
    float of_losses[MAX_DEVICES];
    CHECK(duet_tensor_read(o->grad, of_losses));
    for (int r = 0; r < m->used; r++) {
        struct device *device = m->dp.group.device[r];
        int n = o->root[r]->value.dims[0];
        float each = of_losses[r] / (o->how[r] == REDUCE_MEAN ? (float)n : 1);
        CHECK(data_parallel_room(m, &o->grads, r, (size_t)n * sizeof(float), MEM_ACTIVATIONS));
        struct tensor grad = tensor_plain(o->grads.memory[r], DTYPE_F32, 1, &n);
        o->grads.part[r] = (struct duet_tensor){.device = device, .t = grad, .borrowed = 1};
        struct op_args fill = {.out[0] = grad, .p.fill.value = each};
        if (n) CHECK(launch(device_compute(device), OP_FILL, &fill));
    }
    return OK;
}

static int scatter_grad(struct duet_data_parallel *m, struct output *o) {
    struct dp_rows rows;
    duet_tensor front = o->on_tape ? *o->grad : (struct duet_tensor){0};
    if (o->is_loss[0]) return fill_loss_grads(m, o);
    int lead = m->dp.output_device;
    if (!o->on_tape)
        CHECK(data_parallel_to_front(m, lead, o->grad, &o->grads, MEM_ACTIVATIONS, &front));
    memset(o->grads.sizes, 0, sizeof o->grads.sizes);
    memcpy(o->grads.sizes, o->rows, (size_t)m->used * sizeof *o->rows);
    CHECK(data_parallel_place(m, lead, &front, &o->grads, MEM_ACTIVATIONS, &rows));
    return dp_scatter(&m->dp, PHASE_SCATTER_GRAD, &rows, 1);
}

int data_parallel_check_grads(struct duet_data_parallel *m, const duet_tensor *const *grads,
                              int count) {
    int given = 0;
    if (!grads || count != m->outputs)
        return fail(ERR_USAGE,
                    "DataParallel: %d gradients of %d outputs: give one for each, or "
                    "NULL",
                    count, m->outputs);
    for (int i = 0; i < count; i++) {
        if (grads[i]) CHECK(check_grad(m, &m->output[i], grads[i]));
        given += grads[i] != NULL;
    }
    return given ? OK : fail(ERR_USAGE, "DataParallel: no gradient of the output was given");
}

static int scatter_grads(void *context) {
    struct duet_data_parallel *m = context;
    for (int i = 0; i < m->outputs; i++)
        if (m->output[i].grad) CHECK(scatter_grad(m, &m->output[i]));
    return OK;
}

int data_parallel_scatter_grads(struct duet_data_parallel *m, const duet_tensor *const *grads,
                                int count) {
    for (int i = 0; i < count; i++)
        m->output[i].grad = grads[i];
    return dp_at_output(&m->dp, scatter_grads, m);
}
