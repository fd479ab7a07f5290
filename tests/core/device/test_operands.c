/* device/: with operand checks, every operand must be in a live allocation of the device that
 * computes. The file also tests that views of tensors point to the right memory. */
#include "tests/core/device/shared.h"

static int launch_dropout(struct device *d, float *x, const struct step_block *step) {
    struct op_args a;
    memset(&a, 0, sizeof a);
    a.in[0] = a.out[0] = test_vector(x, 4);
    a.step = step;
    return launch(device_compute(d), OP_DROPOUT, &a);
}

Test(operands, must_lie_in_the_devices_own_memory, .timeout = 30) {
    for (int k = 0; k < ALL_KINDS; k++) {
        struct device *d = test_open(all_kinds[k], 0), *other = test_open(all_kinds[k], 1);
        struct stream *s = device_compute(d);
        float *mine = test_floats(d, 64), *theirs = test_floats(other, 64),
              *freed = test_floats(d, 64), host[64] = {0}, last = 0;
        device_free(d, freed);
        float *foreign[] = {theirs, freed, host, mine + 1, mine - 64};
        /* on a GPU the workspace is located before `mine` */
        int cases = all_kinds[k] == DEVICE_CUDA ? 4 : 5;
        for (int i = 0; i < cases; i++) {
            cr_assert_eq(test_fill(s, foreign[i], 64, 1), ERR_FAILED, "case %d", i);
            MUST_SAY("fill on ");
            MUST_SAY(device_name(d));
            MUST_SAY(": out[0]");
            MUST_SAY("not in device 0's memory");
            cr_assert_eq(test_add(s, mine, foreign[i] == mine + 1 ? host : foreign[i], 64),
                         ERR_FAILED);
            MUST_SAY("add forward on ");
            MUST_SAY("(0): in[1]");
            cr_assert_eq(copy_to_device(s, foreign[i], host, 256), ERR_FAILED);
            cr_assert_eq(copy_to_host(s, host, foreign[i], 256), ERR_FAILED);
            cr_assert_eq(stream_write(s, foreign[i], host, 256), ERR_FAILED);
            cr_assert_eq(copy_peer(s, d, foreign[i], other, theirs, 256), ERR_FAILED);
            cr_assert_eq(copy_peer(s, other, theirs, d, foreign[i], 256), ERR_FAILED);
        }
        struct step_block block = {0}, *step;
        void *memory;
        MUST(device_alloc(d, &memory, sizeof block, MEM_WORKSPACE));
        step = memory;
        MUST(stream_write(s, step, &block, sizeof block));
        cr_assert_eq(launch_dropout(d, mine, &block), ERR_FAILED);
        MUST_SAY("dropout on ");
        MUST_SAY("(0): step");
        MUST(launch_dropout(d, mine, step));
        MUST(test_fill(s, mine, 64, 1)); /* a refused call leaves no error in the stream */
        MUST(copy_peer(s, other, theirs, d, mine, 256));
        MUST(stream_sync(s));
        MUST(copy_to_host(device_compute(other), &last, theirs + 63, sizeof last));
        MUST(stream_sync(device_compute(other)));
        cr_assert_eq(last, 1);
        device_close(other);
        device_close(d);
    }
}

Test(operands, are_trusted_where_the_check_is_off, .timeout = 30) {
    struct device_config config = test_config(DEVICE_HOST, 0);
    struct device *d;
    float host[4] = {0};
    config.check_operands = 0;
    MUST(device_open(&d, &config));
    MUST(test_fill(device_compute(d), host, 4, 3));
    cr_assert_eq(host[3], 3);
    device_close(d);
}

