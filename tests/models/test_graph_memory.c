/* Tests the memory of a graph's pass: a value that no later op and no backward reads is freed, and
 * nothing reads it afterwards. */
#include "base/error.h"
#include "models/graph/graph.h"
#include "models/model.h"
#include "nn/tape/tape_internal.h"
#include "tests/harness/harness.h"

#define MUST(call) cr_assert_eq(call, OK, "%s", error_message())

/* Many ops read nothing in backward, two values are one var, and relus are before a pool and
 * elsewhere. */
#define LONG                                                                                       \
    "duet 1\ninput %x: f32[N, 2, 4, 4]\n"                                                          \
    "parameter c.weight: f32[4, 2, 3, 3]\nparameter d.weight: f32[4, 4, 1, 1]\n"                   \
    "parameter n.weight: f32[4]\nparameter n.bias: f32[4]\n"                                       \
    "buffer n.running_mean: f32[4]\nbuffer n.running_var: f32[4]\n"                                \
    "buffer n.num_batches_tracked: i64[]\nparameter f.weight: f32[3, 16]\nparameter s: f32[4, 1, " \
    "1]\n\n"                                                                                       \
    "%1: f32[N, 4, 4, 4] = conv2d(%x, c.weight, none, padding=1)\n"                                \
    "%2: f32[N, 4, 4, 4] = relu(%1)\n"                                                             \
    "%3: f32[N, 4, 4, 4] = conv2d(%2, d.weight, none)\n"                                           \
    "%4: f32[N, 4, 4, 4] = batch_norm(%3, n.weight, n.bias, n.running_mean, "                      \
    "n.running_var, n.num_batches_tracked)\n"                                                      \
    "%5: f32[N, 4, 4, 4] = add(%4, %2)\n%6: f32[N, 4, 4, 4] = relu(%5)\n"                          \
    "%7: f32[N, 4, 4, 4] = pow(%6, exponent=3)\n"                                                  \
    "%8: f32[N, 4, 4, 4] = multiply_number(%7, number=0.5)\n"                                      \
    "%9: f32[N, 4, 4, 4] = add(%8, %6)\n%10: f32[N, 4, 4, 4] = tanh(%9)\n"                         \
    "%11: f32[N, 4, 4, 4] = add_number(%10, number=1)\n"                                           \
    "%12: f32[N, 4, 1, 1] = expand(s)\n"                                                           \
    "%13: f32[N, 4, 4, 4] = multiply(%11, %12)\n"                                                  \
    "%14: f32[N, 4, 4, 4] = above(%13, number=0.9)\n"                                              \
    "%15: f32[N, 4, 4, 4] = where(%14, %13, %9)\n"                                                 \
    "%16: f32[N, 4, 4, 4] = conv2d(%15, d.weight, none)\n"                                         \
    "%17: f32[N, 4, 4, 4] = relu(%16)\n"                                                           \
    "%18: f32[N, 4, 2, 2] = max_pool2d(%17, size=[2, 2], stride=[2, 2])\n"                         \
    "%19: f32[N, 4, 4] = reshape(%18)\n%20: f32[N, 4, 4] = softmax(%19)\n"                         \
    "%21: f32[N, 4, 4] = transpose(%20, dim0=1, dim1=2)\n"                                         \
    "%22: f32[N, 4, 4] = scaled_dot_product_attention(%19, %21, %20, none)\n"                      \
    "%23: f32[N, 16] = flatten(%22)\n%24: f32[N, 3] = linear(%23, f.weight, none)\n"               \
    "return %24\n"

enum { IN = 32, WEIGHTS = 72 + 16 + 4 + 4 + 48 + 4 };
static const struct segments two = {2, 5, {{0, 3}, {1, 2}}};

/* A device that checks operands, so freed memory is NaN. */
struct bed {
    struct device *device;
    duet_tape *tape;
    struct param_set params;
    struct buffer_set buffers;
    void *x, *labels, *step;
};

