/* Tests models/graph/graph.h: a file is parsed into its model, and an error names the line of a
 * mistake. tests/python/export.py shows that the ops are PyTorch's, and that single, DP and DDP
 * agree. */
#include "models/graph/graph.h"

#include "base/error.h"
#include "models/model.h"
#include "nn/tape/tape_internal.h"
#include "tests/harness/harness.h"

#define MUST(call) cr_assert_eq(call, OK, "%s", error_message())

#define HEAD "duet 1\ninput %x: f32[N, 2, 4, 4]\n"
#define NET                                                                             \
    HEAD "parameter c.weight: f32[3, 2, 3, 3]\nparameter n.weight: f32[3]\n"            \
         "parameter n.bias: f32[3]\nparameter s: f32[3, 1, 1]\n"                        \
         "buffer n.running_mean: f32[3]\nbuffer n.running_var: f32[3]\n"                \
         "buffer n.num_batches_tracked: i64[]\nconstant mask: f32[4]\nsaves 5e3 20\n\n" \
         "%1: f32[N, 3, 4, 4] = conv2d(%x, c.weight, none, padding=1)  # c\n"           \
         "%2: f32[N, 3, 4, 4] = batch_norm(%1, n.weight, n.bias, n.running_mean, "      \
         "n.running_var, n.num_batches_tracked, eps=1e-05)\n"                           \
         "%3: f32[N, 3, 4, 4] = relu(%2)\n%4: f32[N, 3, 1, 1] = expand(s)\n"            \
         "%5: f32[N, 3, 4, 4] = multiply(%3, %4)\n%6: f32[N, 1, 1, 4] = expand(mask)\n" \
         "%7: f32[N, 3, 4, 4] = multiply(%5, %6)\n"                                     \
         "%8: f32[N, 3] = mean(%7, dims=[2, 3])\nreturn %8\n"

static struct graph *read_graph(const char *text) {
    struct graph *g = NULL;
    MUST(graph_parse(&g, "net.duet", text, strlen(text)));
    return g;
}

static int open_graph(struct model *m, const struct graph *g) {
    const struct model_options options = {.dropout = -1, .own = &g->model};
    return model_open(m, g->name, &options);
}

Test(graph, is_the_model_that_its_text_says, .timeout = 30) {
    struct graph *g = read_graph(NET);
    struct model m;
    MUST(open_graph(&m, g));
    cr_assert_str_eq(m.name, "net.duet");
    cr_assert(m.channels == 2 && m.height == 4 && m.width == 4 && m.classes == 3);
    cr_assert(m.param_count == 4 && m.buffer_count == 4);
    cr_assert_str_eq(m.params[3].name, "s");
    cr_assert_eq(m.params[3].rank, 3);
    cr_assert(m.buffers[2].dtype == DTYPE_I64 && m.buffers[2].rank == 0);
    cr_assert_str_eq(m.buffers[3].name, "mask");
    cr_assert(graph_of(&g->model) == g && graph_classes(g, 0) == 3 && !graph_positions(g) &&
              !graph_below(g));
    cr_assert(g->pytorch_sample == 5000 && g->pytorch_shared == 20);
    model_free(&m);
    graph_free(g);
}

/* Inputs follow each other in a sample. */
Test(graph, several_inputs_are_parts_of_a_sample, .timeout = 30) {
    struct graph *g = read_graph("duet 1\ninput %a: f32[N, 2, 3]\ninput %b: f32[N, 4]\n"
                                 "%1: f32[N, 6] = flatten(%a)\n"
                                 "%2: f32[N, 10] = cat(%1, %b, dim=1)\n"
                                 "parameter w: f32[5, 10]\n%3: f32[N, 5] = linear(%2, w, none)\n"
                                 "%4: f32[N, 5] = log_softmax(%3)\nreturn %4\n");
    struct model m;
    MUST(open_graph(&m, g));
    cr_assert(m.channels == 10 && m.height == 1 && m.width == 1 && m.log_probabilities);
    model_free(&m);
    graph_free(g);
}

