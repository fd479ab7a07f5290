/* Tests the use of cuBLAS: finding and loading it, every refusal, and a network on the tape (one
 * call per segment, so the bits are the same on any number of devices). If the real cuBLAS is
 * installed, the test only checks that it loads and has every function that Duet calls. */
#include "tests/cuda/library.h"

#ifdef HAVE_CUDA
#include "device/cuda/library.h"

/* ---- loading ---- */

struct table {
    double (*cosine)(double), (*sine)(double);
};
static const struct library_function two_functions[] = {{"cos", offsetof(struct table, cosine)},
                                                        {"sin", offsetof(struct table, sine)}};
static const struct library_function one_is_missing[] = {{"cos", offsetof(struct table, cosine)},
                                                         {"no_such_function", 0}};

static struct library_source source_of(const char *file, const char *name) {
    unsetenv("DUET_TEST_LIBRARY");
    return (struct library_source){"Title", "DUET_TEST_LIBRARY", file, name, "do without"};
}

Test(cuda_library_load, by_file_by_name_and_by_the_environment, .timeout = 20) {
    struct table table = {0};
    struct library_source by_name = source_of("", "libm.so.6"),
                          by_file = source_of("/no/such/file.so", "libm.so.6");
    MUST(library_load(&by_name, two_functions, 2, &table));
    cr_assert_float_eq(table.sine(0.5) / table.cosine(0.5), tan(0.5), 1e-12);
    MUST(library_load(&by_file, two_functions, 2, &table)); /* no such file: found by name */
    setenv("DUET_TEST_LIBRARY", "libm.so.6", 1);
    struct library_source nowhere = {"Title", "DUET_TEST_LIBRARY", "", "libnot_there.so.7",
                                     "do without"};
    MUST(library_load(&nowhere, two_functions, 2, &table));
}

Test(cuda_library_load, what_is_not_there_is_named, .timeout = 20) {
    struct table table;
    struct library_source p = source_of("/no/such/file.so", "libnot_there.so.7");
    cr_assert_eq(library_load(&p, two_functions, 2, &table), ERR_USAGE);
    MUST_SAY("Title: not found: looked for /no/such/file.so and for libnot_there.so.7");
    MUST_SAY("set DUET_TEST_LIBRARY to its file, or do without");
    setenv("DUET_TEST_LIBRARY", "/given/by/hand.so", 1);
    p.name = "libm.so.6";
    cr_assert_eq(library_load(&p, two_functions, 2, &table), ERR_USAGE,
                 "given by hand, then nowhere else");
    MUST_SAY("/given/by/hand.so");
}

Test(cuda_library_load, what_is_no_library_or_lacks_a_function_is_named, .timeout = 20) {
    struct table table;
    struct library_source p = source_of(__FILE__, "libm.so.6");
    cr_assert_eq(library_load(&p, two_functions, 2, &table), ERR_USAGE, "a text is no library");
    MUST_SAY(__FILE__);
    p.file = "";
    cr_assert_eq(library_load(&p, one_is_missing, 2, &table), ERR_USAGE);
    MUST_SAY("has no no_such_function");
}
#endif

#if defined HAVE_CUDA && !defined CUDA_EMULATION
/* The real library has every function, and the major version of its header. */
Test(cuda_library_real, loads_where_it_is_installed, .timeout = 120) {
    char text[512];
    cuda_blas_describe(text, sizeof text);
    if (strstr(text, "not found: looked for") || strstr(text, "not built in"))
        cr_skip_test("cuBLAS is not installed here");
    cr_assert(!strncmp(text, "cuBLAS ", 7) && text[7] > '0' && text[7] <= '9', "%s", text);
}
#endif

#ifdef CUDA_EMULATION
#include "base/fold.h"
#undef MUST
#include "tests/core/nn/net.h"

/* Opens a device with one variable of the environment set. */
static int open_with(const char *variable, const char *value) {
    struct device_config config = library_config(0);
    struct device *device = NULL;
    setenv(variable, value, 1);
    int code = device_open(&device, &config);
    device_close(device);
    if (strncmp(variable, "DUET_", 5)) unsetenv(variable);
    return code;
}

Test(cuda_library_use, every_refusal_at_opening_is_one_line_and_leaves_nothing, .timeout = 60) {
    char other[PATH_MAX];
    snprintf(other, sizeof other, "%s", fake_file("fake_nccl"));
    cr_assert_eq(open_with("DUET_CUBLAS", "/no/such/libcublas.so"), ERR_USAGE);
    MUST_SAY("cuBLAS: /no/such/libcublas.so");
    MUST_SAY("or use --cuda-math own");
    cr_assert_eq(open_with("DUET_CUBLAS", other), ERR_USAGE);
    MUST_SAY("has no cublasCreate_v2");
    cr_assert_eq(open_with("FAKE_CUBLAS_MAJOR", "9"), ERR_USAGE);
    MUST_SAY("of version 9: this program was built for 1");
    cr_assert_eq(open_with("FAKE_CUBLAS_FAIL", "create"), ERR_FAILED);
    MUST_SAY("opening cuBLAS on cuda(0): cuBLAS: CUBLAS_STATUS_NOT_INITIALIZED");
    cr_assert_eq(open_with("FAKE_NOTHING", "1"), OK, "%s", error_message());
    cr_assert_eq(cublas()->handles, 0);
}

