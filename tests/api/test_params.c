/* The public library: parameters, random numbers, data sets and batches. */
#include <math.h>
#include <unistd.h>

#include "tests/api/shared.h"
#include "tests/app/cli/data.h"

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
        duet_tensor_free(duet_params_value(params, 0)); /* belongs to `params`: nothing happens */

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
        MUST_FAIL(duet_sgd(NULL, 1, 1), DUET_USAGE, "no parameters");
        duet_params_free(params);
        duet_params_free(NULL);
        duet_devices_close(&device, 1);
    }
}

Test(api_params, refuse_wrong_descriptions, .timeout = 30) {
    duet_device *device;
    duet_params *params;
    uint64_t now;
    struct duet_param bad[2] = {two_params[0], two_params[1]};
    MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    MUST_FAIL(duet_params_create(&params, NULL, bad, 2), DUET_USAGE, "no device");
    MUST_FAIL(duet_params_create(&params, device, bad, 0), DUET_USAGE, "0 of them");
    MUST_FAIL(duet_params_create(&params, device, NULL, 1), DUET_USAGE, "parameters");
    bad[1].name = NULL;
    MUST_FAIL(duet_params_create(&params, device, bad, 2), DUET_USAGE, "parameter 1");
    bad[1] = two_params[1];
    bad[1].rank = 5;
    MUST_FAIL(duet_params_create(&params, device, bad, 2), DUET_USAGE, "layer.bias");
    bad[1].rank = 1;
    bad[1].shape[0] = 0;
    MUST_FAIL(duet_params_create(&params, device, bad, 2), DUET_USAGE, "dimension 0 is 0");
    bad[1].shape[0] = 3 << 20;
    MUST_FAIL(duet_params_create(&params, device, bad, 2), DUET_MEMORY, "params");
    bad[1].shape[0] = 3 << 18; /* the values fit, the gradients do not */
    bad[0].shape[1] = 1 << 18;
    bad[0].values = NULL;
    MUST_FAIL(duet_params_create(&params, device, bad, 2), DUET_MEMORY, "grads");
    cr_assert_null(params);
    MUST(duet_device_memory(device, &now, NULL));
    cr_assert_eq(now, 0, "a failure gives everything back");
    duet_devices_close(&device, 1);
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
    MUST_FAIL(duet_params_save(NULL, file), DUET_USAGE, "no parameters");
    MUST_FAIL(duet_params_load(other, NULL), DUET_USAGE, "no file");
    duet_params_free(other);
    duet_params_free(params);
    duet_devices_close(devices, 2);
}

/* What PyTorch saved of the texts' models, under their names (golden/make_torch_files.py): the
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

/* ---- random numbers: randn(3), randperm(10) and rand(1), each after torch.manual_seed(0) ---- */

Test(api_rng, draws_as_pytorch, .timeout = 30) {
    static const float normal[3] = {1.5409961f, -0.2934289f, -2.1787894f};
    static const int32_t permutation[10] = {4, 1, 7, 5, 3, 9, 0, 8, 6, 2};
    duet_rng *rng;
    float x[3];
    int32_t order[10];
    MUST(duet_rng_create(&rng, 0));
    duet_rng_normal(rng, x, 3, 0, 1);
    for (int i = 0; i < 3; i++)
        cr_assert_float_eq(x[i], normal[i], 1e-7, "as PyTorch prints them");
    duet_rng_free(rng);
    MUST(duet_rng_create(&rng, 0));
    MUST(duet_rng_permutation(rng, order, 10));
    cr_assert_arr_eq(order, permutation, sizeof order);
    MUST_FAIL(duet_rng_permutation(rng, order, -1), DUET_USAGE, "-1");
    MUST_FAIL(duet_rng_permutation(rng, order, 2000000000), DUET_USAGE, "2000000000");
    duet_rng_free(rng);
    MUST(duet_rng_create(&rng, 0));
    duet_rng_uniform(rng, x, 1, 0, 1);
    cr_assert_float_eq(x[0], 0.4962566, 1e-7);
    duet_rng_free(rng);
    duet_rng_free(NULL);
}

