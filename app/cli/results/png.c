/* See png.h. */
#include "cli/results/png.h"

#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/error.h"

extern char **environ;

int png_beside(const char *svg, int *is_missing) {
    char png[PATH_MAX];
    pid_t pid;
    int status;
    snprintf(png, sizeof png, "%.*s.png", (int)strlen(svg) - 4, svg);
    const char *const words[] = {"rsvg-convert", "--unlimited", "--width", "1920",
                                 "--output",     png,           svg,       NULL};
    *is_missing = posix_spawnp(&pid, words[0], NULL, NULL, (char *const *)words, environ) != 0;
    if (*is_missing) return OK;
    if (waitpid(pid, &status, 0) != pid || status)
        return fail(ERR_FAILED, "--pictures: %s: rsvg-convert could not write it: status %d", png,
                    status);
    return OK;
}
