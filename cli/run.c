/* duet run: starts N copies of any program as the ranks of a job, as torchrun does, and all of them
 * anew if one fails. For programs of process groups (duet.h), and for any other that reads
 * torchrun's environment. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/parse.h"
#include "base/program.h"
#include "cli/commands.h"
#include "cli/run_output.h"
#include "cli/say.h"
#include "comm/launch.h"
#include "device/device.h"

static int help(void) {
    say(stdout,
        "usage: duet run [flags] PROGRAM [its arguments]\n\n"
        "Starts N copies of a program on this machine as the ranks of one job, with torchrun's\n"
        "environment (RANK, WORLD_SIZE, ...), and waits for them. If one fails, the others are\n"
        "ended within a second, and the failure is reported. Two jobs never meet.\n\n"
        "  --nproc-per-node N  1 to 64; gpu: one for each GPU; cpu: for each core; auto: gpu "
        "where\n"
        "                      there is one, else cpu (default 1)\n"
        "  --max-restarts N    start all ranks anew after a failure, so many times (default 0)\n"
        "  --log-dir DIR       a folder for each attempt and rank: DIR/attempt_0/1/stderr.log\n"
        "  --redirects 0..3    to the files instead of here: 1 stdout, 2 stderr, 3 both; for\n"
        "                      single ranks 0:3,2:1\n"
        "  --tee 0..3          to the files and here, each line with its rank; without --log-dir\n"
        "                      only here\n"
        "  --master-port P     MASTER_PORT of the ranks (default: one that is free)\n"
        "  --standalone, --no-python, --nnodes 1, --monitor-interval S\n"
        "                      taken for torchrun's sake: there is one machine, programs start as\n"
        "                      they are, and the end of a rank is noticed at once\n\n"
        "Flags take dashes or underscores, and their value with = or as the next word.\n\n"
        "exit status: that of the rank that failed first; 128+n: ended by signal n; 2 wrong "
        "usage\n");
    return 0;
}

struct words {
    int64_t ranks, restarts, port;
    struct run_output output;
    char **program; /* and its arguments, ended by NULL */
    int help;
};

/* ---- reading ---- */

static const char *const known[] = {
    "--nproc-per-node", "--max-restarts", "--log-dir",          "--redirects",  "--tee",
    "--master-port",    "--nnodes",       "--monitor-interval", "--standalone", "--no-python"};
enum { KNOWN = sizeof known / sizeof *known, VALUED = KNOWN - 2 };

