/* The names of the subcommands, and what --help says of each. command.c has their functions. */
#include <stdio.h>
#include <string.h>

#include "base/program_name.h"
#include "cli/commands.h"
#include "cli/options/run_options.h"

const struct command_row command_rows[] = {
#define SUBCOMMAND_ROW(name, help) {#name, help},
    SUBCOMMANDS(SUBCOMMAND_ROW)
#undef SUBCOMMAND_ROW
        {NULL, NULL}};

void command_usage(const struct options *options, const struct duet_model *own) {
    const struct command_row *row = command_rows;
    while (strcmp(row->name, options->command))
        row++;
    printf("usage: %s %s [options]\n\n%s\n\n", program_name(), row->name, row->help);
    run_options_help(options, own);
}
