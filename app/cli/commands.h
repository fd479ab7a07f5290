/* The subcommands. Each reads argv[0..argc), the words after its name, prints its own errors and
 * returns the exit status. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "duet.h"
#include "trace/record.h"

/* Their names and their descriptions, in the order of --help. */
// clang-format off
#define SUBCOMMANDS(COMMAND) \
    COMMAND(demo, "train LeNet as single, DP and DDP side by side, and compare") \
    COMMAND(train, "train one way: --mode single, dp, ddp or fsdp") \
    COMMAND(compare, "train several ways from the same weights; check that they agree") \
    COMMAND(profile, "measure where time and memory go in DP and in DDP") \
    COMMAND(estimate, "predict memory and traffic, with --gpu also step times") \
    COMMAND(lesson, "predict DP and DDP on real GPUs for three models") \
    COMMAND(scale, "train on 1, 2, 4 and 8 devices, and print one table") \
    COMMAND(report, "say who waited for whom in a job that ran with DUET_TRACE") \
    COMMAND(sampler, "print the indices that DistributedSampler gives to one rank") \
    COMMAND(collective, "draw a collective from its plan, hop by hop") \
    COMMAND(run, "start N copies of a program as the ranks of a job, like torchrun") \
    COMMAND(devices, "list the devices of this machine") \
    COMMAND(doctor, "check this machine: every device, operation and collective") \
    COMMAND(manual, "print the man page, or bash completion")
// clang-format on

/* own is the program's own model, or NULL in `duet` itself. */
typedef int subcommand(int argc, char **argv, const struct duet_model *own);
#define SUBCOMMAND(name, help) subcommand command_##name;
SUBCOMMANDS(SUBCOMMAND)
#undef SUBCOMMAND

/* Prints the --help of a command with the options of runs: usage, purpose, run_options_help. */
struct options;
void command_usage(const struct options *options, const struct duet_model *own);

/* The subcommands in that order; the row after the last has no name. */
extern const struct command_row { const char *name, *help; } command_rows[];

/* `duet lesson`: prints the modelled speed-up of LeNet, ResNet-50 and BERT-base on 1, 2 and 4
 * V100s. brief 1: only on 4, as at the end of `duet demo`. Nothing runs. */
int costs_print(int brief);

/* Prints the name of the program, ": " and the error text on stderr and returns the exit status for
 * `code`. Prints nothing for OK, nor for ERR_READER: the reader of the output is gone. */
int report_error(int code);

/* Prints the warnings of a successful run on stderr, one line each: from which step on its losses
 * are not finite; which parameters the last step of DDP left without a gradient. title names one of
 * several runs; NULL: the only run. */
void warn_of_run(const char *title, const struct run_record *run);

#endif
