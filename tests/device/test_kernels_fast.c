/* The fast path against the reference, over shapes that fit no tile: odd sizes, strides, paddings
 * and channel counts, and last groups of every size. Also the rules that make all modes train
 * alike (docs/design.md section 2): the same bits on every instruction set, whatever else is in the
 * launch, at any address, in any thread. */
#include <pthread.h>

#include "tests/nn/layer.h"

static void take_scratch(struct heap *heap, enum op op, struct op_args *a) {
    size_t bytes = host_scratch_bytes(op, a);
    if (bytes) a->scratch = heap_take(heap, bytes);
}

/* The arguments of a pass with activations in N16. Padding lanes hold 0 in gradients and junk in
 * the rest. */
static struct op_args launch_n16(struct heap *heap, const struct layer *l, enum pass pass) {
    struct layer packed = *l;
    packed.x = n16_of(heap, &l->x, 7), packed.dy = n16_of(heap, &l->dy, 0);
    struct op_args a = launch_of(heap, l, pass);
    a.in[0] = pass == BACKWARD_DATA ? packed.dy : packed.x;
    if (pass == BACKWARD_WEIGHT)
        a.in[1] = packed.dy;
    else
        a.out[0] = n16_new(heap, &a.out[0]);
    take_scratch(heap, op_of(l, pass), &a);
    return a;
}

/* All passes of a layer: the first instruction set must be within rounding of the reference, and
 * the others equal to the first. */
static void check_layer(struct heap *heap, const struct layer *l, const char *what) {
    struct layer size = absolute_layer(heap, l);
    size_t outputs = tensor_sample_count(&l->y);
    size_t terms[PASSES] = {tensor_count(&l->w) + 1, tensor_count(&l->w),
                            (size_t)l->x.dims[0] * outputs};
    for (enum pass pass = FORWARD; pass < PASSES; pass++) {
        char line[160];
        snprintf(line, sizeof line, "%s, pass %d", what, (int)pass);
        struct op_args want = launch_of(heap, l, pass), sizes = launch_of(heap, &size, pass),
                       first = {.step = NULL};
        host_reference_kernels[op_of(l, pass)](&want);
        host_reference_kernels[op_of(l, pass)](&sizes);
        for (int i = 0; i < ISAS; i++) {
            host_kernel *kernel = kernel_of(op_of(l, pass), all_isas[i]);
            if (!kernel) continue;
            struct op_args got = launch_n16(heap, l, pass);
            kernel(&got);
            if (pass == BACKWARD_DATA)
                cr_assert(pads_are_zero(&got.out[0]), "%s: a pad lane of dx is not 0", line);
            for (int j = 0; j < 2 && got.out[j].data; j++) {
                struct tensor plain =
                    got.out[j].layout == LAYOUT_N16 ? plain_of(heap, &got.out[j]) : got.out[j];
                expect_near(line, &plain, &want.out[j], &sizes.out[j], rounding(terms[pass]));
                if (!first.out[j].data) first.out[j] = got.out[j];
                cr_assert(same_bits(&got.out[j], &first.out[j]), "%s: %s differs from %s", line,
                          all_isas[i], all_isas[0]);
            }
        }
    }
}

Test(math_fast, conv2d_equals_the_reference, .timeout = 120) {
    /*                            n  C  H   W   O  k  s  p */
    static const int shapes[][8] = {
        {1, 1, 1, 1, 1, 1, 1, 0},
        {0, 2, 6, 6, 3, 3, 1, 0},
        {15, 1, 28, 28, 6, 3, 1, 0},
        {16, 2, 13, 13, 5, 5, 1, 0},
        {17, 3, 9, 11, 4, 5, 1, 2},
        {33, 1, 7, 7, 3, 3, 1, 1},
        {3, 7, 8, 5, 9, 1, 1, 0},
        {2, 4, 10, 9, 11, 2, 1, 0},
        {5, 3, 12, 31, 2, 3, 1, 1},
        {2, 2, 9, 9, 7, 7, 1, 2},
        {1, 5, 11, 10, 8, 3, 2, 1},
        {18, 2, 9, 14, 4, 5, 2, 2},
        {2, 3, 13, 8, 5, 2, 2, 0},
        {4, 9, 7, 8, 10, 1, 2, 0},
        {1, 2, 14, 15, 3, 7, 2, 2},
        {2, 1, 10, 11, 6, 3, 3, 0},
        {3, 2, 8, 8, 4, 2, 3, 1},
        {1, 1, 5, 40, 1, 5, 1, 0},
        {2, 3, 3, 3, 5, 5, 1, 2},
        {1, 2, 6, 30, 4, 3, 1, 2},
        {1, 17, 6, 6, 25, 3, 1, 1},
        {2, 1, 4, 4, 1, 7, 3, 2},
        /* by Winograd's filtering: paddings, tiles past the edge, channels that fill no tile */
        {17, 32, 28, 14, 32, 3, 1, 1},
        {3, 33, 9, 7, 37, 3, 1, 1},
        {1, 50, 4, 4, 34, 3, 1, 0},
        {2, 35, 6, 7, 32, 3, 1, 2},
        {33, 40, 8, 4, 51, 3, 1, 1},
        /* weight gradients with channels innermost */
        {18, 32, 9, 14, 35, 3, 2, 1},
        {3, 50, 7, 7, 33, 1, 2, 0},
        {2, 33, 9, 6, 40, 5, 3, 2},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int *s = shapes[i];
        struct heap heap = {0};
        char what[100];
        snprintf(what, sizeof what, "conv n=%d c=%d %dx%d o=%d k=%d stride %d padding %d", s[0],
                 s[1], s[2], s[3], s[4], s[5], s[6], s[7]);
        struct layer l = conv_layer(&heap, s);
        check_layer(&heap, &l, what);
        heap_free(&heap);
    }
}

