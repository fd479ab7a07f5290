/* duet diff: what changed between two runs, from two files of --json. */
#include <stdio.h>
#include <string.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/nearest.h"
#include "cli/commands.h"
#include "cli/results.h"
#include "report/diff_table.h"
#include "report/text.h"

static int help(void) {
    printf("usage: duet diff A.json B.json [--json FILE]\n\n"
           "Says what changed from A to B, two files that train, compare, demo, profile, estimate\n"
           "or scale wrote with --json: settings, speed, times by phase, memory by cause, bytes\n"
           "over links, and the first step whose losses differ. Runs of the same name belong\n"
           "together; two files of one run each are compared whatever they are. Differences of\n"
           "times that are within the spread of the steps are said to be so.\n\n"
           "  --json FILE  write all of it as JSON; /dev/stdout is standard output\n");
    return 0;
}

struct words {
    const char *path[2], *json; /* NULL: not given */
    int help;
};

static int read_words(int argc, char **argv, struct words *w) {
    static const char *const known[] = {"--json"};
    int paths = 0;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!strcmp(word, "--help") || !strcmp(word, "-h")) return w->help = 1, OK;
        if (!strncmp(word, "--json=", 7)) {
            w->json = word + 7;
        } else if (!strcmp(word, "--json")) {
            w->json = i + 1 < argc ? argv[++i] : "";
        } else if (*word == '-' && word[1]) {
            return unknown_flag(word, known, 1, "duet diff --help");
        } else if (paths == 2) {
            return fail(ERR_USAGE, "diff: %s: a third file: give two", word);
        } else {
            w->path[paths++] = word;
        }
    }
    if (w->json && !*w->json) return fail(ERR_USAGE, "--json: the value is empty: give FILE");
    if (paths == 2) return OK;
    return fail(ERR_USAGE, "diff: %d file%s: give two files of --json: see duet diff --help", paths,
                paths == 1 ? "" : "s");
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
    int code = read_words(argc, argv, &words);
    if (code) return report_error(code);
    if (words.help) return help();
    code = compare(&words, file, &json);
    atomic_abandon(&json);
    results_free(&file[0]);
    results_free(&file[1]);
    return report_error(code);
}
