/* models/sequential/sequential.h: a model of every kind of layer against PyTorch, from the text
 * that PyTorch prints, and what is wrong with a text named with its line. */
#include "models/sequential/sequential.h"

#include "base/error.h"
#include "models/model_file.h"
#include "models/replica.h"
#include "tests/golden/golden.h"

#define MUST(call) cr_assert_eq(call, OK, "%s", error_message())
#define NET "tests/golden/sequential_net.txt"
#define FACTS "tests/golden/sequential.txt"

/* Float kernels against PyTorch's float64: 5e-8 and 8e-7 were measured; a wrong layer is off by a
 * thousandth and more. A gradient that is nothing but roundings (of a bias before BatchNorm: 3.6e-7
 * was measured) counts as none below 1e-6; the least of the others is 5e-2. */
static const double LOSS_TOLERANCE = 1e-6, GRADIENT_TOLERANCE = 1e-5, NO_GRADIENT = 1e-6;

enum { SAMPLES = 32, PIXELS = 784 };

static struct model_options options_of(const struct sequential *s) {
    return (struct model_options){.dropout = -1, .own = &s->model};
}

static void check_initial(const struct model *m, float *const *values) {
    for (int i = 0; i < m->param_count; i++) {
        char key[64], line[512], got[32];
        snprintf(key, sizeof key, "init %s", m->params[i].name);
        snprintf(got, sizeof got, "%016llx",
                 (unsigned long long)fnv1a64(values[i], param_spec_count(&m->params[i])));
        cr_expect_eq(strncmp(golden_fact(FACTS, key, line), got, 16), 0, "%s is not PyTorch's",
                     key);
    }
}

static void check_grads(struct replica *r) {
    for (int i = 0; i < r->params->set.count; i++) {
        const struct param *p = &r->params->set.param[i];
        float *grad = malloc(p->count * sizeof *grad);
        double norm = 0;
        char key[64];
        MUST(param_read_grad(&r->params->set, i, grad));
        for (size_t k = 0; k < p->count; k++)
            norm += (double)grad[k] * grad[k];
        free(grad);
        snprintf(key, sizeof key, "grad %s", p->spec->name);
        double want = golden_number(FACTS, key), got = sqrt(norm);
        cr_expect(fabs(got - want) <= GRADIENT_TOLERANCE * want ||
                      (want < NO_GRADIENT && got < NO_GRADIENT),
                  "%s: %.9g, PyTorch's %.9g", key, got, want);
    }
}

/* One training step on the batch of make_sequential.py. */
static void step_as_pytorch(const struct model *m, float *const *values) {
    static float pixels[SAMPLES * PIXELS];
    int32_t labels[SAMPLES];
    struct device *device;
    struct device_config config = {.memory_bytes = 64 << 20, .check_operands = 1, .timeout_s = 60};
    struct replica_config want = {.max_samples = SAMPLES, .log_rows = 1, .log_segments = 1};
    struct segments segments = {1, SAMPLES, {{0, SAMPLES}}};
    struct step_block step = {.weight = 1.0f / SAMPLES};
    struct replica r;
    duet_var *output, *loss;
    double sum;
    for (int i = 0; i < SAMPLES * PIXELS; i++)
        pixels[i] = (float)(((double)(((int64_t)i * 7919 + 13) % 1000)) / 500 - 1);
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = i * 3 % 10;
    MUST(device_open(&device, &config));
    MUST(replica_init(&r, device, m, &want, values));
    MUST(replica_write_step(&r, &step));
    MUST(replica_load(&r,
                      &(struct batch){.segments = segments, .pixels = pixels, .labels = labels}));
    MUST(replica_forward(&r, &segments, 1, &output));
    MUST(replica_loss(&r, output, 1, &loss));
    MUST(replica_backward(&r, loss, NULL));
    MUST(replica_read_logs(&r, 1, &sum, NULL, NULL));
    cr_expect(fabs(sum / SAMPLES - golden_number(FACTS, "loss")) < LOSS_TOLERANCE, "loss %.9g",
              sum / SAMPLES);
    check_grads(&r);
    replica_free(&r);
    device_close(device);
}