Test(cuda_library_use, a_call_that_fails_names_op_device_and_status, .timeout = 60) {
    struct device *device = library_device(0);
    float *memory = test_floats(device, 64);
    struct op_args a = {.in = {tensor_plain(memory, DTYPE_F32, 2, (int[]){2, 3}),
                               tensor_plain(memory + 8, DTYPE_F32, 2, (int[]){3, 3}),
                               tensor_plain(memory + 20, DTYPE_F32, 1, (int[]){3})},
                        .out[0] = tensor_plain(memory + 32, DTYPE_F32, 2, (int[]){2, 3})};
    setenv("FAKE_CUBLAS_FAIL", "gemm", 1);
    cr_assert_eq(launch(device_compute(device), OP_LINEAR_FORWARD, &a), ERR_FAILED);
    MUST_SAY(
        "linear forward on cuda(0): cuBLAS: CUBLAS_STATUS_EXECUTION_FAILED: use --cuda-math own");
    device_close(device);
}

Test(cuda_library_use, are_listed_with_their_versions, .timeout = 60) {
    char text[600];
    use_fakes();
    device_libraries(DEVICE_CUDA, text, sizeof text);
    cr_assert_not_null(strstr(text, ".77.1"), "%s", text);
    device_libraries(DEVICE_HOST, text, sizeof text);
    cr_assert_str_eq(text, "");
}

/* ---- a network ---- */

static struct net_data data;

/* One step of a job on `w` devices: its gradients, and the loss of each virtual device, as in
 * tests/core/nn/test_ops.c. */
static void run_job(enum device_math math, int w, float *grads, double *losses) {
    static float of_device[MAX_DEVICES][NET_WEIGHTS];
    static const struct net_pass pass = {0, REDUCE_MEAN, 0.25, 0};
    for (int r = 0; r < w; r++) {
        struct device_config config = library_config(0);
        struct net net;
        double sums[MAX_DEVICES];
        config.index = r, config.devices = w, config.math = math;
        net_open_on(&net, &config, &data);
        net_load(&net, &data, r, w);
        net_run(&net, &pass);
        net_read_grads(&net, of_device[r]);
        MUST(copy_to_host(device_compute(net.device), sums, net.losses.data, sizeof sums));
        MUST(stream_sync(device_compute(net.device)));
        for (int s = 0; s < net.segments.count; s++)
            losses[net.segments.seg[s].v] = sums[s];
        duet_tape_free(net.tape);
        param_set_free(&net.params);
        device_close(net.device);
    }
    for (struct fold f = fold_begin(w); fold_next(&f);)
        for (int i = 0; i < NET_WEIGHTS; i++)
            of_device[f.to][i] += of_device[f.from][i];
    memcpy(grads, of_device[0], sizeof of_device[0]);
}

/* Two linear and two convolutional layers, with three products each, on segments of 9, 17, 0 and 11
 * samples. */
Test(cuda_library_use, one_call_a_segment, .timeout = 60) {
    static const int sizes[4] = {9, 17, 0, 11};
    float grads[NET_WEIGHTS];
    double losses[MAX_DEVICES];
    net_data_make(&data, 4, sizes, 4);
    run_job(DEVICE_MATH_LIBRARY, 1, grads, losses);
    cr_assert_eq(cublas()->calls[0], 3 * 2 * 3, "of the 3 that are not empty");
    run_job(DEVICE_MATH_OWN, 1, grads, losses);
    cr_assert_eq(cublas()->calls[0], 18, "own kernels call nobody");
}

/* A sample's bits depend on how many samples share the call, and on where it is; those of the job
 * still do not depend on the number of devices. */
Test(cuda_library_use, the_same_bits_on_any_number_of_devices, .timeout = 120) {
    static const int sizes[4] = {9, 17, 4, 11};
    float one[NET_WEIGHTS], many[NET_WEIGHTS], own[NET_WEIGHTS];
    double loss_one[MAX_DEVICES], loss_many[MAX_DEVICES], loss_own[MAX_DEVICES], want[NET_WEIGHTS];
    net_data_make(&data, 4, sizes, 4);
    run_job(DEVICE_MATH_LIBRARY, 1, one, loss_one);
    for (int w = 2; w <= 4; w *= 2) {
        run_job(DEVICE_MATH_LIBRARY, w, many, loss_many);
        cr_assert_arr_eq(one, many, sizeof one, "gradients on 1 and %d devices differ", w);
        cr_assert_arr_eq(loss_one, loss_many, 4 * sizeof *loss_one,
                         "losses on 1 and %d devices differ", w);
    }
    cr_assert_eq(cublas()->unaligned + cublas()->lost + cublas()->mistakes, 0);
    run_job(DEVICE_MATH_OWN, 1, own, loss_own);
    for (int i = 0; i < NET_WEIGHTS; i++)
        want[i] = own[i];
    cr_assert_lt(distance(one, want, NET_WEIGHTS), 1e-5, "both maths are within rounding");
    cr_assert_arr_neq(one, own, sizeof one, "the libraries were not called");
}

#else
Test(cuda_library_use, needs_the_emulated_runtime, .timeout = 10) {
    cr_skip_test("an EMULATION build runs this: make EMULATION=1 check");
}
#endif
