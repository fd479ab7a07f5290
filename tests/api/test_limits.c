/* Numbers at the ends of int in structs, names that no file can have, limits of the system; single
 * arguments are in test_misuse.c. Each is an error and leaves the library usable; none is a crash
 * or, under a sanitizer, undefined arithmetic. */
#include <float.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/api/net.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static const int extremes[] = {INT_MIN, INT_MIN + 1, -1, 1 << 30, INT_MAX - 1, INT_MAX};

/* ---- numbers ---- */

Test(api_limits, extreme_numbers, .timeout = 60) {
    duet_device *devices[2], *none[DUET_MAX_DEVICES];
    duet_tensor *tensor;
    duet_params *params = NULL, *small;
    duet_rng *rng;
    static const float value[1] = {1};
    struct duet_param one = {"one", 1, {1}, value};
    MUST(duet_devices_open(devices, 2, "cpu", API_MEMORY));
    MUST(duet_params_create(&small, devices[0], &one, 1));
    MUST(duet_rng_create(&rng, UINT64_MAX));
    for (int i = 0; i < COUNT(extremes); i++) {
        int n = extremes[i];
        MUST_FAIL(duet_devices_open(none, n, "cpu", 0), DUET_USAGE, "devices");
        duet_devices_close(none, n < 0 ? n : INT_MAX);
        MUST_FAIL(duet_parallel(n, NULL, NULL), DUET_USAGE, "parallel");
        MUST_FAIL(duet_tensor_create(&tensor, devices[0], DUET_F32, n, (int[1]){1}, NULL),
                  DUET_USAGE, "rank");
        MUST_FAIL(duet_tensor_create(&tensor, devices[0], (enum duet_type)n, 1, (int[1]){1}, NULL),
                  DUET_USAGE, "type");
        MUST_FAIL(duet_tensor_create(&tensor, devices[0], DUET_F32, 2, (int[2]){n, 4}, NULL),
                  DUET_USAGE, "tensor");
        MUST_FAIL(duet_tensor_create(&tensor, devices[0], DUET_F32, 4, (int[4]){0, n, n, n}, NULL),
                  DUET_USAGE, "tensor");
        cr_assert_eq(duet_tensor_dim(duet_params_value(small, 0), n), n == -1);
        MUST_FAIL(duet_params_create(&params, devices[0], &one, n), DUET_USAGE, "parameters");
        one.shape[0] = n;
        int code = duet_params_create(&params, devices[0], &one, 1);
        one.shape[0] = 1;
        cr_assert_eq(code, n == 1 << 30 ? DUET_MEMORY : DUET_USAGE, "%d: %s", n, duet_error());
        cr_assert(!duet_params_value(small, n) && !duet_params_grad(small, n));
        cr_assert_eq(duet_sgd(small, 1, n), n < 0 ? DUET_USAGE : DUET_OK);
        MUST_FAIL(duet_rng_permutation(rng, NULL, n), DUET_USAGE, "permutation");
        cr_assert_eq(duet_exit_status(n), 1);
    }
    MUST_FAIL(duet_sgd(small, DBL_MAX, 1), DUET_USAGE, "learning rate");
    MUST_FAIL(duet_sgd(small, INFINITY, 1), DUET_USAGE, "learning rate");
    cr_assert_neq(duet_devices_open(none, 1, "cpu", UINT64_MAX), DUET_OK);
    cr_assert_neq(duet_devices_open(none, DUET_MAX_DEVICES, "cpu", UINT64_MAX / 2), DUET_OK);
    duet_params_free(small);
    duet_rng_free(rng);
    duet_devices_close(devices, 2);
}

