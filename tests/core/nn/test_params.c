/* The public library: parameters, random numbers, data sets by name. */
#include <math.h>
#include <unistd.h>

#include "tests/duet/shared.h"

/* ---- parameters ---- */

static const float w_start[6] = {1, -2, 3, -4, 0.5f, 0.1f};
static const struct duet_param two_params[2] = {{"layer.weight", 2, {2, 3}, w_start},
                                                {"layer.bias", 1, {2}, NULL}};

Test(api_params, start_and_step, .timeout = 30) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        duet_device *device;
        duet_params *params;
        float w[6], g[6] = {1, 2, 3, 4, 5, 0.7f}, back[6];
        MUST(duet_devices_open(&device, 1, api_kinds[kind], api_memory(api_kinds[kind])));
        MUST(duet_params_create(&params, device, two_params, 2));
        cr_assert_eq(duet_params_count(params), 2);
        cr_assert_null(duet_params_value(params, 2));
        cr_assert_null(duet_params_grad(params, -1));
        MUST(duet_tensor_read(duet_params_value(params, 0), w));
        cr_assert_arr_eq(w, w_start, sizeof w);
        MUST(duet_tensor_read(duet_params_value(params, 1), w));
        cr_assert(w[0] == 0 && w[1] == 0, "no values: zeros");
        MUST(duet_tensor_read(duet_params_grad(params, 0), back));
        for (int i = 0; i < 6; i++)
            cr_assert_eq(back[i], 0);
        duet_tensor_free(duet_params_value(params, 0)); /* owned by `params`: no effect */

        MUST(duet_tensor_write(duet_params_grad(params, 0), g));
        MUST(duet_sgd(params, 0.3, 7));
        MUST(duet_tensor_read(duet_params_value(params, 0), w));
        float step = (float)(0.3 / 7);
        for (int i = 0; i < 6; i++)
            cr_assert_float_eq(w[i], w_start[i] - step * g[i], 2e-7 * fabsf(w_start[i]) + 1e-8,
                               "one rounding, fused or two");
        MUST(duet_tensor_read(duet_params_grad(params, 0), back));
        cr_assert_arr_eq(back, g, sizeof g, "sgd leaves gradients");
        MUST_FAIL(duet_sgd(params, -1, 1), DUET_USAGE, "-1");
        MUST_FAIL(duet_sgd(params, NAN, 1), DUET_USAGE, "nan");
        MUST_FAIL(duet_sgd(params, 1, 0), DUET_USAGE, "batch size 0");
        duet_params_free(params);
        duet_params_free(NULL);
        duet_devices_close(&device, 1);
    }
}

Test(api_params, save_and_load, .timeout = 30) {
    char file[] = "/tmp/duet-api-XXXXXX";
    duet_device *devices[2];
    duet_params *params, *other;
    float back[6];
    struct duet_param wider[2] = {two_params[0], {"layer.bias", 1, {3}, NULL}};
    int fd = mkstemp(file);
    cr_assert_geq(fd, 0);
    close(fd);
    MUST(duet_devices_open(devices, 2, "cpu", API_MEMORY));
    MUST(duet_params_create(&params, devices[0], two_params, 2));
    MUST(duet_tensor_scale(duet_params_value(params, 0), 2));
    MUST(duet_params_save(params, file));
    MUST(duet_params_create(&other, devices[1], two_params, 2));
    MUST(duet_params_load(other, file));
    MUST(duet_tensor_read(duet_params_value(other, 0), back));
    for (int i = 0; i < 6; i++)
        cr_assert_eq(back[i], 2 * w_start[i]);
    duet_params_free(other);
    MUST(duet_params_create(&other, devices[1], wider, 2));
    MUST_FAIL(duet_params_load(other, file), DUET_FAILED, "layer.bias");
    MUST(duet_tensor_read(duet_params_value(other, 0), back));
    cr_assert_arr_eq(back, w_start, sizeof w_start, "a file that does not fit changes nothing");
    unlink(file);
    MUST_FAIL(duet_params_load(other, file), DUET_FAILED, file);
    MUST_FAIL(duet_params_save(other, "/nowhere/at/all"), DUET_FAILED, "/nowhere/at/all");
    duet_params_free(other);
    duet_params_free(params);
    duet_devices_close(devices, 2);
}

/* The tutorials' models as PyTorch saved them, under their names (golden/make_torch_files.py): the
 * numbers are eighths that count up. */
