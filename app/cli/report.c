/* duet report: who waited for whom in a job of process groups, PyTorch's or one's own, from
 * the files of DUET_TRACE; and when each device of a program computed, from the file of
 * duet_devices_timeline. */
#include <stdio.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/options/help.h"
#include "cli/options/parse.h"
#include "report/calls/calls.h"
#include "report/calls/timeline.h"
#include "report/text.h"

static const struct option no_options[] = {OPTION_END};

static int help(void) {
    say_text(
        "usage: duet report FILE\n\n"
        "Says who waited for whom in the collectives of a job that ran with DUET_TRACE=FILE set: a "
        "PyTorch program on the backend duet, or one in C. Each rank of each group leaves a file "
        "FILE.GROUP.RANK at its end, and all of them are read. A rank that begins a collective "
        "before the last rank of its group waits for that one. The rank to blame is judged by the "
        "steps of the job: in how many it came last, and the median wait for it; start-up and end "
        "are told apart. Each of the files is a Chrome trace, which ui.perfetto.dev opens; jq "
        "makes "
        "one of all.\n\n"
        "    DUET_TRACE=calls torchrun --nproc-per-node 4 train.py\n"
        "    duet report calls\n"
        "    jq -s '{traceEvents: map(.traceEvents[])}' calls.world.* > timeline.json\n\n"
        "Where FILE is what a program wrote by duet_devices_timeline, a Chrome trace too, it draws "
        "when each device computed, and says how much of their time is the bubble, in which they "
        "wait for each other:\n\n"
        "    build/examples/model_parallel 4 cpu-async parts.json\n"
        "    duet report parts.json\n\n");
    options_print(no_options);
    return 0;
}

static int report(const char *path) {
    struct traced_job job = {.groups = 0};
    int is_timeline, code = timeline_print(stdout, path, &is_timeline);
    if (code || is_timeline) return code;
    code = calls_read(&job, path);
    if (!code) calls_print(stdout, text_width(stdout), &job);
    calls_free(&job);
    return code;
}

int command_report(int argc, char **argv, const struct duet_model *own) {
    (void)own;
    struct options options = {
        .command = "report", .part = {{no_options, NULL}}, .form = OPTIONS_AND_WORDS};
    int code = options_read(&options, argc, argv);
    if (!code && options.help) return help();
    if (!code && options.words != 1)
        code = fail(ERR_USAGE, "report: %d files: give one, which DUET_TRACE named", options.words);
    if (!code) code = report(options.word[0]);
    return report_error(code);
}
