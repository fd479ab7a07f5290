/* duet report: see report/calls/calls.h. */
#include <stdio.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/options/help.h"
#include "cli/options/parse.h"
#include "report/calls/calls.h"
#include "report/text.h"

static const struct option no_options[] = {OPTION_END};

static int help(void) {
    say_text(
        "usage: duet report FILE...\n\n"
        "Says who waited for whom in the collectives of a job that ran with DUET_TRACE=FILE set: a "
        "PyTorch program on the backend duet, or a C program. Each rank of each group leaves a "
        "file FILE.GROUP.RANK at its end; give all of them. In a collective every "
        "rank waits for the last rank of its group. The report names the rank that came last in "
        "most steps, with the median wait for it. Each file is a Chrome trace for ui.perfetto.dev; "
        "jq joins them.\n\n"
        "    DUET_TRACE=calls torchrun --nproc-per-node 4 train.py\n"
        "    duet report calls.*\n"
        "    jq -s '{traceEvents: map(.traceEvents[])}' calls.GROUP.* > timeline.json\n\n"
        "If a program wrote FILE with duet_devices_timeline, the command draws when each device "
        "computed, and prints the share of the bubble, in which devices wait for each other:\n\n"
        "    build/examples/model_parallel 4 cpu-async parts.json\n"
        "    duet report parts.json\n\n");
    options_print(no_options);
    return 0;
}

int command_report(int argc, char **argv, const struct duet_model *own) {
    (void)own;
    struct options options = {.command = "report", .part = {{no_options, NULL}}, .then_words = 1};
    int code = options_read(&options, argc, argv), files = argc - options.read;
    if (!code && options.help) return help();
    if (!code && files < 1)
        code = fail(ERR_USAGE, "report: no file: give those that DUET_TRACE=NAME has written: "
                               "duet report NAME.*");
    if (code) return report_error(code);
    return report_error(calls_report(stdout, text_width(stdout), argv + options.read, files));
}
