/* Tests the public library: errors, devices, threads, tensors. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/duet/shared.h"

/* ---- errors, devices, threads ---- */

Test(api_base, codes_become_exit_statuses, .timeout = 30) {
    cr_assert_eq(duet_exit_status(DUET_OK), 0);
    cr_assert_eq(duet_exit_status(DUET_FAILED), 1);
    cr_assert_eq(duet_exit_status(DUET_USAGE), 2);
    cr_assert_eq(duet_exit_status(DUET_CHECK), 3);
    cr_assert_eq(duet_exit_status(DUET_MEMORY), 1);
    cr_assert_str_eq(duet_error(), "", "no failure yet");
    double start = duet_time();
    usleep(2000);
    cr_assert_geq(duet_time() - start, 0.002);
}

Test(api_device, opens_and_closes, .timeout = 30) {
    duet_device *devices[3];
    uint64_t now = 1, peak = 1;
    MUST(duet_devices_open(devices, 3, "cpu", API_MEMORY));
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "cpu(%d)", i);
        cr_assert_str_eq(duet_device_name(devices[i]), name);
        MUST(duet_device_sync(devices[i]));
    }
    MUST(duet_device_memory(devices[2], &now, &peak));
    cr_assert_eq(now, 0);
    duet_tensor *tensor;
    MUST(duet_tensor_create(&tensor, devices[2], DUET_F32, 1, (int[1]){1000}, NULL));
    MUST(duet_device_memory(devices[2], &now, NULL));
    cr_assert_eq(now, 4096, "4000 bytes in pieces of 256");
    duet_tensor_free(tensor);
    MUST(duet_device_memory(devices[2], &now, &peak));
    cr_assert_eq(now, 0);
    cr_assert_eq(peak, 4096);
    duet_devices_close(devices, 3);
    for (int i = 0; i < 3; i++)
        cr_assert_null(devices[i]);
    duet_devices_close(NULL, 3);
}

/* "auto" takes GPUs if there are any. Where there is none, "cuda" is an error. */
Test(api_device, auto_takes_the_best_there_is, .timeout = 60) {
    duet_device *devices[2];
    int has_gpu = duet_devices_open(devices, 2, "cuda", 0) == DUET_OK;
#ifdef CUDA_EMULATION
    cr_assert(has_gpu, "%s", duet_error());
#endif
    if (has_gpu)
        duet_devices_close(devices, 2);
    else
        cr_assert(*duet_error() && !devices[0]);
    MUST(duet_devices_open(devices, 2, "auto", 0));
    cr_assert_str_eq(duet_device_name(devices[1]), has_gpu ? "cuda(1)" : "cpu(1)");
    duet_devices_close(devices, 2);
}

static int square(void *context, int i) {
    ((int *)context)[i] = i * i;
    return DUET_OK;
}

/* Fails for i = 2 and i = 5, each with an error text of its own, which only its thread has. */
static int fail_on_some(void *context, int i) {
    duet_device *none[1];
    (void)context;
    if (i == 2) usleep(20000); /* fails last, but is still the one reported */
    return i == 2 || i == 5 ? duet_devices_open(none, 100 + i, "cpu", 0) : DUET_OK;
}

Test(api_parallel, runs_all_and_tells_the_first_failure, .timeout = 30) {
    int results[DUET_MAX_DEVICES];
    for (int n = 1; n <= DUET_MAX_DEVICES; n = 2 * n + (n == 1)) {
        memset(results, -1, sizeof results);
        MUST(duet_parallel(n, square, results));
        for (int i = 0; i < DUET_MAX_DEVICES; i++)
            cr_assert_eq(results[i], i < n ? i * i : -1);
    }
    MUST_FAIL(duet_parallel(8, fail_on_some, NULL), DUET_USAGE, "devices: 102");
    MUST(duet_parallel(2, fail_on_some, NULL));
}

/* ---- tensors ---- */

