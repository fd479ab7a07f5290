/* Replaces a file atomically. The order matters: the data reach the disk (fsync of the file) before
 * a name points to them (rename), and the name reaches the disk (fsync of the folder) before the
 * commit succeeds. */
#include "base/files/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

/* The descriptor of this process that the path means, else -1. Replacing the file behind it would
 * not work: a shell that has opened it for standard output would continue with the old file. */
static int descriptor_of(const char *path) {
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (!strcmp(path, "/dev/stdout")) return STDOUT_FILENO;
    if (!strcmp(path, "/dev/stderr")) return STDERR_FILENO;
    for (int i = 0; i < 2; i++)
        if (!strncmp(path, folders[i], strlen(folders[i]))) return atoi(path + strlen(folders[i]));
    return -1;
}

static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
}

/* The target of a file that does not exist yet. */
static char *target_to_make(const char *path) {
    char *folder = folder_of(path), *real = folder ? realpath(folder, NULL) : NULL, *target = NULL;
    const char *slash = strrchr(path, '/');
    if (real && asprintf(&target, "%s/%s", real, slash ? slash + 1 : path) < 0) target = NULL;
    free(folder);
    free(real);
    return target;
}

char *atomic_target(const char *path) {
    struct stat s;
    if (descriptor_of(path) >= 0) return NULL;
    if (!stat(path, &s)) return S_ISREG(s.st_mode) ? realpath(path, NULL) : NULL;
    return errno == ENOENT ? target_to_make(path) : NULL; /* else, say, the name is too long */
}

static ssize_t write_content(void *atomic_file, const char *bytes, size_t count) {
    struct atomic_file *f = (struct atomic_file *)atomic_file;
    for (size_t done = 0; done < count && !f->error;) {
        ssize_t n = write(f->fd, bytes + done, count - done);
        if (n > 0) done += (size_t)n;
        if (n <= 0 && errno != EINTR) f->error = n ? errno : ENOSPC;
    }
    errno = f->error;
    return f->error ? 0 : (ssize_t)count;
}

static int name_content(const struct atomic_file *f) {
    char self[32];
    snprintf(self, sizeof self, "/proc/self/fd/%d", f->fd);
    return linkat(AT_FDCWD, self, AT_FDCWD, f->beside, AT_SYMLINK_FOLLOW);
}

/* Not all file systems have files without a name. */
static int open_beside(struct atomic_file *f) {
    char *folder = folder_of(f->target);
    if (!folder || asprintf(&f->beside, "%s/duet-%d-%llx.tmp", folder, (int)getpid(),
                            (unsigned long long)now_ns()) < 0)
        f->beside = NULL;
    if (f->beside) f->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    free(folder);
    if (!f->beside) return errno = ENOMEM, -1;
    if (f->fd >= 0) return 0;
    f->fd = open(f->beside, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    f->named = f->fd >= 0;
    return f->named ? 0 : -1;
}

/* A descriptor, a pipe, a device. O_NONBLOCK: a pipe that nobody reads is an error, not a hang. */
static int open_direct(struct atomic_file *f, int descriptor) {
    if (descriptor >= 0)
        f->fd = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    else
        f->fd = open(f->name, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd >= 0 && descriptor < 0) fcntl(f->fd, F_SETFL, fcntl(f->fd, F_GETFL) & ~O_NONBLOCK);
    return f->fd < 0 ? -1 : 0;
}

/* A file without any write permission counts as read-only for root, too, although root could
 * replace it: it was protected on purpose. */
static int is_read_only(const char *path, const struct stat *s) {
    return !(s->st_mode & 0222) || faccessat(AT_FDCWD, path, W_OK, AT_EACCESS);
}

static int open_at(struct atomic_file *f, const char *path) {
    struct stat s;
    size_t length = strlen(path);
    int descriptor = descriptor_of(path), exists = !stat(path, &s);
    if (!strcmp(path, "-"))
        return fail(ERR_USAGE,
                    "cannot write to '-': give /dev/stdout for standard output, or ./- for "
                    "a file of that name");
    if (length == 0 || path[length - 1] == '/' || (exists && S_ISDIR(s.st_mode)))
        return fail(ERR_FAILED, "cannot write: '%s': not the name of a file: give one", path);
    if (!(f->name = strdup(path)))
        return fail(ERR_MEMORY, "cannot write: %s: out of host memory", path);
    if (exists && S_ISREG(s.st_mode) && descriptor < 0 && is_read_only(path, &s))
        return fail(ERR_FAILED, "cannot write: %s: the file is read-only: give another name", path);
    int direct = descriptor >= 0 || (exists && !S_ISREG(s.st_mode));
    if (!direct) f->target = atomic_target(path);
    if (direct ? open_direct(f, descriptor) : !f->target || open_beside(f))
        return fail_errno(ERR_FAILED, errno, "cannot write: %s", path);
    f->file = fopencookie(f, "w", (cookie_io_functions_t){.write = write_content});
    return f->file ? OK : fail(ERR_MEMORY, "cannot write: %s: out of host memory", path);
}

int atomic_open(struct atomic_file *f, const char *path) {
    *f = (struct atomic_file){.fd = -1};
    int code = open_at(f, path);
    if (code) atomic_abandon(f);
    return code;
}

/* The owner and the permissions of the file that will be replaced. Only root can change the owner,
 * so a failure of that is ignored. */
static void keep_permissions(const struct atomic_file *f) {
    struct stat s;
    if (stat(f->target, &s) || !S_ISREG(s.st_mode)) return;
    int owner = fchown(f->fd, s.st_uid, s.st_gid);
    (void)owner;
    fchmod(f->fd, s.st_mode & 0777);
}

static int sync_folder(const char *path) {
    char *folder = folder_of(path);
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int result = fd < 0 ? -1 : fsync(fd);
    if (result && fd >= 0 && errno == EINVAL) result = 0; /* some file systems cannot sync it */
    if (fd >= 0) close(fd);
    free(folder);
    return result;
}

static int put_in_place(struct atomic_file *f) {
    keep_permissions(f);
    if (fsync(f->fd) || (!f->named && name_content(f)))
        return fail_errno(ERR_FAILED, errno, "cannot write: %s", f->name);
    f->named = 1;
    if (!rename(f->beside, f->target)) {
        f->named = 0;
        close(f->fd); /* frees the descriptor for the folder, in case the limit is reached */
        f->fd = -1;
        if (!sync_folder(f->target)) return OK;
        return fail_errno(ERR_FAILED, errno, "cannot sync the folder of: %s", f->name);
    }
    if (f->disposable) return fail_errno(ERR_FAILED, errno, "cannot write: %s", f->name);
    f->named = 0; /* keeps the file */
    return fail(ERR_FAILED, "cannot write: %s: %s: what was written is in %s: move it", f->name,
                strerror(errno), f->beside);
}

int atomic_commit(struct atomic_file *f) {
    int bad = fflush(f->file) || ferror(f->file);
    if (bad) return fail_errno(ERR_FAILED, f->error, "cannot write: %s", f->name);
    int code = f->target ? put_in_place(f) : OK;
    fclose(f->file);
    f->file = NULL;
    return code;
}

void atomic_abandon(struct atomic_file *f) {
    if (f->file) fclose(f->file);
    if (f->name && f->fd >= 0) close(f->fd);
    if (f->named) unlink(f->beside);
    free(f->target);
    free(f->beside);
    free(f->name);
    memset(f, 0, sizeof *f);
}