Test(sequential, every_layer_as_pytorch, .timeout = 60) {
    struct model_file *file;
    struct model m;
    float **values;
    MUST(model_file_open(&file, NET));
    const struct sequential *s = file->sequential;
    struct model_options options = options_of(s);
    MUST(model_open(&m, s->name, &options));
    cr_assert_str_eq(m.name, "sequential_net.txt");
    cr_assert(m.channels == 1 && m.height == 28 && m.width == 28, "the sample was guessed wrong");
    cr_assert(m.log_probabilities && m.buffer_count == 6 && m.param_count == 15);
    cr_assert_str_eq(m.params[3].name, "4.0.weight");
    cr_assert_str_eq(m.buffers[5].name, "12.num_batches_tracked");
    MUST(model_values_init(&m, 0, &values));
    check_initial(&m, values);
    step_as_pytorch(&m, values);
    model_values_free(values);
    model_free(&m);
    model_file_free(file);
}

/* ---- what cannot be read ---- */

#define LINES(text) "Sequential(\n" text "\n)\n"
#define CONV "  (0): Conv2d(1, 8, kernel_size=(3, 3), stride=(1, 1))\n"

static const struct {
    const char *text, *says;
} wrong[] = {
    {"", "net: it is empty"},
    {"\n\n", "net: line 2: '': the text ends before the model does"},
    {"Net(\n  (fc): Linear(in_features=1, out_features=2, bias=True)\n)\n",
     "net: line 1: 'Net(': only nn.Sequential can be read"},
    {"Sequential()\n", "line 1: 'Sequential()': only nn.Sequential"},
    {"Sequential(\n)\n", "the model has no layers"},
    {"Sequential(\n" CONV, "line 2: '(0): Conv2d(1, 8, kernel_size=(3, 3), stride=(1, 1))': the "
                           "text ends before the model does: a ) is missing"},
    {LINES(CONV) "x\n", "line 5: 'x': the model has ended"},
    {LINES(CONV "0: ReLU()"), "line 3: '0: ReLU()': must be (name): Layer(...), or )"},
    {LINES(CONV "(): ReLU()"), "must be (name)"},
    {LINES(CONV "(a.b): ReLU()"), "a name has no dot"},
    {LINES(CONV "  (1): Mish()"), "line 3: '(1): Mish()': there are Sequential, Conv2d, Linear"},
    {LINES("(0): GELU(approximate='erf')"), "approximate='erf': must be 'none' or 'tanh'"},
    {LINES("(0): LeakyReLU(negative_slope=x)"), "negative_slope=x: must be a number"},
    {LINES("(0): Hardtanh(min_val=2, max_val=1)"), "must not be above it"},
    {LINES("(0): LayerNorm((3, 4, 5, 6), eps=1e-05)"), "must be one to three sizes"},
    {LINES("(0): LayerNorm((0,), eps=1e-05)"), "must be one to three sizes"},
    {LINES("(0): LayerNorm((3, 4), eps=-1)"), "eps=-1: must be a number"},
    {LINES("(0): GroupNorm(3, 8, eps=1e-05)"), "must be divisible by num_groups"},
    {LINES(CONV "  (1): SyncBatchNorm(8, eps=1e-05, momentum=0.1, affine=True)"),
     "give BatchNorm1d or BatchNorm2d, and --sync-bn"},
    {LINES(CONV "  (1): BatchNorm2d(8, eps=1e-05, affine=True, bias=False)"),
     "bias=False: Duet's layer has bias=True alone"},
    {LINES("(0): Conv2d(3, 3, kernel_size=(3, 3), stride=(1, 1), groups=3)"),
     "groups=3: Duet's layer has groups=1 alone"},
    {LINES("(0): Conv2d(3, 3, kernel_size=(3, 5), stride=(1, 1))"),
     "kernel_size=(3, 5): height and width must be equal"},
    {LINES("(0): Conv2d(3, 3, kernel_size=(4, 4), stride=(1, 1), padding=same)"),
     "padding=same: needs an odd kernel_size"},
    {LINES("(0): Conv2d(3, 3, kernel_size=(3, 3), stride=(1, 1), padding=full)"),
     "padding=full: must be a size"},
    {LINES("(0): MaxPool2d(kernel_size=3, stride=2, padding=2)"), "pad should be at most half"},
    {LINES("(0): MaxPool2d(kernel_size=3, stride=2, dilation=2)"), "dilation=2: Duet's layer has"},
    {LINES("(0): AvgPool2d(kernel_size=3, stride=2, ceil_mode=True)"), "ceil_mode=True: Duet's"},
    {LINES("(0): ZeroPad2d((1, 1, 1))"), "must be left, right, top, bottom"},
    {LINES("(0): ZeroPad2d((1, 1, 1, 9999999))"), "is too large"},
    {LINES("(0): ConstantPad2d(padding=(1, 1, 1, 1), value=inf)"), "must be a finite number"},
    {LINES("(0): AdaptiveMaxPool2d(output_size=(None, 0))"), "output_size=(None, 0): must be"},
    {LINES("(0): AdaptiveMaxPool2d(output_size=(2, 3, 4))"), "output_size=(2, 3, 4): must be"},
    {LINES("(0): AdaptiveAvgPool2d(output_size=2x)"), "output_size=2x: must be"},
    {LINES("(0): AdaptiveAvgPool2d(output_size=(None, 3)x)"), "output_size=(None, 3)x: must be"},
    {LINES("(0): Unflatten(dim=1, unflattened_size=(8, 4))"),
     "unflattened_size=(8, 4): must be channels, height and width"},
    {LINES("(0): Unflatten(dim=1, unflattened_size=torch.Size([2, 3]))"), "must be channels"},
    {LINES("(0): Unflatten(dim=1, unflattened_size=(2, 3, 4]))"), "must be channels"},
    {LINES("(0): Unflatten(dim=1, unflattened_size=(65536, 65536, 2))"), "must be channels"},
    {LINES("(0): Unflatten(dim=2, unflattened_size=(8, 4, 2))"), "dim=2: Duet's layer has dim=1"},
    {LINES("(0): Embedding(10, 3)"),
     "line 2: '(0): Embedding(10, 3)': an Embedding takes integers"},
    {LINES("(0): Conv2d(3, 3, stride=(1, 1))"), "kernel_size is missing"},
    {LINES("(0): Conv2d(0, 3, kernel_size=(3, 3))"), "0=0: must be a whole number"},
    {LINES("(0): Linear(in_features=99999999999, out_features=1)"), "must be a whole number"},
    {LINES("(0): Linear(in_features=3, out_features=1, colour=True)"),
     "colour=True: Duet's layer has no such argument"},
    {LINES("(0): Linear(in_features=3, out_features=1, bias=1)"), "bias=1: must be True or False"},
    {LINES("(0): BatchNorm2d(8, eps=1e-05, momentum=0.1, affine=False)"),
     "affine=False: Duet's layer has affine=True alone"},
    {LINES("(0): Dropout(p=1.5, inplace=False)"), "must be 0 to 1"},
    {LINES("(0): Softmax(dim=0)"), "dim=0: Duet's layer has dim=1 alone"},
    {LINES("(0): ReLU(inplace=(True)"), "its parentheses do not close"},
    {LINES("(0): ReLU("), "its parentheses do not close in this line"},
};