Test(api_limits, extreme_layers, .timeout = 60) {
    struct net net;
    float host[N * C * H * W];
    net_open(&net, "cpu");
    duet_tape *t = net.tape;
    duet_tensor *X = picture(&net, host);
    for (int i = 0; i < COUNT(extremes); i++) {
        int n = extremes[i];
        struct duet_conv strides = {.stride = {n, n}}, margins = {.padding = {n, n}},
                         both = {{n, n}, {n, n}, {0}, 0};
        for (int k = 0; k < 15; k++) {
            duet_var *y = NULL;
            MUST(duet_tape_begin(t, net.params, N, DUET_TRAIN));
            duet_var *x = duet_input(t, X), *flat = duet_flatten(t, x);
            switch (k) {
            case 0: y = duet_conv2d(t, x, CONV_W, CONV_B, &strides); break;
            case 1: y = duet_conv2d(t, x, CONV_W, CONV_B, &margins); break;
            case 2: y = duet_conv2d(t, x, CONV_W, CONV_B, &both); break;
            case 3: y = duet_conv2d(t, x, n, CONV_B, NULL); break;
            case 4: y = duet_linear(t, flat, LINEAR_W, n); break;
            case 5: y = duet_matmul_add(t, flat, n, n); break;
            case 6: y = duet_avg_pool2d(t, x, n, &(struct duet_pool){.stride = {1, 1}}); break;
            case 7: y = duet_max_pool2d(t, x, 2, &(struct duet_pool){.stride = {n, n}}); break;
            case 8: y = duet_cross_entropy(t, flat, X, (enum duet_reduction)n, NULL); break;
            case 9: y = duet_dropout(t, x, n); break;
            case 10: y = duet_pad2d(t, x, 0, n, 0, n == -1 ? 1 << 21 : n, 0); break;
            case 11: y = duet_max_pool2d(t, x, 2, &(struct duet_pool){{1, 1}, {n, n}, 1, 0}); break;
            case 12: y = duet_avg_pool2d(t, x, n, &(struct duet_pool){{1, 1}, {n, n}, 0, 0}); break;
            case 13: y = duet_max_pool2d(t, x, 2, &(struct duet_pool){.width = n}); break;
            case 14: y = duet_avg_pool2d(t, x, 2, &(struct duet_pool){.ceil_mode = n}); break;
            }
            cr_assert_null(y, "case %d, %d", k, n);
            cr_assert_eq(duet_tape_error(t), DUET_USAGE, "case %d, %d: %s", k, n, duet_error());
        }
        cr_assert_neq(duet_tape_begin(t, net.params, n, (enum duet_pass)n), DUET_OK);
        int code = duet_tape_begin(t, net.params, n, DUET_TRAIN);
        cr_assert(code == DUET_USAGE || n == 1 << 30, "%d samples: %d", n, code);
        cr_assert_null(duet_input(t, X));
    }
    /* The largest padding that is a number, with a stride that leaves few windows. */
    MUST(duet_tape_begin(t, net.params, N, DUET_TRAIN));
    duet_var *few =
        duet_conv2d(t, duet_input(t, X), CONV_W, CONV_B,
                    &(struct duet_conv){{1 << 20, 1 << 20}, {1 << 20, 1 << 20}, {0}, 0});
    duet_tensor *value;
    cr_assert_not_null(few, "%s", duet_tape_error(t) ? duet_error() : "");
    MUST(duet_var_value(&value, t, few));
    cr_assert_eq(duet_tensor_count(value), N * O * 3 * 3, "windows at -2^20, 0 and 2^20");
    duet_tensor_free(value);
    MUST(duet_tape_begin(t, net.params, N, DUET_TRAIN));
    cr_assert_null(duet_conv2d(t, duet_input(t, X), CONV_W, CONV_B,
                               &(struct duet_conv){.padding = {1 << 20, 1 << 20}}));
    MUST_FAIL(duet_tape_error(t), DUET_USAGE, "2^31");
    MUST(duet_tape_begin(t, net.params, N, DUET_TRAIN));
    cr_assert_not_null(
        duet_max_pool2d(t, duet_input(t, X), 2, &(struct duet_pool){{1 << 20}, {1}, 1, 0}));
    cr_assert_null(duet_pad2d(t, duet_input(t, X), 0, 0, 0, 0, INFINITY));
    MUST_FAIL(duet_tape_error(t), DUET_USAGE, "finite");
    for (int i = 0; i < 2; i++) {
        MUST(duet_tape_begin(t, net.params, N, DUET_TRAIN));
        cr_assert_null(duet_dropout(t, duet_input(t, X), i ? NAN : -INFINITY));
        cr_assert_eq(duet_tape_error(t), DUET_USAGE);
    }
    for (int i = 0; i < 2; i++) {
        MUST(duet_tape_begin(t, net.params, N, DUET_TRAIN));
        duet_var *y = duet_conv2d(t, duet_input(t, X), CONV_W, CONV_B, NULL);
        cr_assert_null(
            duet_batch_norm(t, y, CONV_B, CONV_B, DUET_NO_BUFFERS, i ? NAN : -1e-5, 0.1, 0));
        MUST_FAIL(duet_tape_error(t), DUET_USAGE, "eps");
    }
    MUST(duet_tape_begin(t, net.params, N, DUET_TRAIN));
    cr_assert_null(duet_batch_norm(t, duet_conv2d(t, duet_input(t, X), CONV_W, CONV_B, NULL),
                                   CONV_B, CONV_B, INT_MAX, 1e-5, 0.1, 0));
    MUST_FAIL(duet_tape_error(t), DUET_USAGE, "buffers 2147483647 and 2147483648");
    duet_tensor_free(X);
    net_close(&net);
}

Test(api_limits, extreme_loaders, .timeout = 60) {
    duet_dataset *set;
    duet_loader *loader;
    struct duet_batch batch;
    MUST(duet_dataset_open(&set, "synthetic", NULL, INT_MIN));
    duet_dataset_free(set);
    MUST(duet_dataset_open(&set, "synthetic", NULL, 0));
    for (int i = 0; i < COUNT(extremes); i++) {
        int n = extremes[i], most = n < 0x7ffffff0 ? n : 0x7ffffff0;
        MUST_FAIL(duet_loader_create(&loader, set,
                                     &(struct duet_loader_options){.batch_size = 8, .workers = n}),
                  DUET_USAGE, "workers");
        if (n < 0) {
            MUST_FAIL(
                duet_loader_create(&loader, set, &(struct duet_loader_options){.batch_size = n}),
                DUET_USAGE, "batch size");
            continue;
        }
        /* A batch above the set is the whole set. */
        MUST(duet_loader_create(&loader, set,
                                &(struct duet_loader_options){.batch_size = most,
                                                              .shuffle = DUET_SHUFFLE,
                                                              .seed = UINT64_MAX}));
        cr_assert_eq(duet_loader_steps(loader), 1);
        MUST(duet_loader_start(loader, n));
        MUST(duet_loader_next(loader, &batch));
        cr_assert_eq(batch.n, 10000);
        MUST_FAIL(duet_loader_start(loader, -n), DUET_USAGE, "epoch");
        duet_loader_free(loader);
    }
    duet_dataset_free(set);
}

