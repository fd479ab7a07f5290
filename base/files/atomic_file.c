/* Atomic replacement of a file. The order matters: the data reaches the disk (fsync of the file)
 * before a name points at it (rename), and the name reaches the disk (fsync of the folder) before
 * the commit succeeds. */
#include "base/files/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/descriptor.h"
#include "base/files/unnamed_file.h"
#include "base/system_error.h"

enum { LINKS = 40 }; /* symbolic links followed at most, as in the kernel */

/* ---- where a path leads ---- */

/* `name` as a descriptor of this process if `folder` is its list of descriptors, else -1. */
static int own_descriptor(const char *folder, const char *name) {
    char own[64];
    snprintf(own, sizeof own, "/proc/%ld/fd", (long)getpid());
    size_t digits = strspn(name, "0123456789");
    return !strcmp(folder, own) && digits && digits < 9 && !name[digits] ? atoi(name) : -1;
}

/* Replaces *path by what the link at *path points to. Returns 1 if it was a link, 0 if not, -1 on
 * failure. *descriptor: the link leads to this descriptor of the process, else -1. */
static int follow_link(char **path, int *descriptor) {
    char *given = path_folder(*path), *folder = given ? realpath(given, NULL) : NULL;
    const char *slash = strrchr(*path, '/');
    char to[PATH_MAX], *next = NULL;
    free(given);
    if (!folder) return -1;
    *descriptor = own_descriptor(folder, slash ? slash + 1 : *path);
    ssize_t n = *descriptor < 0 ? readlink(*path, to, sizeof to) : -1;
    int result = n < 0 ? 0 : 1;
    if (n >= 0 && asprintf(&next, "%s%s%.*s", *to == '/' ? "" : folder, *to == '/' ? "" : "/",
                           (int)n, to) < 0)
        result = -1;
    free(folder);
    if (result <= 0) return result;
    free(*path);
    *path = next;
    return 1;
}

/* Follows links to the path that will be replaced. realpath cannot do that: it would lead from
 * /dev/stdout to the file that standard output was redirected to. Returns -1 on failure. */
static int follow_links(char **path, int *descriptor) {
    for (int i = 0; i < LINKS; i++) {
        int result = follow_link(path, descriptor);
        if (result <= 0) return result;
    }
    errno = ELOOP;
    return -1;
}

char *atomic_target(const char *path) {
    int descriptor = -1;
    char *target = strdup(path);
    if (target && !follow_links(&target, &descriptor) && descriptor < 0) return target;
    free(target);
    return NULL;
}

/* ---- the unnamed file ---- */

/* The path that a file of this name would have in the temporary folder; NULL: no memory. */
static char *temporary_path(const char *path) {
    const char *folder = getenv("TMPDIR"), *slash = strrchr(path, '/');
    char *result;
    if (!folder || !*folder) folder = "/tmp";
    return asprintf(&result, "%s/%s", folder, slash ? slash + 1 : path) < 0 ? NULL : result;
}

/* Goes on in the temporary folder: the target's folder takes no more, for example because its disk
 * is full. Returns -1 if that is not possible either. */
static int move_content(struct atomic_file *f) {
    if (f->disposable) return -1;
    char *path = temporary_path(f->target);
    int fd = path && !f->moved ? unnamed_open(path) : -1;
    free(path);
    if (fd < 0) return -1;
    if (file_copy(f->fd, fd)) {
        close(fd);
        return -1;
    }
    close(f->fd);
    f->fd = fd;
    f->moved = 1;
    return 0;
}

/* The write function of f->file. */
static ssize_t write_content(void *atomic_file, const char *bytes, size_t count) {
    struct atomic_file *f = (struct atomic_file *)atomic_file;
    off_t end = lseek(f->fd, 0, SEEK_CUR);
    if (!write_whole(f->fd, bytes, count)) return (ssize_t)count;
    int error = errno;
    /* A part of these bytes may be written. It is cut off, so that they can be written again. */
    if (end >= 0 && !ftruncate(f->fd, end) && !move_content(f) && !write_whole(f->fd, bytes, count))
        return (ssize_t)count;
    if (!f->error) f->error = error;
    errno = f->error;
    return 0;
}

/* Does at the start what the commit will do at the end: names a file in the folder. */
static int try_to_name(const char *target) {
    int fd = unnamed_open(target);
    char *name = fd >= 0 ? unnamed_give_name(fd, target) : NULL;
    int error = errno;
    if (name) unlink(name);
    if (fd >= 0) close(fd);
    int result = name ? 0 : -1;
    free(name);
    errno = error;
    return result;
}

/* Opens f->file for a target that will be replaced. */
static int open_content(struct atomic_file *f, int tried) {
    if (!tried && try_to_name(f->target)) return -1;
    f->fd = unnamed_open(f->target);
    if (f->fd < 0) return -1;
    f->file = fopencookie(f, "w", (cookie_io_functions_t){.write = write_content});
    return f->file ? 0 : -1;
}

/* ---- open ---- */