Test(sequential, names_the_line_that_cannot_be_read, .timeout = 30) {
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct sequential *s;
        int code = sequential_parse(&s, "net", wrong[i].text, strlen(wrong[i].text));
        cr_expect_eq(code, ERR_USAGE, "text %zu was read", i);
        cr_expect_null(s);
        cr_expect(strstr(error_message(), wrong[i].says), "text %zu: \"%s\" does not say \"%s\"", i,
                  error_message(), wrong[i].says);
    }
    struct sequential *s;
    struct model_file *file;
    cr_assert_eq(model_file_open(&file, "/nowhere/net.txt"), ERR_FAILED);
    cr_assert(strstr(error_message(), "/nowhere/net.txt"));
    cr_assert_eq(sequential_parse(&s, "net", "Sequential(\0", 12), ERR_USAGE);
}

/* ---- sizes that do not fit ---- */

#define UNFLATTEN "  (0): Unflatten(dim=1, unflattened_size=(2, 3, 4))\n"
#define UNFLATTEN_SIZE "  (0): Unflatten(dim=1, unflattened_size=torch.Size([2, 3, 4]))\n"
#define FLAT "  (1): Flatten(start_dim=1, end_dim=-1)\n"
#define LINEAR(in, out) "Linear(in_features=" in ", out_features=" out ", bias=True)"

