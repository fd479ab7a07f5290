/* duet run: starts N copies of any program as the ranks of a job, as torchrun does, and all of them
 * anew if one fails. For programs of process groups (duet.h), and for any other that reads
 * torchrun's environment. */
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/program_name.h"
#include "cli/commands.h"
#include "cli/run/words.h"
#include "comm/launch.h"

/* ---- the environment ---- */

/* A port that nobody listens at now, for programs that open one: two jobs get different ones. */
static int free_port(void) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof name;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 0;
    if (fd >= 0 && !bind(fd, (struct sockaddr *)&name, size) &&
        !getsockname(fd, (struct sockaddr *)&name, &size))
        port = ntohs(name.sin_port);
    if (fd >= 0) close(fd);
    return port;
}

static void set_number(const char *name, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    setenv(name, text, 1);
}

/* What torchrun tells all ranks alike, beside what the launcher tells each of them. */
static void set_environment(const struct run_words *w, int attempt) {
    char id[64];
    snprintf(id, sizeof id, "duet-%d-%lld", (int)getpid(), (long long)now_ns());
    setenv("TORCHELASTIC_RUN_ID", id, attempt == 0);
    set_number("TORCHELASTIC_RESTART_COUNT", attempt);
    set_number("TORCHELASTIC_MAX_RESTARTS", w->restarts);
    set_number("GROUP_RANK", 0);
    set_number("GROUP_WORLD_SIZE", 1);
    set_number("ROLE_WORLD_SIZE", w->ranks);
    setenv("ROLE_NAME", w->role, 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1); /* rank 0 of a PyTorch program opens one */
    setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", 1);
    setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", 0);
}

/* ---- one attempt ---- */

/* The program's words and --local_rank=N behind them, as long as the rank lives. NULL: there is no
 * memory. All ranks are on this machine, so the local rank is the rank. */
static char **add_local_rank(char **program, int rank) {
    static const char form[] = "--local_rank=%d";
    size_t count = 0;
    while (program[count])
        count++;
    char **words = calloc(count + 2, sizeof *words);
    if (!words || !(words[count] = malloc(sizeof form + 8))) return free(words), NULL;
    memcpy(words, program, count * sizeof *words);
    snprintf(words[count], sizeof form + 8, form, rank);
    return words;
}

/* In the rank. This command's own settings of signals are not for the program. */
static int become_program(void *context) {
    const struct run_words *w = context;
    char **words = w->program;
    const char *number = getenv("RANK");
    int rank = number ? atoi(number) : 0, error = run_output_enter(&w->output, rank);
    if (error) {
        fprintf(stderr, "%s: rank %d: its output: %s\n", program_name(), rank, strerror(error));
        return 126;
    }
    if (w->local_rank && !(words = add_local_rank(w->program, rank))) return 126;
    if (w->address) setenv("MASTER_ADDR", w->address, 1);
    signal(SIGXFSZ, SIG_DFL);
    setpgid(0, 0); /* so the terminal is not its own any more: reads fail, nothing stops it */
    signal(SIGTTIN, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
    execvp(words[0], words);
    fprintf(stderr, "%s: %s: %s\n", program_name(), w->program[0], strerror(errno));
    return errno == ENOENT ? 127 : 126;
}

static const char *signal_name(int number) {
    static const struct {
        int number;
        const char *name;
    } names[] = {{SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
                 {SIGHUP, "SIGHUP"},   {SIGILL, "SIGILL"},   {SIGINT, "SIGINT"},
                 {SIGKILL, "SIGKILL"}, {SIGPIPE, "SIGPIPE"}, {SIGQUIT, "SIGQUIT"},
                 {SIGSEGV, "SIGSEGV"}, {SIGTERM, "SIGTERM"}, {SIGTRAP, "SIGTRAP"},
                 {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}, {SIGALRM, "SIGALRM"},
                 {SIGSYS, "SIGSYS"},   {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].number == number) return names[i].name;
    return strsignal(number);
}

static void describe_end(const struct rank_end *end, int is_root, int64_t start_ns) {
    char how[64];
    if (!end->pid)
        snprintf(how, sizeof how, "was not started");
    else if (end->by_launcher && !is_root)
        snprintf(how, sizeof how, "ended by duet run, after the first failure");
    else if (end->signal)
        snprintf(how, sizeof how, "signal %d (%s)", end->signal, signal_name(end->signal));
    else
        snprintf(how, sizeof how, "exit status %d", end->exit_code);
    fprintf(stderr, "pid %-8ld %8.2f s  %s\n", end->pid,
            end->when_ns ? (double)(end->when_ns - start_ns) * 1e-9 : 0, how);
}

/* The first failure first, then all other ranks in order. */
static void report_ends(const struct run_words *w, const struct rank_end *ends, int root,
                        int attempt, int64_t start_ns) {
    char date[32] = "";
    time_t now = time(NULL);
    struct tm parts;
    if (localtime_r(&now, &parts)) strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &parts);
    fprintf(stderr, "%s run: %s FAILED, attempt %d of %lld, %s\n", program_name(), w->program[0],
            attempt + 1, (long long)w->restarts + 1, date);
    if (root >= 0) {
        fprintf(stderr, "  root cause (first failure)   rank %-3d ", root);
        describe_end(&ends[root], 1, start_ns);
    }
    for (int r = 0; r < w->ranks; r++) {
        if (r == root) continue;
        fprintf(stderr, "  %-28s rank %-3d ", "", r);
        describe_end(&ends[r], 0, start_ns);
    }
    if (w->output.folder) fprintf(stderr, "  output in %s\n", w->output.attempt);
}

static int run_once(struct run_words *w, int attempt, struct launch_result *result) {
    struct rank_end ends[MAX_DEVICES] = {0};
    struct launch launch = {.world_size = (int)w->ranks,
                            .entry = become_program,
                            .context = w,
                            .master_port = w->port ? (int)w->port : free_port(),
                            .ends = ends,
                            .groups = 1,
                            .grace_s = w->grace_s > 0 ? w->grace_s : 1e-9};
    int64_t start = now_ns();
    set_environment(w, attempt);
    *result = (struct launch_result){.exit_status = 1, .rank = -1};
    int code = run_output_begin(&w->output, (int)w->ranks, attempt);
    if (!code) code = launch_ranks(&launch, result);
    run_output_end(&w->output, (int)w->ranks);
    if (code && code != ERR_READER && ends[0].pid && !result->signal)
        report_ends(w, ends, result->rank, attempt, start);
    return code;
}

int command_run(int argc, char **argv, const struct duet_model *own) {
    struct run_words w;
    struct launch_result result;
    (void)own;
    int code = run_words_read(argc, argv, &w);
    if (code) return report_error(code);
    if (w.help) return run_help();
    w.output.role = w.role;
    code = run_output_choose_folder(&w.output, (int)w.ranks);
    if (code) return report_error(code);
    for (int attempt = 0;; attempt++) {
        code = run_once(&w, attempt, &result);
        if (!code) return w.output.lost ? error_exit_status(ERR_FAILED) : 0;
        report_error(code);
        if (attempt >= w.restarts || result.signal || code == ERR_USAGE || code == ERR_READER)
            return result.exit_status;
        fprintf(stderr, "%s run: starting all %lld ranks anew, restart %d of %lld\n",
                program_name(), (long long)w.ranks, attempt + 1, (long long)w.restarts);
    }
}
