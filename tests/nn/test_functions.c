/* Adaptive and padded pools, pads, parts of samples, dropout2d and softmax on the tape: PyTorch's
 * numbers and gradients, and equal bits however many devices share the virtual devices. (Gradients
 * against central differences: tests/device/test_kernels_gradient.c.) */
#include "base/philox.h"
#include "tests/golden/golden.h"
#include "tests/nn/step.h"

/* Relative to 1 + |want|: one rounding to float of numbers below 2, and a product with one; a wrong
 * term is 1e-2. */
static const double TOLERANCE = 5e-7;

enum { MOST = 4096 };

/* A function of x and its parameters; the tape is begun. */
typedef duet_var *function(duet_tape *t, duet_var *x, const int *p);

static duet_var *adaptive(duet_tape *t, duet_var *x, const int *p) {
    return duet_adaptive_avg_pool2d(t, x, p[0], p[1]);
}

static duet_var *adaptive_max(duet_tape *t, duet_var *x, const int *p) {
    return duet_adaptive_max_pool2d(t, x, p[0], p[1]);
}

static duet_var *padded(duet_tape *t, duet_var *x, const int *p) {
    (void)p;
    return duet_pad2d(t, x, 2, 1, -1, 3, 0.75);
}

/* p: size, stride, padding, ceil_mode */
static struct duet_pool square(const int *p) {
    return (struct duet_pool){{p[1]}, {p[2]}, p[3], 0};
}

static duet_var *max_pool(duet_tape *t, duet_var *x, const int *p) {
    const struct duet_pool how = square(p);
    return duet_max_pool2d(t, x, p[0], &how);
}

static duet_var *avg_pool(duet_tape *t, duet_var *x, const int *p) {
    const struct duet_pool how = square(p);
    return duet_avg_pool2d(t, x, p[0], &how);
}

/* p: size, stride and padding of rows and of columns, ceil_mode */
static struct duet_pool sides_of(const int *p) {
    return (struct duet_pool){{p[2], p[3]}, {p[4], p[5] ? p[5] : DUET_NO_PADDING}, p[6], p[1]};
}

static duet_var *max_pool_sides(duet_tape *t, duet_var *x, const int *p) {
    const struct duet_pool how = sides_of(p);
    return duet_max_pool2d(t, x, p[0], &how);
}

static duet_var *avg_pool_sides(duet_tape *t, duet_var *x, const int *p) {
    const struct duet_pool how = sides_of(p);
    return duet_avg_pool2d(t, x, p[0], &how);
}

/* p: the dimension, where it starts, how long it is */
static duet_var *part(duet_tape *t, duet_var *x, const int *p) {
    return duet_narrow(t, x, p[0], p[1], p[2]);
}

static duet_var *four_parts(duet_tape *t, duet_var *x, const int *p) {
    (void)p;
    duet_var *const vars[] = {x, duet_narrow(t, x, 1, 1, 2), duet_narrow(t, x, 1, 0, 1), x};
    return duet_cat(t, vars, 4, 1);
}

static duet_var *two_parts(duet_tape *t, duet_var *x, const int *p) {
    (void)p;
    return duet_cat(t, (duet_var *[]){duet_narrow(t, x, 2, 3, 1), x}, 2, 2);
}

static duet_var *softmax_of(duet_tape *t, duet_var *x, const int *p) {
    (void)p;
    return duet_softmax(t, x);
}

static duet_var *log_softmax_of(duet_tape *t, duet_var *x, const int *p) {
    (void)p;
    return duet_log_softmax(t, x);
}

static duet_var *some_dropout2d(duet_tape *t, duet_var *x, const int *p) {
    (void)p;
    return duet_dropout2d(t, duet_dropout2d(t, x, 0.25), 0.5);
}

static duet_var *of_random(duet_tape *t, duet_var *x, const int *p) {
    (void)p;
    duet_var *a = duet_random(t, 3, (int[]){-1, 3, 7}, DUET_RANDN),
             *b = duet_random(t, 3, (int[]){-1, 1, 7}, DUET_RAND);
    return duet_add(t, duet_multiply(t, x, a), b);
}

