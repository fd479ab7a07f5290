/* Command line words as numbers: what is accepted, and how everything else is refused. */
#include <stdint.h>

#include "base/error.h"
#include "base/text/parse.h"
#include "tests/harness/harness.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* The error must be ERR_USAGE, and its line must name the text and the flag. */
static void refused(int code, const char *text) {
    cr_assert_eq(code, ERR_USAGE, "'%s' was taken", text);
    cr_assert(strstr(error_message(), text), "'%s' does not name '%s'", error_message(), text);
    cr_assert(strstr(error_message(), "--flag"), "'%s' does not name the flag", error_message());
    cr_assert_not(strchr(error_message(), '\n'));
}

Test(parse, whole_numbers, .timeout = 30) {
    int64_t v = 77;
    const char *bad[] = {"",     " 1",  "1 ",  "1x",  "x",
                         "0x10", "1.0", "1e3", "--1", "+",
                         "-",    "0",   "65",  "-1",  "99999999999999999999",
                         "64,"};
    for (int i = 0; i < COUNT(bad); i++)
        refused(parse_int("--flag", bad[i], 1, 64, &v), bad[i]);
    cr_assert_eq(v, 77);
    cr_assert_eq(parse_int("--flag", "64", 1, 64, &v), OK);
    cr_assert_eq(v, 64);
    cr_assert_eq(parse_int("--flag", "+007", 1, 64, &v), OK);
    cr_assert_eq(v, 7);
    cr_assert_eq(parse_int("--flag", "-9223372036854775808", INT64_MIN, INT64_MAX, &v), OK);
    cr_assert_eq(v, INT64_MIN);
    refused(parse_int("--flag", "9223372036854775808", INT64_MIN, INT64_MAX, &v),
            "9223372036854775808");
}

/* The range of torch.manual_seed, which adds 2^64 to a negative seed. */
Test(parse, seeds, .timeout = 30) {
    static const struct {
        const char *text;
        uint64_t seed;
    } good[] = {
        {"0", 0},
        {"7", 7},
        {"+7", 7},
        {"9223372036854775808", 1ull << 63},
        {"18446744073709551615", UINT64_MAX},
        {"-1", UINT64_MAX},
        {"-9223372036854775808", 1ull << 63},
        {"-0", 0},
    };
    const char *bad[] = {"",
                         "-",
                         "+",
                         "x",
                         "1x",
                         " 1",
                         "1 ",
                         "1.5",
                         "1e3",
                         "0x1",
                         "18446744073709551616",
                         "-9223372036854775809",
                         "99999999999999999999",
                         "--1"};
    uint64_t seed = 5;
    for (int i = 0; i < COUNT(bad); i++)
        refused(parse_seed("--flag", bad[i], &seed), bad[i]);
    cr_assert_eq(seed, 5u);
    for (int i = 0; i < COUNT(good); i++) {
        cr_assert_eq(parse_seed("--flag", good[i].text, &seed), OK, "%s", good[i].text);
        cr_assert_eq(seed, good[i].seed, "%s: %llu", good[i].text, (unsigned long long)seed);
    }
}

Test(parse, sizes, .timeout = 30) {
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"8", 8},
        {"8B", 8},
        {"64K", 65536},
        {"64KiB", 65536},
        {"64kb", 65536},
        {"1M", 1 << 20},
        {"0.5M", 1 << 19},
        {"1.5G", 3ull << 29},
        {"16GiB", 16ull << 30},
        {".25K", 256},
        {"1e3", 1000},
    };
    uint64_t v = 5;
    for (int i = 0; i < COUNT(good); i++) {
        cr_assert_eq(parse_size("--flag", good[i].text, 0, 1ull << 40, &v), OK, "%s", good[i].text);
        cr_assert_eq(v, good[i].bytes, "%s: %llu", good[i].text, (unsigned long long)v);
    }
    v = 5;
    const char *bad[] = {"",      "K",   "-1",  "-1K", "1 K",  "1T", "1KK",
                         "1KiBx", "inf", "nan", "2G",  "1e30", "0x1"};
    for (int i = 0; i < COUNT(bad); i++)
        refused(parse_size("--flag", bad[i], 0, 1 << 30, &v), bad[i]);
    refused(parse_size("--flag", "7", 8, 9, &v), "7");
    /* The message states the bounds as a user would type them. */
    refused(parse_size("--flag", "64K", 2 << 20, 1ull << 50, &v), "from 2M to 1048576G");
    refused(parse_size("--flag", "0", 1536 << 10, 3000, &v), "from 1536K to 3000");
    cr_assert_eq(v, 5u);
}

