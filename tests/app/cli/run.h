/* Runs the command as a user does: BUILD_DIR "/duet", in a folder of the test's own.
 *
 *     struct cli c;
 *     cli_run(&c, "train --mode ddp --devices %d --steps 1", n);   split at spaces, no quotes
 *     cr_assert_eq(c.status, 0, "%s", c.err);                      128+n: ended by signal n
 *     cli_free(&c);
 *
 * Each call requires that the command ends in time and leaves no process behind: the test adopts
 * orphans, so waitpid finds all of them. cli_start and cli_wait are the two halves of cli_run.
 * Devices are emulated even on a machine with a GPU, unless the words name others, and no data set
 * is searched in the network. A test that uses this is a CliTest(suite, name, seconds). It runs in
 * that folder, where golden/ is a link to tests/golden. */
#ifndef TESTS_CLI_RUN_H
#define TESTS_CLI_RUN_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/harness/text.h"

#define CliTest(suite, name, seconds) \
    Test(suite, name, .timeout = (seconds), .init = cli_folder_make, .fini = cli_folder_remove)

/* A command that takes longer hangs, also under a sanitizer on a busy machine. */
static const double CLI_SECONDS = 300;
/* The time until no process is left once the command was killed. Promised is one second. */
static const double CLI_LEFT_SECONDS = 3;

struct cli {
    pid_t pid;
    int status;      /* exit status, 128+n after signal n; -1 while it runs */
    char *out, *err; /* standard output; standard error without its lines of progress */
    char *progress;  /* the lines of progress */
    char *shown;     /* all that was sent to its terminal; NULL: no terminal */
    int fds[2];      /* memory files that it prints to */
    int terminal;    /* the test's side of the terminal that is its standard error; -1: none */
    size_t seen;     /* bytes of shown */
};

static char cli_folder[] = "/tmp/duet-cli-XXXXXX", cli_root_path[PATH_MAX],
            cli_program[PATH_MAX + 64];
/* The program's name; cli_be_program sets another one than duet. */
static const char *cli_name = "duet";

static inline void cli_folder_make(void) {
    char golden[PATH_MAX + 64];
    cr_assert_not_null(getcwd(cli_root_path, sizeof cli_root_path));
    snprintf(golden, sizeof golden, "%s/tests/golden", cli_root_path);
    cr_assert_not_null(realpath(BUILD_DIR "/duet", cli_program), "%s/duet is not there: build it",
                       BUILD_DIR);
    cr_assert_not_null(mkdtemp(cli_folder));
    cr_assert_eq(chdir(cli_folder), 0);
    cr_assert_eq(symlink(golden, "golden"), 0);
    cr_assert_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
}

static inline void cli_folder_remove(void) {
    char command[64];
    cr_assert_eq(chdir(cli_root_path), 0);
    snprintf(command, sizeof command, "rm -rf %s", cli_folder);
    cr_assert_eq(system(command), 0);
}

/* From here on the command is this program of BUILD_DIR, under this name. */
static inline void cli_be_program(const char *path, const char *name) {
    char below[PATH_MAX + 64];
    snprintf(below, sizeof below, "%s/%s/%s", cli_root_path, BUILD_DIR, path);
    cr_assert_not_null(realpath(below, cli_program), "%s is not there: build it", below);
    cli_name = name;
}

/* The number of files in the folder, which shows a partial or temporary file that a command
 * left. */
static inline int cli_files(void) {
    int count = 0;
    DIR *folder = opendir(".");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
    if (folder) closedir(folder);
    return count;
}

/* Reads a whole file as text, which the caller frees; *bytes is its size (NULL: not wanted). Fails
 * the test if it cannot be read. */
static inline char *cli_read(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s was not written", path);
    char *text = NULL;
    size_t size = 0, n;
    do {
        text = realloc(text, size + 65537);
        n = fread(text + size, 1, 65536, f);
        size += n;
    } while (n);
    text[size] = 0;
    fclose(f);
    if (bytes) *bytes = size;
    return text;
}

