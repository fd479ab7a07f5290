/* Files without a name. Linux makes them with O_TMPFILE and names them with linkat, but not every
 * file system has the first and not every container allows the second. Each step therefore has a
 * second way: a file whose name is removed at once, and a copy. */
#include "base/files/unnamed_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files/descriptor.h"

enum { TRIES = 100, RANDOM = 8, SUFFIX = RANDOM + 5 }; /* the suffix is ".xxxxxxxx.tmp" */

char *path_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return strdup(".");
    return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* `path` with a random suffix; its last part is shortened if it would exceed NAME_MAX bytes. */
static char *random_name(const char *path) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz012345";
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    unsigned char bytes[RANDOM] = {0};
    char *name, text[RANDOM + 1] = "";
    if (getrandom(bytes, sizeof bytes, GRND_NONBLOCK) < 0) {
        int64_t now = now_ns();
        memcpy(bytes, &now, sizeof bytes);
    }
    for (int i = 0; i < RANDOM; i++)
        text[i] = letters[bytes[i] % 32];
    size_t length = strlen(base);
    if (length > NAME_MAX - SUFFIX) {
        length = NAME_MAX - SUFFIX;
        while (length && ((unsigned char)base[length] & 0xc0) == 0x80)
            length--; /* not in the middle of a UTF-8 character */
    }
    if (asprintf(&name, "%.*s.%s.tmp", (int)(base - path + (ptrdiff_t)length), path, text) >= 0)
        return name;
    errno = ENOMEM;
    return NULL;
}

/* Makes a file under a random name, which the caller frees. Returns its descriptor, or -1. */
static int open_named(const char *path, char **name) {
    for (int i = 0; i < TRIES; i++) {
        *name = random_name(path);
        if (!*name) return -1;
        int opened = open(*name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
        int fd = above_streams(opened), error = errno;
        if (fd >= 0) return fd;
        if (opened >= 0) unlink(*name);
        free(*name);
        errno = error;
        if (error != EEXIST) break;
    }
    *name = NULL;
    return -1;
}

int unnamed_open(const char *path) {
    char *folder = path_folder(path), *name;
    int fd = folder ? above_streams(open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666)) : -1;
    free(folder);
    if (fd >= 0) return fd;
    fd = open_named(path, &name);
    if (fd >= 0) unlink(name);
    free(name);
    return fd;
}

int write_whole(int fd, const char *bytes, size_t count) {
    while (count) {
        ssize_t n = file_write(fd, bytes, count);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC; /* a device that takes nothing, again and again */
        if (n <= 0) return -1;
        bytes += n;
        count -= (size_t)n;
    }
    return 0;
}

int file_copy(int from, int to) {
    char bytes[1 << 16];
    for (off_t at = 0;;) {
        ssize_t n = pread(from, bytes, sizeof bytes, at);
        if (n == 0) return 0;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 || write_whole(to, bytes, (size_t)n)) return -1;
        at += n;
    }
}

/* Only root can change the owner, so that is only tried. */
static int copy_permissions(int from, int to) {
    struct stat s;
    if (fstat(from, &s)) return -1;
    int owner = fchown(to, s.st_uid, s.st_gid);
    (void)owner;
    return fchmod(to, s.st_mode & 0777);
}

static char *name_copy(int fd, const char *path) {
    char *name;
    int copy = open_named(path, &name);
    if (copy < 0) return NULL;
    if (!file_copy(fd, copy) && !copy_permissions(fd, copy) && !fsync(copy)) {
        close(copy);
        return name;
    }
    int error = errno;
    close(copy);
    unlink(name);
    free(name);
    errno = error;
    return NULL;
}

char *unnamed_give_name(int fd, const char *path) {
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (fsync(fd)) return NULL;
    for (int i = 0; i < TRIES; i++) {
        char *name = random_name(path);
        if (!name) return NULL;
        if (!linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW)) return name;
        free(name);
        if (errno != EEXIST) break;
    }
    return name_copy(fd, path);
}

static int is_mount_point(const char *path) {
    struct statx s;
    return !statx(AT_FDCWD, path, 0, STATX_TYPE, &s) &&
           (s.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

/* An empty folder is renamed to the file. That never succeeds, since a folder cannot replace a file
 * (ENOTDIR); but whether the file may be replaced at all, the kernel looks at first. */
int replace_try(const char *path) {
    if (is_mount_point(path)) {
        errno = EBUSY;
        return -1;
    }
    char *name = random_name(path);
    if (!name) return -1;
    int refused = 0;
    if (!mkdir(name, 0700)) {
        refused = rename(name, path) && (errno == EPERM || errno == EACCES) ? errno : 0;
        rmdir(name);
    }
    free(name);
    errno = refused;
    return refused ? -1 : 0;
}
