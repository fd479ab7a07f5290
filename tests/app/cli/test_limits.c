/* Runs commands under system limits: small limits on file sizes, open files and more (ulimit),
 * SIGCHLD ignored by the parent, descriptors 0, 1 or 2 closed. Each succeeds or ends with one
 * correct line. */
#include <stddef.h>
#include <sys/resource.h>

#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"

#define SMALL " --device cpu --device-memory 64M --data-dir d --batch-size 30 --model mlp --quiet"

enum { NOT_POSSIBLE = 125, NO_LIMIT = -1 };

/* What a command is started under. */
struct spoilt {
    /* soft and hard limits; NO_LIMIT: as they are */
    long file_bytes, open_files, memory, processes;
    int ignore_children; /* SIGCHLD is ignored */
    int user;            /* the user who runs the command; 0: the user who runs the test */
    int closed;          /* bit s: descriptor s is closed */
};
static const struct spoilt WHOLE = {NO_LIMIT, NO_LIMIT, NO_LIMIT, NO_LIMIT, 0, 0, 0};

static int set_limit(int resource, long most) {
    struct rlimit limits;
    if (most == NO_LIMIT || getrlimit(resource, &limits)) return most == NO_LIMIT;
    limits.rlim_cur = limits.rlim_max = (rlim_t)most;
    return !setrlimit(resource, &limits);
}