static inline int cli_same_file(const char *a, const char *b) {
    size_t n, m;
    char *x = cli_read(a, &n), *y = cli_read(b, &m);
    int same = n == m && n > 0 && !memcmp(x, y, n);
    free(x);
    free(y);
    return same;
}

static inline void cli_put(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    cr_assert_eq(fclose(file), 0);
}

/* ---- one command ---- */

/* 1 if this subcommand takes --device. If a flag is given twice, the last one counts, so a test may
 * still give another. */
static inline int cli_takes_device(const char *command) {
    return !strcmp(command, "train") || !strcmp(command, "compare") ||
           !strcmp(command, "profile") || !strcmp(command, "demo") || !strcmp(command, "scale");
}

/* Makes the child the command: with a process group of its own, its output and its words. */
static inline void cli_become(const struct cli *c, const char *terminal, char *words) {
    char *argv[66] = {(char *)cli_name};
    int argc = 1, in = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* if the test is stopped, its command ends too */
    for (char *save, *word = strtok_r(words, " ", &save); word && argc < 63;
         word = strtok_r(NULL, " ", &save)) {
        argv[argc++] = strcmp(word, "''") ? word : ""; /* '' stands for an empty word */
        if (argc == 2 && cli_takes_device(argv[1])) argv[argc++] = "--device", argv[argc++] = "cpu";
    }
    int err = terminal ? open(terminal, O_RDWR | O_NOCTTY) : c->fds[1];
    if (dup2(in, 0) < 0 || dup2(c->fds[0], 1) < 0 || dup2(err, 2) < 0) _exit(125);
    execv(cli_program, argv);
    _exit(126);
}

/* terminal: its columns; 0: standard error goes to a file, as standard output always does. */
static inline void cli_start_va(struct cli *c, int terminal, const char *format, va_list words) {
    char text[4096], *side = NULL;
    vsnprintf(text, sizeof text, format, words);
    *c = (struct cli){.status = -1, .terminal = -1};
    for (int i = 0; i < 2; i++) { /* O_APPEND: processes that write at once lose nothing */
        cr_assert_geq(c->fds[i] = memfd_create("cli", MFD_CLOEXEC), 0);
        cr_assert_eq(fcntl(c->fds[i], F_SETFL, O_APPEND), 0);
    }
    if (terminal) {
        c->terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (c->terminal < 0 || grantpt(c->terminal) != 0 || unlockpt(c->terminal) != 0)
            cr_skip_test("no pseudo-terminals here (is /dev/pts mounted?): %s", strerror(errno));
        fcntl(c->terminal, F_SETFL, O_NONBLOCK);
        struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)terminal};
        cr_assert_eq(ioctl(c->terminal, TIOCSWINSZ, &size), 0);
        side = ptsname(c->terminal);
    }
    c->pid = fork();
    cr_assert_geq(c->pid, 0);
    if (c->pid == 0) cli_become(c, side, text);
    setpgid(c->pid, c->pid); /* both sides set it, so the group exists whichever continues first */
}

__attribute__((format(printf, 3, 4))) static inline void cli_start_in(struct cli *c, int columns,
                                                                      const char *format, ...) {
    va_list words;
    va_start(words, format);
    cli_start_va(c, columns, format, words);
    va_end(words);
}
#define cli_start(c, ...) cli_start_in(c, 0, __VA_ARGS__)
#define cli_start_on_terminal(c, ...) cli_start_in(c, 200, __VA_ARGS__)

static inline void cli_pause(void) {
    usleep(2000);
}

/* Reads what the terminal has shown since the last call into c->shown. */
static inline void cli_listen(struct cli *c) {
    char piece[4096];
    for (ssize_t n; c->terminal >= 0 && (n = read(c->terminal, piece, sizeof piece)) > 0;) {
        c->shown = realloc(c->shown, c->seen + (size_t)n + 1);
        memcpy(c->shown + c->seen, piece, (size_t)n);
        c->shown[c->seen += (size_t)n] = 0;
    }
}