Test(math_fast, linear_equals_the_reference, .timeout = 120) {
    static const int shapes[][3] = {{0, 5, 3},    {1, 1, 1},    {1, 33, 10},   {15, 7, 13},
                                    {16, 64, 6},  {17, 31, 5},  {33, 65, 7},   {80, 20, 34},
                                    {2, 300, 11}, {3, 11, 300}, {530, 33, 13}, {513, 5, 40}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int turned = 0; turned < 2; turned++) {
            struct heap heap = {0};
            char what[100];
            snprintf(what, sizeof what, "linear n=%d %d to %d, weight (%s)", shapes[i][0],
                     shapes[i][1], shapes[i][2], turned ? "in,out" : "out,in");
            struct layer l = linear_layer(&heap, shapes[i][0], shapes[i][1], shapes[i][2], turned);
            check_layer(&heap, &l, what);
            heap_free(&heap);
        }
}

/* ---- whatever else is in the launch ---- */

enum { CONVS = 5 }; /* of some_conv */

static void copy_sample(const struct tensor *from, int n, struct tensor *to, int m) {
    size_t count = tensor_sample_count(from);
    memcpy(tensor_f32(to) + (size_t)m * count, tensor_f32(from) + (size_t)n * count,
           count * sizeof(float));
}

/* A sample's outputs and input gradients have the same bits alone and as each of 37 samples of
 * another batch. */
static void check_company(struct layer (*make)(struct heap *, int n, int variant), int variant) {
    enum { CROWD = 37 };
    struct heap heap = {0};
    struct layer crowd = make(&heap, CROWD, variant), alone = make(&heap, 1, variant);
    for (enum pass pass = FORWARD; pass <= BACKWARD_DATA; pass++) {
        host_kernel *kernel = kernel_of(op_of(&crowd, pass), NULL);
        struct op_args all = launch_n16(&heap, &crowd, pass);
        kernel(&all);
        struct tensor of_all = plain_of(&heap, &all.out[0]);
        for (int n = 0; n < CROWD; n++) {
            struct heap inner = {0};
            copy_sample(&crowd.x, n, &alone.x, 0);
            copy_sample(&crowd.dy, n, &alone.dy, 0);
            struct op_args one = launch_n16(&inner, &alone, pass);
            kernel(&one);
            struct tensor of_one = plain_of(&inner, &one.out[0]);
            size_t count = tensor_sample_count(&of_one);
            cr_assert_arr_eq(of_one.data, tensor_f32(&of_all) + n * count, count * sizeof(float),
                             "pass %d, variant %d: sample %d depends on its company", (int)pass,
                             variant, n);
            heap_free(&inner);
        }
    }
    heap_free(&heap);
}

/* The last two by Winograd's filtering, and with weight gradients turned around. */
static struct layer some_conv(struct heap *heap, int n, int variant) {
    static const int shapes[CONVS][7] = {{3, 13, 13, 5, 5, 1, 0},
                                         {2, 15, 9, 3, 3, 1, 1},
                                         {3, 9, 9, 4, 3, 2, 1},
                                         {32, 7, 6, 33, 3, 1, 1},
                                         {33, 5, 6, 32, 3, 2, 1}};
    int s[8] = {n};
    memcpy(s + 1, shapes[variant], sizeof shapes[0]);
    return conv_layer(heap, s);
}

static struct layer some_linear(struct heap *heap, int n, int variant) {
    return linear_layer(heap, n, 150, 11, variant);
}

