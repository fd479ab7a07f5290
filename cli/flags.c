/* Parsing of flags and --help, both by the table of flag_table.h. */
#include "cli/flags.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/program.h"
#include "base/unnamed_file.h"
#include "cli/flag_table.h"
#include "cli/say.h"
#include "models/sequential.h"
#include "train/compare.h"

enum { MOST_FLAGS = 200 }; /* rows of the table, with its headings */

/* ---- parsing ---- */

/* 1 if `word`, up to its '=' or its end, is this flag. '_' may stand for '-'. */
static int same_flag(const char *name, const char *word) {
    for (; *word && *word != '='; name++, word++)
        if (*name != (*word == '_' ? '-' : *word)) return 0;
    return !*name;
}

static const struct flag *find(const char *word) {
    for (const struct flag *flag = flag_table; flag->help; flag++)
        if (flag->name && same_flag(flag->name, word)) return flag;
    return NULL;
}

/* The real path of the file that will be made at `target`, which is no link. */
static int file_to_make(const char *target, char real[PATH_MAX]) {
    char *folder = path_folder(target);
    const char *slash = strrchr(target, '/'), *name = slash ? slash + 1 : target;
    int found = folder && realpath(folder, real) && strlen(real) + strlen(name) + 2 <= PATH_MAX;
    free(folder);
    if (found) strcat(strcat(real, "/"), name);
    return found;
}

/* The file that a path leads to, which atomic_open would replace: the real path of a file that
 * exists, or of one that will be made, also behind a link that leads to none yet. Returns 0 where
 * two outputs cannot replace each other's file (a device, a pipe), and where there can be no file:
 * opening it will say why. */
static int file_of(const char *path, char real[PATH_MAX]) {
    struct stat s;
    if (!stat(path, &s)) return S_ISREG(s.st_mode) && realpath(path, real);
    char *target = atomic_target(path);
    int found = target && file_to_make(target, real);
    free(target);
    return found;
}

/* Refuses two outputs that go to the same file: the later would replace the earlier unnoticed.
 * So would an output that goes to an input. But weights may be saved to the file that they came
 * from, and a checkpoint replaces the one from which the run goes on. */
static int refuse_one_file(const struct run_config *config) {
    enum { INIT_FROM, RESUME, MODEL, SAVE, CHECKPOINT, LOG_LOSS, JSON, TRACE, REPORT, CSV, FILES };
    const struct sequential *model = sequential_of(config->model_options.own);
    const char *const names[] = {"--init-from", "--resume", "--model", "--save",   "--checkpoint",
                                 "--log-loss",  "--json",   "--trace", "--report", "--csv"};
    const char *const paths[] = {config->init_from, config->resume,     model ? model->path : "",
                                 config->save,      config->checkpoint, config->log_loss,
                                 config->json,      config->trace,      config->report,
                                 config->csv};
    static const char source[FILES] = {[SAVE] = INIT_FROM, [CHECKPOINT] = RESUME};
    char real[FILES][PATH_MAX];
    for (int i = 0; i < FILES; i++) {
        if (!*paths[i] || !file_of(paths[i], real[i])) *real[i] = 0;
        for (int j = INIT_FROM; i > MODEL && j < i; j++) {
            int replaces = (i == SAVE || i == CHECKPOINT) && j == source[i];
            if (*real[i] && !replaces && !strcmp(real[i], real[j]))
                return fail(ERR_USAGE, "%s and %s: %s and %s are the same file: give two", names[j],
                            names[i], paths[j], paths[i]);
        }
    }
    return OK;
}

/* What other programs call some flags, for suggestions. */
static const struct {
    const char *word, *flag;
} elsewhere[] = {{"--learning-rate", "--lr"},
                 {"--world-size", "--devices"},
                 {"--nproc-per-node", "--devices"},
                 {"--gpus", "--devices"},
                 {"--num-workers", "--workers"},
                 {"--num-epochs", "--epochs"},
                 {"--max-steps", "--steps"},
                 {"--step-size", "--lr-step"},
                 {"--gamma", "--lr-gamma"},
                 {"--backend", "--allreduce"},
                 {"--accumulation", "--no-sync-steps"}};
enum { ELSEWHERE = sizeof elsewhere / sizeof *elsewhere };

static int unknown(const char *word) {
    const char *known[MOST_FLAGS + ELSEWHERE];
    int count = 0, own;
    for (const struct flag *flag = flag_table; flag->help && count < MOST_FLAGS; flag++)
        if (flag->name) known[count++] = flag->name;
    own = count;
    for (int i = 0; i < ELSEWHERE; i++)
        known[count++] = elsewhere[i].word;
    const char *nearest = nearest_word(word, known, count);
    for (int i = 0; nearest && i < ELSEWHERE; i++)
        if (!strcmp(nearest, elsewhere[i].word))
            return fail(ERR_USAGE, "unknown flag: %s: did you mean %s?", word, elsewhere[i].flag);
    return unknown_flag(word, known, own, "duet --help");
}

/* --batch-size and --batch-per-device name the same number. `none`: what it is where neither is
 * given. */
