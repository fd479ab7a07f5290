/* The rules that make all modes train alike (docs/design.md section 2), for the fast products: the
 * same bits whatever else is in the launch, at any address, in any thread. (Against the reference,
 * and on every instruction set: test_kernels.c.) */
#include <pthread.h>

#include "tests/core/nn/layer.h"

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
            all[i].groups = segments_groups(&segments, segments.n);
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