/* Waits until the command has shown `text` on its terminal. Returns 0 if it ended or took too
 * long. */
static inline int cli_shows(struct cli *c, const char *text) {
    for (int64_t deadline = deadline_after(CLI_SECONDS); now_ns() < deadline; cli_pause()) {
        cli_listen(c);
        if (c->shown && strstr(c->shown, text)) return 1;
        siginfo_t ended = {0};
        if (waitid(P_PID, (id_t)c->pid, &ended, WEXITED | WNOHANG | WNOWAIT) || ended.si_pid)
            return 0;
    }
    return 0;
}

/* Waits until no process of any command of this test is left; returns 0 if that takes longer. The
 * address sanitizer looks for leaks in a process of its own, which may end later than its rank. */
static inline int cli_nobody_left(double seconds) {
#if defined __SANITIZE_ADDRESS__
    seconds += 5;
#endif
    int64_t deadline = deadline_after(seconds);
    do {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid < 0 && errno == ECHILD) return 1;
        if (pid == 0) cli_pause();
    } while (now_ns() < deadline);
    return 0;
}

/* The parent of a process; 0 if the process is gone. */
static inline pid_t cli_parent_of(pid_t pid) {
    char path[64], line[256];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "PPid: %d", &parent);
    if (f) fclose(f);
    return parent;
}

/* The rank of a process, by its environment; -1: none, or not started yet. */
static inline int cli_rank_of(pid_t pid) {
    char path[64], text[16384];
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    for (char *word = text; word < text + n; word += strlen(word) + 1)
        if (!strncmp(word, "RANK=", 5)) return atoi(word + 5);
    return -1;
}

/* Waits until a rank of the command has begun, and returns its process. */
static inline pid_t cli_find_rank(const struct cli *c, int rank) {
    for (int64_t deadline = deadline_after(CLI_SECONDS); now_ns() < deadline; usleep(500)) {
        DIR *all = opendir("/proc");
        pid_t found = 0;
        for (struct dirent *entry; !found && (entry = readdir(all));) {
            pid_t pid = atoi(entry->d_name);
            if (pid > 0 && cli_parent_of(pid) == c->pid && cli_rank_of(pid) == rank) found = pid;
        }
        closedir(all);
        if (found) return found;
    }
    cr_assert_fail("rank %d did not start", rank);
    return 0;
}

static inline char *cli_text(int fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    char *text = cli_read(path, NULL);
    close(fd);
    return text;
}

static inline int cli_is_progress(const char *line) {
    static const char *const titles[] = {"single ", "DP     ", "DDP    "};
    for (int i = 0; i < 3; i++)
        if (!strncmp(line, titles[i], 7))
            return !strncmp(line + 7, "epoch ", 6) || !strncmp(line + 7, "resumed ", 8);
    return !strncmp(line, "epoch: ", 7);
}

/* Splits standard error into c->err and c->progress. A line that is rewritten in place, as on a
 * terminal, counts only as it reads in the end. */
static inline void cli_split(struct cli *c, const char *text) {
    FILE *file[2];
    size_t bytes[2];
    file[0] = open_memstream(&c->err, &bytes[0]);
    file[1] = open_memstream(&c->progress, &bytes[1]);
    for (const char *end; *text; text = *end ? end + 1 : end) {
        end = text + strcspn(text, "\n");
        const char *last = end > text && end[-1] == '\r' ? end - 1 : end, *first = last;
        while (first > text && first[-1] != '\r')
            first--;
        if (*end || last > first)
            fprintf(file[cli_is_progress(first)], "%.*s\n", (int)(last - first), first);
    }
    fclose(file[0]);
    fclose(file[1]);
}

