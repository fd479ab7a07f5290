/* duet run starts N copies of any program as the ranks of a job, as torchrun does. It serves
 * programs with process groups (duet.h), and any other that reads torchrun's environment. */
#include "cli/run/run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/program_name.h"
#include "base/text/plain.h"
#include "cli/commands.h"
#include "cli/options/help.h"
#include "cli/options/parse.h"
#include "cli/run/lines.h"
#include "comm/launch.h"
#include "report/text.h"

struct words {
    int64_t ranks, port, tee; /* port 0: any free port */
    double grace_s;           /* seconds from a signal until the ranks are killed */
    const char *address;      /* MASTER_ADDR of the ranks; NULL: 127.0.0.1 */
    int64_t nodes, node;      /* torchrun's --nnodes and --node-rank */
    char **program;           /* the program and its arguments, ended by NULL */
    struct lines lines;
    sigset_t mask; /* this command's signal mask before it blocked any signal */
};

/* ---- the command line ---- */

/* All addresses of 127.0.0.0/8 are this machine: jobs with different ones never meet. */
static int is_here(const char *address) {
    struct in_addr a;
    return !address || !strcmp(address, "localhost") ||
           (inet_pton(AF_INET, address, &a) == 1 && ntohl(a.s_addr) >> 24 == 127);
}

/* torchrun needs the same command on each machine; with MPI one command starts all ranks. */
static int check_machines(const struct words *w) {
    char hosts[512], command[1024] = "";
    int here = is_here(w->address), nodes = (int)w->nodes, ranks = (int)w->ranks;
    if (nodes == 1 && !here)
        return fail(ERR_USAGE,
                    "--master-addr: %s: is another machine: leave it out, or give --nnodes",
                    w->address);
    if (nodes == 1)
        return w->node ? fail(ERR_USAGE, "--node-rank: %d: only one machine: give 0", (int)w->node)
                       : OK;
    int used = snprintf(hosts, sizeof hosts, "%s:%d", here ? "MACHINE0" : w->address, ranks);
    for (int m = 1; m < nodes && used < (int)sizeof hosts; m++)
        used += snprintf(hosts + used, sizeof hosts - (size_t)used, ",MACHINE%d:%d", m, ranks);
    used = 0;
    for (char **word = w->program; *word && used < (int)sizeof command; word++)
        used += snprintf(command + used, sizeof command - (size_t)used, " %s", PLAIN(*word));
    return fail(ERR_USAGE,
                "--nnodes: %d: mpirun starts the ranks of several machines, once for all: mpirun "
                "-np %d --host %s%s",
                nodes, nodes * ranks, hosts, command);
}

#define AT(member) OPTION_AT(struct words, member)
const struct option launch_options[] = {
    {"--nproc-per-node", "N", "the number of ranks, 1 to 64 (default 1)", read_int, AT(ranks), 1,
     MAX_DEVICES, ALWAYS},
    {"--tee", "0..3",
     "begin each printed line with its rank: 1 on stdout, 2 on stderr, 3 on both (default 0)",
     read_int, AT(tee), 0, 3, ALWAYS},
    {"--master-port", "P", "MASTER_PORT of the ranks (default: a free one)", read_int, AT(port), 0,
     65535, ALWAYS},
    {"--master-addr", "127.0.0.2",
     "MASTER_ADDR of the ranks, an address of this machine (default 127.0.0.1)", read_word,
     AT(address), NO_LIMITS, ALWAYS},
    {"--shutdown-timeout", "S",
     "SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the ranks; those that still run after S "
     "seconds, or at a second signal, are killed (default 30)",
     read_number, AT(grace_s), 0, 1e9, ALWAYS},
    {"--standalone", NULL, "accepted without effect, like --nnodes 1 and --node-rank 0",
     read_nothing, NO_MEMBER, NO_LIMITS, ALWAYS},
    {"--nnodes", "1", "", read_int, AT(nodes), 1, 64, ALWAYS},
    {"--node-rank", "0", "", read_int, AT(node), 0, 63, ALWAYS},
    OPTION_END};

/* What other launchers call the number of ranks, and Duet's other commands. */
static const struct option_synonym synonyms[] = {{"-n", "--nproc-per-node"},
                                                 {"-np", "--nproc-per-node"},
                                                 {"--num-processes", "--nproc-per-node"},
                                                 {"--world-size", "--nproc-per-node"},
                                                 {"--devices", "--nproc-per-node"},
                                                 {NULL, NULL}};

static int help(void) {
    say_text("usage: duet run [options] PROGRAM [its arguments]\n\n"
             "Starts N copies of a program on this machine as the ranks of one job, with "
             "torchrun's environment (RANK, WORLD_SIZE, ...), and waits for them. If one fails, "
             "the others are ended within a second, and so are processes that ranks leave behind. "
             "Jobs do not interfere with each other.\n\n"
             "options, as --option value or --option=value; _ works as -:\n");
    options_print(launch_options);
    say_text("\nexit status: the status of the first rank that failed; 128+n if signal n ended it; "
             "2 wrong usage\n");
    return 0;
}

