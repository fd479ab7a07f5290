/* Reading the words of `duet run`. Flags and values are torchrun's; what would take several
 * machines is refused in one line. */
#include "cli/run_words.h"

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/nearest.h"
#include "base/parse.h"
#include "cli/say.h"
#include "device/device.h"

const struct run_flag run_flags[] = {
    {"--nproc-per-node", "N",
     "the number of ranks, 1 to 64 (default 1); gpu: one for each GPU; cpu: one for each core; "
     "auto: gpu where there is one, else cpu"},
    {"--max-restarts", "N", "how often all ranks are started anew after a failure (default 0)"},
    {"--redirects", "0..3",
     "output goes to files instead of here: 1 stdout, 2 stderr, 3 both; for single ranks 0:3,2:1"},
    {"--tee", "0..3",
     "output goes to files and here, where each line begins with the role and the rank"},
    {"--log-dir", "DIR",
     "where the files are: DIR/attempt_0/1/stderr.log of rank 1 (default: a new folder in TMPDIR, "
     "whose name is printed)"},
    {"--role", "NAME", "ROLE_NAME of the ranks, which --tee prints (default: the word default)"},
    {"--master-port", "P", "MASTER_PORT of the ranks (default: one that is free)"},
    {"--shutdown-timeout", "S",
     "SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the ranks; those that still run after S "
     "seconds, or at a second signal, are killed (default 30)"},
    {"--standalone", NULL,
     "accepted for torchrun's sake, like the flags below: jobs never meet anyway"},
    {"--no-python", NULL, "programs start as they are"},
    {"--nnodes", "1", "there is one machine"},
    {"--node-rank", "0", "the same"},
    {"--master-addr", "127.0.0.1", "the same"},
    {"--monitor-interval", "S", "the end of a rank is noticed at once"},
    {"--rdzv-backend", "NAME",
     "ignored with --standalone and refused without it, like the flags below"},
    {"--rdzv-endpoint", "HOST:PORT", "the same"},
    {"--rdzv-id", "ID", "the same"},
    {"--rdzv-conf", "CONF", "the same"},
    {0}};
enum { RUN_FLAGS = sizeof run_flags / sizeof *run_flags - 1 };

int run_help(void) {
    say(stdout,
        "usage: duet run [flags] PROGRAM [its arguments]\n\n"
        "Starts N copies of a program on this machine as the ranks of one job, with torchrun's\n"
        "environment (RANK, WORLD_SIZE, ...), and waits for them. If one fails, the others are\n"
        "ended within a second, and the failure is reported. Two jobs never meet.\n\n"
        "flags, with dashes or underscores, and their value with = or as the next word:\n");
    for (const struct run_flag *flag = run_flags; flag->name; flag++)
        say_flag(flag->name, flag->value, flag->help);
    say(stdout, "\nexit status: that of the rank that failed first; 128+n where signal n ended it; "
                "2: wrong usage\n");
    return 0;
}

