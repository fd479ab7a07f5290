/* Atomic files whose place is taken by a file that a rename cannot replace: it belongs to another
 * user in a sticky folder, may only be appended to, or is a mount point. That is known when the
 * file is opened, and nothing is changed. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "tests/base/content.h"
#include "tests/harness/scratch.h"

enum { SOMEBODY = 12345 }; /* a user id */

static void enter(void) {
    scratch_make();
    cr_assert_eq(chdir(folder), 0);
    umask(022);
}

static void leave(void) {
    cr_assert_eq(chdir("/"), 0);
    scratch_remove();
}

static void put(const char *path, const char *text, mode_t mode) {
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    fputs(text, f), fclose(f);
    cr_assert_eq(chmod(path, mode), 0);
}

static int files(void) {
    int n = 0;
    DIR *d = opendir(".");
    for (struct dirent *e; d && (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    if (d) closedir(d);
    return n;
}

static void is_refused(const char *path, const char *words) {
    struct atomic_file f;
    int before = files();
    cr_assert_eq(atomic_open(&f, path), ERR_FAILED, "%s: opened", path);
    cr_assert(strstr(error_message(), path) && strstr(error_message(), words), "%s",
              error_message());
    cr_assert_eq(files(), before, "left something");
}

static void is_written(const char *path) {
    struct atomic_file f;
    cr_assert_eq(atomic_open(&f, path), OK, "%s", error_message());
    fputs("new", f.file);
    cr_assert_eq(atomic_commit(&f), OK, "%s", error_message());
    atomic_abandon(&f);
    content_is(path, "new");
}

/* A temporary name is shortened where it must be; the name that was asked for is not. */
Test(atomic_replace, a_name_that_is_too_long, .timeout = 30, .init = enter, .fini = leave) {
    char name[NAME_MAX + 2] = "";
    memset(name, 'x', NAME_MAX + 1);
    is_refused(name, "File name too long");
    name[NAME_MAX] = 0;
    is_written(name);
}

/* As in /tmp: everybody may make files, and only the owner may replace them. Anybody may write to
 * "theirs", so its permissions do not show it. */
Test(atomic_replace, another_users_file_in_a_sticky_folder, .timeout = 30, .init = enter,
     .fini = leave) {
    if (geteuid()) cr_skip_test("two users are needed: run it as root");
    put("theirs", "old", 0666);
    put("mine", "old", 0644);
    cr_assert(chown("mine", SOMEBODY, SOMEBODY) == 0 && chmod(".", 01777) == 0);
    cr_assert_eq(symlink("theirs", "link"), 0);
    cr_assert_eq(seteuid(SOMEBODY), 0);
    is_refused("theirs", "belongs to another user");
    is_refused("link", "belongs to another user");
    is_written("mine");
    is_written("another");
    cr_assert_eq(seteuid(0), 0);
    content_is("theirs", "old");
    cr_assert_eq(files(), 4);
    is_written("theirs"); /* root may */
}

Test(atomic_replace, a_file_that_can_only_grow, .timeout = 30, .init = enter, .fini = leave) {
    put("log", "old", 0644);
    int fd = open("log", O_RDONLY | O_CLOEXEC), flags = 0, only = 0;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags)) cr_skip_test("no such flags on this file system");
    only = flags | FS_APPEND_FL;
    if (ioctl(fd, FS_IOC_SETFLAGS, &only)) cr_skip_test("only root can set that flag");
    struct atomic_file f;
    int code = atomic_open(&f, "log");
    char text[400];
    snprintf(text, sizeof text, "%s", error_message());
    cr_assert_eq(ioctl(fd, FS_IOC_SETFLAGS, &flags), 0);
    close(fd);
    cr_assert(code == ERR_FAILED && strstr(text, "cannot be replaced"), "%d: %s", code, text);
    content_is("log", "old");
    is_written("log");
}

/* A container is often given one file of its host. */
Test(atomic_replace, a_mount_point, .timeout = 30, .init = enter, .fini = leave) {
    if ((unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS)) ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        cr_skip_test("nothing can be mounted here");
    put("source", "theirs", 0644);
    put("out", "old", 0644);
    cr_assert_eq(mount("source", "out", NULL, MS_BIND, NULL), 0);
    is_refused("out", "mounted");
    content_is("source", "theirs");
    cr_assert_eq(umount("out"), 0);
    content_is("out", "old");
    is_written("out");
}
