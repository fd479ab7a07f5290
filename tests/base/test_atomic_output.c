/* Atomic files where something is in the way: long or taken names, systems without unnamed files,
 * folders that vanish or fill up, signals, permissions, links and standard output. */
#include <dirent.h>
#include <limits.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "tests/base/content.h"
#include "tests/base/refuse.h"
#include "tests/harness/harness.h"

/* Two scratch folders: one to write to, and one that is $TMPDIR. */
static char folder[] = "/tmp/duet-test-XXXXXX", spare[] = "/tmp/duet-spare-XXXXXX";

static void scratch_make(void) {
    cr_assert(mkdtemp(folder) && mkdtemp(spare));
    setenv("TMPDIR", spare, 1);
    umask(022);
}
static void scratch_remove(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s %s", folder, spare);
    cr_assert_eq(system(command), 0);
}

static const char *in(const char *name) {
    static char path[2][PATH_MAX];
    static int turn;
    turn ^= 1;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static int files_in(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    if (d) closedir(d);
    return n;
}

static void write_file(const char *path, const char *text) {
    struct atomic_file f;
    cr_assert_eq(atomic_open(&f, path), OK, "%s", error_message());
    fputs(text, f.file);
    cr_assert_eq(atomic_commit(&f), OK, "%s", error_message());
    atomic_abandon(&f);
    content_is(path, text);
}

/* Checks the content of the file that the error names as the place of what was written. */
static void content_is_kept(const char *below, const char *want) {
    char path[PATH_MAX], *end;
    const char *at = strstr(error_message(), " is in ");
    cr_assert_not_null(at, "%s", error_message());
    snprintf(path, sizeof path, "%s", at + strlen(" is in "));
    end = strrchr(path, ':');
    cr_assert_not_null(end);
    *end = 0;
    cr_assert(!strncmp(path, below, strlen(below)), "%s is not below %s", path, below);
    content_is(path, want);
}

static void permissions_are(const char *path, mode_t want) {
    struct stat s;
    cr_assert_eq(stat(path, &s), 0);
    cr_assert_eq(s.st_mode & 07777, want, "%s: %o", path, s.st_mode & 07777);
}

/* ---- names ---- */

Test(atomic_output, long_names, .timeout = 30, .init = scratch_make, .fini = scratch_remove) {
    char plain[NAME_MAX + 1] = "", accents[NAME_MAX + 1] = "";
    memset(plain, 'x', NAME_MAX);
    for (int i = 0; i + 1 < NAME_MAX; i += 2) /* no byte of it can be cut off alone */
        memcpy(accents + i, "\xc3\xa9", 2);
    write_file(in(plain), "plain");
    write_file(in(accents), "accents");
    write_file(in(plain), "again");
    cr_assert_eq(files_in(folder), 2);
}

Test(atomic_output, a_name_that_another_process_has_taken, .timeout = 30, .init = scratch_make,
     .fini = scratch_remove) {
    char taken[64];
    snprintf(taken, sizeof taken, "out.%ld.tmp", (long)getpid());
    FILE *f = fopen(in(taken), "w");
    fputs("theirs", f), fclose(f);
    write_file(in("out"), "ours");
    content_is(in(taken), "theirs");
    cr_assert_eq(files_in(folder), 2);
}

/* ---- systems without unnamed files, and signals ---- */

static void each_step_leaves_nothing(void) {
    struct atomic_file f;
    cr_assert_eq(atomic_open(&f, in("out")), OK, "%s", error_message());
    cr_assert_eq(files_in(folder), 0, "a name while the file is written");
    fputs("never", f.file), fflush(f.file);
    atomic_abandon(&f);
    cr_assert_eq(files_in(folder), 0);
    write_file(in("out"), "one");
    write_file(in("out"), "two");
    cr_assert_eq(files_in(folder), 1);
    cr_assert_eq(chmod(in("out"), 0600), 0);
    write_file(in("out"), "three");
    permissions_are(in("out"), 0600);
    write_file(in("new"), "new");
    permissions_are(in("new"), 0644);
    cr_assert_eq(files_in(folder), 2);
}

Test(atomic_output, linkat_is_refused, .timeout = 30, .init = scratch_make,
     .fini = scratch_remove) {
    if (refuse(REFUSE_NAMES)) cr_skip_test("no system call filters here");
    each_step_leaves_nothing();
}

Test(atomic_output, no_unnamed_files, .timeout = 30, .init = scratch_make, .fini = scratch_remove) {
    if (refuse(REFUSE_TMPFILE)) cr_skip_test("no system call filters here");
    each_step_leaves_nothing();
}

Test(atomic_output, neither, .timeout = 30, .init = scratch_make, .fini = scratch_remove) {
    if (refuse(REFUSE_NAMES) || refuse(REFUSE_TMPFILE)) cr_skip_test("no system call filters here");
    each_step_leaves_nothing();
}

/* A process that writes files until it is ended, at a moment that differs from round to round. */
Test(atomic_output, a_signal_leaves_no_temporary_file, .timeout = 60, .init = scratch_make,
     .fini = scratch_remove) {
    if (refuse(REFUSE_TMPFILE)) cr_skip_test("no system call filters here");
    for (int round = 0; round < 20; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            for (struct atomic_file f;;) {
                if (atomic_open(&f, in("out"))) _exit(1);
                for (int i = 0; i < 20000; i++)
                    fputs("0123456789", f.file);
                if (atomic_commit(&f)) _exit(1);
                atomic_abandon(&f);
            }
        }
        int status;
        usleep(2000 + 500 * (useconds_t)round);
        kill(pid, round % 2 ? SIGTERM : SIGINT);
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        cr_assert(WIFSIGNALED(status));
        cr_assert_eq(files_in(folder), access(in("out"), F_OK) == 0, "round %d", round);
        unlink(in("out"));
    }
}

