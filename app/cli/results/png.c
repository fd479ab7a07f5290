/* See png.h. */
#include "cli/results/png.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"

enum { LONGEST_S = 60 };

extern char **environ;

/* A picture takes some tenths of a second. */
static int wait_for(pid_t pid, const char *png, int *status) {
    const struct timespec pause = {.tv_nsec = 5000000};
    const int64_t deadline = deadline_after(LONGEST_S);
    pid_t ended;
    while ((ended = waitpid(pid, status, WNOHANG)) != pid) {
        if (ended < 0 && errno != EINTR)
            return fail(ERR_FAILED, "--pictures: %s: rsvg-convert: %s", png, strerror(errno));
        if (now_ns() > deadline) {
            kill(pid, SIGKILL);
            waitpid(pid, status, 0);
            return fail(ERR_TIMEOUT, "--pictures: %s: rsvg-convert did not finish within %d s", png,
                        LONGEST_S);
        }
        nanosleep(&pause, NULL);
    }
    return OK;
}

int png_beside(const char *svg, int *is_missing) {
    char png[PATH_MAX];
    pid_t pid;
    int status;
    snprintf(png, sizeof png, "%.*s.png", (int)strlen(svg) - 4, svg);
    const char *const words[] = {"rsvg-convert", "--unlimited", "--width", "1920",
                                 "--output",     png,           svg,       NULL};
    *is_missing = posix_spawnp(&pid, words[0], NULL, NULL, (char *const *)words, environ) != 0;
    if (*is_missing) return OK;
    CHECK(wait_for(pid, png, &status));
    if (status)
        return fail(ERR_FAILED, "--pictures: %s: rsvg-convert could not write it: status %d", png,
                    status);
    return OK;
}