static int resolve_batch(struct run_config *config, int none) {
    int devices = config->mode == MODE_SINGLE ? 1 : config->devices,
        each = config->batch_per_device;
    if (!each) {
        if (!config->batch_size) config->batch_size = none;
        return OK;
    }
    if (config->batch_size)
        return fail(ERR_USAGE, "--batch-per-device: %d: --batch-size %d is given too: give one",
                    each, config->batch_size);
    if (each > LARGEST_BATCH / devices)
        return fail(ERR_USAGE, "--batch-per-device: %d on %d devices: give at most %d", each,
                    devices, LARGEST_BATCH / devices);
    config->batch_size = each * devices;
    return OK;
}

/* The loss where none is given: cross entropy, unless it is the program's own model that says
 * otherwise. */
static enum loss_kind own_loss(const struct run_config *config) {
    const struct duet_model *own = config->model_options.own;
    int is_own = own && !strcmp(config->model, own->name);
    return is_own && own->loss == DUET_MSE ? LOSS_MSE : LOSS_CROSS_ENTROPY;
}

/* given[i]: row i of the table was given. */
static int read_words(int argc, char **argv, struct run_config *config, int *help,
                      char given[MOST_FLAGS]) {
    int batch_size = config->batch_size;
    *help = 0;
    config->batch_size = 0; /* not given */
    config->lr = -1;        /* not given */
    config->model_options.loss = LOSS_COUNT;
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            *help = 1;
            return OK;
        }
        const struct flag *flag = find(argv[i]);
        if (!flag) return unknown(argv[i]);
        const char *equals = strchr(argv[i], '=');
        if (!flag->value && equals)
            return fail(ERR_USAGE, "%s: takes no value, but was given %s: leave it out", flag->name,
                        equals + 1);
        int may_stand_alone = flag->value && *flag->value == '[';
        const char *text = !flag->value      ? ""
                           : equals          ? equals + 1
                           : may_stand_alone ? ""
                           : i + 1 < argc    ? argv[++i]
                                             : NULL;
        if (!text) return fail(ERR_USAGE, "%s: no value: give %s", flag->name, flag->value);
        CHECK(flag->read(flag, text, config));
        given[flag - flag_table] = 1;
    }
    if (config->model_options.loss == LOSS_COUNT) config->model_options.loss = own_loss(config);
    if (config->lr < 0) config->lr = optimizer_learning_rate(config->optimizer);
    config->warned = config->quiet;
    return resolve_batch(config, batch_size);
}

/* Of the flags that were given, each must have an effect. */
static int refuse_idle(const struct asked *asked, const char given[MOST_FLAGS]) {
    for (int i = 0; flag_table[i].help; i++)
        if (given[i]) CHECK(flag_table[i].effect(&flag_table[i], asked));
    return OK;
}

int flags_read(int argc, char **argv, struct run_config *config, int *help) {
    char given[MOST_FLAGS];
    return read_words(argc, argv, config, help, given);
}

int flags_parse(int argc, char **argv, struct run_config *config, int *help, const char *command) {
    char given[MOST_FLAGS] = {0};
    CHECK(read_words(argc, argv, config, help, given));
    if (*help) return OK;
    const struct asked asked = {config, command, 1U << config->mode};
    CHECK(refuse_idle(&asked, given));
    return refuse_one_file(config);
}

int flags_parse_all_modes(int argc, char **argv, struct run_config *config, int *help,
                          const char *command) {
    char given[MOST_FLAGS] = {0};
    struct asked asked = {config, command, 0};
    config->mode = MODE_DP;
    CHECK(read_words(argc, argv, config, help, given));
    if (*help) return OK;
    for (enum run_mode mode = 0; mode < MODE_COUNT; mode++)
        if (!compare_leaves_out(config, mode)) asked.modes |= 1U << mode;
    CHECK(refuse_idle(&asked, given));
    if (config->random_sampler)
        return fail(ERR_USAGE,
                    "--sampler: random: duet %s trains as DDP too, whose ranks share one order: "
                    "leave it out",
                    command);
    return refuse_one_file(config);
}

/* ---- --help ---- */

/* In a program with a model of its own, that is the one that is trained by default. */
static const char *help_of(const struct flag *flag, const struct duet_model *own, char *text,
                           size_t bytes) {
    if (!own || strcmp(flag->name, "--model")) return flag->help;
    const char *second = strstr(flag->help, " (default)");
    int until = second ? (int)(second - flag->help) : 0;
    snprintf(text, bytes, "%s (default), %.*s%s", own->name, until, flag->help,
             second ? second + strlen(" (default)") : flag->help);
    return text;
}

void flags_help(const char *command, const struct duet_model *own) {
    if (command) printf("usage: %s %s [flags]\n\n", program_name(), command);
    printf("flags, as --flag value or --flag=value; an underscore is the same as a dash:\n");
    for (const struct flag *flag = flag_table; flag->help; flag++) {
        char model[512];
        if (flag->name)
            say_flag(flag->name, flag->value, help_of(flag, own, model, sizeof model));
        else
            printf("\n%s:\n", flag->help);
    }
}
