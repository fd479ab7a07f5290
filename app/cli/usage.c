/* The names of the subcommands, and the --help of those that take the options of runs. */
#include <stdio.h>
#include <string.h>

#include "base/program_name.h"
#include "cli/commands.h"
#include "cli/options/run_options.h"

static const struct {
    const char *name, *help;
} commands[] = {
#define SUBCOMMAND_ROW(name, help) {#name, help},
    SUBCOMMANDS(SUBCOMMAND_ROW)
#undef SUBCOMMAND_ROW
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

const char *command_name(int i) {
    return i < COMMAND_COUNT ? commands[i].name : NULL;
}

const char *command_help(int i) {
    return i < COMMAND_COUNT ? commands[i].help : NULL;
}

void command_usage(const struct options *options, const struct duet_model *own) {
    const char *help = "";
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (!strcmp(commands[i].name, options->command)) help = commands[i].help;
    printf("usage: %s %s [options]\n\n%s\n\n", program_name(), options->command, help);
    run_options_help(options, own);
}
