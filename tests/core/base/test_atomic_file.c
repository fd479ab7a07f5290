/* Atomic files: the new content appears whole or not at all. */
#include <dirent.h>
#include <limits.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "tests/core/base/content.h"
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

/* ---- in a folder of its own ---- */

static char folder[] = "/tmp/duet-test-XXXXXX", before[PATH_MAX];

static void enter(void) {
    cr_assert(getcwd(before, sizeof before) && mkdtemp(folder) && !chdir(folder));
    umask(022);
}

static void leave(void) {
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert(!chdir(before) && !system(command));
}

Test(atomic_file, names_as_long_as_they_may_be, .timeout = 30, .init = enter, .fini = leave) {
    struct atomic_file f;
    char name[NAME_MAX + 2] = "";
    memset(name, 'x', NAME_MAX);
    write_file(name, "long", 1);
    content_is(name, "long");
    name[NAME_MAX] = 'x';
    cr_assert_eq(atomic_open(&f, name), ERR_FAILED);
    cr_assert(strstr(error_message(), "File name too long"), "%s", error_message());
    cr_assert_eq(files_in("."), 1);
}

/* Nothing more may be opened between the beginning and the end. */
Test(atomic_file, too_few_open_files, .timeout = 30, .init = enter, .fini = leave) {
    struct atomic_file f;
    struct rlimit limit, few;
    getrlimit(RLIMIT_NOFILE, &limit);
    few = (struct rlimit){64, limit.rlim_max};
    cr_assert(!atomic_open(&f, "out") && fputs("whole", f.file) >= 0);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    while (dup(f.fd) >= 0) {
    }
    cr_assert_eq(atomic_commit(&f), OK, "%s", error_message());
    atomic_abandon(&f);
    for (int fd = 10; fd < 64; fd++)
        close(fd);
    content_is("out", "whole");
}

Test(atomic_file, permissions_stay, .timeout = 30, .init = enter, .fini = leave) {
    static const mode_t modes[] = {0644, 0600, 0640, 0666, 0755};
    struct stat s;
    struct atomic_file f;
    write_file("out", "first", 1);
    for (int i = 0; i < COUNT(modes); i++) { /* the first is that of a new file */
        cr_assert(!stat("out", &s) && (s.st_mode & 07777) == modes[i], "%o", s.st_mode);
        if (i + 1 < COUNT(modes)) cr_assert_eq(chmod("out", modes[i + 1]), 0);
        write_file("out", "again", 1);
    }
    cr_assert_eq(chmod("out", 0444), 0);
    cr_assert_eq(symlink("out", "link"), 0);
    cr_assert_eq(atomic_open(&f, "out"), ERR_FAILED);
    cr_assert(strstr(error_message(), "read-only"), "%s", error_message());
    cr_assert_eq(atomic_open(&f, "link"), ERR_FAILED);
    content_is("out", "again");
    cr_assert_eq(files_in("."), 2);
}

/* What was written is kept next to the file, or dropped if it will soon be written again. */
Test(atomic_file, a_name_that_cannot_be_replaced, .timeout = 30, .init = enter, .fini = leave) {
    for (int disposable = 0; disposable < 2; disposable++) {
        struct atomic_file f;
        cr_assert_eq(atomic_open(&f, "out"), OK);
        f.disposable = disposable;
        fputs("hours of work", f.file);
        cr_assert_eq(mkdir("out", 0700), 0);
        cr_assert_eq(atomic_commit(&f), ERR_FAILED);
        const char *at = strstr(error_message(), " is in ");
        char kept[PATH_MAX] = "";
        if (at) snprintf(kept, sizeof kept, "%.*s", (int)strcspn(at + 7, ":"), at + 7);
        atomic_abandon(&f);
        cr_assert_eq(!at, disposable, "%s", error_message());
        if (at) content_is(kept, "hours of work");
        cr_assert_eq(files_in("."), 2 - disposable);
        cr_assert(!rmdir("out") && (disposable || !unlink(kept)));
    }
}

/* A process that is killed leaves the old file and no other. */
Test(atomic_file, a_killed_process_leaves_nothing, .timeout = 30, .init = enter, .fini = leave) {
    write_file("out", "old", 1);
    pid_t pid = fork();
    if (pid == 0) {
        struct atomic_file f;
        if (!atomic_open(&f, "out")) fputs("new", f.file), fflush(f.file), kill(getpid(), SIGKILL);
        _exit(1);
    }
    int status;
    cr_assert(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    content_is("out", "old");
    cr_assert_eq(files_in("."), 1);
}

/* As in `duet train --log-loss /dev/stdout > file`: the file gets both and is not replaced. */
Test(atomic_file, standard_output, .timeout = 30, .init = enter, .fini = leave) {
    static const char *const names[] = {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"};
    for (int i = 0; i < COUNT(names); i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            struct atomic_file f;
            if (!freopen("all", "w", stdout)) _exit(1);
            printf("before\n"), fflush(stdout);
            if (atomic_open(&f, names[i])) _exit(2);
            fputs("between\n", f.file);
            if (atomic_commit(&f)) _exit(3);
            atomic_abandon(&f);
            printf("after\n"), fflush(stdout);
            _exit(0);
        }
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        cr_assert_eq(status, 0, "%s: status %#x", names[i], status);
        content_is("all", "before\nbetween\nafter\n");
    }
}

Test(atomic_file, errors_are_one_line, .timeout = 30) {
    struct atomic_file f;
    cr_assert_eq(atomic_open(&f, "no\nsuch\tfolder/\033[31mout"), ERR_FAILED);
    cr_assert(strstr(error_message(), "no\\nsuch\\tfolder/\\x1b[31mout"), "%s", error_message());
    struct failures all = {0};
    cr_assert_eq(failures_end(&all), OK);
    failures_add(&all, fail(ERR_FAILED, "one"));
    failures_add(&all, OK);
    failures_add(&all, fail(ERR_MEMORY, "two"));
    cr_assert_eq(failures_end(&all), ERR_FAILED);
    cr_assert_str_eq(error_message(), "one; two");
    struct failures kept = failures_of(OK);
    cr_assert_eq(failures_first(&kept, fail(ERR_MEMORY, "two")), ERR_MEMORY);
    cr_assert_eq(failures_first(&kept, fail(ERR_FAILED, "three")), ERR_FAILED);
    cr_assert_eq(failures_end(&kept), ERR_MEMORY);
    cr_assert_str_eq(error_message(), "two");
}
