/* The rules that make all modes train alike (docs/design.md section 2), for the fast products: the
 * same bits at any address, in any thread. (core/nn/test_ops.c varies the rest of the launch;
 * test_kernels.c compares with the reference on every instruction set.) */
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

enum { CONVS = 5 }; /* of some_conv */

/* The last two by Winograd's filtering, and with transposed weight gradients. */
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