/* Waits for the command's end. others 1: other commands of this test may still be running. */
static inline void cli_wait_beside(struct cli *c, int others) {
    int status = 0;
    pid_t pid = 0;
    for (int64_t deadline = deadline_after(CLI_SECONDS); pid == 0 && now_ns() < deadline;
         cli_pause()) {
        cli_listen(c);
        pid = waitpid(c->pid, &status, WNOHANG);
    }
    int in_time = pid == c->pid, killed = in_time && WIFSIGNALED(status);
    if (!in_time) {
        kill(-c->pid, SIGKILL);
        waitpid(c->pid, &status, 0);
    }
    cli_listen(c);
    c->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    c->out = cli_text(c->fds[0]);
    char *errors = cli_text(c->fds[1]);
    if (c->terminal >= 0) close(c->terminal);
    cli_split(c, c->terminal >= 0 && c->shown ? c->shown : errors);
    free(errors);
    cr_assert(in_time, "the command did not end within %g s: %s", CLI_SECONDS, c->err);
    if (!others)
        cr_assert(cli_nobody_left(killed ? CLI_LEFT_SECONDS : 0),
                  "the command left a process behind: %s", c->err);
}

static inline void cli_wait(struct cli *c) {
    cli_wait_beside(c, 0);
}

#define cli_run(c, ...) (cli_start_in(c, 0, __VA_ARGS__), cli_wait(c))

static inline void cli_free(struct cli *c) {
    free(c->out);
    free(c->err);
    free(c->progress);
    free(c->shown);
    *c = (struct cli){.status = -1};
}

/* Runs a command that must succeed without a warning; returns what it prints, which the caller
 * frees. */
__attribute__((format(printf, 1, 2))) static inline char *cli_output(const char *format, ...) {
    struct cli c;
    va_list words;
    va_start(words, format);
    cli_start_va(&c, 0, format, words);
    va_end(words);
    cli_wait(&c);
    cr_assert(c.status == 0 && !*c.err, "%s: status %d: %s", format, c.status, c.err);
    char *out = strdup(c.out);
    cli_free(&c);
    return out;
}

#define cli_well(...) free(cli_output(__VA_ARGS__))

/* Runs a command that must end with this status and print each of `words`, which are separated by
 * '|', but none with a '!' in front; one with a '^' is an expression of `matches`. cli_fails: they
 * are one line on stderr, which begins with cli_name and ": ", and no new file is left in the
 * folder. */
#define cli_says(status, words, ...) cli_ends(0, status, words, __VA_ARGS__)
#define cli_fails(status, words, ...) cli_ends(1, status, words, __VA_ARGS__)
__attribute__((format(printf, 4, 5))) static inline void
cli_ends(int fails, int status, const char *words, const char *format, ...) {
    struct cli c;
    va_list list;
    char all[2048], line[4096];
    int files = cli_files();
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    cli_run(&c, "%s", line);
    cr_expect_eq(c.status, status, "%s: status %d, not %d: %s", line, c.status, status, c.err);
    const char *end = strchr(c.err, '\n'), *out = fails ? "" : c.out;
    size_t name = strlen(cli_name);
    cr_expect(!fails || (!strncmp(c.err, cli_name, name) && !strncmp(c.err + name, ": ", 2) &&
                         end && !end[1]),
              "%s: not one line that begins with %s: '%s'", line, cli_name, c.err);
    snprintf(all, sizeof all, "%s", words);
    for (char *save, *word = strtok_r(all, "|", &save); word; word = strtok_r(NULL, "|", &save)) {
        int absent = *word == '!', found;
        if (*word == '^')
            found = matches(c.err, word) || matches(out, word);
        else
            found = strstr(c.err, word + absent) || strstr(out, word + absent);
        cr_expect_neq(found, absent, "%s: '%s' is not true of: %s%s", line, word, out, c.err);
    }
    cr_expect(!fails || cli_files() == files, "%s: left a file", line);
    cli_free(&c);
}

#endif