/* y and dx of f; x and dy are in plain layout, in the order of `segments`. */
static void run_function(struct device_config config, const struct segments *segments, int rank,
                         const int *dims, const float *x, const float *dy, function *f,
                         const int *p, float *y, float *dx) {
    struct device *device;
    duet_tape *tape;
    struct step_block block = {.seed = 7, .step = 3};
    void *memory[3];
    MUST(device_open(&device, &config));
    MUST(tape_init(&tape, device));
    struct stream *stream = device_compute(device);
    for (int i = 0; i < 3; i++)
        MUST(device_alloc(device, &memory[i], MOST * sizeof(float), MEM_WORKSPACE));
    struct tensor in = tensor_plain(memory[0], DTYPE_F32, rank, dims);
    MUST(copy_to_device(stream, memory[0], x, tensor_bytes(&in)));
    MUST(stream_write(stream, memory[2], &block, sizeof block));
    struct tape_step step = {.segments = segments, .step = memory[2], .training = 1};
    MUST(tape_begin(tape, &step));
    duet_var *leaf = tape_leaf(tape, &in, 1);
    duet_var *out = to_plain(tape, f(tape, to_device_layout(tape, leaf), p));
    MUST(tape_error(tape));
    struct tensor root = out->value;
    root.data = memory[1];
    MUST(copy_to_device(stream, memory[1], dy, tensor_bytes(&root)));
    MUST(tape_backward(tape, out, &root));
    MUST(copy_to_host(stream, y, out->value.data, tensor_bytes(&out->value)));
    MUST(copy_to_host(stream, dx, leaf->grad.data, tensor_bytes(&leaf->grad)));
    MUST(stream_sync(stream));
    duet_tape_free(tape);
    for (int i = 0; i < 3; i++)
        device_free(device, memory[i]);
    device_close(device);
}

static struct device_config host(int math) {
    return (struct device_config){
        .kind = DEVICE_HOST, .memory_bytes = 8 << 20, .check_operands = 1, .reference_math = math};
}

static void check_golden(const char *name, int rank, const int *dims, function *f, const int *p,
                         float factor) {
    static const char *const file = "tests/golden/functions.txt";
    static float x[MOST], dy[MOST], y[MOST], dx[MOST];
    struct segments one = {.count = 1, .n = dims[0], .seg = {{0, dims[0]}}};
    char of_y[64], of_dx[64];
    snprintf(of_y, sizeof of_y, "%s_y", name), snprintf(of_dx, sizeof of_dx, "%s_dx", name);
    size_t y_count = golden_tensor(file, of_y).count, dx_count = 1;
    for (int d = 0; d < rank; d++)
        dx_count *= (size_t)dims[d];
    for (int i = 0; i < MOST; i++)
        x[i] = factor * golden_value(i, 7919), dy[i] = golden_value(i, 3571);
    for (int math = 0; math < 2; math++) {
        run_function(host(math), &one, rank, dims, x, dy, f, p, y, dx);
        for (size_t i = 0; i < dx_count; i++)
            dx[i] *= factor;
        golden_near(file, of_y, y, y_count, TOLERANCE);
        golden_near(file, of_dx, dx, dx_count, TOLERANCE);
    }
}

