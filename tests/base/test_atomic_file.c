/* Atomic files: the new content appears whole or not at all. */
#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "tests/base/content.h"
#include "tests/harness/harness.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static int files_in(const char *folder) {
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void write_file(const char *path, const char *text, int commit) {
    struct atomic_file f;
    cr_assert_eq(atomic_open(&f, path), OK, "%s", error_message());
    fputs(text, f.file);
    if (commit) cr_assert_eq(atomic_commit(&f), OK, "%s", error_message());
    atomic_abandon(&f);
}

Test(atomic_file, appears_whole_or_not_at_all, .timeout = 30) {
    char folder[] = "/tmp/duet-test-XXXXXX", path[64], link[64];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out", folder), snprintf(link, sizeof link, "%s/link", folder);
    write_file(path, "never", 0);
    cr_assert_eq(files_in(folder), 0);
    write_file(path, "one", 1);
    content_is(path, "one");
    write_file(path, "half", 0);
    content_is(path, "one");
    cr_assert_eq(symlink("out", link), 0);
    write_file(link, "two", 1); /* the link stays, and the file it points to is replaced */
    struct stat s;
    cr_assert(lstat(link, &s) == 0 && S_ISLNK(s.st_mode));
    content_is(path, "two");
    cr_assert_eq(files_in(folder), 2);
    unlink(link), unlink(path), rmdir(folder);
}

Test(atomic_file, what_cannot_be_written, .timeout = 30) {
    struct atomic_file f;
    const char *bad[] = {"/tmp", "/nonexistent-folder/x", "/proc/x", "/tmp/", ""};
    for (int i = 0; i < COUNT(bad); i++) {
        cr_assert_eq(atomic_open(&f, bad[i]), ERR_FAILED, "'%s' was opened", bad[i]);
        cr_assert(strstr(error_message(), bad[i]));
        atomic_abandon(&f);
    }
    struct stat before, after;
    stat("/dev/null", &before);
    write_file("/dev/null", "gone", 1);
    stat("/dev/null", &after);
    cr_assert(S_ISCHR(after.st_mode) && before.st_ino == after.st_ino);
    cr_assert_eq(atomic_open(&f, "/dev/full"), OK);
    fputs("no room", f.file);
    cr_assert_eq(atomic_commit(&f), ERR_FAILED);
    cr_assert(strstr(error_message(), "/dev/full"), "%s", error_message());
    atomic_abandon(&f);
}

/* A limit on the file size stands in for a full disk: the old file stays, and nothing is left of
 * the new one. */
Test(atomic_file, no_room, .timeout = 30) {
    char folder[] = "/tmp/duet-test-XXXXXX", path[64];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out", folder);
    write_file(path, "old", 1);
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    struct rlimit small = {4096, limit.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    struct atomic_file f;
    cr_assert_eq(atomic_open(&f, path), OK);
    setrlimit(RLIMIT_FSIZE, &small);
    for (int i = 0; i < 10000; i++)
        fputs("0123456789", f.file);
    int code = atomic_commit(&f);
    atomic_abandon(&f);
    setrlimit(RLIMIT_FSIZE, &limit);
    cr_assert_eq(code, ERR_FAILED);
    content_is(path, "old");
    cr_assert_eq(files_in(folder), 1);
    unlink(path), rmdir(folder);
}