Test(api_tensor, goes_in_and_out, .timeout = 30) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        duet_device *device;
        duet_tensor *f, *i, *d;
        float floats[12], back[12];
        int32_t ints[3] = {7, -1, 2147483647}, ints_back[3];
        double doubles[2] = {0.1, -1e300}, doubles_back[2] = {1, 1};
        MUST(duet_devices_open(&device, 1, api_kinds[kind], api_memory(api_kinds[kind])));
        f = api_tensor(device, 3, (int[3]){2, 3, 2}, floats);
        MUST(duet_tensor_create(&i, device, DUET_I32, 1, (int[1]){3}, ints));
        MUST(duet_tensor_create(&d, device, DUET_F64, 1, (int[1]){2}, NULL));
        cr_assert_eq(duet_tensor_count(f), 12);
        cr_assert_eq(duet_tensor_rank(f), 3);
        cr_assert_eq(duet_tensor_dim(f, 1), 3);
        cr_assert_eq(duet_tensor_dim(f, 3), 0);
        cr_assert_eq(duet_tensor_dim(f, -9), 0);
        cr_assert_eq(duet_tensor_device(f), device);
        cr_assert_eq(duet_tensor_type(f), DUET_F32);
        cr_assert_eq(duet_tensor_type(i), DUET_I32);
        cr_assert_eq(duet_tensor_type(d), DUET_F64);
        MUST(duet_tensor_read(f, back));
        cr_assert_arr_eq(back, floats, sizeof floats);
        MUST(duet_tensor_read(i, ints_back));
        cr_assert_arr_eq(ints_back, ints, sizeof ints);
        MUST(duet_tensor_read(d, doubles_back));
        cr_assert(doubles_back[0] == 0 && doubles_back[1] == 0, "made without host memory: zeros");
        MUST(duet_tensor_write(d, doubles));
        MUST(duet_tensor_read(d, doubles_back));
        cr_assert_arr_eq(doubles_back, doubles, sizeof doubles);
        duet_tensor_free(f);
        duet_tensor_free(i);
        duet_tensor_free(d);
        duet_tensor_free(NULL);
        /* A tensor may have no samples. */
        MUST(duet_tensor_create(&f, device, DUET_F32, 2, (int[2]){0, 5}, NULL));
        cr_assert_eq(duet_tensor_count(f), 0);
        MUST(duet_tensor_read(f, back));
        duet_tensor_free(f);
        duet_devices_close(&device, 1);
    }
}

Test(api_tensor, moves_between_devices_and_adds_in_place, .timeout = 30) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        duet_device *devices[2];
        duet_tensor *a, *b, *moved, *same;
        float host[1000], back[1000];
        MUST(duet_devices_open(devices, 2, api_kinds[kind], api_memory(api_kinds[kind])));
        a = api_tensor(devices[0], 1, (int[1]){1000}, host);
        MUST(duet_tensor_create(&b, devices[1], DUET_F32, 1, (int[1]){1000}, NULL));
        MUST(duet_tensor_scale(a, 3));
        MUST(duet_tensor_copy(b, a));
        MUST(duet_tensor_scale(a, -1)); /* does not change the copy */
        MUST(duet_tensor_to(&moved, b, devices[0]));
        MUST(duet_tensor_to(&same, moved, devices[0]));
        cr_assert_eq(duet_tensor_device(moved), devices[0]);
        MUST(duet_tensor_add(a, moved));
        MUST(duet_tensor_add(a, same));
        MUST(duet_tensor_copy(a, a));
        MUST(duet_tensor_read(a, back));
        for (int i = 0; i < 1000; i++)
            cr_assert_eq(back[i], 3 * host[i], "-3 + 3 + 3 of element %d", i);
        MUST(duet_tensor_read(b, back));
        for (int i = 0; i < 1000; i++)
            cr_assert_eq(back[i], 3 * host[i]);
        duet_tensor *all[] = {a, b, moved, same};
        for (int i = 0; i < 4; i++)
            duet_tensor_free(all[i]);
        duet_devices_close(devices, 2);
    }
}

Test(api_tensor, refuses_what_does_not_fit, .timeout = 30) {
    duet_device *devices[2];
    duet_tensor *t = NULL, *u = NULL, *v = NULL, *w = NULL;
    float host[6];
    MUST(duet_devices_open(devices, 2, "cpu", API_MEMORY));
    MUST_FAIL(duet_tensor_create(&t, devices[0], DUET_F32, 0, NULL, NULL), DUET_USAGE, "rank 0");
    MUST_FAIL(
        duet_tensor_create(&t, devices[0], DUET_F32, 9, (int[9]){1, 1, 1, 1, 1, 1, 1, 1, 1}, NULL),
        DUET_USAGE, "rank 9");
    MUST_FAIL(duet_tensor_create(&t, devices[0], DUET_F32, 2, (int[2]){2, 0}, NULL), DUET_USAGE,
              "dimension 1 is 0");
    MUST_FAIL(duet_tensor_create(&t, devices[0], DUET_F32, 1, (int[1]){-4}, NULL), DUET_USAGE,
              "dimension 0 is -4");
    MUST_FAIL(
        duet_tensor_create(&t, devices[0], DUET_F32, 4, (int[4]){65536, 65536, 65536, 65536}, NULL),
        DUET_USAGE, "2^31");
    MUST_FAIL(duet_tensor_create(&t, devices[0], (enum duet_type)7, 1, (int[1]){1}, NULL),
              DUET_USAGE, "type 7");
    MUST_FAIL(duet_tensor_create(&t, devices[0], DUET_F32, 1, (int[1]){3 << 20}, NULL), DUET_MEMORY,
              "out of memory on device 0");
    MUST_SAY("12 MiB");
    cr_assert_null(t);

    t = api_tensor(devices[0], 2, (int[2]){2, 3}, host);
    u = api_tensor(devices[0], 2, (int[2]){3, 2}, host);
    v = api_tensor(devices[1], 2, (int[2]){2, 3}, host);
    MUST(duet_tensor_create(&w, devices[0], DUET_I32, 2, (int[2]){2, 3}, NULL));
    MUST_FAIL(duet_tensor_add(t, u), DUET_USAGE, "shape and type must agree");
    MUST_FAIL(duet_tensor_copy(t, w), DUET_USAGE, "shape and type must agree");
    MUST_FAIL(duet_tensor_add(t, v), DUET_USAGE, "cpu(1)");
    MUST_FAIL(duet_tensor_add(w, w), DUET_USAGE, "of int32: must be float32");
    MUST_FAIL(duet_tensor_scale(w, 2), DUET_USAGE, "of int32: must be float32");
    MUST_FAIL(duet_tensor_add(t, t), DUET_USAGE, "overlap");
    float back[6];
    MUST(duet_tensor_read(t, back)); /* a refused call changes nothing */
    cr_assert_arr_eq(back, host, sizeof back);
    duet_tensor *all[] = {t, u, v, w};
    for (int i = 0; i < 4; i++)
        duet_tensor_free(all[i]);
    duet_devices_close(devices, 2);
}

