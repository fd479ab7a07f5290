/* duet diff: what changed between two runs, from two files of --json. */
#include <stdio.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "cli/commands.h"
#include "cli/options/help.h"
#include "cli/options/parse.h"
#include "cli/results/results.h"
#include "report/diff_table.h"
#include "report/text.h"

struct words {
    const char *const *path; /* [2] */
    const char *json;        /* NULL: not given */
};

static const struct option diff_options[] = {
    {"--json", "FILE", "write all of it as JSON; /dev/stdout is standard output", read_word,
     OPTION_AT(struct words, json), NO_LIMITS, ALWAYS},
    OPTION_END};

static int help(void) {
    say_text("usage: duet diff A.json B.json [--json FILE]\n\n"
             "Says what changed from A to B, two files that train, compare, demo, profile, "
             "estimate or scale wrote with --json: settings, speed, times by phase, memory by "
             "cause, bytes over links, and the first step whose losses differ. Runs of the same "
             "name belong together; two files of one run each are compared whatever they are. "
             "Differences of times that are within the spread of the steps are said to be so.\n\n");
    options_print(diff_options);
    return 0;
}

static int check_words(const struct options *o) {
    if (o->words > 2) return fail(ERR_USAGE, "diff: %s: a third file: give two", o->word[2]);
    if (o->words == 2) return OK;
    return fail(ERR_USAGE, "diff: %d file%s: give two files of --json: see duet diff --help",
                o->words, o->words == 1 ? "" : "s");
}

/* "single, DP" */
static void list_runs(const struct results *r, struct text *text) {
    for (int i = 0; i < r->count; i++)
        text_add(text, "%s%s", i ? ", " : "", r->run[i].name);
}

static int check_pairs(const struct results *a, const struct results *b) {
    struct diff_pair pairs[DIFF_PAIRS];
    struct text in_a = {.used = 0}, in_b = {.used = 0};
    if (diff_pairs(a, b, pairs)) return OK;
    list_runs(a, &in_a), list_runs(b, &in_b);
    return fail(ERR_FAILED,
                "diff: no run is in both files: %s has %.200s, %s has %.200s: give files "
                "with runs of the same name",
                a->path, in_a.words, b->path, in_b.words);
}

static int compare(const struct words *words, struct results file[2], struct atomic_file *json) {
    struct json_writer w;
    for (int i = 0; i < 2; i++)
        CHECK(results_read(&file[i], words->path[i]));
    CHECK(check_pairs(&file[0], &file[1]));
    if (words->json) CHECK(atomic_open(json, words->json));
    diff_print(stdout, text_width(stdout), &file[0], &file[1]);
    if (!words->json) return OK;
    CHECK(results_start(&w, json->file, "diff"));
    diff_write(&w, &file[0], &file[1]);
    return results_end(&w, json);
}

int command_diff(int argc, char **argv, const struct duet_model *own) {
    (void)own;
    struct words words = {.json = NULL};
    struct results file[2] = {{.path = NULL}, {.path = NULL}};
    struct atomic_file json = {0};
    struct options options = {
        .command = "diff", .part = {{diff_options, &words}}, .form = OPTIONS_AND_WORDS};
    words.path = options.word;
    int code = options_read(&options, argc, argv);
    if (!code && options.help) return help();
    if (!code) code = check_words(&options);
    if (code) return report_error(code);
    code = compare(&words, file, &json);
    atomic_abandon(&json);
    results_free(&file[0]);
    results_free(&file[1]);
    return report_error(code);
}