static const struct {
    const char *text, *says;
} wrong[] = {
    {"", "line 1, column 1: the file has no return: end it with return %value"},
    {"duet 2\n", "line 1, column 7: version 2: this Duet reads version 1"},
    {"duet 1\ninput x: f32[N, 2]\n", "line 2, column 19: 'x': the name of a value begins with %"},
    {"duet 1\ninput %x: f16[N, 2]\n", "line 2, column 11: 'f16[N, 2]"},
    {"duet 1\ninput %x: f32[2, 2]\n", "the first dimension of an input must be N"},
    {"duet 1\ninput %x: f32[N, 0]\n", "a dimension of 0"},
    {"duet 1\ninput %x: f32[N, D]\n", "'D]': must be a number"}, /* letters: built-in nets only */
    {"duet 1\ninput %x: f32[N, 3C]\n", "must be a number, or a multiple of N"},
    {"duet 1\ninput %x: f32[N, ?]\n", "'?]': must be a number"},
    {"duet 1\ninput %x: i64[N, 2]\n", "an i64 input needs a bound: write below 1"},
    {"duet 1\ninput %x: i64[N, 2] below 7 to 7\n", "B must be an integer above A"},
    {"duet 1\ninput %x: i64[N, 2] below 7 to\n", "number"},
    {"duet 1\ninput %x: f32[N, 65536, 32768]\n", "a type has at most 2147483647 numbers"},
    {"duet 1\ninput %x: f32[N, 2000000000]\ninput %y: f32[N, 2000000000]\n",
     "line 3, column 29: a sample has more than 2147483647 numbers"},
    {HEAD "parameter none: f32[2]\n", "'none': the name of a tensor"},
    {HEAD "buffer n: i64[]\n%1: f32[N, 2] = expand(n)\n",
     "line 4, column 25: n: operand 1 of expand must be f32"},
    {HEAD "parameter w: f32[N, 2]\n",
     "line 3, column 23: a parameter, buffer or constant has no N"},
    {HEAD "%1: f32[N, 2, 4, 4] = relu(%2)\n",
     "line 3, column 28: %2: no line above this one defines"},
    {HEAD "%1: f32[N, 2, 4, 4] = relu(%1)\n", "%1: no line above this one defines it"},
    {HEAD "%x: f32[N, 2, 4, 4] = relu(%x)\n", "%x is already defined in line 2"},
    {HEAD "%1: f32[N, 2, 4, 4] = relu(w)\n", "w: no line above this one declares it"},
    {HEAD "%1: f32[N, 2, 4, 4] = relu(none)\n", "operand 1 of relu cannot be none"},
    {HEAD "%1: f32[N, 2, 4, 4] = relu(%x, %x)\n", "relu takes 1 operands"},
    {HEAD "%1: f32[N, 2, 4, 4] = add(%x)\n", "add has 1 operands: one is missing"},
    {HEAD "%1: f32[N, 2, 4, 4] = elu(%x, beta=2)\n", "elu has no setting beta: it has alpha=1"},
    {HEAD "%1: f32[N, 2, 4, 4] = elu(%x, alpha=1, alpha=2)\n", "elu has no second setting alpha"},
    {HEAD "%1: f32[N, 2, 4, 4] = elu(%x, alpha=nan)\n", "'nan)': must be a number"},
    {HEAD "%1: f32[N, 2, 4, 4] = max_pool2d(%x, size=2, stride=[1, 0])\n",
     "line 3, column 59: max_pool2d: stride 0: give at least 1"},
    {HEAD "%1: f32[N, 2] = mean(%x)\n", "mean has no dims: give one"},
    {HEAD "%1: f32[N, 2, 4, 4] = relu(%x) %2\n", "'%2': the line must end here"},
    {HEAD "%1: f32[N] = rely(%x)\n", "line 3: op: 'rely': expected conv2d, conv, linear"},
    {HEAD "%1: f32[2] = randn()\n", "randn draws for each sample: give its result an N"},
    {HEAD "parameter w: f32[4]\n%1: f32[4] = dropout2d(w)\n",
     "w: operand 1 of dropout2d works on samples: give its result an N"},
    {HEAD "parameter w: f32[2]\n%1: f32[N, 2, 4, 4] = relu(w)\n",
     "w: operand 1 of relu must be a value with N: expand it first"},
    {HEAD "buffer w: f32[2, 2]\n%1: f32[N, 2] = linear(%x, w, none)\n",
     "w: operand 2 of linear must be a parameter, or a value without N"},
    {HEAD "%1: f32[2, 4, 4] = relu(%x)\n", "%x: operand 1 of relu must have no N"},
    {HEAD "parameter w: f32[4]\n%1: f32[4] = relu(w)\n%2: f32[N, 4] = relu(%1)\n",
     "line 5, column 24: %1: operand 1 of relu must be a value with N: expand it first"},
    {HEAD "%1: f32[N, 32] = flatten(%x)\nparameter w: f32[4]\n%2: f32[4] = relu(w)\nreturn %2\n",
     "a model returns numbers for each sample"},
    {HEAD "parameter w: f32[4]\nupdate w = %x\n", "update w: give the name of a buffer, f32"},
    {HEAD "buffer b: f32[4]\nupdate b = %x\n", "%x must be a value of the buffer's shape, without"},
    {HEAD "buffer b: f32[2]\n%1: f32[2] = relu(b)\n%2: f32[N, 2, 1, 1] = expand(b)\n"
          "%3: f32[N, 2, 4, 4] = multiply(%x, %2)\nupdate b = %1\nreturn %3\n",
     "line 3: a buffer with an update: no op whose result has N may read it"},
    {HEAD "%1: f32[N, 2, 4, 4] = scaled_dot_product_attention(%x, %x, %x)\n",
     "scaled_dot_product_attention has 3 operands: one is missing: write none"},
    {HEAD "parameter w: f32[2, 4, 4]\n"
          "%1: f32[N, 2, 4, 4] = scaled_dot_product_attention(%x, w, %x, none)\n",
     "w: operand 2 of scaled_dot_product_attention must be a value with N: expand it first"},
    {HEAD "%1: f32[N, 2, 4, 4] = scaled_dot_product_attention(%x, %x, %x, none, causal=1)\n",
     "it has scale=0 is_causal=0 dropout_p=0"},
    {HEAD "%1: f32[N, 32] = flatten(%x)\n", "the file has no return"},
    {HEAD "%1: f32[2N, 16] = reshape(%x)\nreturn %1\n",
     "a model returns numbers for each sample: write f32[N, classes]"},
    {HEAD "input %y: f32[N, 2]\n%1: f32[N, 32] = flatten(%x)\nreturn %1\n",
     "line 3: no op uses this input"},
    {HEAD "%1: f32[N, 32] = flatten(%x)\nreturn %1\nreturn %1\n",
     "the file ends with the return above"},
    {"duet 1\nSequential(\n", "a line begins with input, parameter"},
};