/* ---- the ranks ---- */

/* A port that nobody listens on now, for programs that open one: two jobs get different ports. */
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

/* The variables that torchrun sets alike for all ranks; the launcher sets those of each rank. */
static void set_environment(const struct words *w) {
    char text[64];
    snprintf(text, sizeof text, "duet-%d-%lld", (int)getpid(), (long long)now_ns());
    setenv("TORCHELASTIC_RUN_ID", text, 1);
    setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
    setenv("TORCHELASTIC_MAX_RESTARTS", "0", 1);
    setenv("GROUP_RANK", "0", 1);
    setenv("GROUP_WORLD_SIZE", "1", 1);
    snprintf(text, sizeof text, "%d", (int)w->ranks);
    setenv("ROLE_WORLD_SIZE", text, 1);
    setenv("ROLE_NAME", "default", 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1); /* else rank 0 in PyTorch opens none */
}

/* In the rank, before the program. It must not inherit this command's signal mask. */
static int prepare_rank(void *context) {
    const struct words *w = context;
    sigprocmask(SIG_SETMASK, &w->mask, NULL);
    const char *number = getenv("RANK");
    if (lines_enter(&w->lines, number ? atoi(number) : 0)) {
        fprintf(stderr, "%s: the output of a rank: %s\n", program_name(), strerror(errno));
        return 126;
    }
    if (w->address && strcmp(w->address, "localhost")) setenv("MASTER_ADDR", w->address, 1);
    signal(SIGXFSZ, SIG_DFL);
    setpgid(0, 0); /* leaves the terminal's foreground group: reads fail, but nothing stops it */
    signal(SIGTTIN, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
    return 0;
}

/* From here on launch_ranks reads the signals that would end this process; one that comes after the
 * ranks have ended is dropped, so that the result is still printed and leftover processes are still
 * ended. */
static void hold_signals(struct words *w) {
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGINT), sigaddset(&held, SIGTERM);
    sigaddset(&held, SIGHUP), sigaddset(&held, SIGQUIT);
    sigprocmask(SIG_BLOCK, &held, &w->mask);
}

/* Processes that ranks leave running become children of this process, since it is their subreaper,
 * whatever their group or session; only the readers of --tee are in the group of this process. They
 * have half a second to end by themselves, as the helpers of an interpreter do. If a process
 * survives SIGKILL, it hangs in the kernel. If /proc cannot be read, none is found. */
static void end_left_over(void) {
    static const int64_t KILL_AFTER_NS = 500000000, GIVE_UP_NS = 5000000000;
    const int64_t start = now_ns();
    pid_t children[256];
    for (int running = 1; running && now_ns() - start < GIVE_UP_NS;) {
        int count = process_children(children, 256);
        running = 0;
        for (int i = 0; i < count; i++) {
            if (getpgid(children[i]) == getpgrp()) continue;
            running = 1; /* a process that just ended may have left children: look once more */
            if (!waitpid(children[i], NULL, WNOHANG) && now_ns() - start >= KILL_AFTER_NS)
                kill(children[i], SIGKILL);
        }
        if (running) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

static int run(struct words *w, struct launch_result *result) {
    struct launch launch = {.world_size = (int)w->ranks,
                            .entry = prepare_rank,
                            .context = w,
                            .program = w->program[0],
                            .argv = w->program,
                            .master_port = w->port ? (int)w->port : free_port(),
                            .groups = 1,
                            .grace_s = w->grace_s > 0 ? w->grace_s : 1e-9};
    set_environment(w);
    hold_signals(w);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int code = lines_start(&w->lines, (int)w->ranks, (int)w->tee);
    if (!code) code = launch_ranks(&launch, result);
    struct failures all = failures_of(code);
    end_left_over();
    failures_add(&all, lines_end(&w->lines, (int)w->ranks));
    return failures_end(&all);
}

int command_run(int argc, char **argv, const struct duet_model *own) {
    struct words w = {.ranks = 1, .nodes = 1, .grace_s = 30}; /* torchrun's defaults */
    struct launch_result result = {.exit_status = 0};
    struct options o = {
        .command = "run", .part = {{launch_options, &w}}, .synonyms = synonyms, .then_words = 1};
    (void)own;
    int code = options_read(&o, argc, argv);
    if (!code && o.help) return help();
    if (!code && o.read == argc)
        code = fail(ERR_USAGE, "run: no program was given: see duet run --help");
    w.program = argv + o.read;
    if (!code) code = check_machines(&w);
    if (!code) code = run(&w, &result);
    int status = report_error(code);
    return result.exit_status ? result.exit_status : status;
}
