/* duet report on a file of duet_devices_timeline: lanes and bubble of times by hand, the picture,
 * and files that are none. */
#include "tests/app/cli/run.h"

static void put(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

/* 64 columns of 1 us: device 0 has 32 of forward and 16 of backward, device 1 waits for 32, then
 * has 8 of forward, 4 of a copy and 4 of an optimizer. */
static const char by_hand[] =
    "{\"duet_timeline\": 1, \"devices\": [\"cpu(0)\", \"cpu(1)\"], \"spans\": ["
    "[0, \"linear forward\", 1000, 33000, false], [0, \"wait\", 33000, 49000, true],"
    "[0, \"linear backward data\", 49000, 65000, false],"
    "[1, \"wait\", 1000, 33000, true], [1, \"relu forward\", 33000, 40000, false],"
    "[1, \"cross entropy backward\", 40000, 41000, false],"
    "[1, \"copy peer\", 41000, 45000, false], [1, \"sgd\", 45000, 49000, false]]}";

CliTest(cli_timeline, times_by_hand, 30) {
    struct cli c;
    put("parts.json", by_hand);
    cli_run(&c, "report parts.json --picture parts.svg --trace parts.trace");
    cr_assert_eq(c.status, 0, "%s", c.err);
    cr_expect_str_eq(
        c.out,
        "0.06 ms: F forward, B backward, S optimizer, : copies and sums, . nothing\n"
        "device 0  |FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF................BBBBBBBBBBBBBBBB| busy 75 %\n"
        "device 1  |................................FFFFFFFF::::SSSS................| busy 25 %\n"
        "the bubble: 50 % of the time of 2 devices\n");
    cli_free(&c);
    char same[PATH_MAX + 64]; /* without the options that cli_run gives to profile */
    snprintf(same, sizeof same,
             "%s/" BUILD_DIR "/duet profile parts.json | grep -q 'bubble: 50 %%'", cli_root_path);
    cr_expect_eq(system(same), 0);
    cr_expect_eq(system("grep -q 'A model in parts' parts.svg && tail -1 parts.svg | grep -q "
                        "'</svg>' && grep -q 'linear backward data' parts.trace"),
                 0);
}

CliTest(cli_timeline, what_is_none_is_refused, 60) {
    static const char *const wrong[][2] = {
        {"{\"duet_timeline\": 1, \"devices\": [\"a\"], \"spans\": []}", "it has no spans"},
        {"{\"duet_timeline\": 1, \"devices\": [], \"spans\": [[]]}", "it has no spans"},
        {"{\"duet_timeline\": 1, \"devices\": [\"a\"], \"spans\": [[0, \"x\", 1, 2]]}",
         "a span is torn"},
        {"{\"duet_timeline\": 1, \"devices\": [\"a\"], \"spans\": [[1, \"x\", 1, 2, false]]}",
         "a span of no device"},
        {"{\"duet_timeline\": 1, \"devices\": [\"a\"], \"spans\": [[0, \"x\", 2, 1, false]]}",
         "a span without a name or times"},
        {"{\"duet_timeline\": 1, \"devices\": [\"a\"], \"spans\": [[0, \"x\", 2, 2, false]]}",
         "its spans take no time"},
        {"{\"duet_timeline\"", "parts.json"},
        {"{}", "run the job with DUET_TRACE=parts.json"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put("parts.json", wrong[i][0]);
        cli_fails(1, wrong[i][1], "report parts.json");
    }
    cli_fails(2, "--picture", "report nothing --picture x.svg");
}