/* ---- permissions ---- */

Test(atomic_output, permissions_stay, .timeout = 30, .init = scratch_make, .fini = scratch_remove) {
    static const mode_t modes[] = {0600, 0640, 0666, 0755, 0200 | 0400};
    write_file(in("out"), "first");
    permissions_are(in("out"), 0644);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        cr_assert_eq(chmod(in("out"), modes[i]), 0);
        write_file(in("out"), "again");
        permissions_are(in("out"), modes[i]);
    }
}

Test(atomic_output, a_read_only_file_is_refused, .timeout = 30, .init = scratch_make,
     .fini = scratch_remove) {
    struct atomic_file f;
    write_file(in("out"), "precious");
    cr_assert_eq(chmod(in("out"), 0444), 0);
    cr_assert_eq(symlink("out", in("link")), 0);
    cr_assert_eq(atomic_open(&f, in("out")), ERR_FAILED);
    cr_assert(strstr(error_message(), "read-only"), "%s", error_message());
    cr_assert_eq(atomic_open(&f, in("link")), ERR_FAILED);
    content_is(in("out"), "precious");
    cr_assert_eq(files_in(folder), 2);
}

/* ---- an end that fails ---- */

Test(atomic_output, a_folder_that_is_gone, .timeout = 30, .init = scratch_make,
     .fini = scratch_remove) {
    struct atomic_file f;
    cr_assert_eq(atomic_open(&f, in("out")), OK);
    fputs("hours of work", f.file);
    cr_assert_eq(rmdir(folder), 0);
    cr_assert_eq(atomic_commit(&f), ERR_FAILED);
    cr_assert(strstr(error_message(), in("out")), "%s", error_message());
    content_is_kept(spare, "hours of work");
    atomic_abandon(&f);
    cr_assert_eq(files_in(spare), 1);
}

Test(atomic_output, a_name_that_cannot_be_replaced, .timeout = 30, .init = scratch_make,
     .fini = scratch_remove) {
    struct atomic_file f;
    cr_assert_eq(atomic_open(&f, in("out")), OK);
    fputs("hours of work", f.file);
    cr_assert_eq(mkdir(in("out"), 0700), 0);
    cr_assert_eq(atomic_commit(&f), ERR_FAILED);
    content_is_kept(in("out."), "hours of work");
    atomic_abandon(&f);
    cr_assert_eq(files_in(folder), 2);
}

