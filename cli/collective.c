/* duet collective: draws a collective from its plan: who sends which chunk to whom in which hop. */
#include <stdio.h>
#include <string.h>

#include "allreduce/select.h"
#include "base/atomic_file.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/parse.h"
#include "cli/commands.h"
#include "cli/results.h"
#include "report/collective.h"
#include "report/text.h"

/* The most that is drawn: a plan grows with its data, and no drawing gets clearer by that. */
enum { MOST_BYTES = 256 << 20, USUAL_COUNT = 1 << 18, USUAL_RANKS = 4 };

static int help(void) {
    struct text words = {.used = 0};
    char word[COLLECTIVE_WORD];
    for (int i = 0; collective_word(i, word); i++)
        text_add(&words, "%s%s", i ? ", " : "", word);
    text_add(&words,
             "; auto: the allreduce that DDP would take on emulated devices (default ring)");
    printf(
        "usage: duet collective [flags]\n\n"
        "Draws a collective from the plan that really runs: which chunk goes from which rank to\n"
        "which in which hop, what is complete where after it, which flags are awaited and\n"
        "posted, and the bytes of every rank beside the textbook's formula.\n\n"
        "  --algorithm NAME\n");
    text_wrap(stdout, TEXT_USUAL, 18, 18, words.words);
    printf(
        "  --ranks N       1 to 64 (default %d)\n"
        "  --bytes SIZE    the data of each rank, whole floats: as 4096, 64K or 1M (default 1M)\n"
        "  --count N       the same as a number of floats\n"
        "  --hops A-B      only these hops, or one hop A\n"
        "  --rank R        the steps of this rank (default: of all, of many the first two)\n"
        "  --full          leave nothing out, however long it gets\n"
        "  --json FILE     write all of it as JSON; /dev/stdout is standard output\n\n"
        "exit status: 0 done, 2 wrong usage, 3 bytes of the plan and formula differ\n",
        USUAL_RANKS);
    return 0;
}

struct words {
    const char *algorithm, *json; /* json NULL: not asked for */
    int64_t ranks, count, bytes;  /* count, bytes -1: not given */
    const char *hops;             /* NULL: all */
    struct collective_view view;
    int help;
};

static const char *const known[] = {"--algorithm", "--ranks", "--bytes", "--count",
                                    "--hops",      "--rank",  "--json",  "--full"};
enum { KNOWN = sizeof known / sizeof *known, VALUED = KNOWN - 1 };

static int read_value(struct words *w, const char *flag, const char *text) {
    int64_t rank;
    uint64_t bytes;
    if (!strcmp(flag, "--ranks")) return parse_int(flag, text, 1, MAX_DEVICES, &w->ranks);
    if (!strcmp(flag, "--bytes")) {
        CHECK(parse_size(flag, text, 0, MOST_BYTES, &bytes));
        w->bytes = (int64_t)bytes;
        return OK;
    }
    if (!strcmp(flag, "--count")) return parse_int(flag, text, 0, MOST_BYTES / 4, &w->count);
    if (!strcmp(flag, "--rank")) {
        CHECK(parse_int(flag, text, 0, MAX_DEVICES - 1, &rank));
        w->view.rank = (int)rank;
        return OK;
    }
    if (!*text) return fail(ERR_USAGE, "%s: the value is empty: see duet collective --help", flag);
    *(!strcmp(flag, "--algorithm") ? &w->algorithm
      : !strcmp(flag, "--json")    ? &w->json
                                   : &w->hops) = text;
    return OK;
}

static int read_words(int argc, char **argv, struct words *w) {
    for (int i = 0; i < argc; i++) {
        char word[32];
        snprintf(word, sizeof word, "%s", argv[i]);
        char *value = strchr(word, '=') ? strchr(argv[i], '=') + 1 : NULL;
        if (value) *strchr(word, '=') = 0;
        if (!strcmp(word, "--help") || !strcmp(word, "-h")) return w->help = 1, OK;
        if (!strcmp(word, "--full")) {
            if (value)
                return fail(ERR_USAGE, "--full: takes no value, but was given %s: leave it out",
                            value);
            w->view.full = 1;
            continue;
        }
        int k = 0;
        while (k < VALUED && strcmp(known[k], word))
            k++;
        if (k == VALUED) return unknown_flag(argv[i], known, KNOWN, "duet collective --help");
        if (!value && i + 1 == argc)
            return fail(ERR_USAGE, "%s: no value: see duet collective --help", word);
        CHECK(read_value(w, known[k], value ? value : argv[++i]));
    }
    return OK;
}