/* In the child. Errors go to a pipe, since a limit of file sizes holds for a file. */
static void become(const struct spoilt *s, const char *line, int err) {
    char words[512], *argv[64] = {"duet"};
    int argc = 1, null = open("/dev/null", O_RDWR);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(words, sizeof words, "%s", line);
    for (char *save, *word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    if (dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(err, 2) < 0) _exit(NOT_POSSIBLE);
    for (int fd = 3; fd < 256; fd++)
        close(fd);
    for (int fd = 0; fd < 3; fd++)
        if (s->closed >> fd & 1) close(fd);
    if (s->ignore_children) signal(SIGCHLD, SIG_IGN);
    if (!set_limit(RLIMIT_FSIZE, s->file_bytes) || !set_limit(RLIMIT_NOFILE, s->open_files) ||
        !set_limit(RLIMIT_NPROC, s->processes) || (s->user && setuid((uid_t)s->user)) ||
        !set_limit(RLIMIT_AS, s->memory))
        _exit(NOT_POSSIBLE);
    execv(cli_program, argv);
    _exit(NOT_POSSIBLE);
}

/* Runs the command; returns its exit status. err: what it printed on stderr. */
static int run_spoilt(const struct spoilt *s, const char *line, char *err, size_t size) {
    int ends[2], status = 0, ended = 0;
    size_t used = 0;
    cr_assert_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    pid_t pid = fork();
    if (pid == 0) become(s, line, ends[1]);
    for (int64_t deadline = deadline_after(CLI_SECONDS); !ended && now_ns() < deadline; cli_pause())
        ended = waitpid(pid, &status, WNOHANG) == pid;
    if (!ended) kill(-pid, SIGKILL);
    cr_assert(ended, "%s: did not end", line);
    cr_assert(cli_nobody_left(CLI_LEFT_SECONDS), "%s: a process is left", line);
    for (ssize_t n; (n = read(ends[0], err + used, size - 1 - used)) > 0;)
        used += (size_t)n;
    err[used] = 0;
    close(ends[0]), close(ends[1]);
    status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (status == NOT_POSSIBLE) cr_skip_test("this system does not let a test do that");
    return status;
}

static void is_one_line(const char *line, const char *err, const char *words) {
    const char *end = strchr(err, '\n');
    cr_expect(!strncmp(err, "duet: ", 6) && end && !end[1] && strstr(err, words), "%s: %s: not %s",
              line, err, words);
}

static const char *const LINES[] = {"train --mode single" SMALL " --steps 2 --save w",
                                    "train --mode dp" SMALL " --steps 2 --save w",
                                    "train --mode ddp" SMALL " --steps 2 --save w"};
enum { COUNT = sizeof LINES / sizeof *LINES };

/* A sanitizer reads /proc and grows files of its own, so two of the limits end it before the
 * command can say anything. */
static void skip_under_sanitizers(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    cr_skip_test("a sanitizer itself needs what is taken away here");
#endif
}

/* Too little of a resource, from a value with which a program cannot even start, to enough of it:
 * each command fails with one line that names the limit, until it goes well. The limit of processes
 * does not hold for root; a thread that cannot be started for want of memory gets its errno too. */
static const struct {
    long least, more, enough, unit; /* more 0: doubles the limit */
    size_t member;                  /* offset in struct spoilt */
    const char *words;
} resources[] = {{0, 0, 1 << 18, 1 << 10, offsetof(struct spoilt, file_bytes), ": File too large"},
                 {4, 1, 40, 1, offsetof(struct spoilt, open_files), "oo many open files"},
                 {6, 8, 400, 1 << 20, offsetof(struct spoilt, memory), ""},
                 {0, 1, 20, 1, offsetof(struct spoilt, processes), "(ulimit -u)"}};
enum { MEMORY = 2, PROCESSES = 3, SOMEBODY = 34567 /* a user id that nobody has */ };

static long megabytes_of(const char *file) {
    struct stat s;
    cr_assert_eq(stat(file, &s), 0, "%s", file);
    return (long)(s.st_size >> 20);
}

static void sweep(int which) {
    const long program_mb = megabytes_of(cli_program) + 16; /* with its libraries */
    char err[1024];
    skip_under_sanitizers();
    if (which == PROCESSES && geteuid()) cr_skip_test("needs a user without processes: be root");
    put_data(100, 20);
    cr_assert(chmod(".", 0777) == 0);
    for (int l = 0; l < COUNT; l++) {
        int status = 1;
        long n = resources[which].least;
        for (; status && n < resources[which].enough;
             n = resources[which].more ? n + resources[which].more : 2 * n + 1) {
            struct spoilt s = WHOLE;
            *(long *)((char *)&s + resources[which].member) = n * resources[which].unit;
            s.user = which == PROCESSES ? SOMEBODY : 0;
            status = run_spoilt(&s, LINES[l], err, sizeof err);
            if (!status || strstr(err, "shared librar")) continue; /* the loader's own message */
            if (which == MEMORY && n < program_mb && !*err)
                continue; /* not even the program fits */
            is_one_line(LINES[l], err, resources[which].words);
            cr_expect(which == PROCESSES || strstr(err, "ulimit -v") ||
                          (!strstr(err, "ulimit -u)") && !strstr(err, "unavailable")),
                      "%s", err);
            if (!which) cr_expect_eq(cli_files(), 2, "left a file"); /* golden, d */
        }
        cr_expect(status == 0 && n > resources[which].least + resources[which].more,
                  "%s: %ld is not enough: %s", LINES[l], n, err);
        unlink("w");
    }
}

CliTest(cli_limits, file_size, 200) {
    sweep(0);
}
CliTest(cli_limits, open_files, 300) {
    sweep(1);
}
CliTest(cli_limits, memory, 300) {
    sweep(MEMORY);
}
CliTest(cli_limits, processes, 300) {
    sweep(PROCESSES);
}

/* `duet train >&-`: a file or memory file that the command opens must not get the number of a
 * closed descriptor, or what is printed would be written into it. What is printed without a reader
 * is a failure, and the files are those of a run with all three open. */
CliTest(cli_limits, closed_descriptors, 300) {
    char err[1024];
    put_data(100, 20);
    for (int l = 0; l < COUNT; l++)
        for (int closed = 0; closed < 8; closed++) {
            struct spoilt s = WHOLE;
            if (test_short() && closed != 0 && closed != 2 && closed != 7) continue;
            s.closed = closed;
            char line[256];
            snprintf(line, sizeof line, "%.*s --log-loss l", (int)strcspn(LINES[l], "\n"),
                     LINES[l]);
            char *quiet = strstr(line, "--quiet"); /* so that there is something to print */
            memset(quiet, ' ', strlen("--quiet"));
            int status = run_spoilt(&s, line, err, sizeof err);
            cr_expect_eq(status, closed >> 1 & 1, "%s: closed %d: %s", line, closed, err);
            if (!closed) cr_assert_eq(system("mv w whole; mv l losses"), 0);
            cr_expect(!closed || (cli_same_file("w", "whole") && cli_same_file("l", "losses")),
                      "%s: other files with %d closed", line, closed);
        }
    /* A program of the user's, which may know nothing of this, finds all three open. */
    char run[PATH_MAX];
    snprintf(run, sizeof run, "%s run sh -c 'ls /proc/$$/fd/0 /proc/$$/fd/2' <&- 2>&-",
             cli_program);
    cr_expect_eq(system(run), 0);
}

/* The kernel drops the exit status of children whose parent ignores SIGCHLD, as it may have been
 * told to by a parent of its own. */
CliTest(cli_limits, sigchld_ignored, 200) {
    struct spoilt s = WHOLE;
    char err[1024];
    put_data(100, 20);
    s.ignore_children = 1;
    for (int l = 0; l < COUNT; l++)
        cr_expect_eq(run_spoilt(&s, LINES[l], err, sizeof err), 0, "%s", LINES[l]);
    cr_expect_eq(run_spoilt(&s, "doctor --device cpu --quick", err, sizeof err), 0);
}