/* A copy for which there is no room leaves nothing behind. */
Test(api_tensor, a_full_device_stays_usable, .timeout = 30) {
    duet_device *devices[2];
    duet_tensor *large, *held, *moved = NULL;
    uint64_t before, after;
    MUST(duet_devices_open(devices, 2, "cpu", API_MEMORY));
    /* 6 of 8 MiB */
    MUST(duet_tensor_create(&large, devices[0], DUET_F32, 1, (int[1]){3 << 19}, NULL));
    MUST(duet_tensor_create(&held, devices[1], DUET_F32, 1, (int[1]){3 << 19}, NULL));
    MUST(duet_device_memory(devices[1], &before, NULL));
    MUST_FAIL(duet_tensor_to(&moved, large, devices[1]), DUET_MEMORY, "out of memory on device 1");
    MUST(duet_device_memory(devices[1], &after, NULL));
    cr_assert_eq(before, after);
    duet_tensor_free(held);
    MUST(duet_tensor_to(&moved, large, devices[1]));
    duet_tensor_free(moved);
    duet_tensor_free(large);
    duet_devices_close(devices, 2);
}

/* ---- signals ---- */

static duet_var *one_layer(duet_tape *tape, duet_var *x, void *context) {
    (void)context;
    return duet_linear(tape, x, 0, 1);
}

/* Signals of this process that are blocked in thread `id`: a mask as in /proc. */
static unsigned long long blocked_in(const char *id) {
    char path[300], line[256];
    unsigned long long mask = 0;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", id);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "SigBlk: %llx", &mask) == 1) break;
    if (file) fclose(file);
    return mask;
}

/* The library's threads leave signals to the program's own: a handler must not run in a thread of
 * which the program knows nothing, and a signal must not end a process that blocks it while it puts
 * a file in place. */
Test(api_threads, leave_signals_to_the_program, .timeout = 60) {
    const struct duet_param list[] = {{"w", 2, {2, 4}, NULL}, {"b", 1, {2}, NULL}};
    duet_device *devices[2];
    duet_params *params;
    duet_data_parallel *dp;
    duet_dataset *set;
    duet_loader *loader;
    struct duet_batch batch;
    int own = 0, others = 0;
    MUST(duet_devices_open(devices, 2, "cpu", API_MEMORY));
    MUST(duet_params_create(&params, devices[0], list, 2));
    MUST(duet_data_parallel_create(&dp, devices, 2, params, one_layer, NULL, NULL));
    MUST(duet_dataset_open(&set, "random", NULL, 1));
    MUST(duet_loader_create(&loader, set,
                            &(struct duet_loader_options){.batch_size = 4, .workers = 2}));
    MUST(duet_loader_start(loader, 0));
    MUST(duet_loader_next(loader, &batch));
    DIR *tasks = opendir("/proc/self/task");
    cr_assert_not_null(tasks);
    for (struct dirent *task; (task = readdir(tasks));) {
        if (*task->d_name == '.') continue;
        unsigned long long mask = blocked_in(task->d_name);
        if (atoi(task->d_name) == getpid()) {
            own = 1;
            continue;
        }
        others++;
        cr_expect(mask >> (SIGTERM - 1) & mask >> (SIGINT - 1) & 1, "thread %s of %d: %llx",
                  task->d_name, (int)getpid(), mask);
    }
    closedir(tasks);
    cr_expect(own && others >= 5, "%d threads besides the program's", others);
    duet_loader_free(loader);
    duet_dataset_free(set);
    duet_data_parallel_free(dp);
    duet_params_free(params);
    duet_devices_close(devices, 2);
}
