/* duet_command finds the subcommand in its table and returns its status as the exit status. Each
 * process of a job is this program, started again with the word `job`. Its main calls duet_command
 * again, so it passes the same model of its own. */
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/program_dataset.h"
#include "base/error.h"
#include "base/program_name.h"
#include "base/text/nearest.h"
#include "cli/commands.h"
#include "cli/options/help.h"
#include "comm/comm.h"
#include "comm/environment.h"
#include "group/group.h"
#include "models/model_file.h"
#include "train/job.h"

static subcommand *const functions[] = {
#define SUBCOMMAND_FUNCTION(name, help) command_##name,
    SUBCOMMANDS(SUBCOMMAND_FUNCTION)
#undef SUBCOMMAND_FUNCTION
};
enum { COMMAND_COUNT = sizeof functions / sizeof *functions };

static int help(const struct duet_model *own) {
    if (own)
        printf("%s: the model %s, trained by Duet as\n", program_name(), own->name);
    else
        printf("duet: one model, two ways to train it on several devices:\n");
    printf("DataParallel and DistributedDataParallel\n\nusage: %s COMMAND [options]\n\n",
           program_name());
    for (int i = 0; i < COMMAND_COUNT; i++)
        printf("  %-10s %s\n", command_rows[i].name, command_rows[i].help);
    printf("\n");
    say(stdout, "duet COMMAND --help shows the most used options of a command, and\n"
                "duet COMMAND --help --details all of them; duet manual man puts everything on\n"
                "one page.\n");
    printf("\nexit status: 0 done, 1 failed at run time, 2 wrong usage, 3 a check of the\n  "
           "result failed, 128+n ended by signal n\n");
    return 0;
}

/* Passes the status on if everything printed has reached its reader; otherwise reports an error. */
static int flushed(int status) {
    if (!fflush(stdout) && !ferror(stdout)) return status;
    return status ? status
                  : report_error(fail(
                        ERR_FAILED,
                        "standard output: cannot be written: is it closed, or the disk full?"));
}

static int unknown_command(const char *word) {
    const char *known[COMMAND_COUNT];
    for (int i = 0; i < COMMAND_COUNT; i++)
        known[i] = command_rows[i].name;
    const char *nearest = nearest_word(word, known, COMMAND_COUNT);
    if (nearest) return fail(ERR_USAGE, "unknown command: %s: did you mean %s?", word, nearest);
    return fail(ERR_USAGE, "unknown command: %s: see duet --help", word);
}

/* A write beyond a limit of file sizes (ulimit -f) then fails with EFBIG, and the writer can report
 * it, instead of ending this program. The launcher also needs the exit status of its ranks, which
 * the kernel drops if SIGCHLD is ignored. A reader that goes away, as head does, ends this program
 * without a message. Ranks inherit all three. */
static void set_signals(void) {
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
}

/* --model FILE: the file is read once, here, since it may be a pipe; its model then takes the place
 * of the program's own. NULL: no file is named. The name of a model is not a file. */
static const char *find_model_file(int argc, char **argv, const struct duet_model *own) {
    const char *path = NULL;
    for (int i = 2; i < argc; i++) {
        if (!strncmp(argv[i], "--model=", 8)) path = argv[i] + 8;
        if (!strcmp(argv[i], "--model") && i + 1 < argc) path = argv[++i];
    }
    if (!path || !*path || model_is_known(path) || (own && !strcmp(own->name, path))) return NULL;
    return strpbrk(path, "/.") || !access(path, F_OK) ? path : NULL;
}

/* A model that cannot be used is a mistake in the program, and no option could fix it. */
static int check_own(const struct duet_model *own) {
    enum { NAME_BYTES = 64 }; /* names in results are at most this long */
    if (!own) return OK;
    if (!own->name || !*own->name || strlen(own->name) >= NAME_BYTES)
        return fail(ERR_USAGE, "struct duet_model: the name must have 1 to %d characters",
                    NAME_BYTES - 1);
    for (const char *c = own->name; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return fail(ERR_USAGE, "struct duet_model %s: name: leave out control characters",
                        own->name);
    if (!own->describe || !own->forward)
        return fail(ERR_USAGE, "struct duet_model %s: no %s: give it one", own->name,
                    own->describe ? "forward" : "describe");
    if ((unsigned)own->loss > DUET_NLL)
        return fail(ERR_USAGE, "struct duet_model %s: loss %d: give one of enum duet_loss",
                    own->name, (int)own->loss);
    struct dataset set;
    if (own->test && !own->train)
        return fail(ERR_USAGE, "struct duet_model %s: test data without training data: give both",
                    own->name);
    if (own->train) CHECK(dataset_of_program(own->train, &set));
    return own->test ? dataset_of_program(own->test, &set) : OK;
}

/* Commands that train start their ranks themselves. As ranks of mpirun, n copies would train n
 * times side by side without any warning. */
static int check_not_a_rank(const char *command) {
    static const char *const training[] = {"demo", "train", "compare", "profile", "scale"};
    struct job_rank self;
    int trains = 0, spread;
    CHECK(network_is_wanted(network_by_mpi, &spread));
    if (spread && strcmp(command, "demo") && strcmp(command, "scale")) return OK;
    for (size_t i = 0; i < sizeof training / sizeof *training; i++)
        trains |= !strcmp(command, training[i]);
    if (!trains || !environment_is_of_a_rank() || read_job_rank_anywhere(&self, "") ||
        self.world == 1)
        return OK;
    return fail(
        ERR_USAGE,
        "%s %s: this process is rank %d of %d that another program started, and the command "
        "starts its own ranks: start it once, with --devices %d",
        program_name(), command, self.rank, self.world, self.world);
}

static int run_command(int argc, char **argv, const struct duet_model *own) {
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (!strcmp(command_rows[i].name, argv[1]))
            return flushed(functions[i](argc - 2, argv + 2, own));
    return report_error(unknown_command(argv[1]));
}

static int command(int argc, char **argv, const struct duet_model *own) {
    const char *command = argc > 1 ? argv[1] : "--help";
    struct model_file *file = NULL;
    int code = check_own(own);
    if (code) return report_error(code);
    set_signals();
    if (!strcmp(command, "--help") || !strcmp(command, "-h") || !strcmp(command, "help"))
        return flushed(help(own));
    if (!strcmp(command, "--version")) return printf("duet %s\n", DUET_VERSION), flushed(0);
    if (!strcmp(command, "job")) return job_main(argc - 2, argv + 2, own);
    if ((code = check_not_a_rank(command))) return report_error(code);
    const char *path = find_model_file(argc, argv, own);
    if (path && (code = model_file_open(&file, path))) return report_error(code);
    int status = run_command(argc, argv, file ? file->model : own);
    model_file_free(file);
    return status;
}

/* Every number that is printed, written to a file or read has a decimal point, even if the program
 * has set a locale with a comma: setlocale(LC_ALL, "") in German. Here the locale changes for all
 * threads, since any of them may print; it is restored for a program that continues. */
int duet_command(int argc, char **argv, const struct duet_model *own) {
    const char *set = setlocale(LC_NUMERIC, NULL);
    char *before = set ? strdup(set) : NULL;
    setlocale(LC_NUMERIC, "C");
    int status = command(argc, argv, own);
    if (before) setlocale(LC_NUMERIC, before);
    free(before);
    return status;
}