Test(graph, names_line_and_column_of_what_cannot_be_read, .timeout = 30) {
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct graph *g;
        int code = graph_parse(&g, "net", wrong[i].text, strlen(wrong[i].text));
        cr_expect_eq(code, ERR_USAGE, "text %zu was read", i);
        cr_expect_null(g);
        cr_expect(strstr(error_message(), wrong[i].says), "text %zu: \"%s\" does not say \"%s\"", i,
                  error_message(), wrong[i].says);
        cr_expect_null(strchr(error_message(), '\n'));
    }
    struct graph *g;
    cr_assert_eq(graph_parse(&g, "net", "duet 1\0 ", 8), ERR_USAGE);
    cr_assert(strstr(error_message(), "zero byte"));
}

#define NORM(buffers)                                                                          \
    HEAD "parameter w: f32[2]\nbuffer m: f32[2]\nbuffer v: f32[2]\nbuffer t: i64[]\n"          \
         "%0: f32[N, 2, 4, 4] = relu(%x)\n%1: f32[N, 2, 4, 4] = batch_norm(%0, w, w, " buffers \
         ")\n%2: f32[N, 32] = flatten(%1)\nreturn %2\n"

/* The ops check shapes, so that happens when the model is made. */
#define ATTENTION(last)                                                               \
    HEAD "parameter w: f32[4, 4]\nconstant m: f32[2, 4, 4]\nconstant flat: f32[4]\n"  \
         "%1: f32[N, 2, 4, 4] = matmul_add(%x, w, none)\n"                            \
         "%2: f32[N, 2, 4, 4] = scaled_dot_product_attention(%1, %x, %1, " last ")\n" \
         "%3: f32[N, 32] = flatten(%2)\nreturn %3\n"