static int count_cores(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

static int read_ranks(const char *flag, const char *text, int64_t *ranks) {
    int gpus = 0, wants_gpu = !strcmp(text, "gpu"), is_auto = !strcmp(text, "auto");
    if (!wants_gpu && !is_auto && strcmp(text, "cpu")) {
        if (text[0] == '-' || text[0] == '+' || isdigit((unsigned char)text[0]))
            return parse_int(flag, text, 1, MAX_DEVICES, ranks);
        return fail(ERR_USAGE,
                    "%s: Unsupported nproc_per_node value: %s: give 1 to %d, gpu, cpu or auto",
                    flag, text, MAX_DEVICES);
    }
    int code = wants_gpu || is_auto ? device_probe(DEVICE_CUDA, &gpus) : OK;
    if (wants_gpu && code)
        return fail(ERR_USAGE,
                    "%s: gpu: there is none to use, as duet devices says: give a number, cpu or "
                    "auto",
                    flag);
    *ranks = gpus && !code ? gpus : count_cores();
    if (*ranks > MAX_DEVICES) *ranks = MAX_DEVICES;
    return OK;
}

/* What torchrun needs where a job has several machines: taken where it says that there is one. */
static int read_machines(struct run_words *w, const char *flag, const char *text) {
    static const char *const ONE[][2] = {{"--nnodes", "1"},
                                         {"--nnodes", "1:1"},
                                         {"--node-rank", "0"},
                                         {"--master-addr", "::1"},
                                         {"--master-addr", "127.0.0.1"},
                                         {"--master-addr", "localhost"}};
    for (size_t i = 0; i < sizeof ONE / sizeof *ONE; i++)
        if (!strcmp(flag, ONE[i][0]) && !strcmp(text, ONE[i][1])) return OK;
    if (!strncmp(flag, "--rdzv-", 7)) {
        w->rendezvous[0] = flag;
        w->rendezvous[1] = text;
        return OK;
    }
    return fail(ERR_USAGE, "%s: %s: several machines come later: %s", flag, text,
                strcmp(flag, "--nnodes") ? "leave it out" : "give 1");
}

static int read_value(struct run_words *w, const char *flag, const char *text) {
    double seconds;
    if (!strcmp(flag, "--nproc-per-node")) return read_ranks(flag, text, &w->ranks);
    if (!strcmp(flag, "--max-restarts")) return parse_int(flag, text, 0, 1000000, &w->restarts);
    if (!strcmp(flag, "--master-port")) return parse_int(flag, text, 0, 65535, &w->port);
    if (!strcmp(flag, "--shutdown-timeout")) return parse_number(flag, text, 0, 1e9, &w->grace_s);
    if (!strcmp(flag, "--monitor-interval")) return parse_number(flag, text, 0, 1e9, &seconds);
    if (!strcmp(flag, "--role")) return w->role = text, OK;
    if (!strcmp(flag, "--redirects")) return run_output_parse(flag, text, w->output.redirect);
    if (!strcmp(flag, "--tee")) return run_output_parse(flag, text, w->output.tee);
    if (strcmp(flag, "--log-dir")) return read_machines(w, flag, text);
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

static int unknown(const char *word) {
    const char *known[RUN_FLAGS];
    for (int k = 0; k < RUN_FLAGS; k++)
        known[k] = run_flags[k].name;
    return unknown_flag(word, known, RUN_FLAGS, "duet run --help");
}

/* Reads the flag argv[*i] and its value. */
static int read_flag(int argc, char **argv, int *i, struct run_words *w) {
    char word[32];
    const char *value = strchr(argv[*i], '=') ? strchr(argv[*i], '=') + 1 : NULL;
    const struct run_flag *flag = run_flags;
    spell(argv[*i], word, sizeof word);
    if (!strcmp(word, "-m") || !strcmp(word, "--module"))
        return fail(ERR_USAGE,
                    "%s: names a Python module, but programs start as they are: give python -m "
                    "MODULE as the program",
                    argv[*i]);
    while (flag->name && strcmp(flag->name, word))
        flag++;
    if (!flag->name) return unknown(argv[*i]);
    if (!flag->value && value)
        return fail(ERR_USAGE, "%s: takes no value, but was given %s: leave it out", word, value);
    if (!flag->value) return w->standalone |= !strcmp(word, "--standalone"), OK;
    if (!value && *i + 1 == argc) return fail(ERR_USAGE, "%s: no value: see duet run --help", word);
    return read_value(w, flag->name, value ? value : argv[++*i]);
}

static int read_all(int argc, char **argv, struct run_words *w) {
    int i = 0;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return w->help = 1, OK;
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        CHECK(read_flag(argc, argv, &i, w));
    }
    w->program = argv + i;
    if (w->rendezvous[0] && !w->standalone)
        return fail(ERR_USAGE, "%s: %s: several machines come later: leave it out",
                    w->rendezvous[0], w->rendezvous[1]);
    if (i == argc) return fail(ERR_USAGE, "run: no program was given: see duet run --help");
    return OK;
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
    *w = (struct run_words){.ranks = 1, .grace_s = 30, .role = "default"}; /* torchrun's */
    CHECK(read_all(argc, argv, w));
    return w->help ? OK : check_program(w->program[0]);
}
