/* Tests the options of a run from their table: each takes a value of its kind, appears in the help
 * of its commands, and is refused where it can have no effect. A new option needs no line here, but
 * a new condition does. */
#include "base/error.h"
#include "cli/options/effects.h"
#include "cli/options/run_options.h"
#include "tests/app/cli/run.h"
#include "tests/app/cli/json.h"

static const struct {
    unsigned bit;
    const char *name;
} commands[] = {{BY_TRAIN, "train"},     {BY_COMPARE, "compare"},   {BY_DEMO, "demo"},
                {BY_PROFILE, "profile"}, {BY_ESTIMATE, "estimate"}, {BY_SCALE, "scale"}};
enum { COMMANDS = sizeof commands / sizeof *commands };

/* A good value, made from the row. */
static const char *value_of(const struct option *o, char text[32]) {
    static const struct {
        option_reader *reader;
        const char *value;
    } of[] = {{read_seed, "-1"},       {read_virtual, "off"},   {read_memory, "1.5G,64M"},
              {read_params, "25.6M"},  {read_shape, "3x32x32"}, {read_hidden, "5,6"},
              {read_modes, "ddp,fsdp"}};
    int numbers = o->highest > o->lowest;
    if (!o->value) return "";
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (o->read == of[i].reader) return of[i].value;
    if (numbers)
        snprintf(text, 32, "%.0f",
                 o->lowest < 2 && o->highest >= 2 ? 2
                 : o->highest < 2                 ? o->highest
                                                  : o->lowest);
    else
        snprintf(text, 32, "%.*s", (int)strcspn(o->value, "|"), o->value);
    return text;
}

/* Reads a command line as the command does. */
static int parse(const char *command, int effects, const char *line) {
    char text[256], *words[32], *save = NULL;
    struct options o = {.command = command};
    struct run_config config;
    int n = 0;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
        words[n++] = word;
    run_config_default(&config);
    return effects ? run_options_parse(&o, n, words, &config)
                   : run_options_read(&o, n, words, &config);
}

static void refused(const char *command, const char *option, const char *line, const char *words) {
    char all[256], *save = NULL;
    snprintf(all, sizeof all, "%s: no effect|%s|leave", option, words);
    cr_expect_eq(parse(command, 1, line), ERR_USAGE, "%s %s", command, line);
    for (char *word = strtok_r(all, "|", &save); word; word = strtok_r(NULL, "|", &save))
        cr_expect(strstr(error_message(), word), "%s %s: no '%s' in: %s", command, line, word,
                  error_message());
}

/* The parser stops at the first wrong word: where an option is taken, the error names the next. */
Test(cli_flags, each_takes_a_value, .timeout = 60) {
    for (const struct option *o = run_options; o->help; o++) {
        char line[96], value[32];
        if (!o->name) continue;
        snprintf(line, sizeof line, "%s %s --no-such-flag", o->name, value_of(o, value));
        cr_expect_eq(parse("train", 0, line), ERR_USAGE);
        cr_expect(strstr(error_message(), "--no-such-flag"), "%s: %s", line, error_message());
        if (!o->value) continue;
        cr_expect_eq(parse("train", 0, o->name), ERR_USAGE, "%s without a value", o->name);
    }
}

/* The help of each command lists each of its options once, and no others. */
CliTest(cli_flags, help_is_true, 60) {
    for (int k = 0; k < COMMANDS; k++) {
        struct cli help;
        int listed = 0, here = 0;
        cli_run(&help, "%s --help --details", commands[k].name);
        /* options only for estimate --gpu, which test_modelled tests */
        char *modelled = strstr(help.out, "\nwith --gpu:");
        cr_expect_eq(!!modelled, commands[k].bit == BY_ESTIMATE);
        if (modelled) *modelled = 0;
        for (const char *p = help.out; (p = strstr(p, "\n  --")); p++)
            listed++;
        for (const struct option *o = run_options; o->help; o++) {
            char line[64];
            if (!o->name) continue;
            snprintf(line, sizeof line, "^  %s[[ ]", o->name);
            int is_here = matches(help.out, line), want = (o->commands & commands[k].bit) != 0;
            here += is_here;
            cr_expect(is_here >= want, "%s: not in the help of %s", o->name, commands[k].name);
        }
        if (commands[k].bit != BY_SCALE) /* scale's own rows replace some of these */
            cr_expect_eq(listed, here, "%s: %d options, %d of the table", commands[k].name, listed,
                         here);
        cli_free(&help);
    }
}

Test(cli_flags, refused_in_other_commands_and_modes, .timeout = 60) {
    for (const struct option *o = run_options; o->help; o++) {
        char line[96], value[32];
        if (!o->name) continue;
        for (int k = 0; k < COMMANDS; k++) {
            char words[48];
            if (o->commands & commands[k].bit) continue;
            snprintf(line, sizeof line, "%s %s", o->name, value_of(o, value));
            snprintf(words, sizeof words, "in duet %s:", commands[k].name);
            refused(commands[k].name, o->name, line, words);
        }
        if (!o->modes) continue;
        const char *other = o->modes == IN_DP ? "ddp" : "dp",
                   *why = o->modes == IN_DP     ? "DataParallel|--mode dp"
                          : o->modes == IN_FSDP ? "belongs to FSDP|--mode fsdp"
                                                : "belongs to DDP";
        snprintf(line, sizeof line, "--mode %s %s %s", other, o->name, value_of(o, value));
        refused("train", o->name, line, why);
    }
}