static const struct {
    const char *text, *says;
} misfits[] = {
    {ATTENTION("flat"), "line 7: scaled_dot_product_attention: attn_mask (4)"},
    {ATTENTION("%1"), "line 7: scaled_dot_product_attention: attn_mask needs a gradient"},
    {ATTENTION("m, is_causal=1"), "line 7: scaled_dot_product_attention: explicit attn_mask"},
    {ATTENTION("m, dropout_p=2"), "line 7: dropout probability has to be between 0 and 1"},
    {HEAD "parameter w: f32[1]\n%1: f32[N, 31] = flatten(%x)\nreturn %1\n",
     "line 4: flatten gives (2, 32) for N = 2, not the shape that this line says"},
    {HEAD "parameter w: f32[5, 31]\n%1: f32[N, 32] = flatten(%x)\n"
          "%2: f32[N, 5] = linear(%1, w, none)\nreturn %2\n",
     "line 5: linear"},
    {HEAD "parameter w: f32[5]\n%1: f32[N, 4] = expand(w)\n%2: f32[N, 32] = flatten(%x)\n"
          "return %2\n",
     "line 4: expand: 5 numbers"},
    {HEAD "parameter w: f32[1]\n%1: f32[N, 2, 4, 4] = permute(%x, order=[0, 1])\n%2: f32[N, 32] = "
          "flatten(%1)\n"
          "return %2\n",
     "line 4: permute: an order of 2 dimensions"},
    {HEAD "parameter w: f32[1]\n%1: f32[N, 2, 4, 4] = transpose(%x, dim0=0, dim1=1)\n%2: f32[N, "
          "32] = flatten(%1)\n"
          "return %2\n",
     "line 4: transpose"},
    {HEAD "parameter w: f32[4]\n%1: f32[3] = relu(w)\n%2: f32[N, 2, 4, 4] = multiply(%x, %1)\n"
          "return %2\n",
     "line 4: relu gives (4) for N = 2, not the shape that this line says"},
    {HEAD "%1: f32[N, 32] = flatten(%x)\nreturn %1\n", "it has no parameters"},
    {HEAD "parameter w: f32[4, 32] frozen\n%1: f32[N, 32] = flatten(%x)\n"
          "%2: f32[N, 4] = linear(%1, w, none)\nreturn %2\n",
     "all 1 parameters are frozen: element 0 of tensors does not require grad"},
    {NORM("m, none, t"), "line 8: batch_norm: its buffers must be running_mean and running_var"},
    {NORM("none, v, none"), "line 8: batch_norm: its buffers"},
    {NORM("v, m, t"), "line 8: batch_norm: its buffers"},
    {NORM("m, t, v"), "line 8: batch_norm: its buffers"},
    {NORM("v, t, t"), "line 8: batch_norm: its buffers"},
    {HEAD "parameter w: f32[1]\n%1: f32[1073741824N] = reshape(%x)\n%2: f32[N, 32] = flatten(%x)\n"
          "return %2\n",
     "line 4: reshape"},
};