Test(math_fast, a_sample_has_the_same_bits_in_any_company, .timeout = 60) {
    for (int variant = 0; variant < CONVS; variant++)
        check_company(some_conv, variant);
    for (int variant = 0; variant < 2; variant++)
        check_company(some_linear, variant);
}

/* The weight gradient of a segment has the same bits alone and as a view into a larger batch, with
 * any junk in its padding lanes. */
Test(math_fast, a_weight_gradient_depends_on_its_segment_alone, .timeout = 60) {
    for (int which = 0; which < CONVS + 1; which++) {
        struct heap heap = {0};
        int linear = which == CONVS;
        struct layer l = linear ? some_linear(&heap, 40, 0) : some_conv(&heap, 40, which);
        struct segments segments = {.count = 3, .n = 40, .seg = {{0, 5}, {2, 19}, {4, 16}}};
        struct layer own = linear ? some_linear(&heap, 19, 0) : some_conv(&heap, 19, which);
        struct op_args view = launch_of(&heap, &l, BACKWARD_WEIGHT), alone;
        struct tensor x = tensor_segment(&l.x, &segments, 1),
                      dy = tensor_segment(&l.dy, &segments, 1);
        /* all three segments one after another, as a tape stores them */
        struct tensor all[2] = {l.x, l.dy};
        for (int i = 0; i < 2; i++) {
            all[i].layout = LAYOUT_N16;
            all[i].groups = segments_groups(&segments);
            all[i].data = heap_take(&heap, tensor_bytes(&all[i]));
            for (int s = 0; s < 3; s++) {
                struct tensor from = tensor_segment(i ? &l.dy : &l.x, &segments, s),
                              to = tensor_segment(&all[i], &segments, s);
                struct tensor moved = n16_of(&heap, &from, i ? 0 : 3);
                cr_assert_eq(tensor_bytes(&moved), tensor_bytes(&to));
                memcpy(to.data, moved.data, tensor_bytes(&to));
            }
            view.in[i] = tensor_segment(&all[i], &segments, 1);
        }
        memcpy(own.x.data, x.data, tensor_bytes(&x));
        memcpy(own.dy.data, dy.data, tensor_bytes(&dy));
        take_scratch(&heap, op_of(&l, BACKWARD_WEIGHT), &view);
        alone = launch_n16(&heap, &own, BACKWARD_WEIGHT);
        kernel_of(op_of(&l, BACKWARD_WEIGHT), NULL)(&view);
        kernel_of(op_of(&l, BACKWARD_WEIGHT), NULL)(&alone);
        for (int j = 0; j < 2; j++)
            cr_assert(same_bits(&view.out[j], &alone.out[j]), "layer %d, output %d", which, j);
        heap_free(&heap);
    }
}

/* ---- any address, any thread ---- */

struct call {
    host_kernel *kernel;
    struct op_args args;
};

static void *call_in_thread(void *call) {
    struct call *c = call;
    c->kernel(&c->args);
    return NULL;
}

/* A copy of the tensor, 4 bytes past an aligned address. */
static struct tensor moved(struct heap *heap, const struct tensor *t) {
    struct tensor m = *t;
    if (!t->data) return m;
    m.data = (char *)heap_take(heap, tensor_bytes(t) + 4) + 4;
    memcpy(m.data, t->data, tensor_bytes(t));
    return m;
}

Test(math_fast, address_and_thread_do_not_matter, .timeout = 60) {
    for (int which = 0; which < CONVS + 2; which++)
        for (enum pass pass = FORWARD; pass < PASSES; pass++) {
            struct heap heap = {0};
            struct layer l =
                which < CONVS ? some_conv(&heap, 19, which) : some_linear(&heap, 19, which - CONVS);
            struct call here = {kernel_of(op_of(&l, pass), NULL), launch_n16(&heap, &l, pass)},
                        there = here;
            for (int i = 0; i < 3; i++)
                there.args.in[i] = moved(&heap, &here.args.in[i]);
            for (int i = 0; i < 2; i++)
                there.args.out[i] = moved(&heap, &here.args.out[i]);
            here.kernel(&here.args);
            pthread_t thread;
            cr_assert_eq(pthread_create(&thread, NULL, call_in_thread, &there), 0);
            cr_assert_eq(pthread_join(thread, NULL), 0);
            for (int i = 0; i < 2 && here.args.out[i].data; i++)
                cr_assert(same_bits(&here.args.out[i], &there.args.out[i]),
                          "layer %d, pass %d, output %d", which, (int)pass, i);
            heap_free(&heap);
        }
}
