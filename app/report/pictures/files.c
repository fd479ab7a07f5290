/* The files of --pictures: an SVG, and beside it a PNG for programs that cannot read SVG. */
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/error.h"
#include "report/pictures/runs.h"

extern char **environ;

/* Makes NAME.png from NAME.svg with librsvg's program, 1920 pixels wide, if it is installed. */
static int png_beside(const char *svg, int *is_missing) {
    char png[PATH_MAX];
    pid_t pid;
    int status = -1;
    snprintf(png, sizeof png, "%.*s.png", (int)strlen(svg) - 4, svg);
    const char *const words[] = {"rsvg-convert", "--unlimited", "--width", "1920",
                                 "--output",     png,           svg,       NULL};
    *is_missing = posix_spawnp(&pid, words[0], NULL, NULL, (char *const *)words, environ) != 0;
    if (*is_missing) return OK;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (status)
        return fail(ERR_FAILED, "--pictures: %s: rsvg-convert could not write it: status %d", png,
                    status);
    return OK;
}

static int make_folder(struct pictures *p) {
    struct stat s;
    if (mkdir(p->folder, 0777) == 0)
        p->made = 1;
    else if (errno != EEXIST)
        return fail_errno(ERR_FAILED, errno, "--pictures: %s: the folder cannot be made",
                          p->folder);
    else if (!stat(p->folder, &s) && !S_ISDIR(s.st_mode))
        return fail(ERR_FAILED, "--pictures: %s: is not a folder: name one for the pictures",
                    p->folder);
    return OK;
}

int picture_begin(struct pictures *p, const char *name, FILE **file) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", p->folder, name) >= (int)sizeof path)
        return fail(ERR_FAILED, "--pictures: %s: the name is too long", p->folder);
    CHECK(atomic_open(&p->file, path));
    *file = p->file.file;
    return OK;
}

int picture_end(struct pictures *p, int code) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", p->file.name);
    if (!code) code = atomic_commit(&p->file);
    atomic_abandon(&p->file);
    p->count += !code;
    return code || p->no_png ? code : png_beside(path, &p->no_png);
}

int pictures_try(struct pictures *p) {
    FILE *file;
    CHECK(make_folder(p));
    int code = picture_begin(p, "timeline.svg", &file);
    atomic_abandon(&p->file);
    return code;
}
