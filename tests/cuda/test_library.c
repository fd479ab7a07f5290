/* Tests linear layers with cuBLAS (device/cuda/library_blas.c): every product through launch(), on
 * the emulated CUDA runtime with a fake cuBLAS (tests/stand_ins/fake_cuda_libraries), compared with
 * the reference. The tests show that the library gets operands, shapes, transpositions, workspace
 * and the stream as its documentation requires. They show nothing about cuBLAS itself. */
#include "tests/cuda/library.h"
#include "tests/core/nn/layer.h"

#ifdef CUDA_EMULATION

/* Launches on the device. Operand i lies `shift` bytes after a multiple of 256 if bit i of
 * `shifted` is set. Results are copied back into the tensors of `a`. */
static int run_on(struct device *device, enum op op, struct op_args *a, unsigned shifted,
                  size_t shift) {
    struct tensor *all[5] = {&a->in[0], &a->in[1], &a->in[2], &a->out[0], &a->out[1]};
    struct stream *s = device_compute(device);
    void *memory[5] = {NULL}, *host[5];
    for (int i = 0; i < 5; i++) {
        host[i] = all[i]->data;
        if (!host[i]) continue;
        MUST(device_alloc(device, &memory[i], tensor_bytes(all[i]) + shift, MEM_WORKSPACE));
        all[i]->data = (char *)memory[i] + (shifted >> i & 1 ? shift : 0);
        if (i < 3) MUST(copy_to_device(s, all[i]->data, host[i], tensor_bytes(all[i])));
    }
    int code = launch(s, op, a);
    for (int i = 3; i < 5 && !code; i++)
        if (host[i]) MUST(copy_to_host(s, host[i], all[i]->data, tensor_bytes(all[i])));
    if (!code) MUST(stream_sync(s));
    for (int i = 0; i < 5; i++) {
        all[i]->data = host[i];
        device_free(device, memory[i]);
    }
    return code;
}

static size_t terms_of(const struct layer *l, enum pass pass) {
    if (pass == BACKWARD_WEIGHT) return (size_t)l->x.dims[0] * tensor_sample_count(&l->y);
    return tensor_count(&l->w) + 1;
}

/* All passes are within rounding of the reference, and have the same bits wherever the operands
 * lie. */
static void check_layer(struct device *device, const struct layer *l, const char *what,
                        double extra) {
    struct heap heap = {0};
    struct layer size = absolute_layer(&heap, l);
    for (enum pass pass = FORWARD; pass < PASSES; pass++) {
        enum op op = op_of(l, pass);
        char line[200];
        struct op_args want = launch_of(&heap, l, pass), sizes = launch_of(&heap, &size, pass),
                       got = launch_of(&heap, l, pass), again = launch_of(&heap, l, pass);
        host_reference_kernels[op](&want);
        host_reference_kernels[op](&sizes);
        snprintf(line, sizeof line, "%s, %s", what, op_name(op));
        MUST(run_on(device, op, &got, 0, 0));
        for (int j = 0; j < 2 && got.out[j].data; j++)
            expect_near(line, &got.out[j], &want.out[j], &sizes.out[j],
                        rounding(terms_of(l, pass)) + extra);
        /* one operand, two operands, and so on */
        for (unsigned shifted = 1; shifted < 32; shifted = shifted * 2 + 1) {
            MUST(run_on(device, op, &again, shifted, 4 * shifted));
            for (int j = 0; j < 2 && got.out[j].data; j++)
                cr_assert_arr_eq(again.out[j].data, got.out[j].data, tensor_bytes(&got.out[j]),
                                 "%s: other bits where operands %#x lie at another address", line,
                                 shifted);
        }
    }
    heap_free(&heap);
}

static void check_linear(struct device *device, const int s[3], int in_out, double extra) {
    struct heap heap = {0};
    char what[100];
    snprintf(what, sizeof what, "linear n=%d %d to %d, weight (%s)", s[0], s[1], s[2],
             in_out ? "in,out" : "out,in");
    struct layer l = linear_layer(&heap, s[0], s[1], s[2], in_out);
    check_layer(device, &l, what, extra);
    heap_free(&heap);
}