static const struct {
    const char *text;
    struct sample_shape sample;
    int classes;
    const char *says; /* NULL: it fits */
} sizes[] = {
    {LINES(CONV FLAT "  (2): " LINEAR("5408", "10")), {1, 28, 28}, 10, NULL},
    {LINES(CONV FLAT "  (2): " LINEAR("5400", "10")),
     {1, 28, 28},
     10,
     "line 4: '(2): Linear(in_features=5400, out_features=10, bias=True)': layer 2 takes 5400 "
     "features, but is given 5408 features"},
    {LINES(CONV FLAT "  (2): " LINEAR("5408", "10")),
     {3, 28, 28},
     10,
     "layer 0 takes pictures of 1 channels, but is given 3 x 28 x 28"},
    {LINES(CONV FLAT "  (2): " LINEAR("5408", "10")),
     {1, 2, 28},
     10,
     "layer 0 takes pictures of at least 3 x 3, but is given 1 x 2 x 28"},
    {LINES(CONV "  (2): " LINEAR("5408", "10")),
     {1, 28, 28},
     10,
     "layer 2 takes 5408 features, but is given 8 x 26 x 26"},
    {LINES(CONV), {1, 28, 28}, 10, "the last layer leaves 8 x 26 x 26 of each sample"},
    {LINES("  (0): " LINEAR("7", "3")), {7, 1, 1}, 3, NULL},
    {LINES("  (0): " LINEAR("7", "3")),
     {7, 1, 1},
     4,
     "3 outputs for data of 4 classes: give --classes 3"},
    {LINES("  (0): " LINEAR("7", "30")), {7, 1, 1}, 4, NULL},
    {LINES(UNFLATTEN FLAT "  (2): " LINEAR("24", "10")), {24, 1, 1}, 10, NULL},
    {LINES(UNFLATTEN_SIZE FLAT "  (2): " LINEAR("24", "10")), {24, 1, 1}, 10, NULL},
    {LINES(UNFLATTEN FLAT "  (2): " LINEAR("24", "10")),
     {25, 1, 1},
     10,
     "layer 0 takes 24 features, but is given 25 features"},
};

Test(sequential, names_the_layer_that_does_not_fit, .timeout = 30) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct sequential *s;
        struct model m;
        MUST(sequential_parse(&s, "net", sizes[i].text, strlen(sizes[i].text)));
        struct model_options options = options_of(s);
        options.sample = sizes[i].sample;
        options.classes = sizes[i].classes;
        int code = model_open(&m, "net", &options);
        if (!sizes[i].says)
            cr_expect_eq(code, OK, "%zu: %s", i, error_message());
        else
            cr_expect(code == ERR_USAGE && strstr(error_message(), sizes[i].says),
                      "%zu: \"%s\" does not say \"%s\"", i, error_message(), sizes[i].says);
        model_free(&m);
        sequential_free(s);
    }
}

/* The samples for random data. */
Test(sequential, finds_samples_that_fit, .timeout = 30) {
    static const struct {
        const char *text;
        int sample[3];
    } cases[] = {
        {LINES("(0): Flatten(start_dim=1, end_dim=-1)\n(1): " LINEAR("784", "10")), {1, 28, 28}},
        {LINES("(0): Flatten(start_dim=1, end_dim=-1)\n(1): " LINEAR("3072", "10")), {3, 32, 32}},
        {LINES("(0): " LINEAR("784", "10")), {784, 1, 1}},
        {LINES("(0): Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1))\n"
               "(1): AdaptiveAvgPool2d(output_size=1)\n(2): Flatten(start_dim=1, end_dim=-1)\n"
               "(3): " LINEAR("4", "10")),
         {3, 32, 32}},
        {LINES("(0): Conv2d(3, 4, kernel_size=(4, 4), stride=(4, 4))\n"
               "(1): Flatten(start_dim=1, end_dim=-1)\n(2): " LINEAR("12544", "10")),
         {3, 224, 224}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sequential *s;
        MUST(sequential_parse(&s, "net", cases[i].text, strlen(cases[i].text)));
        cr_expect_arr_eq(s->model.sample, cases[i].sample, sizeof cases[i].sample, "%zu: %d %d %d",
                         i, s->model.sample[0], s->model.sample[1], s->model.sample[2]);
        sequential_free(s);
    }
}