/* ---- what was asked for ---- */

static int count_of(const struct words *w, size_t *count) {
    const int64_t each = sizeof(float);
    if (w->count >= 0 && w->bytes >= 0)
        return fail(ERR_USAGE, "--bytes and --count: both were given: give one of them");
    if (w->bytes >= 0 && w->bytes % each)
        return fail(ERR_USAGE, "--bytes: %lld: give a multiple of 4, for whole floats",
                    (long long)w->bytes);
    *count = (size_t)(w->count >= 0 ? w->count : w->bytes >= 0 ? w->bytes / each : USUAL_COUNT);
    if (w->count < 0 && w->bytes < 0) *count -= *count % (size_t)w->ranks; /* equal blocks */
    return OK;
}

/* "auto" is no plan: it chooses one, and says why. */
static int algorithm_of(const struct words *w, size_t count, const char **word) {
    char reason[256];
    struct allreduce_link link = allreduce_link_host((int)w->ranks);
    *word = w->algorithm;
    if (strcmp(w->algorithm, "auto")) return OK;
    *word = allreduce_algorithm_name(
        allreduce_choose((int)w->ranks, count, 0, &link, reason, sizeof reason));
    text_wrap(stdout, TEXT_USUAL, 0, 2, reason);
    return OK;
}

/* "3" or "2-5", once it is known how many hops there are. */
static int read_hops(struct words *w, int hops) {
    char first[16], *dash;
    int64_t a, b;
    if (!w->hops) return OK;
    if (!hops) return fail(ERR_USAGE, "--hops: %.20s: this collective has none", w->hops);
    snprintf(first, sizeof first, "%s", w->hops);
    dash = strchr(first, '-');
    if (dash && dash > first) *dash = 0;
    CHECK(parse_int("--hops", first, 1, hops, &a));
    b = a;
    if (dash && dash > first) CHECK(parse_int("--hops", strchr(w->hops, '-') + 1, a, hops, &b));
    w->view.first_hop = (int)a;
    w->view.last_hop = (int)b;
    return OK;
}

static int draw(const struct words *w, const struct drawing *c, struct atomic_file *json) {
    struct json_writer j;
    int code = collective_print(stdout, c, &w->view);
    if (!code && w->json) {
        fflush(stdout);
        code = results_start(&j, json->file, "collective");
        if (!code) code = collective_json(&j, c);
        if (!code) code = results_end(&j, json);
    }
    if (code || collective_is_equal(c)) return code;
    return fail(ERR_CHECK,
                "%s over %d ranks: the bytes of the plan are not those of the formula: "
                "see the table",
                c->word, c->n);
}

static int make_and_draw(struct words *w) {
    struct atomic_file json = {0};
    struct drawing c;
    const char *word;
    size_t count = 0;
    CHECK(count_of(w, &count));
    if (w->view.rank >= w->ranks)
        return fail(ERR_USAGE, "--rank: %d: of %d ranks: give 0 to %d", w->view.rank, (int)w->ranks,
                    (int)w->ranks - 1);
    CHECK(algorithm_of(w, count, &word));
    CHECK(collective_make(&c, word, (int)w->ranks, count));
    int code = read_hops(w, c.hops.hops);
    if (!code && w->json) code = atomic_open(&json, w->json);
    if (!code) code = draw(w, &c, &json);
    atomic_abandon(&json);
    collective_free(&c);
    return code;
}

int command_collective(int argc, char **argv, const struct duet_model *own) {
    (void)own;
    struct words w = {
        .algorithm = "ring", .ranks = USUAL_RANKS, .count = -1, .bytes = -1, .view = {.rank = -1}};
    int code = read_words(argc, argv, &w);
    if (!code && w.help) return help();
    return report_error(code ? code : make_and_draw(&w));
}