static void expect_no_mistake(void) {
    cr_expect_eq(cublas()->mistakes, 0);
    cr_expect_eq(cublas()->unaligned, 0, "operands not at a multiple of 256 bytes");
    cr_expect_eq(cublas()->lost, 0, "cuBLAS's workspace is its own");
}

static const int linear_shapes[][3] = {{1, 1, 1},    {1, 33, 10},  {15, 7, 13},
                                       {16, 64, 6},  {17, 31, 5},  {33, 65, 7},
                                       {2, 300, 11}, {3, 11, 300}, {130, 70, 12}};

Test(cuda_library, linear_equals_the_reference, .timeout = 240) {
    struct device *device = library_device(0);
    int calls = 0;
    for (size_t i = 0; i < COUNT(linear_shapes); i += test_short() ? 3 : 1)
        for (int in_out = 0; in_out < 2; in_out++, calls += PASSES * 6)
            check_linear(device, linear_shapes[i], in_out, 0);
    cr_assert_eq(cublas()->calls[0], calls, "one call a launch");
    expect_no_mistake();
    device_close(device);
    cr_assert_eq(cublas()->handles, 0, "handles and descriptors were given back");
}

Test(cuda_library, tf32_is_taken_where_it_is_allowed, .timeout = 60) {
    struct device *exact = library_device(0), *rounded = library_device(1);
    struct heap heap = {0};
    struct layer l = linear_layer(&heap, 9, 40, 7, 0);
    struct op_args a = launch_of(&heap, &l, FORWARD), b = launch_of(&heap, &l, FORWARD);
    MUST(run_on(exact, OP_LINEAR_FORWARD, &a, 0, 0));
    MUST(run_on(rounded, OP_LINEAR_FORWARD, &b, 0, 0));
    cr_assert_arr_neq(a.out[0].data, b.out[0].data, tensor_bytes(&a.out[0]));
    heap_free(&heap);
    check_linear(rounded, linear_shapes[4], 1, TF32_PRODUCT);
    expect_no_mistake();
    device_close(exact);
    device_close(rounded);
}

/* The bits of the fake libraries depend on how many samples share a call; otherwise the next tests
 * would show nothing. */
Test(cuda_library, a_sample_s_bits_depend_on_its_company_here, .timeout = 60) {
    struct device *device = library_device(0);
    struct heap heap = {0};
    int differ = 0;
    for (int n = 2; n < 8; n++) {
        struct layer crowd = linear_layer(&heap, n, 200, 5, 0),
                     alone = linear_layer(&heap, 1, 200, 5, 0);
        /* sample 0 is the same in both */
        struct op_args a = launch_of(&heap, &crowd, FORWARD), b = launch_of(&heap, &alone, FORWARD);
        MUST(run_on(device, OP_LINEAR_FORWARD, &a, 0, 0));
        MUST(run_on(device, OP_LINEAR_FORWARD, &b, 0, 0));
        differ += !!memcmp(a.out[0].data, b.out[0].data, tensor_bytes(&b.out[0]));
    }
    cr_assert_gt(differ, 2);
    heap_free(&heap);
    device_close(device);
}

Test(cuda_library, an_empty_segment_is_no_call, .timeout = 60) {
    struct device *device = library_device(0);
    struct heap heap = {0};
    struct layer l = linear_layer(&heap, 0, 6, 4, 1);
    for (enum pass pass = FORWARD; pass < PASSES; pass++) {
        struct op_args a = launch_of(&heap, &l, pass);
        MUST(run_on(device, op_of(&l, pass), &a, 0, 0));
        for (int j = 0; j < 2 && a.out[j].data; j++)
            for (size_t i = 0; i < tensor_count(&a.out[j]); i++)
                cr_assert_eq(tensor_f32(&a.out[j])[i], 0);
    }
    cr_assert_eq(cublas()->calls[0], 0);
    expect_no_mistake();
    heap_free(&heap);
    device_close(device);
}

#else
Test(cuda_library, needs_the_emulated_runtime, .timeout = 10) {
    cr_skip_test("an EMULATION build runs this: make EMULATION=1 check");
}
#endif