Test(api_params, files_of_pytorch, .timeout = 30) {
    static const struct duet_param simple[2] = {{"fc.weight", 2, {10, 10}, NULL},
                                                {"fc.bias", 1, {10}, NULL}};
    static const struct duet_param complex[2] = {{"conv1.weight", 4, {64, 3, 3, 3}, NULL},
                                                 {"conv1.bias", 1, {64}, NULL}};
    static const struct {
        const char *file;
        const struct duet_param *params;
        int first, count; /* of the bias */
    } files[] = {{"tests/golden/torch_files/simple.safetensors", simple, 100, 10},
                 {"tests/golden/torch_files/complex.safetensors", complex, 1728, 64}};
    float bias[64];
    for (int i = 0; i < 2; i++) {
        duet_device *device;
        duet_params *params;
        MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
        MUST(duet_params_create(&params, device, files[i].params, 2));
        MUST(duet_params_load(params, files[i].file));
        MUST(duet_tensor_read(duet_params_value(params, 1), bias));
        for (int k = 0; k < files[i].count; k++)
            cr_assert_eq(bias[k], (float)(files[i].first + k) / 8, "%s: %d", files[i].file, k);
        MUST_FAIL(duet_params_load(params, files[!i].file), DUET_FAILED,
                  !i ? "no tensor 'fc.weight'" : "no tensor 'conv1.weight'");
        duet_params_free(params);
        duet_devices_close(&device, 1);
    }
}

/* After torch.manual_seed(0): randn(3), randperm(10), rand(1), and randint(low, high, (3,)) of both
 * types. (The engine itself: tests/core/base/test_random.c.) */
static duet_rng *engine(void) {
    duet_rng *rng;
    MUST(duet_rng_create(&rng, 0));
    return rng;
}

Test(api_rng, draws_as_pytorch, .timeout = 30) {
    static const float normal[3] = {1.5409961f, -0.2934289f, -2.1787894f};
    static const int32_t small[3] = {-1, 4, -2};
    static const int64_t wide[3] = {900450186894289455, 3969543146641149120, 1895649597198586619};
    duet_rng *rng[5];
    float x[4];
    int32_t integers[3];
    int64_t longs[3];
    for (int i = 0; i < 5; i++)
        rng[i] = engine();
    duet_rng_normal(rng[0], x, 3, 0, 1);
    for (int i = 0; i < 3; i++)
        cr_assert_float_eq(x[i], normal[i], 1e-7, "as PyTorch prints them");
    duet_rng_uniform(rng[1], x, 1, 0, 1);
    cr_assert_float_eq(x[0], 0.4962566, 1e-7);
    MUST(duet_rng_integers(rng[3], DUET_I32, integers, 3, -5, 5));
    cr_assert_arr_eq(integers, small, sizeof small);
    MUST(duet_rng_integers(rng[4], DUET_I64, longs, 3, INT64_MIN, INT64_MAX));
    cr_assert_arr_eq(longs, wide, sizeof longs);
    MUST_FAIL(duet_rng_integers(rng[0], DUET_I32, integers, 3, 6, 5), DUET_USAGE,
              "expected 'from' to be less than 'to', but got from=6 >= to=5");
    MUST_FAIL(duet_rng_integers(rng[0], DUET_I32, integers, 3, INT64_MIN, 0), DUET_USAGE,
              "out of bounds");
    for (int i = 0; i < 5; i++)
        duet_rng_free(rng[i]);
}

/* Data sets by name. (Everything else of data: test_data.c.) */
Test(api_data, names_of_data_sets, .timeout = 30) {
    duet_dataset *set;
    duet_loader *loader;
    struct duet_batch batch;
    MUST_FAIL(duet_dataset_open(&set, "cifar", NULL, 1), DUET_USAGE, "data set: 'cifar'");
    MUST_FAIL(duet_dataset_open(&set, "own", NULL, 1), DUET_USAGE, "duet_dataset_create");
    MUST_FAIL(duet_dataset_open(&set, "random", "/tmp", 1), DUET_USAGE, "folder: /tmp: random");
    MUST_FAIL(duet_dataset_open(&set, "random", NULL, 0), DUET_USAGE, "no test part");
    MUST_FAIL(duet_dataset_open(&set, "mnist", "/nowhere", 1), DUET_FAILED, "/nowhere");
    cr_assert_null(strstr(duet_error(), "--"), "a program has no flags: %s", duet_error());
    cr_assert_null(set);
    MUST(duet_dataset_open(&set, "random", NULL, 1));
    cr_assert(duet_dataset_info(set).count == 6400 && duet_dataset_info(set).classes == 10);
    MUST(duet_loader_create(&loader, set, &(struct duet_loader_options){.batch_size = 8}));
    MUST_FAIL(duet_loader_next(loader, &batch), DUET_USAGE, "no epoch was started");
    cr_assert_eq(batch.n, 0);
    MUST(duet_loader_start(loader, 0));
    MUST(duet_loader_next(loader, &batch));
    cr_assert(batch.n == 8 && batch.X[0] != 0 && batch.y[7] >= 0 && batch.y[7] < 10);
    duet_loader_free(loader);
    duet_dataset_free(set);
}
