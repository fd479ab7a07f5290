/* Tests duet collective: its text, what it omits from long ones, the picture, and bad input.
 * tests/app/report/test_collective.c checks what is drawn. */
#include "report/collective/collective.h"
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"

/* The words succeed; all lines fit on 80 columns and hold no escape codes. */
static struct cli draws(const char *words) {
    struct cli c;
    cli_run(&c, "collective %s", words);
    cr_assert(c.status == 0 && !*c.err, "%s: %d %s", words, c.status, c.err);
    cr_expect(plain_lines(c.out), "%s", words);
    return c;
}

static void has(const char *words, const char *text) {
    struct cli c = draws(words);
    cr_expect(strstr(c.out, text), "%s: no '%s' in:\n%s", words, text, c.out);
    cli_free(&c);
}

CliTest(cli_collective, the_ring_by_eye, 60) {
    has("--algorithm ring --ranks 4 --bytes 1K",
        "allreduce by ring, 4 ranks: 256 floats (1 KiB) in each, in 4 chunks: 6 hops\n");
    has("--ranks 4 --bytes 1K --full",
        "\nhop 3 of 6\n"
        "  rank 0 --chunk 2--> rank 1 +           rank 2 --chunk 0--> rank 3 +\n"
        "  rank 1 --chunk 3--> rank 2 +           rank 3 --chunk 1--> rank 0 +\n"
        "\n"
        "          chunk 0  chunk 1  chunk 2  chunk 3\n"
        "  rank 0  0        sum      023      03\n"
        "  rank 1  01       1        sum      013\n"
        "  rank 2  012      12       2        sum\n"
        "  rank 3  sum      123      23       3\n");
    has("--ranks=4 --bytes=1K",
        "  rank 0 --chunk 1--> rank 1 =           rank 2 --chunk 3--> rank 3 =\n");
    has("", "  0-3            1572864      1572864  equal     2(n-1)/n S = 1572864, equal\n");
    has("--algorithm direct", "  0-3            1572864      1572864  equal ");
    has("--algorithm naive", "  0              3145728      3145728  equal ");
    has("--algorithm naive", "  1-3            1048576      1048576  equal ");
    has("--algorithm oneshot", "  0-3            3145728      3145728  equal ");
    has("--ranks 3 --bytes 400",
        "  1                  592          592  equal     2(n-1)/n S = 533.3, uneven\n");
}

CliTest(cli_collective, other_collectives_by_eye, 60) {
    has("--algorithm naive --ranks 3 --bytes 256 --full",
        "hop 1 of 2\n"
        "  rank 1 --chunk 0--> rank 0 =           rank 2 --chunk 0--> rank 0 =\n");
    has("--algorithm oneshot --ranks 2 --bytes 256 --full", "before hop 1\n");
    has("--algorithm all-gather --ranks 2 --bytes 32 --full", "  rank 1  0        1\n");
    has("--algorithm tree --ranks 64 --bytes 28 --full",
        "of 64 ranks x 1 chunk 64 are filled, "); /* a long set of ranks */
    has("--algorithm reduce-scatter --ranks 2 --bytes 32 --full", "  rank 1  1        sum\n");
    has("--algorithm tree --ranks 8 --bytes 2K", "6 hops");
    has("--algorithm auto --ranks 4 --bytes 16K", " for 16 KiB over 4 ranks (host shared memory");
    has("--ranks 1 --bytes 32", "nothing moves\n");
    has("--bytes 0", "nothing moves\n");
}

/* Every collective over 2, 8 and 64 ranks fits on a screen; what is left out is said. */
CliTest(cli_collective, long_ones_are_folded, 60) {
    const char *word;
    for (int i = 0; (word = collective_word(i)); i++) {
        for (int n = 2; n <= 64; n += n < 8 ? 6 : 56) {
            char words[80];
            snprintf(words, sizeof words, "--algorithm %s --ranks %d --bytes 64K", word, n);
            struct cli c = draws(words);
            int lines = 0;
            for (const char *p = c.out; *p; p++)
                lines += *p == '\n';
            cr_expect_leq(lines, 40, "%s: %d lines", words, lines);
            cr_expect(strstr(c.out, "bytes over links"), "%s", words);
            cli_free(&c);
        }
    }
    has("--ranks 64", "\n... hops 2 to 125: --full shows them\n");
    has("--ranks 64", "  ... and 50 more moves of this kind\n");
    has("--ranks 64 --full", "of 64 ranks x 64 chunks 4096 are filled, 4096 the sum of all\n");
    has("--ranks 16 --full --bytes 1K", "\nhop 15 of 30\n");
    cli_says(0, "!...", "collective --ranks 16 --full --bytes 1K");
}

/* The picture names what it shows and has an arrow for each move. A PNG is next to it if
 * rsvg-convert is installed; otherwise a line says that there is none. */
CliTest(cli_collective, picture, 60) {
    struct cli c;
    cli_run(&c, "collective --ranks 3 --bytes 192 --pictures slides");
    cr_expect_eq(c.status, 0);
    cr_expect(*c.err ? strstr(c.err, "no PNG next to it") != NULL
                     : !access("slides/ring-3.png", R_OK),
              "%s", c.err);
    size_t bytes;
    char *svg = cli_read("slides/ring-3.svg", &bytes);
    cr_assert_not_null(svg);
    cr_expect(strstr(svg, "allreduce by ring: 3 ranks, 3 chunks, 192 B in each"));
    int arrows = 0;
    for (const char *at = svg; (at = strstr(at, "Q")); at++)
        arrows++; /* an arrow is a curve */
    cr_expect_eq(arrows, 3 * 4, "%d arrows", arrows);
    free(svg);
    cli_free(&c);
    cli_fails(1, "none/x", "collective --pictures none/x");
}

CliTest(cli_collective, bad_input, 60) {
    cli_fails(2, "did you mean naive?", "collective --algorithm nave");
    cli_fails(2, "--algorithm", "collective --algorithm nccl");
    cli_fails(2, "1 to 64", "collective --ranks 65");
    cli_fails(2, "1 to 64", "collective --ranks 0");
    cli_fails(2, "multiple of 4", "collective --bytes 6");
    cli_fails(2, "--bytes", "collective --bytes 1G");
    cli_fails(2, "--bytes", "collective --bytes -1");
    cli_fails(2, "multiple of 4", "collective --algorithm all-gather --bytes 28");
    cli_fails(2, "broadcast or auto", "collective --algorithm rings");
    cli_fails(2, "fewer bytes or ranks", "collective --algorithm naive --ranks 64 --bytes 64M");
    cli_fails(2, "did you mean --ranks?", "collective --rankz 1");
    cli_fails(2, "no value", "collective --ranks");
    cli_fails(2, "leave it out", "collective --full=1");
    cli_fails(2, "empty", "collective --pictures=");
}