Test(graph, names_the_line_whose_shape_does_not_fit, .timeout = 30) {
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++) {
        struct graph *g = read_graph(misfits[i].text);
        struct model m;
        cr_expect_eq(open_graph(&m, g), ERR_USAGE, "text %zu", i);
        cr_expect(strstr(error_message(), misfits[i].says), "text %zu: \"%s\" does not say \"%s\"",
                  i, error_message(), misfits[i].says);
        graph_free(g);
    }
}

/* Its dimensions count from 0; vectors, matrices and several of them meet as in PyTorch. */
Test(graph, what_has_no_n_has_the_shape_of_its_line, .timeout = 30) {
    struct graph *g = read_graph(
        HEAD "parameter a: f32[2, 2, 3]\nparameter b: f32[3, 4]\nparameter v: f32[3]\n"
             "%1: f32[2, 2, 4] = matmul(a, b)\n%2: f32[2, 2] = matmul(a, v)\n"
             "%3: f32[4] = matmul(v, b)\n%4: f32[] = matmul(v, v)\n"
             "%5: f32[4, 2, 2] = permute(%1, order=[2, 0, 1])\n"
             "%6: f32[2, 4] = mean(%1, dims=[0])\n"
             "%7: f32[2, 2] = narrow(%6, dim=1, start=1, length=2)\n"
             "%8: f32[4, 2] = cat(%7, %2, dim=0)\n%9: f32[4, 2, 2] = add(%5, %4)\n"
             "%10: f32[4, 2] = sum(%9, dims=[2])\n%11: f32[4, 2] = subtract(%8, %10)\n"
             "%12: f32[N, 2, 4, 4] = multiply(%x, %3)\n%13: f32[N, 2, 4, 2] = matmul(%12, %11)\n"
             "%14: f32[N, 16] = flatten(%13)\nreturn %14\n");
    struct model m;
    MUST(open_graph(&m, g));
    model_free(&m);
    graph_free(g);
}

/* How many nodes the tape of a training step of two samples has. */
static int count_nodes(const char *text) {
    const struct segments segments = {1, 2, {{0, 2}}};
    const struct device_config config = {.kind = DEVICE_DRY, .memory_bytes = 1 << 24};
    const int dims[4] = {2, 2, 4, 4};
    struct graph *g = read_graph(text);
    struct model m;
    struct device *device = NULL;
    struct param_set params = {0};
    struct buffer_set buffers = {0};
    duet_tape *tape = NULL;
    void *memory = NULL, *block = NULL;
    MUST(open_graph(&m, g));
    MUST(device_open(&device, &config));
    MUST(tape_init(&tape, device));
    MUST(param_set_init(&params, device, m.params, m.param_count));
    MUST(buffer_set_init(&buffers, device, m.buffers, m.buffer_count));
    MUST(device_alloc(device, &memory, 64 * sizeof(float), MEM_INPUT));
    MUST(device_alloc(device, &block, sizeof(struct step_block), MEM_WORKSPACE));
    struct tape_step step = {
        .segments = &segments, .params = &params, .step = block, .training = 1};
    struct tensor x = tensor_plain(memory, DTYPE_F32, 4, dims);
    MUST(tape_begin(tape, &step));
    cr_assert(model_forward(&m, tape, &buffers, tape_leaf(tape, &x, 0)), "%s", error_message());
    int count = tape->node_count;
    duet_tape_free(tape);
    buffer_set_free(&buffers);
    param_set_free(&params);
    device_close(device);
    model_free(&m);
    graph_free(g);
    return count;
}