/* For each condition options that violate it, and the words of the refusal. */
static const struct {
    unsigned condition;
    const char *line, *words;
} failing[] = {
    {ON_SEVERAL_DEVICES, "--mode single", "in mode single|it trains on one device|--mode dp"},
    {ON_GPUS, "--device cpu", "on device cpu|GPUs|--device cuda"},
    {WITH_MLP, "--model lenet", "with model lenet|it belongs to mlp|--model mlp"},
    {WITH_NORMS, "--model lenet", "with model lenet|BatchNorm|--model resnet18"},
    {WITH_RESNET, "--model lenet", "with model lenet|--model resnet18"},
    {OF_MADE_DATA, "--dataset mnist", "with data set mnist|--dataset synthetic or random"},
    {OF_FILES, "--dataset random", "with data set random|--dataset fashion"},
    {BY_SGD, "--optimizer adam", "with optimizer adam|--optimizer sgd"},
    {SPLITS_PARAMETERS, "--mode fsdp --shard gradients", "with --shard gradients or optimizer"},
    {BESIDE_PARAMS, "", "without --params|--params N"},
    {BESIDE_CHECKPOINT, "", "without --checkpoint|--checkpoint FILE"},
    {WITHOUT_INIT_FROM, "--model resnet18 --init-from w", "with --init-from"},
    {WITHOUT_RESUME, "--model resnet18 --resume c", "with --resume"},
    {ADDS_AS_DDP, "--mode dp", "in mode dp|it belongs to DDP|3 or more --devices"},
    {BESIDE_GPU, "", "without --gpu|--gpu NAME"}};
enum { FAILING = sizeof failing / sizeof *failing };

Test(cli_flags, refused_where_a_condition_fails, .timeout = 60) {
    for (const struct option *o = run_options; o->help; o++) {
        unsigned known = 0;
        for (int i = 0; o->name && i < FAILING; i++) {
            char line[160], value[32];
            unsigned condition = failing[i].condition;
            if (!(o->conditions & condition)) continue;
            known |= condition;
            int trains = (o->commands & BY_TRAIN) != 0;
            snprintf(line, sizeof line, "%s %s %s %s",
                     trains && o->modes ? o->modes == IN_DP ? "--mode dp" : "--mode ddp" : "",
                     failing[i].line, o->name, value_of(o, value));
            refused(trains ? "train" : "estimate", o->name, line, failing[i].words);
        }
        cr_expect_eq(known, o->conditions, "%s: a condition has no row above", o->name);
    }
}

/* Refusals that need more than one rule: options of modes that a command leaves out, and those that
 * the command itself excludes. */
CliTest(cli_flags, refused_beside_others, 60) {
    refused("compare", "--dp-reduce", "--model resnet18 --sync-bn --dp-reduce sharded",
            "with --sync-bn");
    cli_fails(2, "duet: --trace: no effect|in duet estimate|nothing runs", "estimate --trace t");
}

/* What may have an effect is not refused: the commands that train in all modes take what any of
 * them can use, and `auto` may find a GPU. The missing folder is what ends them. */
CliTest(cli_flags, with_an_effect_they_are_not, 60) {
    static const char *const lines[] = {
        "compare --devices 2 --output-device 1 --bucket-cap-mb 1 --allreduce naive",
        "profile --dp-reduce sharded --no-overlap --find-unused-parameters",
        "demo --loss-in-forward",
        "train --device auto --tf32 --cuda-math own",
        "train --devices 1",
        "scale --weight-decay 0.1 --devices 1,2",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        cli_fails(1, "missing", "%s --data-dir missing --steps 1", lines[i]);
}

CliTest(cli_flags, nearest_words, 60) {
    static const struct {
        const char *words, *command;
    } table[] = {
        {"unknown option: --epoch: did you mean --epochs?", "train --epoch 3"},
        {"unknown option: --lerning-rate: did you mean --lr?", "train --lerning-rate 0.1"},
        {"unknown option: --colour: see", "train --colour red"},
        {"unknown command: trian: did you mean train?", "trian"},
        {"--optimizer: 'adm': expected sgd, adadelta, adam or adamw: did you mean adam?",
         "train --optimizer adm"},
        {"--allreduce: 'rign'|did you mean ring?", "train --mode ddp --allreduce rign"},
        {"--mode: 'ddpp': expected single, dp, ddp or fsdp: did you mean ddp?",
         "train --mode ddpp"},
        {"--device: 4: expected auto, cpu or cuda: did you mean --devices 4?", "train --device 4"},
        {"--device: 'gpu': expected auto, cpu or cuda", "train --device gpu"},
        {"--loss: 'cross_entropy'|did you mean cross-entropy?", "train --loss cross_entropy"},
        {"--gpu: '3090'|did you mean rtx3090?", "estimate --gpu 3090"},
        {"--init: 'd2'|did you mean d2l?", "train --model resnet18 --init d2"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        cli_fails(2, table[i].words, "%s", table[i].command);
}