/* randint(low, high, (3,)) after manual_seed(0), of both types. */
Test(api_rng, integers_as_pytorch, .timeout = 30) {
    static const int64_t small[3] = {-1, 4, -2}; /* randint(-5, 5) */
    static const int64_t wide[3] = {900450186894289455, 3969543146641149120, 1895649597198586619};
    duet_rng *rng;
    int32_t x[3];
    int64_t y[3];
    MUST(duet_rng_create(&rng, 0));
    MUST(duet_rng_integers(rng, DUET_I32, x, 3, -5, 5));
    for (int i = 0; i < 3; i++)
        cr_assert_eq(x[i], small[i]);
    duet_rng_free(rng);
    MUST(duet_rng_create(&rng, 0));
    MUST(duet_rng_integers(rng, DUET_I32, x, 3, INT32_MIN, (int64_t)INT32_MAX + 1));
    cr_assert(x[0] == 398764591 && x[1] == 1478610112 && x[2] == 1537364731);
    duet_rng_free(rng);
    MUST(duet_rng_create(&rng, 0));
    MUST(duet_rng_integers(rng, DUET_I64, y, 3, INT64_MIN, INT64_MAX));
    cr_assert_arr_eq(y, wide, sizeof y);
    MUST(duet_rng_integers(rng, DUET_I32, NULL, 0, 0, 1));
    MUST_FAIL(duet_rng_integers(rng, DUET_I32, x, 3, 6, 5), DUET_USAGE,
              "expected 'from' to be less than 'to', but got from=6 >= to=5");
    MUST_FAIL(duet_rng_integers(rng, DUET_I64, y, 3, 5, 5), DUET_USAGE, "from=5 >= to=5");
    MUST_FAIL(duet_rng_integers(rng, DUET_I32, x, 3, 0, (int64_t)1 << 32), DUET_USAGE,
              "out of bounds");
    MUST_FAIL(duet_rng_integers(rng, DUET_I32, x, 3, INT64_MIN, 0), DUET_USAGE, "out of bounds");
    MUST_FAIL(duet_rng_integers(rng, DUET_F32, x, 3, 0, 1), DUET_USAGE,
              "give DUET_I32 or DUET_I64");
    MUST_FAIL(duet_rng_integers(NULL, DUET_I32, x, 3, 0, 1), DUET_USAGE, "no engine");
    MUST_FAIL(duet_rng_integers(rng, DUET_I64, NULL, 3, 0, 1), DUET_USAGE, "no memory");
    duet_rng_free(rng);
}

/* ---- data ---- */

/* Walks through an epoch and returns a number that depends on its order. */
static double walk(duet_loader *loader, int epoch, int size, int *batches, int *pictures) {
    struct duet_batch batch;
    double mark = 0;
    *batches = *pictures = 0;
    MUST(duet_loader_start(loader, epoch));
    for (;;) {
        MUST(duet_loader_next(loader, &batch));
        if (!batch.n) break;
        cr_assert(batch.n == size || *pictures + batch.n == 10000, "only the last is shorter");
        for (int i = 0; i < batch.n; i++) {
            cr_assert(batch.y[i] >= 0 && batch.y[i] < 10);
            mark += (double)(*pictures + i) * batch.y[i];
        }
        for (int i = 0; i < batch.n * 784; i += 97)
            cr_assert(batch.X[i] >= 0 && batch.X[i] <= 1);
        *pictures += batch.n;
        ++*batches;
    }
    cr_assert_null(batch.X);
    MUST(duet_loader_next(loader, &batch));
    cr_assert_eq(batch.n, 0, "after the end comes nothing");
    return mark;
}

Test(api_data, batches_of_an_epoch, .timeout = 60) {
    duet_dataset *set;
    duet_loader *loader;
    int batches, pictures;
    double in_order[2], shuffled[3];
    MUST(duet_dataset_open(&set, "synthetic", NULL, 0));
    cr_assert_eq(duet_dataset_count(set), 10000);
    for (int workers = 0; workers < 2; workers++) {
        MUST(duet_loader_create(
            &loader, set, &(struct duet_loader_options){.batch_size = 300, .workers = workers}));
        cr_assert_eq(duet_loader_steps(loader), 34);
        in_order[0] = walk(loader, 0, 300, &batches, &pictures);
        cr_assert(batches == 34 && pictures == 10000);
        in_order[1] = walk(loader, 1, 300, &batches, &pictures);
        cr_assert_eq(in_order[0], in_order[1], "not shuffled: every epoch the same");
        duet_loader_free(loader);
    }
    MUST(duet_loader_create(
        &loader, set,
        &(struct duet_loader_options){
            .batch_size = 300, .shuffle = DUET_SHUFFLE, .seed = 5, .workers = 1}));
    for (int i = 0; i < 3; i++)
        shuffled[i] = walk(loader, i % 2, 300, &batches, &pictures);
    cr_assert_eq(shuffled[0], shuffled[2], "an epoch has its order");
    cr_assert_neq(shuffled[0], shuffled[1], "and another epoch another");
    cr_assert_neq(shuffled[0], in_order[0]);
    struct duet_batch batch;
    MUST(duet_loader_start(loader, 0)); /* an epoch that does not end */
    MUST(duet_loader_next(loader, &batch));
    duet_loader_free(loader);
    duet_loader_free(NULL);
    duet_dataset_free(set);
    duet_dataset_free(NULL);
}

