/* What the CUDA ops refuse before they touch a GPU, so that it can be tested without one: the
 * layout that only the host has, products on a stream without a workspace, pools too large for
 * 32-bit indices. In a build without CUDA these tests are skipped. */
#include "base/error.h"
#include "device/table.h"
#include "tests/harness/harness.h"

/* Of device/cuda/cuda.h, which needs CUDA's headers. The stream is a larger struct there; here it
 * is zeros. */
extern int cuda_launch_op(void *stream, enum op op, const struct op_args *args)
    __attribute__((weak));

static struct tensor made_up(uintptr_t place, enum layout layout, int n) {
    const int dims[4] = {n, 3, 8, 8};
    struct tensor t = tensor_plain((void *)(place << 40), DTYPE_F32, 4, dims);
    t.layout = layout;
    t.groups = layout == LAYOUT_N16 ? (n + GROUP - 1) / GROUP : 0;
    return t;
}

static void expect_refusal(enum op op, const struct op_args *args, const char *words) {
    static const struct { _Alignas(64) char bytes[8192]; } zero_stream;
    /* makes the linker take in the kind of device, where it is built */
    (void)device_kind_ops(DEVICE_CUDA);
    if (!cuda_launch_op) cr_skip_test("built without CUDA");
    cr_assert_eq(cuda_launch_op((void *)&zero_stream, op, args), ERR_FAILED, "%s", op_name(op));
    cr_assert(strstr(error_message(), words), "%s: \"%s\"", op_name(op), error_message());
}

Test(cuda_index_refuse, n16, .timeout = 30) {
    struct op_args a = {.in = {made_up(1, LAYOUT_N16, 20)}, .out = {made_up(2, LAYOUT_N16, 20)}};
    expect_refusal(OP_RELU_FORWARD, &a, "no N16 layout");
    a.out[0] = made_up(2, LAYOUT_PLAIN, 20);
    expect_refusal(OP_TO_PLAIN, &a, "no N16 layout");
    /* an empty batch may be called plain; the op is refused all the same */
    a.in[0] = made_up(1, LAYOUT_PLAIN, 0);
    expect_refusal(OP_TO_N16, &a, "no N16 layout");
}

Test(cuda_index_refuse, a_product_without_a_workspace, .timeout = 30) {
    struct op_args a = {.in = {made_up(1, LAYOUT_PLAIN, 20), made_up(2, LAYOUT_PLAIN, 3)},
                        .out = {made_up(3, LAYOUT_PLAIN, 20)}};
    expect_refusal(OP_CONV2D_FORWARD, &a, "workspace");
}

Test(cuda_index_refuse, a_pool_too_large, .timeout = 30) {
    struct op_args a = {.in = {made_up(1, LAYOUT_PLAIN, 1 << 24)},
                        .out = {made_up(2, LAYOUT_PLAIN, 1 << 24)},
                        .p.pool = {{1, 1}, {1, 1}, 0, 0}};
    expect_refusal(OP_MAX_POOL_FORWARD, &a, "smaller batch");
}
