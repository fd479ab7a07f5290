/* System calls that are refused, one after another, with each of three errors. Whatever the kernel
 * refuses, the command succeeds or ends with one line of error, within its deadline, and leaves no
 * process, no name in /dev/shm and no half-written file. */
#include "base/error.h"
#include "base/text/json.h"
#include "data/safetensors.h"
#include "tests/cli/data.h"
#include "tests/cli/run.h"
#include "tests/harness/refuse.h"

enum { STEPS = 2, OUTPUTS = 3, SHARED_MAP = MAP_SHARED, TEMPORARY = O_TMPFILE & ~O_DIRECTORY };

/* Left out are: calls without which no program can start (execve, private mmap, read); futex,
 * because the C library itself ends a process to which that is refused; unlink, because a file
 * that cannot be removed stays; wait4, because ranks that have ended then wait for init to
 * collect them; and getsockopt, because then each rank takes itself for a stranger and says so
 * in its own line. */
static const struct refused_call calls[] = {
    {"memfd_create", SYS_memfd_create, 0, 0},
    {"mmap MAP_SHARED", SYS_mmap, 3, SHARED_MAP},
    {"madvise", SYS_madvise, 0, 0},
    {"ftruncate", SYS_ftruncate, 0, 0},
    {"socketpair", SYS_socketpair, 0, 0},
    {"sendmsg", SYS_sendmsg, 0, 0},
    {"recvmsg", SYS_recvmsg, 0, 0},
    {"clone", SYS_clone, 0, 0},
    {"clone3", SYS_clone3, 0, 0},
    {"waitid", SYS_waitid, 0, 0},
    {"kill", SYS_kill, 0, 0},
    {"pidfd_open", SYS_pidfd_open, 0, 0},
    {"pidfd_send_signal", SYS_pidfd_send_signal, 0, 0},
    {"prctl", SYS_prctl, 0, 0},
    {"poll", SYS_poll, 0, 0},
    {"eventfd2", SYS_eventfd2, 0, 0},
    {"signalfd4", SYS_signalfd4, 0, 0},
    {"rt_sigaction", SYS_rt_sigaction, 0, 0},
    {"rt_sigprocmask", SYS_rt_sigprocmask, 0, 0},
    {"fcntl", SYS_fcntl, 0, 0},
    {"dup", SYS_dup, 0, 0},
    {"prlimit64", SYS_prlimit64, 0, 0},
    {"sched_getaffinity", SYS_sched_getaffinity, 0, 0},
    {"sched_yield", SYS_sched_yield, 0, 0},
    {"clock_nanosleep", SYS_clock_nanosleep, 0, 0},
    {"getrandom", SYS_getrandom, 0, 0},
    {"openat O_TMPFILE", SYS_openat, 2, TEMPORARY},
    {"openat O_CREAT", SYS_openat, 2, O_CREAT},
    {"linkat", SYS_linkat, 0, 0},
    {"rename", SYS_rename, 0, 0},
    {"fsync", SYS_fsync, 0, 0},
};
enum { CALLS = sizeof calls / sizeof *calls };

static const int errors[] = {EPERM, ENOMEM, ENOSYS};
static const char *const error_names[] = {"EPERM", "ENOMEM", "ENOSYS"};

static const double TIMEOUT_S = 5; /* --timeout */
/* A wait that fails takes TIMEOUT_S, and the end of a job with a stuck rank as long again. The rest
 * is the start of three processes on a busy machine. */
static const double MOST_S = 30;

/* ---- what may be there afterwards ---- */

static int shared_memory(void) {
    int count = 0;
    DIR *folder = opendir("/dev/shm");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += strstr(entry->d_name, "duet") != NULL;
    if (folder) closedir(folder);
    return count;
}

static int is_whole_json(const char *path) {
    size_t bytes;
    char *text = cli_read(path, &bytes);
    struct json *root = NULL;
    int code = json_parse(path, text, bytes, &root);
    json_free(root);
    free(text);
    return code == OK;
}