/* A file of 200 KB in a folder with room for 64 KiB moves to the temporary folder. */
Test(atomic_output, a_full_disk, .timeout = 30, .init = scratch_make, .fini = scratch_remove) {
    struct atomic_file f;
    if ((syscall(SYS_unshare, CLONE_NEWNS) && syscall(SYS_unshare, CLONE_NEWUSER | CLONE_NEWNS)) ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", folder, "tmpfs", 0, "size=64k"))
        cr_skip_test("no file system can be mounted here: %s", strerror(errno));
    write_file(in("out"), "old");
    cr_assert_eq(atomic_open(&f, in("out")), OK);
    for (int i = 0; i < 20000; i++)
        fputs("0123456789", f.file);
    cr_assert_eq(atomic_commit(&f), ERR_FAILED);
    cr_assert(strstr(error_message(), "No space left"), "%s", error_message());
    atomic_abandon(&f);
    content_is(in("out"), "old");
    cr_assert_eq(files_in(folder), 1);
    cr_assert_eq(files_in(spare), 1);
    char path[PATH_MAX], wrong[16] = "";
    snprintf(path, sizeof path, "%s", strstr(error_message(), spare));
    *strrchr(path, ':') = 0;
    FILE *kept = fopen(path, "r");
    cr_assert_not_null(kept, "%s", path);
    for (int i = 0; i < 20000 && !*wrong; i++) {
        char ten[11] = "";
        cr_assert_eq(fread(ten, 1, 10, kept), 10);
        if (strcmp(ten, "0123456789")) snprintf(wrong, sizeof wrong, "%s", ten);
    }
    cr_assert(!*wrong && fgetc(kept) == EOF, "'%s'", wrong);
    fclose(kept);
    /* If there is room again at the end, the file is put in place without a word. */
    cr_assert_eq(atomic_open(&f, in("out")), OK);
    for (int i = 0; i < 20000; i++)
        fputs("0123456789", f.file);
    fflush(f.file);
    cr_assert_eq(mount("none", folder, "tmpfs", MS_REMOUNT, "size=1m"), 0);
    cr_assert_eq(atomic_commit(&f), OK, "%s", error_message());
    atomic_abandon(&f);
    struct stat s;
    cr_assert(stat(in("out"), &s) == 0 && s.st_size == 200000);
    umount(folder);
}

/* ---- links, and what is no file ---- */

Test(atomic_output, links, .timeout = 30, .init = scratch_make, .fini = scratch_remove) {
    struct atomic_file f;
    struct stat s;
    cr_assert_eq(mkdir(in("deep"), 0700), 0);
    cr_assert_eq(symlink("deep/out", in("link")), 0);
    cr_assert_eq(symlink("link", in("chain")), 0);
    write_file(in("chain"), "new"); /* a link to a file that is not there yet */
    content_is(in("deep/out"), "new");
    cr_assert(lstat(in("chain"), &s) == 0 && S_ISLNK(s.st_mode));
    cr_assert(lstat(in("link"), &s) == 0 && S_ISLNK(s.st_mode));
    cr_assert_eq(symlink("circle", in("circle")), 0);
    cr_assert_eq(atomic_open(&f, in("circle")), ERR_FAILED);
    cr_assert(strstr(error_message(), "symbolic links"), "%s", error_message());
}

/* As in `duet train --log-loss /dev/stdout > file`: the file gets both and is not replaced. */
Test(atomic_output, standard_output, .timeout = 30, .init = scratch_make, .fini = scratch_remove) {
    static const char *const names[] = {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", NULL};
    cr_assert_eq(symlink("/dev/stdout", in("link")), 0);
    for (int i = 0; i < 4; i++) {
        pid_t pid = fork();
        int status;
        if (pid == 0) {
            struct atomic_file f;
            if (!freopen(in("all"), "w", stdout)) _exit(1);
            printf("before\n"), fflush(stdout);
            if (atomic_open(&f, names[i] ? names[i] : in("link"))) _exit(2);
            fputs("between\n", f.file);
            if (atomic_commit(&f)) _exit(3);
            atomic_abandon(&f);
            printf("after\n"), fflush(stdout);
            _exit(0);
        }
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        cr_assert_eq(status, 0, "%d: status %#x", i, status);
        content_is(in("all"), "before\nbetween\nafter\n");
    }
}

Test(atomic_output, errors_are_one_line, .timeout = 30, .init = scratch_make,
     .fini = scratch_remove) {
    struct atomic_file f;
    cr_assert_eq(atomic_open(&f, in("no\nsuch\tfolder/\033[31mout")), ERR_FAILED);
    for (const char *c = error_message(); *c; c++)
        cr_assert(*c >= ' ', "byte %d in '%s'", *c, error_message());
    cr_assert(strstr(error_message(), "no?such?folder/?[31mout"), "%s", error_message());
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