Test(operands, a_launch_of_wrong_shape_runs_nothing, .timeout = 30) {
    for (int k = 0; k < ALL_KINDS; k++) {
        struct device *d = test_open(all_kinds[k], 0);
        float *x = test_floats(d, 64), *y = test_floats(d, 64), back = 0;
        struct op_args a;
        memset(&a, 0, sizeof a);
        MUST(test_fill(device_compute(d), y, 64, 5));
        a.in[0] = test_vector(x, 63);
        a.out[0] = test_vector(y, 64);
        cr_assert_eq(launch(device_compute(d), OP_ACTIVATION_FORWARD, &a), ERR_FAILED);
        MUST_SAY("activation forward: operand y is (64): the other operands make it (63)");
        MUST(copy_to_host(device_compute(d), &back, y, 4));
        MUST(stream_sync(device_compute(d)));
        cr_assert_eq(back, 5);
        device_close(d);
    }
}

Test(operands, reference_math_knows_no_n16, .timeout = 30) {
    struct device_config config = test_config(DEVICE_HOST, 0);
    struct device *d;
    struct op_args a;
    config.reference_math = 1;
    MUST(device_open(&d, &config));
    memset(&a, 0, sizeof a);
    a.out[0] = test_vector(test_floats(d, 64), 4);
    a.out[0] = tensor_in_n16(&a.out[0], NULL);
    cr_assert_eq(launch(device_compute(d), OP_FILL, &a), ERR_FAILED);
    MUST_SAY("N16");
    device_close(d);
}

Test(tensor, sizes_count_pads_where_they_lie_in_memory, .timeout = 30) {
    const int dims[] = {20, 3, 5, 7};
    struct tensor t = tensor_plain(NULL, DTYPE_F64, 4, dims);
    cr_assert_eq(tensor_sample_count(&t), 105);
    cr_assert_eq(tensor_count(&t), 2100);
    cr_assert_eq(tensor_stored_count(&t), 2100);
    cr_assert_eq(tensor_bytes(&t), 16800);
    t.dtype = DTYPE_F32;
    t.layout = LAYOUT_N16;
    t.groups = 3, t.lanes = 16;
    cr_assert_eq(tensor_count(&t), 2100);
    cr_assert_eq(tensor_stored_count(&t), 48 * 105);
    cr_assert_eq(tensor_bytes(&t), 48 * 105 * 4);
    const int large[] = {60000, 64, 64, 64};
    t = tensor_plain(NULL, DTYPE_F32, 4, large);
    cr_assert_eq(tensor_bytes(&t), 62914560000u, "sizes are 64 bits wide");
    const enum dtype types[] = {DTYPE_F32, DTYPE_F64, DTYPE_I32, DTYPE_I64, DTYPE_U64};
    const size_t bytes[] = {4, 8, 4, 8, 8};
    for (int i = 0; i < 5; i++)
        cr_assert_eq(dtype_bytes(types[i]), bytes[i]);
}

Test(tensor, a_segment_is_a_view_of_its_share, .timeout = 30) {
    const struct segments cut = {.count = 4, .n = 40, .seg = {{0, 17}, {2, 0}, {4, 16}, {6, 7}}};
    const int dims[] = {40, 3}, samples[] = {0, 17, 17, 33}, groups[] = {0, 2, 2, 3},
              taken[] = {2, 0, 1, 1};
    static float data[4 * 16 * 3];
    struct tensor plain = tensor_plain(data, DTYPE_F32, 2, dims), n16 = tensor_in_n16(&plain, &cut);
    cr_assert(n16.groups == 4 && n16.lanes == 16);
    for (int i = 0; i < 4; i++) {
        struct tensor view = tensor_segment(&plain, &cut, i);
        cr_assert_eq((float *)view.data - data, samples[i] * 3);
        cr_assert(view.dims[0] == cut.seg[i].n && view.dims[1] == 3 && view.groups == 0);
        view = tensor_segment(&n16, &cut, i);
        cr_assert_eq((float *)view.data - data, groups[i] * 16 * 3);
        cr_assert(view.dims[0] == cut.seg[i].n && view.groups == taken[i]);
    }
    plain.data = NULL;
    cr_assert_null(tensor_segment(&plain, &cut, 3).data, "no operand stays no operand");
}
