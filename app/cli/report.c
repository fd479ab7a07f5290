/* duet report: who waited for whom in a job of process groups, PyTorch's or one's own, from
 * the files of DUET_TRACE; and when each device of a program computed, from the file of
 * duet_devices_timeline. */
#include <stdio.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "cli/commands.h"
#include "cli/options/help.h"
#include "cli/options/parse.h"
#include "report/calls/calls.h"
#include "report/calls/timeline.h"
#include "report/text.h"

struct words {
    const char *trace, *picture; /* NULL: not given */
};

static const struct option calls_options[] = {
    {"--trace", "FILE", "of a file of duet_devices_timeline: for ui.perfetto.dev", read_word,
     OPTION_AT(struct words, trace), NO_LIMITS, ALWAYS},
    {"--picture", "FILE", "of a file of duet_devices_timeline: draw it as SVG", read_word,
     OPTION_AT(struct words, picture), NO_LIMITS, ALWAYS},
    OPTION_END};

static int help(void) {
    say_text(
        "usage: duet report FILE [--trace OUT] [--picture SVG]\n\n"
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
        "Where FILE is what a program wrote by duet_devices_timeline, it draws when each device "
        "computed, and says how much of their time is the bubble, in which they wait for each "
        "other:\n\n"
        "    build/examples/model_parallel 4 cpu-async parts.json\n"
        "    duet report parts.json --picture parts.svg\n\n");
    options_print(calls_options);
    return 0;
}

static int draw_timeline_of(const struct timeline *t, const struct words *words) {
    struct atomic_file trace = {0}, picture = {0};
    int code = words->trace ? atomic_open(&trace, words->trace) : OK;
    if (!code && words->picture) code = atomic_open(&picture, words->picture);
    if (!code) timeline_print(stdout, t);
    if (!code && words->trace) code = timeline_trace(t, &trace);
    if (!code && words->picture) code = timeline_picture(t, &picture);
    atomic_abandon(&trace);
    atomic_abandon(&picture);
    return code;
}

static int report(const char *path, const struct words *words) {
    struct traced_job job = {.groups = 0};
    struct timeline timeline;
    int is_timeline, code = timeline_read(&timeline, path, &is_timeline);
    if (!code && is_timeline) code = draw_timeline_of(&timeline, words);
    timeline_free(&timeline);
    if (code || is_timeline) return code;
    if (words->picture || words->trace)
        return fail(ERR_USAGE, "%s: %s: it is drawn of a file of duet_devices_timeline alone",
                    words->picture ? "--picture" : "--trace",
                    words->picture ? words->picture : words->trace);
    code = calls_read(&job, path);
    if (!code) calls_print(stdout, text_width(stdout), &job);
    calls_free(&job);
    return code;
}

int command_report(int argc, char **argv, const struct duet_model *own) {
    (void)own;
    struct words words = {.trace = NULL};
    struct options options = {
        .command = "report", .part = {{calls_options, &words}}, .form = OPTIONS_AND_WORDS};
    int code = options_read(&options, argc, argv);
    if (!code && options.help) return help();
    if (!code && options.words != 1)
        code = fail(ERR_USAGE, "report: %d files: give one, which DUET_TRACE named", options.words);
    if (!code) code = report(options.word[0], &words);
    return report_error(code);
}
