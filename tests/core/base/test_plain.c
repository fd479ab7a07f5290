/* Text from outside is printed without control characters and cut only between characters. */
#include <string.h>

#include "base/error.h"
#include "base/text/plain.h"
#include "base/text/text.h"
#include "tests/harness/harness.h"

static const char *const rows[][2] = {
    {"plain \"text\" \\ of 100 %, \xc3\xa9t\xc3\xa9, \xe6\x97\xa5, \xf0\x9f\x98\x80",
     "plain \"text\" \\ of 100 %, \xc3\xa9t\xc3\xa9, \xe6\x97\xa5, \xf0\x9f\x98\x80"},
    {"\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"},
    {"a\nb\tc\rd", "a\\nb\\tc\\rd"},
    {"\x01\x1f\x7f", "\\x01\\x1f\\x7f"},
    {"C1: \xc2\x80\xc2\x9b\xc2\x9f", "C1: \\u0080\\u009b\\u009f"},
    {"\xc2\xa0 is a space", "\xc2\xa0 is a space"},
    {"\xd8\x9c\xe2\x80\x8e\xe2\x80\x8f\xe2\x80\xaa\xe2\x80\xae\xe2\x81\xa6\xe2\x81\xa9",
     "\\u061c\\u200e\\u200f\\u202a\\u202e\\u2066\\u2069"},
    {"\xe2\x80\xa8\xe2\x80\xa9\xef\xbb\xbf", "\\u2028\\u2029\\ufeff"},
    {"\x80\xff\xc3(\xed\xa0\x80\xe6\x97", "\\x80\\xff\\xc3(\\xed\\xa0\\x80\\xe6\\x97"},
};

Test(plain, control_characters_are_escapes, .timeout = 30) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_expect_str_eq(PLAIN(rows[i][0]), rows[i][1]);
        fail(ERR_FAILED, "%s", rows[i][0]);
        cr_expect_str_eq(error_message(), rows[i][1]);
    }
}

Test(plain, what_does_not_fit_is_cut_between_characters, .timeout = 30) {
    char out[6];
    cr_expect_str_eq(text_plain(out, sizeof out, "abcd\x1b", 9), "abcd");
    cr_expect_str_eq(text_plain(out, sizeof out, "abc\xe6\x97\xa5", 9), "abc");
    cr_expect_str_eq(text_plain(out, sizeof out, "a\x1b", 9), "a\\x1b");
    cr_expect_str_eq(text_plain(out, sizeof out, "abcdefgh", 3), "abc");
    cr_expect_str_eq(text_plain(out, 1, "a", 1), "");
}

Test(plain, paragraphs, .timeout = 30) {
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    text_wrap(file, 20, 0, 2, "a \x1b[2J and a\nline of \xe2\x80\xae words");
    fclose(file);
    cr_expect_str_eq(text, "a \\x1b[2J and\n  a\\nline of \\u202e\n  words\n");
    free(text);
}