Test(parse, numbers, .timeout = 30) {
    double v = 3;
    const char *bad[] = {"",      "nan", "inf", "-inf", "1e999", "0x1p3", "1,5",
                         "1.5.2", "1e",  " 1",  "1 ",   "-0.1",  "1.01"};
    for (int i = 0; i < COUNT(bad); i++)
        refused(parse_number("--flag", bad[i], 0, 1, &v), bad[i]);
    cr_assert_eq(v, 3.0);
    cr_assert_eq(parse_number("--flag", "0.1", 0, 1, &v), OK);
    cr_assert_eq(v, 0.1);
    cr_assert_eq(parse_number("--flag", "1e-3", 0, 1, &v), OK);
    cr_assert_eq(v, 1e-3);
    cr_assert_eq(parse_number("--flag", "1e308", 0, HUGE_VAL, &v), OK);
    refused(parse_number("--flag", "-1", 0, HUGE_VAL, &v), "-1");
}

Test(parse, lists, .timeout = 30) {
    int64_t v[3] = {0};
    int n = 9;
    const char *bad[] = {"", ",", "1,", ",1", "1,,2", "1,2,3,4", "1, 2", "1,x", "1,0", "1;2"};
    for (int i = 0; i < COUNT(bad); i++)
        refused(parse_int_list("--flag", bad[i], 1, 100, v, 3, &n), bad[i]);
    cr_assert_eq(n, 9);
    cr_assert_eq(parse_int_list("--flag", "1,20,100", 1, 100, v, 3, &n), OK);
    cr_assert(n == 3 && v[0] == 1 && v[1] == 20 && v[2] == 100);
    cr_assert_eq(parse_int_list("--flag", "5", 1, 100, v, 3, &n), OK);
    cr_assert(n == 1 && v[0] == 5);
}

Test(parse, lists_of_numbers, .timeout = 30) {
    static const char *const bad[] = {"",    ",",     "1,",      ",1",   "1,,2", "x",
                                      "1;2", "1,nan", "0.1,5.1", "1 ,2", "-1",   "1,2,3,4"};
    double v[3] = {9, 9, 9};
    int n = 9;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(parse_number_list("--flag", bad[i], 0, 5, v, 3, &n), bad[i]);
    cr_assert_eq(n, 9);
    cr_assert_eq(parse_number_list("--flag", "0.1,2e-1,5", 0, 5, v, 3, &n), OK);
    cr_assert(n == 3 && v[0] == 0.1 && v[1] == 0.2 && v[2] == 5);
}

Test(parse, counts, .timeout = 10) {
    static const struct {
        const char *text;
        int64_t count;
    } right[] = {{"7", 7},       {"25.6M", 25600000}, {"1.1b", 1100000000}, {"1.5G", 1500000000},
                 {"0.11K", 110}, {"2e3", 2000},       {"3T", 3000000000000}};
    static const char *const wrong[] = {"", "M", "1MB", "1 M", "-1", "1.5P", "4T", "nan", "0x10"};
    int64_t count;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        cr_expect_eq(parse_count("--n", right[i].text, 0, 3000000000000, &count), OK, "%s",
                     right[i].text);
        cr_expect_eq(count, right[i].count, "%s: %lld", right[i].text, (long long)count);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect_eq(parse_count("--n", wrong[i], 0, 3000000000000, &count), ERR_USAGE, "%s",
                     wrong[i]);
}
