/* Suggestions for unknown words: the edit distance, and which word is near enough. */
#include "base/error.h"
#include "base/text/nearest.h"
#include "tests/harness/harness.h"

static const char *const KNOWN[] = {"--devices", "--device",           "--device-memory", "--lr",
                                    "--seed",    "--batch-per-device", "--batch-size"};
enum { COUNT = sizeof KNOWN / sizeof *KNOWN };

/* The definition itself: the last characters are deleted, inserted, replaced or swapped. */
static int by_definition(const char *a, int m, const char *b, int n) {
    if (m == 0 || n == 0) return m + n;
    int deleted = by_definition(a, m - 1, b, n) + 1, inserted = by_definition(a, m, b, n - 1) + 1;
    int replaced = by_definition(a, m - 1, b, n - 1) + (a[m - 1] != b[n - 1]);
    int least = deleted < inserted ? deleted : inserted;
    least = least < replaced ? least : replaced;
    if (m < 2 || n < 2 || a[m - 1] != b[n - 2] || a[m - 2] != b[n - 1]) return least;
    int swapped = by_definition(a, m - 2, b, n - 2) + 1;
    return least < swapped ? least : swapped;
}

Test(nearest, distance, .timeout = 60) {
    static const char *const words[] = {"", "a", "ab", "ba", "kitten", "sitting", "aaaa", "--lr"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            cr_expect_eq(
                edit_distance(words[i], words[k]),
                by_definition(words[i], (int)strlen(words[i]), words[k], (int)strlen(words[k])),
                "'%s' '%s'", words[i], words[k]);
    cr_expect_eq(edit_distance("kitten", "sitting"), 3);
    cr_expect_eq(edit_distance("trian", "train"), 1);
}

Test(nearest, word, .timeout = 30) {
    static const struct {
        const char *word, *nearest; /* NULL: none */
    } cases[] = {{"--devcies", "--devices"},
                 {"--devicess", "--devices"},
                 {"--devic", "--device"},
                 {"--device_memry=4G", "--device-memory"},
                 {"--lrr", "--lr"},
                 {"--ls", "--lr"},
                 {"--se", "--seed"},
                 {"--bogus", NULL},
                 {"--", NULL},
                 {"-", NULL},
                 {"", NULL},
                 {"=", NULL},
                 {"--device-memories", "--device-memory"},
                 {"--DEVICES", "--devices"},
                 {"--Device_Memory", "--device-memory"},
                 {"--batch", "--batch-size"},
                 {"--batch-p", "--batch-per-device"},
                 {"--devices=x", "--devices"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *nearest = nearest_word(cases[i].word, KNOWN, COUNT);
        cr_expect(nearest ? cases[i].nearest && !strcmp(nearest, cases[i].nearest)
                          : !cases[i].nearest,
                  "%s: %s", cases[i].word, nearest ? nearest : "none");
    }
    char longest[LONGEST_WORD + 2];
    memset(longest, 'x', sizeof longest);
    longest[LONGEST_WORD] = 0;
    cr_expect_null(nearest_word(longest, KNOWN, COUNT));
    longest[LONGEST_WORD] = 'x', longest[LONGEST_WORD + 1] = 0;
    cr_expect_null(nearest_word(longest, KNOWN, COUNT), "longer than any word that is looked at");
}

Test(nearest, message, .timeout = 30) {
    cr_expect_eq(unknown_option("--seat", KNOWN, COUNT, "duet --help"), ERR_USAGE);
    cr_expect_str_eq(error_message(), "unknown option: --seat: see duet --help");
    cr_expect_eq(unknown_option("--seeds", KNOWN, COUNT, "duet --help"), ERR_USAGE);
    cr_expect_str_eq(error_message(), "unknown option: --seeds: did you mean --seed?");
}