/* ---- names ---- */

Test(api_limits, names_that_no_file_can_have, .timeout = 30) {
    static const char *const bad[] = {"__metadata__", "module.fc.weight", "module.", "caf\xe9",
                                      "\xff",         "a\xed\xa0\x80"};
    static const char *const good[] = {"metadata", "my.module.x", "caf\xc3\xa9", "a\"b\\c\n", ""};
    static const float values[2] = {1, 2};
    char file[] = "/tmp/duet-api-XXXXXX";
    duet_device *device;
    duet_params *params;
    struct duet_param list[COUNT(good)];
    cr_assert_eq(close(mkstemp(file)), 0);
    MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    for (int i = 0; i < COUNT(good); i++)
        list[i] = (struct duet_param){good[i], 1, {2}, values};
    for (int i = 0; i < COUNT(bad); i++) {
        list[1].name = bad[i];
        MUST_FAIL(duet_params_create(&params, device, list, 2), DUET_USAGE, "parameter 1");
        cr_assert_null(params);
    }
    char longest[202];
    memset(longest, 'x', 201), longest[201] = 0;
    list[1].name = longest;
    MUST_FAIL(duet_params_create(&params, device, list, 2), DUET_USAGE, "201 bytes");
    list[1].name = good[0];
    MUST_FAIL(duet_params_create(&params, device, list, 2), DUET_USAGE, "'metadata'");
    list[1].name = good[1];
    MUST(duet_params_create(&params, device, list, COUNT(good)));
    MUST(duet_params_save(params, file)); /* what is taken can be saved and found again */
    MUST(duet_params_load(params, file));
    duet_params_free(params);
    duet_devices_close(&device, 1);
    unlink(file);
}

/* ---- ulimit -f ---- */

static void limit_files(size_t bytes) {
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
}

static int does_nothing(int rank, void *context) {
    (void)rank, (void)context;
    return DUET_OK;
}

/* Returns the line in which something is wrong. */
static int under_a_limit(const char *file) {
    static float values[60000] = {1, 2};
    const struct duet_param param = {"w", 1, {60000}, values};
    duet_device *device;
    duet_params *params;
    signal(SIGXFSZ, SIG_DFL);
    limit_files(1000);
    if (duet_spawn(2, does_nothing, NULL) == DUET_OK) return __LINE__;
    if (!strstr(duet_error(), "File too large: raise the limit of file sizes")) return __LINE__;
    if (duet_devices_open(&device, 1, "cpu", API_MEMORY) != DUET_MEMORY) return __LINE__;
    if (!strstr(duet_error(), "File too large")) return __LINE__;
    limit_files(API_MEMORY);
    if (duet_devices_open(&device, 1, "cpu", API_MEMORY)) return __LINE__;
    if (duet_params_create(&params, device, &param, 1)) return __LINE__;
    if (duet_params_save(params, file)) return __LINE__;
    values[0] = 5;
    if (duet_tensor_write(duet_params_value(params, 0), values)) return __LINE__;
    limit_files(100000);
    if (duet_params_save(params, file) != DUET_FAILED) return __LINE__;
    if (!strstr(duet_error(), "File too large")) return __LINE__;
    if (duet_params_load(params, file)) return __LINE__; /* the old file is still there */
    if (duet_tensor_read(duet_params_value(params, 0), values) || values[0] != 1) return __LINE__;
    duet_params_free(params);
    duet_devices_close(&device, 1);
    return 0;
}

/* A limit of file sizes is an error with words, and no signal that ends the program. It holds for
 * the memory of emulated devices and of jobs too. */
Test(api_limits, file_size, .timeout = 30) {
    char file[] = "/tmp/duet-api-XXXXXX";
    cr_assert_eq(close(mkstemp(file)), 0);
    int status = 0, pipes[2];
    cr_assert_eq(pipe(pipes), 0);
    pid_t pid = fork();
    if (!pid) {
        int line = under_a_limit(file);
        if (write(pipes[1], &line, sizeof line) != sizeof line) _exit(2);
        _exit(line != 0);
    }
    int line = -1;
    close(pipes[1]);
    if (read(pipes[0], &line, sizeof line) != sizeof line) line = -1;
    close(pipes[0]);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    unlink(file);
    cr_assert_eq(status, 0, "status %x, line %d", (unsigned)status, line);
}
