/* Reading the words of `duet run`. Options and values are torchrun's; what would take several
 * machines is refused in one line. */
#include "cli/run/words.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/text/parse.h"
#include "cli/options/help.h"
#include "cli/options/parse.h"
#include "device/device.h"
#include "report/text.h"

static int read_ranks(const struct option *option, const char *text, void *target) {
    struct run_words *w = target;
    int gpus = 0, wants_gpu = !strcmp(text, "gpu"), is_auto = !strcmp(text, "auto");
    if (!wants_gpu && !is_auto && strcmp(text, "cpu")) {
        if (text[0] == '-' || text[0] == '+' || isdigit((unsigned char)text[0]))
            return parse_int(option->name, text, 1, MAX_DEVICES, &w->ranks);
        return fail(ERR_USAGE,
                    "%s: Unsupported nproc_per_node value: %s: give 1 to %d, gpu, cpu or auto",
                    option->name, text, MAX_DEVICES);
    }
    int code = wants_gpu || is_auto ? device_probe(DEVICE_CUDA, &gpus) : OK;
    if (wants_gpu && code)
        return fail(ERR_USAGE,
                    "%s: gpu: there is none to use, as duet devices says: give a number, cpu or "
                    "auto",
                    option->name);
    w->ranks = gpus && !code ? gpus : usable_cores();
    if (w->ranks > MAX_DEVICES) w->ranks = MAX_DEVICES;
    return OK;
}

static int read_streams(const struct option *option, const char *text, void *target) {
    return run_output_parse(option->name, text, option_member(option, target));
}

static int refuse_machines(const char *name, const char *text) {
    return fail(ERR_USAGE, "%s: %s: several machines come later: %s", name, text,
                strcmp(name, "--nnodes") ? "leave it out" : "give 1");
}

/* All addresses of 127.0.0.0/8 are this machine: jobs that are given different ones never meet. */
static int read_address(const struct option *option, const char *text, void *target) {
    struct run_words *w = target;
    struct in_addr a;
    int is_loopback = inet_pton(AF_INET, text, &a) == 1 && ntohl(a.s_addr) >> 24 == 127;
    w->address = is_loopback ? text : NULL;
    return is_loopback || !strcmp(text, "::1") || !strcmp(text, "localhost")
               ? OK
               : refuse_machines(option->name, text);
}

static int read_use_env(const struct option *option, const char *text, void *target) {
    (void)text, (void)target;
    return fail(ERR_USAGE,
                "%s: the local rank is in the environment, as LOCAL_RANK, in any case: leave it "
                "out; --local-rank also gives it as an argument",
                option->name);
}

/* What torchrun needs where a job has several machines: taken where it says that there is one. */
static int read_one_machine(const struct option *option, const char *text, void *target) {
    static const char *const ONE[][2] = {
        {"--nnodes", "1"}, {"--nnodes", "1:1"}, {"--node-rank", "0"}};
    (void)target;
    for (size_t i = 0; i < sizeof ONE / sizeof *ONE; i++)
        if (!strcmp(option->name, ONE[i][0]) && !strcmp(text, ONE[i][1])) return OK;
    return refuse_machines(option->name, text);
}

static int read_rendezvous(const struct option *option, const char *text, void *target) {
    struct run_words *w = target;
    w->rendezvous[0] = option->name;
    w->rendezvous[1] = text;
    return OK;
}

static int read_module(const struct option *option, const char *text, void *target) {
    (void)text, (void)target;
    return fail(ERR_USAGE,
                "%s: names a Python module, but programs start as they are: give python -m "
                "MODULE as the program",
                option->name);
}

/* What other launchers call the number of ranks, and Duet's other commands. */
static const struct option_synonym synonyms[] = {{"-n", "--nproc-per-node"},
                                                 {"-np", "--nproc-per-node"},
                                                 {"--np", "--nproc-per-node"},
                                                 {"--nproc", "--nproc-per-node"},
                                                 {"--num-processes", "--nproc-per-node"},
                                                 {"--world-size", "--nproc-per-node"},
                                                 {"--devices", "--nproc-per-node"},
                                                 {NULL, NULL}};

