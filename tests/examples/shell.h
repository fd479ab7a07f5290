/* For tests that run programs in a shell: a scratch folder, which is {} in commands, and the output
 * of the last command. */
#ifndef TESTS_API_SHELL_H
#define TESTS_API_SHELL_H

#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/harness.h"

static char folder[] = "/tmp/duet-api-XXXXXX";

static inline void scratch_make(void) {
    cr_assert_not_null(mkdtemp(folder));
}

/* Runs a shell command, in which {} stands for the scratch folder, and returns its exit status. Its
 * output goes to the file `out` in that folder. */
static inline int shell(const char *command) {
    char text[2048] = "{ ";
    size_t used = 2;
    for (const char *c = command; *c && used < sizeof text - 100; c++) {
        if (c[0] == '{' && c[1] == '}') {
            used += (size_t)snprintf(text + used, sizeof text - used, "%s", folder);
            c++;
        } else {
            text[used++] = *c;
        }
    }
    snprintf(text + used, sizeof text - used, "; } >%s/out 2>&1", folder);
    int status = system(text);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline const char *output(void) {
    static char text[8192];
    char path[64];
    snprintf(path, sizeof path, "%s/out", folder);
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[n] = 0;
    if (file) fclose(file);
    return text;
}

static inline void scratch_remove(void) {
    cr_assert_eq(shell("rm -rf {}.gone && mv {} {}.gone && rm -rf {}.gone"), 0);
}

#define RUN(want, command) cr_assert_eq(shell(command), (want), "%s: %s", command, output())

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

#endif