Test(functions, pytorch_has_the_same_numbers, .timeout = 60) {
    check_golden("adaptive_0", 4, (int[]){2, 3, 7, 5}, adaptive, (int[]){1, 1},
                 1); /* mean of planes */
    check_golden("adaptive_1", 4, (int[]){1, 2, 7, 5}, adaptive, (int[]){3, 4},
                 1); /* windows that overlap */
    check_golden("adaptive_2", 4, (int[]){1, 1, 2, 3}, adaptive, (int[]){5, 3},
                 1); /* more out than in */
    check_golden("adaptive_3", 4, (int[]){2, 1, 6, 8}, adaptive, (int[]){3, 2},
                 1); /* side by side */
    check_golden("adaptive_max_0", 4, (int[]){1, 2, 7, 5}, adaptive_max, (int[]){3, 4},
                 1); /* maxima of windows that overlap */
    check_golden("adaptive_max_1", 4, (int[]){1, 1, 2, 3}, adaptive_max, (int[]){5, 3},
                 1); /* more maxima out than in */
    check_golden("pad", 4, (int[]){2, 2, 4, 3}, padded, NULL, 1);
    check_golden("max_pool_0", 4, (int[]){1, 2, 7, 6}, max_pool, (int[]){3, 2, 1, 0}, 1);
    check_golden("max_pool_1", 4, (int[]){1, 1, 8, 6}, max_pool, (int[]){3, 2, 0, 1},
                 1); /* ceil_mode */
    check_golden("max_pool_2", 4, (int[]){2, 1, 5, 9}, max_pool, (int[]){4, 3, 2, 1}, 1); /* both */
    check_golden("max_pool_3", 4, (int[]){1, 1, 6, 5}, max_pool, (int[]){2, 3, 1, 1},
                 1); /* no window in the padding */
    check_golden("max_pool_4", 4, (int[]){1, 1, 2, 5}, max_pool, (int[]){3, 2, 0, 1},
                 1); /* a picture smaller than the window */
    check_golden("avg_pool", 4, (int[]){1, 2, 7, 6}, avg_pool, (int[]){3, 2, 1, 0}, 1);
    check_golden("max_pool_sides", 4, (int[]){2, 2, 6, 5}, max_pool_sides,
                 (int[]){2, 3, 3, 1, 0, 1, 1}, 1);
    check_golden("avg_pool_sides", 4, (int[]){2, 2, 5, 7}, avg_pool_sides,
                 (int[]){3, 2, 1, 2, 1, 0, 0}, 1);
    check_golden("narrow", 4, (int[]){2, 3, 4, 2}, part, (int[]){2, 1, 2}, 1);
    check_golden("narrow_last", 3, (int[]){2, 3, 6}, part, (int[]){2, 2, 3}, 1);
    check_golden("cat", 4, (int[]){2, 3, 2, 2}, four_parts, NULL, 1);
    check_golden("cat_last", 3, (int[]){2, 3, 4}, two_parts, NULL, 1);
    check_golden("softmax", 2, (int[]){3, 7}, softmax_of, NULL, 8);
    check_golden("softmax_4d", 4, (int[]){2, 3, 2, 4}, softmax_of, NULL, 8);
    check_golden("log_softmax_3d", 3, (int[]){2, 3, 4}, log_softmax_of, NULL, 8);
}

/* Four virtual devices on 1, 2 and 4 devices, early and late. */
static void check_bits(const char *what, int rank, int *dims, function *f, const int *p,
                       int y_size) {
    static const int n[4] = {9, 17, 0, 10}, first[4] = {0, 9, 26, 26};
    static float x[MOST], dy[MOST], part_x[MOST], part_dy[MOST], part_y[MOST], part_dx[MOST];
    static float y[3][MOST], dx[3][MOST];
    int size = 1, world = 1;
    for (int i = 1; i < rank; i++)
        size *= dims[i];
    for (int i = 0; i < MOST; i++)
        x[i] = golden_value(i, 7919), dy[i] = golden_value(i, 3571);
    for (int run = 0; run < 3; run++, world *= 2)
        for (int r = 0; r < world; r++) {
            struct segments segments = {0};
            for (int v = r; v < 4; v += world) {
                memcpy(part_x + segments.n * size, x + first[v] * size,
                       (size_t)(n[v] * size) * sizeof *x);
                memcpy(part_dy + segments.n * y_size, dy + first[v] * y_size,
                       (size_t)(n[v] * y_size) * sizeof *dy);
                segments.seg[segments.count++] = (struct segment){v, n[v]};
                segments.n += n[v];
            }
            struct device_config config = host(0);
            config.index = r;
            if (run) config.kind = DEVICE_HOST_LATE;
            dims[0] = segments.n;
            run_function(config, &segments, rank, dims, part_x, part_dy, f, p, part_y, part_dx);
            for (int s = 0, at = 0; s < segments.count; at += segments.seg[s++].n) {
                int v = segments.seg[s].v;
                memcpy(y[run] + first[v] * y_size, part_y + at * y_size,
                       (size_t)(n[v] * y_size) * sizeof *y[0]);
                memcpy(dx[run] + first[v] * size, part_dx + at * size,
                       (size_t)(n[v] * size) * sizeof *dx[0]);
            }
            if (!run) continue;
            cr_assert(r + 1 < world || !memcmp(y[run], y[0], sizeof y[0]), "%s: y on %d devices",
                      what, world);
            cr_assert(r + 1 < world || !memcmp(dx[run], dx[0], sizeof dx[0]),
                      "%s: dx on %d devices", what, world);
        }
}