#define AT(member) OPTION_AT(struct run_words, member)
const struct option launch_options[] = {
    {"--nproc-per-node", "N",
     "the number of ranks, 1 to 64 (default 1); gpu: one for each GPU; cpu: one for each core; "
     "auto: gpu where there is one, else cpu",
     read_ranks, AT(ranks), NO_LIMITS, ALWAYS},
    {"--max-restarts", "N", "how often all ranks are started anew after a failure (default 0)",
     read_int, AT(restarts), 0, 1000000, ALWAYS},
    {"--redirects", "0..3",
     "output goes to files instead of here: 1 stdout, 2 stderr, 3 both; for single ranks 0:3,2:1",
     read_streams, AT(output.redirect), NO_LIMITS, ALWAYS},
    {"--tee", "0..3",
     "output goes to files and here, where each line begins with the role and the rank",
     read_streams, AT(output.tee), NO_LIMITS, ALWAYS},
    {"--log-dir", "DIR",
     "where the files are: DIR/attempt_0/1/stderr.log of rank 1 (default: a new folder in TMPDIR, "
     "whose name is printed)",
     read_word, AT(output.folder), NO_LIMITS, ALWAYS},
    {"--role", "NAME", "ROLE_NAME of the ranks, which --tee prints (default: the word default)",
     read_word, AT(role), NO_LIMITS, ALWAYS},
    {"--master-port", "P", "MASTER_PORT of the ranks (default: one that is free)", read_int,
     AT(port), 0, 65535, ALWAYS},
    {"--master-addr", "127.0.0.2",
     "MASTER_ADDR of the ranks, one of this machine (default 127.0.0.1)", read_address, NO_MEMBER,
     NO_LIMITS, ALWAYS},
    {"--local-rank", NULL,
     "the last argument of each rank is --local_rank=N, which torch.distributed.launch gave it",
     read_on, AT(local_rank), NO_LIMITS, ALWAYS},
    {"--shutdown-timeout", "S",
     "SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the ranks; those that still run after S "
     "seconds, or at a second signal, are killed (default 30)",
     read_number, AT(grace_s), 0, 1e9, ALWAYS},
    /* torchrun's, for several machines, or without meaning here */
    {"--standalone", NULL, "", read_on, AT(standalone), NO_LIMITS, ALWAYS},
    {"--no-python", NULL, "", read_nothing, NO_MEMBER, NO_LIMITS, ALWAYS},
    {"--nnodes", "1", "", read_one_machine, NO_MEMBER, NO_LIMITS, ALWAYS},
    {"--node-rank", "0", "", read_one_machine, NO_MEMBER, NO_LIMITS, ALWAYS},
    {"--use-env", NULL, "", read_use_env, NO_MEMBER, NO_LIMITS, ALWAYS},
    {"--monitor-interval", "S", "", read_number, AT(ignored), 0, 1e9, ALWAYS},
    {"--rdzv-backend", "NAME", "", read_rendezvous, NO_MEMBER, NO_LIMITS, ALWAYS},
    {"--rdzv-endpoint", "HOST:PORT", "", read_rendezvous, NO_MEMBER, NO_LIMITS, ALWAYS},
    {"--rdzv-id", "ID", "", read_rendezvous, NO_MEMBER, NO_LIMITS, ALWAYS},
    {"--rdzv-conf", "CONF", "", read_rendezvous, NO_MEMBER, NO_LIMITS, ALWAYS},
    {"-m", "MODULE", "", read_module, NO_MEMBER, NO_LIMITS, ALWAYS},
    {"--module", "MODULE", "", read_module, NO_MEMBER, NO_LIMITS, ALWAYS},
    {"-r", "0..3", "", read_streams, AT(output.redirect), NO_LIMITS, ALWAYS},
    {"-t", "0..3", "", read_streams, AT(output.tee), NO_LIMITS, ALWAYS},
    OPTION_END};

const char *const launch_ignores =
    "torchrun's --standalone, --no-python, --monitor-interval S, --nnodes 1, --node-rank 0 "
    "and, with --standalone, --rdzv-backend, --rdzv-endpoint, --rdzv-id "
    "and --rdzv-conf are accepted and change nothing: there is one machine, and jobs never meet.";

int run_help(void) {
    say_text("usage: duet run [options] PROGRAM [its arguments]\n\n"
             "Starts N copies of a program on this machine as the ranks of one job, with "
             "torchrun's environment (RANK, WORLD_SIZE, ...), and waits for them. If one fails, "
             "the others are ended within a second, and the failure is reported. Two jobs never "
             "meet.\n\n"
             "options, with dashes or underscores, and their value with = or as the next word:\n");
    options_print(launch_options);
    text_wrap(stdout, TEXT_USUAL, 2, 2, launch_ignores);
    say_text("\nexit status: that of the rank that failed first; 128+n where signal n ended it; "
             "2: wrong usage\n");
    return 0;
}

/* 1 if the shell would find the program along PATH. */
static int is_along_path(const char *program) {
    char path[4096];
    struct stat file;
    for (const char *at = getenv("PATH"); at && *at; at += *at == ':') {
        int length = (int)strcspn(at, ":");
        snprintf(path, sizeof path, "%.*s/%s", length, at, program);
        if (!access(path, X_OK) && !stat(path, &file) && S_ISREG(file.st_mode)) return 1;
        at += length;
    }
    return 0;
}

static int check_program(const char *program) {
    struct stat file;
    if (!strchr(program, '/') && is_along_path(program)) return OK;
    if (stat(program, &file))
        return fail(ERR_USAGE,
                    "run: %s: there is no such program: give its path, or one along PATH", program);
    if (S_ISDIR(file.st_mode))
        return fail(ERR_USAGE, "run: %s: is a folder: give a program in it", program);
    if (access(program, X_OK))
        return fail(ERR_USAGE,
                    "run: %s: may not be executed: start it as `python %s`, or see chmod +x",
                    program, program);
    if (!strchr(program, '/'))
        return fail(ERR_USAGE, "run: %s: there is no such program along PATH: give ./%s", program,
                    program);
    return OK;
}

int run_words_read(int argc, char **argv, struct run_words *w) {
    struct options o = {.command = "run",
                        .part = {{launch_options, w}},
                        .synonyms = synonyms,
                        .form = OPTIONS_THEN_WORDS};
    *w = (struct run_words){.ranks = 1, .grace_s = 30, .role = "default"}; /* torchrun's */
    CHECK(options_read(&o, argc, argv));
    w->help = o.help;
    w->program = argv + o.read;
    if (w->help) return OK;
    if (w->rendezvous[0] && !w->standalone)
        return refuse_machines(w->rendezvous[0], w->rendezvous[1]);
    if (o.read == argc) return fail(ERR_USAGE, "run: no program was given: see duet run --help");
    return check_program(w->program[0]);
}