/* Opens f->file for something that is written directly: a descriptor, a pipe, a device. */
static int open_direct(struct atomic_file *f, int descriptor) {
    /* O_NONBLOCK: a pipe that nobody reads is an error, not a hang. */
    int fd = above_streams(descriptor < 0 ? open(f->target, O_WRONLY | O_CLOEXEC | O_NONBLOCK)
                                          : fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    if (fd < 0) return -1;
    if (descriptor < 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    f->file = fdopen(fd, "w");
    if (!f->file) close(fd);
    free(f->target);
    f->target = NULL;
    return f->file ? 0 : -1;
}

/* A file without any write permission counts as read-only for root too, although root could replace
 * it: somebody has protected it on purpose. */
static int read_only(const char *path, const struct stat *s) {
    return !(s->st_mode & 0222) || faccessat(AT_FDCWD, path, W_OK, AT_EACCESS);
}

/* Refuses a file that is there and that the commit could not replace. */
static int check_replaceable(const struct atomic_file *f, const struct stat *s) {
    if (read_only(f->target, s))
        return fail(ERR_FAILED, "cannot write: %s: the file is read-only: give another name",
                    f->name);
    if (!replace_try(f->target)) return OK;
    if (errno == EBUSY)
        return fail(ERR_FAILED,
                    "cannot write: %s: the file is mounted there and cannot be replaced: give "
                    "another name, or mount its folder",
                    f->name);
    return fail(ERR_FAILED,
                "cannot write: %s: %s: the file cannot be replaced (it belongs to another user, or "
                "is protected): give another name",
                f->name, strerror(errno));
}

/* tried: whether the commit could succeed has been looked at before. */
static int open_at(struct atomic_file *f, const char *path, int tried) {
    struct stat s;
    int descriptor = -1, result;
    size_t length = strlen(path);
    if (!strcmp(path, "-"))
        return fail(ERR_USAGE, "cannot write: -: give /dev/stdout for standard output, or ./- for "
                               "a file of that name");
    if (length == 0 || path[length - 1] == '/' || (!stat(path, &s) && S_ISDIR(s.st_mode)))
        return fail(ERR_FAILED, "cannot write: '%s': not the name of a file: give one", path);
    f->name = strdup(path);
    f->target = strdup(path);
    if (!f->name || !f->target) return fail(ERR_MEMORY, "cannot write: %s: no host memory", path);
    if (follow_links(&f->target, &descriptor))
        return fail_errno(ERR_FAILED, errno, "cannot write: %s", path);
    int exists = descriptor < 0 && !stat(f->target, &s);
    if (descriptor < 0 && !exists && errno != ENOENT) /* a name that is too long, for example */
        return fail_errno(ERR_FAILED, errno, "cannot write: %s", path);
    if (exists && S_ISREG(s.st_mode) && !tried) CHECK(check_replaceable(f, &s));
    if (descriptor >= 0 || (exists && !S_ISREG(s.st_mode)))
        result = open_direct(f, descriptor);
    else
        result = open_content(f, tried);
    return result ? fail_errno(ERR_FAILED, errno, "cannot write: %s", path) : OK;
}

static int open_quietly(struct atomic_file *f, const char *path, int tried) {
    sigset_t all, before; /* a signal must not leave a file that has a name for a moment */
    *f = (struct atomic_file){.fd = -1};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = open_at(f, path, tried);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code) atomic_abandon(f);
    return code;
}

int atomic_open(struct atomic_file *f, const char *path) {
    return open_quietly(f, path, 0);
}

int atomic_open_again(struct atomic_file *f, const char *path) {
    return open_quietly(f, path, 1);
}

/* ---- commit ---- */

static int sync_folder(const char *path) {
    char *folder = path_folder(path);
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(folder);
    if (fd < 0) return -1;
    int result = fsync(fd);
    if (result && errno == EINVAL) result = 0; /* some file systems cannot sync a folder */
    close(fd);
    return result;
}

/* Takes over the owner and the permissions of the file that will be replaced. Only root can change
 * the owner, so that is only tried. */
static void keep_permissions(const struct atomic_file *f) {
    struct stat s;
    if (stat(f->target, &s) || !S_ISREG(s.st_mode)) return;
    int owner = fchown(f->fd, s.st_uid, s.st_gid);
    (void)owner;
    fchmod(f->fd, s.st_mode & 0777);
}

/* Puts the content in place of the target; if that fails, leaves it somewhere else. */
static int put_in_place(const struct atomic_file *f) {
    keep_permissions(f);
    char *name = unnamed_give_name(f->fd, f->target);
    if (name && !rename(name, f->target)) {
        free(name);
        return sync_folder(f->target) ? fail_system(errno, "cannot sync the folder of: %s", f->name)
                                      : OK;
    }
    int error = errno;
    if (name && f->disposable) {
        unlink(name);
        free(name);
        name = NULL;
    } else if (!name && !f->disposable) {
        char *path = temporary_path(f->target);
        name = path ? unnamed_give_name(f->fd, path) : NULL;
        free(path);
    }
    int code = name ? fail(ERR_FAILED, "cannot write: %s: %s: what was written is in %s: move it",
                           f->name, strerror(error), name)
                    : fail_errno(ERR_FAILED, error, "cannot write: %s", f->name);
    free(name);
    return code;
}

int atomic_commit(struct atomic_file *f) {
    int bad = fflush(f->file) || ferror(f->file), code = OK;
    if (bad)
        return fail_errno(ERR_FAILED, f->error ? f->error : errno, "cannot write: %s", f->name);
    if (f->target) {
        sigset_t all, before; /* a signal must not leave the temporary name */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        code = put_in_place(f);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    int closed = fclose(f->file);
    f->file = NULL;
    if (closed && !code) code = fail_errno(ERR_FAILED, errno, "cannot write: %s", f->name);
    return code;
}

void atomic_abandon(struct atomic_file *f) {
    f->moved = 1; /* fclose may still write, but dropped content is not worth a move */
    if (f->file) fclose(f->file);
    if (f->target && f->fd >= 0) close(f->fd);
    free(f->target);
    free(f->name);
    memset(f, 0, sizeof *f);
}
