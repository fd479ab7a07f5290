/* duet collective draws a collective from its plan: in each hop, who sends which chunk to whom. */
#include <stdio.h>
#include <string.h>

#include "allreduce/select.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/options/help.h"
#include "cli/options/parse.h"
#include "report/collective/collective.h"
#include "report/pictures/collective.h"
#include "report/pictures/runs.h"
#include "report/text.h"

/* The largest data that is drawn: a plan grows with its data, and its drawing gets no clearer. */
enum { MOST_BYTES = 256 << 20, USUAL_COUNT = 1 << 18, USUAL_RANKS = 4 };

struct words {
    const char *algorithm;
    const char *pictures; /* NULL: not asked for */
    int64_t ranks;
    uint64_t bytes; /* NO_BYTES: not given */
    int full;
};
#define NO_BYTES UINT64_MAX

#define AT(member) OPTION_AT(struct words, member)
static const struct option collective_options[] = {
    {"--algorithm", "NAME", "its name, from the list below (default ring)", read_word,
     AT(algorithm), NO_LIMITS, ALWAYS},
    {"--ranks", "N", "1 to 64 (default 4)", read_int, AT(ranks), 1, MAX_DEVICES, ALWAYS},
    {"--bytes", "SIZE",
     "the data of each rank, a multiple of 4: such as 4096, 64K or 1M (default 1M)", read_bytes,
     AT(bytes), 0, MOST_BYTES, ALWAYS},
    {"--full", NULL, "all hops, and what each rank holds after each of them", read_on, AT(full),
     NO_LIMITS, ALWAYS},
    {"--pictures", "DIR", "write its picture as SVG, and as PNG where rsvg-convert is installed",
     read_word, AT(pictures), NO_LIMITS, ALWAYS},
    OPTION_END};

static int help(void) {
    struct text words = {""};
    say_text("usage: duet collective [options]\n\n"
             "Draws a collective, hop by hop, from the plan that Duet executes: which rank sends "
             "which chunk to which rank, what each rank holds after it, and its bytes compared "
             "with the textbook formula.\n\n");
    options_print(collective_options);
    text_add(&words, "--algorithm: ");
    for (int i = 0; collective_word(i); i++)
        text_add(&words, "%s%s", i ? ", " : "", collective_word(i));
    text_add(&words, "; auto: the allreduce that DDP would take on emulated devices");
    printf("\n");
    text_wrap(stdout, TEXT_USUAL, 0, 2, words.words);
    printf("\nexit status: 0 done, 2 wrong usage, 3 if plan and formula differ in bytes\n");
    return 0;
}

/* ---- what was asked for ---- */

static int count_of(const struct words *w, size_t *count) {
    const size_t usual = USUAL_COUNT - USUAL_COUNT % (size_t)w->ranks;
    *count = w->bytes == NO_BYTES ? usual : w->bytes / sizeof(float);
    if (w->bytes == NO_BYTES || w->bytes % sizeof(float) == 0) return OK;
    return fail(ERR_USAGE, "--bytes: %llu: give a multiple of 4, the size of a float",
                (unsigned long long)w->bytes);
}

/* "auto" is not a plan: it chooses one, and says why. */
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

/* ---- the picture ---- */

/* "allreduce by ring: 4 ranks, 4 chunks, 1 MiB in each". */
static int draw_picture(struct picture *p, const struct drawing *d) {
    struct text title = {""};
    char size[32];
    text_add(&title, "%s", d->what);
    if (!strcmp(d->what, "allreduce")) text_add(&title, " by %s", d->word);
    text_add(&title, ": %d rank%s, %d chunk%s, %s in each", d->n, d->n == 1 ? "" : "s",
             d->hops.chunk_count, d->hops.chunk_count == 1 ? "" : "s",
             bytes_words((double)d->count * sizeof(float), size));
    return draw_hops(p, title.words, &d->hops);
}

static int write_picture(const char *folder, const struct drawing *c) {
    struct pictures pictures = {.folder = folder};
    struct picture p = picture_of(NULL, PICTURE_SLIDE);
    char name[48];
    snprintf(name, sizeof name, "%s-%d.svg", c->word, c->n);
    CHECK(pictures_try(&pictures));
    CHECK(picture_begin(&pictures, name, &p.file));
    int code = picture_end(&pictures, draw_picture(&p, c));
    if (pictures.no_png) fprintf(stderr, "duet: %s/%s: " PNG_MISSING "\n", folder, name);
    return code;
}

static int draw(const struct words *w, const struct drawing *c) {
    CHECK(collective_print(stdout, c, w->full));
    if (w->pictures) CHECK(write_picture(w->pictures, c));
    if (collective_is_equal(c)) return OK;
    return fail(ERR_CHECK,
                "%s over %d ranks: plan and formula give different byte counts: see the table",
                c->word, c->n);
}

static int make_and_draw(struct words *w) {
    struct drawing c;
    const char *word;
    size_t count = 0;
    CHECK(count_of(w, &count));
    CHECK(algorithm_of(w, count, &word));
    CHECK(collective_make(&c, word, (int)w->ranks, count));
    int code = draw(w, &c);
    collective_free(&c);
    return code;
}

int command_collective(int argc, char **argv, const struct duet_model *own) {
    (void)own;
    struct words w = {.algorithm = "ring", .ranks = USUAL_RANKS, .bytes = NO_BYTES};
    struct options options = {.command = "collective", .part = {{collective_options, &w}}};
    int code = options_read(&options, argc, argv);
    if (!code && options.help) return help();
    return report_error(code ? code : make_and_draw(&w));
}