Test(api_data, refuses_what_is_wrong, .timeout = 30) {
    duet_dataset *set;
    duet_loader *loader;
    struct duet_batch batch;
    MUST_FAIL(duet_dataset_open(&set, "cifar", NULL, 1), DUET_USAGE, "data set: 'cifar'");
    MUST_FAIL(duet_dataset_open(&set, "own", NULL, 1), DUET_USAGE, "duet_dataset_create");
    MUST_FAIL(duet_dataset_open(&set, "random", "/tmp", 1), DUET_USAGE, "folder: /tmp: random");
    MUST_FAIL(duet_dataset_open(&set, "random", NULL, 0), DUET_USAGE, "no test part");
    MUST(duet_dataset_open(&set, "random", NULL, 1));
    cr_assert(duet_dataset_count(set) == 6400 && duet_dataset_classes(set) == 10);
    MUST(duet_loader_create(&loader, set, &(struct duet_loader_options){.batch_size = 8}));
    MUST(duet_loader_start(loader, 0));
    MUST(duet_loader_next(loader, &batch));
    cr_assert(batch.n == 8 && batch.X[0] != 0 && batch.y[7] >= 0 && batch.y[7] < 10);
    duet_loader_free(loader);
    duet_dataset_free(set);
    MUST_FAIL(duet_dataset_open(&set, NULL, NULL, 1), DUET_USAGE, "no name");
    MUST_FAIL(duet_dataset_open(&set, "mnist", "/nowhere", 1), DUET_FAILED, "/nowhere");
    cr_assert_null(strstr(duet_error(), "--"), "a program has no flags: %s", duet_error());
    cr_assert_null(set);
    MUST(duet_dataset_open(&set, "synthetic", NULL, 0));
    MUST_FAIL(duet_loader_create(&loader, NULL, &(struct duet_loader_options){.batch_size = 8}),
              DUET_USAGE, "no data set");
    MUST_FAIL(duet_loader_create(&loader, set, &(struct duet_loader_options){}), DUET_USAGE,
              "batch size: 0");
    MUST_FAIL(duet_loader_create(&loader, set,
                                 &(struct duet_loader_options){.batch_size = 8, .workers = -1}),
              DUET_USAGE, "workers: -1");
    cr_assert_null(loader);
    MUST(duet_loader_create(&loader, set, &(struct duet_loader_options){.batch_size = 8}));
    MUST_FAIL(duet_loader_next(loader, &batch), DUET_USAGE, "no epoch was started");
    cr_assert_eq(batch.n, 0);
    MUST_FAIL(duet_loader_start(loader, -1), DUET_USAGE, "epoch -1");
    MUST_FAIL(duet_loader_start(NULL, 0), DUET_USAGE, "none was given");
    duet_loader_free(loader);
    duet_dataset_free(set);
}

/* Files of any size: a batch says what its pictures are. */
Test(api_data, pictures_of_another_size, .timeout = 30) {
    char folder[] = "/tmp/duet-test-XXXXXX", images[64], labels[64];
    duet_dataset *set;
    duet_loader *loader;
    struct duet_batch batch;
    int shape[3];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(images, sizeof images, "%s/train-images-idx3-ubyte", folder);
    snprintf(labels, sizeof labels, "%s/train-labels-idx1-ubyte", folder);
    put_labels(labels, 2049, 3, 3, 11);
    put_images_of(images, 2051, 3, 3, 32, 31);
    MUST(duet_dataset_open(&set, "mnist", folder, 1));
    duet_dataset_shape(set, shape);
    cr_assert(shape[0] == 1 && shape[1] == 32 && shape[2] == 31);
    cr_assert_eq(duet_dataset_classes(set), 12);
    MUST(duet_loader_create(&loader, set, &(struct duet_loader_options){.batch_size = 2}));
    MUST(duet_loader_start(loader, 0));
    MUST(duet_loader_next(loader, &batch));
    cr_assert(batch.n == 2 && batch.shape[0] == 1 && batch.shape[1] == 32 && batch.shape[2] == 31);
    cr_assert_eq(batch.X[2 * 32 * 31 - 1], (float)((1983u * 1983u >> 3) & 255) / 255.0f);
    duet_loader_free(loader);
    duet_dataset_free(set);
    duet_dataset_shape(NULL, shape);
    cr_assert(shape[0] == 0 && shape[2] == 0 && duet_dataset_classes(NULL) == 0);
    unlink(images), unlink(labels), rmdir(folder);
}