static int is_whole_log(const char *path) {
    int lines = 0;
    char *text = cli_read(path, NULL);
    for (char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    free(text);
    return lines == 1 + STEPS;
}

static int is_whole_weights(const char *path) {
    struct safetensors s = {0};
    int code = safetensors_open(&s, path);
    if (!code) safetensors_close(&s);
    return code == OK;
}

/* What the file is, by the first letter of its name: w, l and j are the outputs. */
static int is_whole(const char *path) {
    switch (*path) {
    case 'w': return is_whole_weights(path);
    case 'l': return is_whole_log(path);
    case 'j': return is_whole_json(path);
    default: return 0;
    }
}

/* Each output is there and whole, or not there. A file of another name is one that could not be
 * renamed: it is whole too, and the error names it. Removes them; returns how many outputs are
 * there. */
static int check_files(const char *what, const char *error) {
    int there = 0;
    DIR *folder = opendir(".");
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *name = entry->d_name;
        if (*name == '.' || !strcmp(name, "d") || !strcmp(name, "golden")) continue;
        cr_expect(is_whole(name), "%s: %s is not whole", what, name);
        if (name[1])
            cr_expect(strstr(error, name), "%s: left %s", what, name);
        else
            there++;
        unlink(name);
    }
    closedir(folder);
    return there;
}

/* ---- one command ---- */

enum { NO_FILTER = 124 }; /* exit status of a command that was never started */

/* cli_start for a command whose `call` fails with `error`. */
static void start_refused(struct cli *c, const struct refused_call *call, int error, char *words) {
    *c = (struct cli){.status = -1, .terminal = -1};
    for (int i = 0; i < 2; i++)
        cr_assert_geq(c->fds[i] = memfd_create("cli", MFD_CLOEXEC), 0);
    c->pid = fork();
    cr_assert_geq(c->pid, 0);
    if (c->pid == 0) {
        if (!refuse_call(call, error)) _exit(NO_FILTER);
        cli_become(c, NULL, words);
    }
    setpgid(c->pid, c->pid);
}

static void run_refused(const char *mode, const struct refused_call *call, int e) {
    char words[256], what[128];
    struct cli c;
    snprintf(words, sizeof words,
             "train --mode %s --data-dir d --batch-size 8 --steps %d --model mlp "
             "--mlp-hidden 4 --timeout %g --save w --log-loss l --json j --quiet",
             mode, STEPS, TIMEOUT_S);
    snprintf(what, sizeof what, "%s: %s gives %s", mode, call->name, error_names[e]);
    int64_t start = now_ns();
    start_refused(&c, call, errors[e], words);
    cli_wait(&c);
    double seconds = (double)(now_ns() - start) * 1e-9;
    if (c.status == NO_FILTER) cr_skip_test("no seccomp filters here");
    const char *end = strchr(c.err, '\n');
    int one_line = !strncmp(c.err, "duet: ", 6) && end && !end[1];
    int there = check_files(what, c.err);
    cr_expect(c.status == 0 || c.status == 1, "%s: status %d: %s", what, c.status, c.err);
    cr_expect(c.status ? one_line : !*c.err && there == OUTPUTS, "%s: status %d, %d files: '%s'",
              what, c.status, there, c.err);
    cr_expect_lt(seconds, MOST_S, "%s: took %g s: %s", what, seconds, c.err);
    if (getenv("DUET_SHOW"))
        fprintf(stderr, "%-40s %d %5.1f s %s", what, c.status, seconds, *c.err ? c.err : "\n");
    cli_free(&c);
}

static void run_all(const char *mode) {
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    cr_skip_test("a sanitizer needs these calls for itself");
#endif
    int shared = shared_memory();
    put_data(24, 8);
    for (int k = 0; k < CALLS; k++)
        for (int e = 0; e < 3; e++)
            if (!test_short() || e == k % 3) run_refused(mode, &calls[k], e);
    cr_expect_eq(shared_memory(), shared, "a name is left in /dev/shm");
}

Test(cli_refused_calls, ddp, .timeout = 600, .init = cli_folder_make, .fini = cli_folder_remove) {
    run_all("ddp");
}

Test(cli_refused_calls, dp, .timeout = 600, .init = cli_folder_make, .fini = cli_folder_remove) {
    run_all("dp");
}
