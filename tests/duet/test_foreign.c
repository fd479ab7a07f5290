/* Tests Duet inside another program, such as Python: the shared library and its exports, tensors
 * over memory that is not Duet's, and groups whose ranks another program has numbered. */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/duet/shared.h"

/* What is built there must load by itself, and what it shows are the names of duet.h alone. */
Test(foreign, the_shared_library_shows_duets_names_alone) {
    if (access(BUILD_DIR "/libduet.so", R_OK)) cr_skip_test("builds for tests have no libduet.so");
    void *library = dlopen(BUILD_DIR "/libduet.so", RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(library, "%s", dlerror());
    static const char *const shown[] = {"duet_error", "duet_all_reduce", "duet_command"},
                             *const hidden[] = {"fail", "launch", "group_run", "comm_open"};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        cr_assert_not_null(dlsym(library, shown[i]), "%s", shown[i]);
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        cr_assert_null(dlsym(library, hidden[i]), "%s", hidden[i]);
    int (*device_count)(const char *) = (int (*)(const char *))dlsym(library, "duet_device_count");
    cr_assert_eq(device_count("cpu"), DUET_MAX_DEVICES);
    cr_assert_str_eq(duet_version(), DUET_VERSION);
    char name[128] =
        "readelf -d " BUILD_DIR "/libduet.so | grep -q 'SONAME.*libduet.so." DUET_VERSION;
    strcpy(strrchr(name, '.'), "]'"); /* major and minor: the ABI of this header */
    cr_assert_eq(system(name), 0, "%s", name);
}

Test(foreign, a_tensor_over_the_callers_memory_is_that_memory) {
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6];
    duet_device *device, *late;
    duet_tensor *t, *rows;
    uint64_t before, now;
    MUST(duet_device_open(&device, "cpu", 0, API_MEMORY));
    MUST(duet_device_memory(device, &before, NULL));
    MUST(duet_tensor_from_host(&t, device, DUET_F32, 2, (int[]){3, 2}, x));
    MUST(duet_device_memory(device, &now, NULL));
    cr_assert_eq(now, before);
    MUST(duet_tensor_scale(t, 2));
    MUST(duet_tensor_rows(&rows, t, 1, 2));
    MUST(duet_tensor_read(rows, y));
    cr_assert(x[0] == 2 && x[5] == 12 && y[0] == 6 && y[3] == 12);
    x[2] = 7;
    MUST(duet_tensor_read(t, y));
    cr_assert_eq(y[2], 7);
    duet_tensor_free(rows);
    duet_tensor_free(t);
    cr_assert_eq(x[5], 12);

    int shape[] = {3, 2};
    MUST_FAIL(duet_tensor_from_host(&t, device, DUET_F32, 2, shape, (char *)x + 1), DUET_USAGE,
              "aligned");
    MUST_FAIL(duet_tensor_from_host(&t, device, DUET_F32, 9, shape, x), DUET_USAGE, "rank 9");
    MUST(duet_device_open(&late, "cpu-late", 1, API_MEMORY));
    MUST_FAIL(duet_tensor_from_host(&t, late, DUET_F32, 2, shape, x), DUET_USAGE, "separate");
    duet_devices_close(&late, 1);
    duet_devices_close(&device, 1);
}

/* Two jobs at once: in the second one the ranks have changed places. */
static int two_jobs(int rank) {
    char names[2][40];
    double x = rank + 1, y[2] = {-1, -1};
    duet_group *one = NULL, *two = NULL;
    duet_device *device = NULL;
    duet_tensor *sum = NULL, *all = NULL;
    int code = DUET_OK;
    for (int i = 0; i < 2; i++)
        snprintf(names[i], sizeof names[i], "test-%d-%d", (int)getppid(), i);
    TRY(duet_device_open(&device, "cpu", 0, API_MEMORY));
    TRY(duet_group_join(&one, names[0], rank, 2, 20));
    TRY(duet_group_join(&two, names[1], 1 - rank, 2, 20));
    HOLDS(duet_group_rank(one) == rank && duet_group_rank(two) == 1 - rank);
    TRY(duet_tensor_from_host(&sum, device, DUET_F64, 1, (int[]){1}, &x));
    TRY(duet_tensor_from_host(&all, device, DUET_F64, 1, (int[]){2}, y));
    TRY(duet_all_gather(two, all, sum, NULL, NULL));
    HOLDS(y[0] == 2 && y[1] == 1);
    TRY(duet_all_reduce(one, sum, DUET_SUM, NULL));
    HOLDS(x == 3);
out:
    duet_tensor_free(sum), duet_tensor_free(all);
    duet_group_destroy(&one), duet_group_destroy(&two);
    duet_devices_close(&device, 1);
    return code;
}

static void run_two_jobs(void) {
    pid_t ranks[2];
    for (int r = 0; r < 2; r++) {
        ranks[r] = fork();
        cr_assert(ranks[r] >= 0);
        if (ranks[r] == 0) _exit(two_jobs(r));
    }
    for (int r = 0; r < 2; r++) {
        int status;
        cr_assert(waitpid(ranks[r], &status, 0) == ranks[r] && status == 0, "rank %d: %d", r,
                  status);
    }
}

Test(foreign, a_process_joins_several_jobs_by_their_names, .timeout = 60) {
    run_two_jobs();
    duet_group *group;
    MUST_FAIL(duet_group_join(&group, "", 0, 1, 1), DUET_USAGE, "no name");
    MUST_FAIL(duet_group_join(&group, "x", 2, 2, 1), DUET_USAGE, "rank 2 of 2");
    char name[40];
    snprintf(name, sizeof name, "test-%d-alone", (int)getpid());
    MUST_FAIL(duet_group_join(&group, name, 0, 2, 0.2), DUET_TIMEOUT, "no word from rank 1");
}
