/* Names that no file can have and limits of the system; numbers at the ends of int are in
 * test_misuse.c. Each is an error and leaves the library usable. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/duet/shared.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

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