/* Nodes below the first trained parameter are not kept. */
#define TWO_LAYERS(first, second)                                                \
    HEAD "parameter a: f32[8, 32]" first "\nparameter b: f32[4, 8]" second       \
         "\n%1: f32[N, 32] = flatten(%x)\n%2: f32[N, 8] = linear(%1, a, none)\n" \
         "%3: f32[N, 8] = tanh(%2)\n%4: f32[N, 4] = linear(%3, b, none)\nreturn %4\n"

Test(graph, a_frozen_parameter_is_not_trained, .timeout = 30) {
    int all = count_nodes(TWO_LAYERS("", ""));
    cr_assert_eq(count_nodes(TWO_LAYERS("", " frozen")), all);
    cr_assert_lt(count_nodes(TWO_LAYERS(" frozen", "")), all - 1);
    struct graph *g = read_graph(TWO_LAYERS(" frozen", ""));
    struct model m;
    MUST(open_graph(&m, g));
    cr_assert(m.params[0].frozen && !m.params[1].frozen);
    cr_assert_eq(model_count(&m), 8u * 32 + 4 * 8);
    cr_assert_eq(model_trained(&m), 4u * 8);
    model_free(&m);
    graph_free(g);
}

/* A norm, an addition and a relu are one node, unless the addition broadcasts. */
#define NORM_ADD_RELU(other)                                                          \
    HEAD "parameter w: f32[2]\n%0: f32[N, 2, 4, 4] = relu(%x)\n"                      \
         "%a: f32[N, 2, 1, 1] = mean(%0, dims=[2, 3], keepdim=1)\n"                   \
         "%1: f32[N, 2, 4, 4] = batch_norm(%0, w, w, none, none, none)\n"             \
         "%2: f32[N, 2, 4, 4] = add(%1, " other ")\n%3: f32[N, 2, 4, 4] = relu(%2)\n" \
         "%4: f32[N, 2, 1, 1] = mean(%3, dims=[2, 3], keepdim=1)\n"                   \
         "%5: f32[N, 2, 1, 1] = add(%4, %a)\n%6: f32[N, 2] = flatten(%5)\nreturn %6\n"

Test(graph, runs_a_norm_with_what_follows_it, .timeout = 30) {
    int fused = count_nodes(NORM_ADD_RELU("%0"));
    cr_assert_eq(count_nodes(NORM_ADD_RELU("%a")), fused + 2);
}

/* Whatever its settings, attention is one node after the linear layer's. */
Test(graph, attention_is_one_node, .timeout = 30) {
    int plain = count_nodes(ATTENTION("none"));
    cr_assert_eq(count_nodes(ATTENTION("none, scale=0.5, is_causal=1, dropout_p=0.1")), plain);
    cr_assert_eq(count_nodes(ATTENTION("m")), plain);
    cr_assert_eq(count_nodes(ATTENTION("%x, dropout_p=0.1")), plain);
    cr_assert_eq(plain, 3);
}

/* The largest number of lines is read quickly; one line more is refused. */
Test(graph, reads_many_lines, .timeout = 60) {
    enum { LINES = GRAPH_LINES, ROOM = 64 };
    char *text = malloc((size_t)LINES * ROOM + ROOM), *at = text;
    cr_assert(text);
    at += sprintf(at, "duet 1\ninput %%0: f32[N, 2]\n");
    for (int i = 1; i < LINES - 2; i++)
        at += sprintf(at, "%%%d: f32[N, 2] = relu(%%%d)\n", i, i - 1);
    at += sprintf(at, "return %%%d\n", LINES - 3);
    struct graph *g = read_graph(text);
    cr_assert_eq(g->node_count, LINES - 3);
    graph_free(g);
    strcpy(at, "# more\n");
    cr_assert_eq(graph_parse(&g, "net.duet", text, strlen(text)), ERR_USAGE);
    cr_assert(strstr(error_message(), "more than 50000 lines"), "%s", error_message());
    free(text);
}