static int count_cores(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

static int read_ranks(const char *flag, const char *text, int64_t *ranks) {
    int gpus = 0, wants_gpu = !strcmp(text, "gpu"), is_auto = !strcmp(text, "auto");
    if (!wants_gpu && !is_auto && strcmp(text, "cpu"))
        return parse_int(flag, text, 1, MAX_DEVICES, ranks);
    int code = wants_gpu || is_auto ? device_probe(DEVICE_CUDA, &gpus) : OK;
    if (wants_gpu) CHECK(code);
    *ranks = gpus && !code ? gpus : count_cores();
    if (*ranks > MAX_DEVICES) *ranks = MAX_DEVICES;
    return OK;
}

static int read_nodes(const char *flag, const char *text) {
    if (!strcmp(text, "1") || !strcmp(text, "1:1")) return OK;
    return fail(ERR_USAGE, "%s: %s: several machines come later: give 1", flag, text);
}

static int read_value(struct words *w, const char *flag, const char *text) {
    double seconds;
    if (!strcmp(flag, "--nproc-per-node")) return read_ranks(flag, text, &w->ranks);
    if (!strcmp(flag, "--max-restarts")) return parse_int(flag, text, 0, 1000000, &w->restarts);
    if (!strcmp(flag, "--master-port")) return parse_int(flag, text, 0, 65535, &w->port);
    if (!strcmp(flag, "--nnodes")) return read_nodes(flag, text);
    if (!strcmp(flag, "--monitor-interval")) return parse_number(flag, text, 0, 1e9, &seconds);
    if (!strcmp(flag, "--redirects")) return run_output_parse(flag, text, w->output.redirect);
    if (!strcmp(flag, "--tee")) return run_output_parse(flag, text, w->output.tee);
    if (!*text) return fail(ERR_USAGE, "%s: the value is empty: see duet run --help", flag);
    w->output.folder = text;
    return OK;
}

/* The flag as it is known: "--nproc_per_node=4" is "--nproc-per-node"; torchrun's -r and -t. */
static void spell(const char *from, char *word, size_t bytes) {
    snprintf(word, bytes, "%.*s", (int)strcspn(from, "="), from);
    for (char *c = word; *c; c++)
        if (*c == '_') *c = '-';
    if (!strcmp(word, "-r")) snprintf(word, bytes, "--redirects");
    if (!strcmp(word, "-t")) snprintf(word, bytes, "--tee");
}

static int read_words(int argc, char **argv, struct words *w) {
    int i = 0;
    for (; i < argc && argv[i][0] == '-'; i++) {
        char word[32];
        const char *value = strchr(argv[i], '=') ? strchr(argv[i], '=') + 1 : NULL;
        int k = 0;
        spell(argv[i], word, sizeof word);
        if (!strcmp(word, "--help") || !strcmp(word, "-h")) return w->help = 1, OK;
        if (!strcmp(word, "--")) {
            i++;
            break;
        }
        while (k < KNOWN && strcmp(known[k], word))
            k++;
        if (k == KNOWN) return unknown_flag(argv[i], known, KNOWN, "duet run --help");
        if (k >= VALUED && value)
            return fail(ERR_USAGE, "%s: takes no value, but was given %s: leave it out", word,
                        value);
        if (k >= VALUED) continue;
        if (!value && i + 1 == argc)
            return fail(ERR_USAGE, "%s: no value: see duet run --help", word);
        CHECK(read_value(w, known[k], value ? value : argv[++i]));
    }
    w->program = argv + i;
    if (i == argc) return fail(ERR_USAGE, "run: no program was given: see duet run --help");
    for (int r = 0; r < MAX_DEVICES && !w->output.folder; r++)
        if (w->output.redirect[r])
            return fail(ERR_USAGE, "--redirects: to which files? give --log-dir too");
    return OK;
}

/* 1 if the shell would find the program. */
static int can_start(const char *program) {
    char path[4096];
    if (strchr(program, '/')) return access(program, X_OK) == 0;
    for (const char *at = getenv("PATH"); at && *at; at += *at == ':') {
        int length = (int)strcspn(at, ":");
        snprintf(path, sizeof path, "%.*s/%s", length, at, program);
        if (access(path, X_OK) == 0) return 1;
        at += length;
    }
    return 0;
}

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
static void set_environment(const struct words *w, int attempt) {
    char id[64];
    snprintf(id, sizeof id, "duet-%d-%lld", (int)getpid(), (long long)now_ns());
    setenv("TORCHELASTIC_RUN_ID", id, attempt == 0);
    set_number("TORCHELASTIC_RESTART_COUNT", attempt);
    set_number("TORCHELASTIC_MAX_RESTARTS", w->restarts);
    set_number("GROUP_RANK", 0);
    set_number("GROUP_WORLD_SIZE", 1);
    set_number("ROLE_WORLD_SIZE", w->ranks);
    setenv("ROLE_NAME", "default", 1);
}

/* ---- one attempt ---- */

/* In the rank. This command's own settings of signals are not for the program. */
static int become_program(void *context) {
    const struct words *w = context;
    const char *number = getenv("RANK");
    int rank = number ? atoi(number) : 0, error = run_output_enter(&w->output, rank);
    if (error) {
        fprintf(stderr, "%s: rank %d: its output: %s\n", program_name(), rank, strerror(error));
        return 126;
    }
    signal(SIGXFSZ, SIG_DFL);
    setpgid(0, 0); /* so the terminal is not its own any more: reads fail, nothing stops it */
    signal(SIGTTIN, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
    execvp(w->program[0], w->program);
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
                 {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}};
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
static void report_ends(const struct words *w, const struct rank_end *ends, int root, int attempt,
                        int64_t start_ns) {
    fprintf(stderr, "%s run: %s FAILED, attempt %d of %lld\n", program_name(), w->program[0],
            attempt + 1, (long long)w->restarts + 1);
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

static int run_once(struct words *w, int attempt, struct launch_result *result) {
    struct rank_end ends[MAX_DEVICES] = {0};
    struct launch launch = {.world_size = (int)w->ranks,
                            .entry = become_program,
                            .context = w,
                            .master_port = (int)w->port,
                            .ends = ends,
                            .groups = 1};
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
    struct words w = {.ranks = 1};
    struct launch_result result;
    (void)own;
    int code = read_words(argc, argv, &w);
    if (w.help) return help();
    if (!code && !can_start(w.program[0]))
        code =
            fail(ERR_USAGE, "run: %s: there is no such program: give its path, or one along PATH",
                 w.program[0]);
    if (code) return report_error(code);
    if (!w.port) w.port = free_port();
    for (int attempt = 0;; attempt++) {
        code = run_once(&w, attempt, &result);
        if (!code) return 0;
        report_error(code);
        if (attempt >= w.restarts || result.signal || code == ERR_USAGE || code == ERR_READER)
            return result.exit_status;
        fprintf(stderr, "%s run: starting all %lld ranks anew, restart %d of %lld\n",
                program_name(), (long long)w.ranks, attempt + 1, (long long)w.restarts);
    }
}
