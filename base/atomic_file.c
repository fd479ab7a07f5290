/* Atomic replacement of a file. The order matters: data reaches the disk (fsync of the file)
 * before the name points at it (rename), and the name reaches the disk (fsync of the folder)
 * before we say it is saved. */
#include "base/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

/* The folder part of a path, malloc'ed; "." if it has none. */
static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return strdup(".");
    return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* Opens the file that will become f->target: without a name where the file system can
 * (O_TMPFILE), else under the temporary name. */
static int open_new(struct atomic_file *f) {
    char *folder = folder_of(f->target);
    int fd = folder ? open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666) : -1;
    f->unnamed = fd >= 0;
    free(folder);
    if (fd < 0) fd = open(f->temporary, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    return fd;
}

int atomic_open(struct atomic_file *f, const char *path) {
    struct stat s;
    memset(f, 0, sizeof *f);
    int exists = stat(path, &s) == 0, fd;
    size_t length = strlen(path);
    if (length == 0 || path[length - 1] == '/' || (exists && S_ISDIR(s.st_mode)))
        return fail(ERR_FAILED, "cannot write: '%s': not the name of a file: give one", path);
    f->name = strdup(path);
    if (!f->name) return fail(ERR_MEMORY, "cannot write: %s: no host memory", path);
    if (exists && !S_ISREG(s.st_mode)) {
        /* a pipe nobody reads is an error, not a hang */
        fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    } else {
        f->target = exists ? realpath(path, NULL) : strdup(path);
        if (!f->target || asprintf(&f->temporary, "%s.%ld.tmp", f->target, (long)getpid()) < 0) {
            f->temporary = NULL;
            int code = fail_errno(ERR_FAILED, errno, "cannot write: %s", path);
            atomic_abandon(f);
            return code;
        }
        fd = open_new(f);
    }
    if (fd >= 0) f->file = fdopen(fd, "w");
    if (f->file) return OK;
    int code = fail_errno(ERR_FAILED, errno, "cannot write: %s", path);
    if (fd >= 0) close(fd);
    atomic_abandon(f);
    return code;
}

static int sync_folder(const char *path) {
    char *folder = folder_of(path);
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(folder);
    if (fd < 0) return -1;
    int result = fsync(fd);
    if (result && errno == EINVAL) result = 0; /* some file systems cannot sync a folder */
    close(fd);
    return result;
}

/* Gives the unnamed file its temporary name: rename needs one, and link cannot replace. */
static int name_file(struct atomic_file *f) {
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fileno(f->file));
    if (linkat(AT_FDCWD, self, AT_FDCWD, f->temporary, AT_SYMLINK_FOLLOW)) return -1;
    f->unnamed = 0;
    return 0;
}

int atomic_commit(struct atomic_file *f) {
    const char *name = f->name;
    int bad = fflush(f->file) || ferror(f->file);
    if (!bad && f->target)
        bad = fsync(fileno(f->file)) || (f->unnamed && name_file(f)) ||
              rename(f->temporary, f->target);
    if (bad) return fail_errno(ERR_FAILED, errno, "cannot write: %s", name);
    free(f->temporary); /* from here on there is nothing to take back */
    f->temporary = NULL;
    int code = OK;
    if (f->target && sync_folder(f->target))
        code = fail_errno(ERR_FAILED, errno, "cannot sync the folder of: %s", name);
    int closed = fclose(f->file);
    f->file = NULL;
    if (closed) CHECK_KEEP(fail_errno(ERR_FAILED, errno, "cannot write: %s", name), code);
    return code;
}

void atomic_abandon(struct atomic_file *f) {
    if (f->file && f->temporary && !f->unnamed) unlink(f->temporary);
    if (f->file) fclose(f->file);
    free(f->temporary);
    free(f->target);
    free(f->name);
    memset(f, 0, sizeof *f);
}