Test(functions, bits_do_not_depend_on_the_number_of_devices, .timeout = 60) {
    check_bits("adaptive", 4, (int[]){0, 3, 7, 4}, adaptive, (int[]){1, 1}, 3);
    check_bits("adaptive 3x3", 4, (int[]){0, 3, 7, 4}, adaptive, (int[]){3, 3}, 27);
    check_bits("adaptive max", 4, (int[]){0, 3, 7, 4}, adaptive_max, (int[]){3, 3}, 27);
    check_bits("padded max", 4, (int[]){0, 3, 7, 4}, max_pool, (int[]){3, 2, 1, 1}, 36);
    check_bits("maxima of two sizes", 4, (int[]){0, 3, 7, 4}, max_pool_sides,
               (int[]){3, 2, 2, 1, 1, 0, 0}, 36);
    check_bits("padded mean", 4, (int[]){0, 3, 7, 4}, avg_pool, (int[]){3, 2, 1, 0}, 24);
    check_bits("narrow", 4, (int[]){0, 3, 7, 4}, part, (int[]){2, 3, 2}, 24);
    check_bits("cat", 4, (int[]){0, 3, 3, 2}, four_parts, NULL, 54);
    check_bits("dropout2d", 4, (int[]){0, 5, 3, 3}, some_dropout2d, NULL, 45);
    check_bits("random", 3, (int[]){0, 3, 7}, of_random, NULL, 21);
    check_bits("softmax", 2, (int[]){0, 10}, softmax_of, NULL, 10);
    check_bits("softmax of rows", 3, (int[]){0, 3, 7}, softmax_of, NULL, 21);
}

/* The masks of two layers, plane by plane, in y and in dx. */
Test(functions, dropout2d_draws_for_planes, .timeout = 60) {
    enum { N = 19, C = 5, PIXELS = 6, ALL = N * C * PIXELS };
    float x[ALL], dy[ALL], y[ALL], dx[ALL];
    struct segments segments = {.count = 2, .n = N, .seg = {{1, 17}, {3, 2}}};
    for (int i = 0; i < ALL; i++)
        x[i] = 1, dy[i] = 2;
    for (int math = 0; math < 2; math++) {
        run_function(host(math), &segments, 4, (int[]){N, C, 2, 3}, x, dy, some_dropout2d, NULL, y,
                     dx);
        for (int i = 0; i < ALL; i++) {
            int n = i / PIXELS / C, c = i / PIXELS % C, v = n < 17 ? 1 : 3;
            uint64_t plane = (uint64_t)((n < 17 ? n : n - 17) * C + c);
            int kept = philox_keep(7, (uint32_t)v, 3, 0, plane, philox_threshold(0.75)) &&
                       philox_keep(7, (uint32_t)v, 3, 1, plane, philox_threshold(0.5));
            float want = kept ? 1 / 0.75f * 2 : 0;
            cr_assert_eq(y[i], want, "element %d", i);
            cr_assert_eq(dx[i], 2 * want, "gradient of element %d", i);
        }
    }
}

Test(functions, what_is_refused, .timeout = 60) {
    static const char *const says[] = {"dropout2d: an input of (41, 6)",
                                       "between 0 and 1, but got 1.5", "height 0: give 1 to",
                                       "does not suit an input of (41, 6)"};
    struct net net;
    open_net(&net, DEVICE_HOST, 0);
    struct tensor four = tensor_plain(net.x, DTYPE_F32, 4, (int[4]){net.segments.n, 1, 2, 3});
    for (int i = 0; i < 4; i++) {
        begin(&net, 1);
        duet_var *x2 = leaf(&net, 6, 0), *x4 = tape_leaf(net.tape, &four, 0);
        duet_var *y = i == 0   ? duet_dropout2d(net.tape, x2, 0.5)
                      : i == 1 ? duet_dropout2d(net.tape, x4, 1.5)
                      : i == 2 ? duet_adaptive_avg_pool2d(net.tape, x4, 0, 1)
                               : duet_adaptive_avg_pool2d(net.tape, x2, 1, 1);
        cr_assert_null(y);
        cr_assert_eq(tape_error(net.tape), ERR_USAGE);
        cr_assert_not_null(strstr(error_message(), says[i]), "%s", error_message());
    }
    net_close(&net);
}