static void open_bed(struct bed *b, const struct model *m, enum device_kind kind) {
    const struct device_config config = {
        .kind = kind, .memory_bytes = 16 << 20, .check_operands = 1, .timeout_s = 20};
    float x[5 * IN], w[WEIGHTS];
    const int32_t labels[5] = {0, 2, 1, 1, 0};
    const struct step_block block = {.weight = 0.2f};
    MUST(device_open(&b->device, &config));
    struct stream *stream = device_compute(b->device);
    MUST(tape_init(&b->tape, b->device));
    MUST(param_set_init(&b->params, b->device, m->params, m->param_count));
    MUST(buffer_set_init(&b->buffers, b->device, m->buffers, m->buffer_count));
    for (int i = 0; i < 5 * IN; i++)
        x[i] = (float)(i * 37 % 19 - 9) / 8;
    for (int i = 0; i < WEIGHTS; i++)
        w[i] = (float)(i * 29 % 23 - 8) / 32;
    for (int i = 0, at = 0; i < m->param_count; at += (int)b->params.param[i++].count)
        MUST(param_write_value(&b->params, i, w + at));
    MUST(device_alloc(b->device, &b->x, sizeof x, MEM_INPUT));
    MUST(device_alloc(b->device, &b->labels, sizeof labels, MEM_INPUT));
    MUST(device_alloc(b->device, &b->step, sizeof block, MEM_WORKSPACE));
    MUST(copy_to_device(stream, b->x, x, sizeof x));
    MUST(copy_to_device(stream, b->labels, labels, sizeof labels));
    MUST(stream_write(stream, b->step, &block, sizeof block));
    MUST(stream_sync(stream));
}

static void close_bed(struct bed *b) {
    duet_tape_free(b->tape);
    buffer_set_free(&b->buffers);
    param_set_free(&b->params);
    device_close(b->device); /* with the rest */
}

/* The scores, or after a step the gradients; returns the bytes of the arena. */
static size_t pass(struct bed *b, const struct model *m, int training, int once, float *to) {
    struct tape_step step = {.segments = &two,
                             .params = &b->params,
                             .step = b->step,
                             .training = training,
                             .once = once};
    const int dims[4] = {5, 2, 4, 4}, rows = 5;
    const struct tensor x = tensor_plain(b->x, DTYPE_F32, 4, dims),
                        labels = tensor_plain(b->labels, DTYPE_I32, 1, &rows);
    MUST(tape_begin(b->tape, &step));
    duet_var *y = model_forward(m, b->tape, &b->buffers, tape_leaf(b->tape, &x, 0)),
             *loss = model_loss(m, b->tape, y, &labels);
    MUST(tape_error(b->tape));
    if (training) MUST(tape_backward(b->tape, loss, NULL));
    for (int i = 0; training && i < m->param_count; to += b->params.param[i++].count)
        MUST(param_read_grad(&b->params, i, to));
    if (!training) MUST(copy_to_host(b->tape->stream, to, y->value.data, 15 * sizeof *to));
    MUST(stream_sync(b->tape->stream));
    return b->tape->arena.extent;
}

Test(graph, values_go_when_no_op_and_no_backward_reads_them, .timeout = 60) {
    struct graph *g = NULL;
    struct model m;
    MUST(graph_parse(&g, "net.duet", LONG, strlen(LONG)));
    const struct model_options options = {.dropout = -1, .own = &g->model};
    MUST(model_open(&m, g->name, &options));
    for (int late = 0; late < 2; late++)
        for (int training = 0; training < 2; training++) {
            float to[2][WEIGHTS] = {{0}};
            size_t bytes[2];
            for (int once = 0; once < 2; once++) {
                struct bed b = {0};
                open_bed(&b, &m, late ? DEVICE_HOST_LATE : DEVICE_HOST);
                for (int i = 0; i < 2; i++)
                    bytes[once] = pass(&b, &m, training, once, to[once]);
                close_bed(&b);
            }
            cr_assert(to[0][0] != 0 && to[0][WEIGHTS - 1] * training == to[0][WEIGHTS - 1]);
            cr_assert_arr_eq(to[0], to[1], sizeof to[0]);
            cr_assert(bytes[1] * 4 < bytes[0] * (training ? 3 : 2), "%zu of %zu bytes", bytes[1],
                      bytes[0]);
        }
    model_free(&m);
    graph_free(g);
}
