/* JSON: the writer and the strict reader. */
#include "base/error.h"
#include "base/text/json.h"
#include "tests/harness/harness.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* The text that `write` produces; the caller frees it. */
static char *written(void (*write)(struct json_writer *), int *code) {
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    struct json_writer w;
    json_start(&w, file);
    write(&w);
    *code = json_finish(&w, "test");
    fclose(file);
    return text;
}

static void write_all(struct json_writer *w) {
    json_object(w, NULL);
    json_string(w, "text \"\\\n", "tab\t bell\a \xc3\xa9 \xf0\x9f\x98\x80 bad\xff\xc3 end");
    json_number(w, "third", 1.0 / 3);
    json_number(w, "nan", NAN);
    json_number(w, "inf", -INFINITY);
    json_integer(w, "least", INT64_MIN);
    json_array(w, "thousandths");
    json_thousandths(w, NULL, 12345), json_thousandths(w, NULL, 7), json_thousandths(w, NULL, -1),
        json_thousandths(w, NULL, INT64_MIN), json_thousandths(w, NULL, 1001);
    json_close(w);
    json_array(w, "list");
    json_boolean(w, NULL, 1);
    json_null(w, NULL);
    json_object(w, NULL);
    json_close(w);
    json_close(w);
    json_close(w);
}

Test(json, writes_what_it_reads, .timeout = 30) {
    int code;
    char *text = written(write_all, &code);
    cr_assert_eq(code, OK, "%s", error_message());
    cr_assert(strstr(text, "tab\\t bell\\u0007 \xc3\xa9 \xf0\x9f\x98\x80 bad\\ufffd\\ufffd end"));
    cr_assert(strstr(text, "\"nan\": null, \"inf\": null"));
    cr_assert(strstr(text, "[12.345, 0.007, -0.001, -9223372036854775.808, 1.001001]"));
    cr_assert(strstr(text, "\"list\": [true, null, {}]"));
    struct json *j;
    cr_assert_eq(json_parse("test", text, strlen(text), &j), OK, "%s", error_message());
    cr_assert_eq(j->count, 7);
    cr_assert_eq(json_find(j, "third")->number, 1.0 / 3);
    cr_assert_eq(json_find(j, "least")->integer, INT64_MIN);
    cr_assert(json_find(j, "text \"\\\n"));
    cr_assert_null(json_find(j, "absent"));
    cr_assert_null(json_find(json_find(j, "third"), "x"));
    json_free(j);
    free(text);
}

static void open_only(struct json_writer *w) {
    json_object(w, NULL);
}
static void close_too_often(struct json_writer *w) {
    json_array(w, NULL), json_close(w), json_close(w);
}
static void no_key(struct json_writer *w) {
    json_object(w, NULL), json_integer(w, NULL, 1), json_close(w);
}
static void too_deep(struct json_writer *w) {
    for (int i = 0; i < JSON_DEPTH + 9; i++)
        json_array(w, NULL);
    for (int i = 0; i < JSON_DEPTH + 9; i++)
        json_close(w);
}

Test(json, a_misused_writer_says_so, .timeout = 30) {
    void (*misuse[])(struct json_writer *) = {open_only, close_too_often, no_key, too_deep};
    for (int i = 0; i < COUNT(misuse); i++) {
        int code;
        free(written(misuse[i], &code));
        cr_assert_eq(code, ERR_FAILED, "misuse %d", i);
    }
    struct json_writer w;
    FILE *full = fopen("/dev/full", "w");
    cr_assert_not_null(full);
    json_start(&w, full);
    json_array(&w, NULL), json_close(&w);
    cr_assert_eq(json_finish(&w, "/dev/full"), ERR_FAILED);
    fclose(full);
}

Test(json, reads_the_whole_grammar, .timeout = 30) {
    const char *text = " { \"a\" : [ 1 , -0.5e+1, 0, 12345678901234567890, 9007199254740993, true, "
                       "false, null, \"\" ],"
                       "\"\\u00e9\\ud83d\\ude00\\/\\b\": {\"a\": {}}, \"e\": [] }\n";
    struct json *j;
    cr_assert_eq(json_parse("test", text, strlen(text), &j), OK, "%s", error_message());
    const struct json *a = json_find(j, "a"), *item = a->child;
    cr_assert_eq(a->count, 9);
    cr_assert(item->is_integer && item->integer == 1);
    item = item->next;
    cr_assert(!item->is_integer && item->number == -5.0);
    item = item->next->next;
    /* too large for an int64_t */
    cr_assert(!item->is_integer && item->number == 12345678901234567890.0);
    item = item->next;
    cr_assert(item->is_integer && item->integer == 9007199254740993); /* a double cannot hold it */
    cr_assert_not_null(json_find(j, "\xc3\xa9\xf0\x9f\x98\x80/\b"));
    json_free(j);
    json_free(NULL);
}

Test(json, refuses_everything_else, .timeout = 30) {
    const char *bad[] = {
        "",
        " ",
        "{",
        "}",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":1]",
        "01",
        "-",
        "+1",
        ".5",
        "1.",
        "1e",
        "1e+",
        "0x1",
        "NaN",
        "Infinity",
        "nul",
        "tru",
        "truex",
        "1 1",
        "\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"\\u0000\"",
        "\"a\nb\"",
        "\"\xff\"",
        "\"\xc0\xaf\"",
        "\"\xed\xa0\x80\"",
        "\"\xf4\x90\x80\x80\"",
        "\"\xe2\x82\"",
        "'a'",
        "{\"a\":1,\"b\":2,\"a\":3}",
        "{\"a\":1,\"\\u0061\":2}",
        "[1]//",
        "{\"a\":{\"b\":[1,{\"c\":\"d\"},x]}}",
    };
    for (int i = 0; i < COUNT(bad); i++) {
        struct json *j = (struct json *)&j;
        cr_assert_eq(json_parse("header", bad[i], strlen(bad[i]), &j), ERR_FAILED, "%d: %s", i,
                     bad[i]);
        cr_assert_null(j);
        cr_assert(strstr(error_message(), "header"), "%s", error_message());
    }
    char with_zero[] = "[1,\0 2]";
    struct json *j;
    cr_assert_eq(json_parse("t", with_zero, sizeof with_zero - 1, &j), ERR_FAILED);
}

Test(json, depth_is_bounded_and_large_texts_are_quick, .timeout = 30) {
    static char deep[2 * 100000 + 1];
    struct json *j;
    memset(deep, '[', 100000), memset(deep + 100000, ']', 100000);
    cr_assert_eq(json_parse("deep", deep, 200000, &j), ERR_FAILED);
    cr_assert_eq(json_parse("deep", deep + 100000 - JSON_DEPTH, 2 * JSON_DEPTH, &j), OK, "%s",
                 error_message());
    json_free(j);
    cr_assert_eq(json_parse("deep", deep + 100000 - JSON_DEPTH - 1, 2 * JSON_DEPTH + 2, &j),
                 ERR_FAILED);
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    int n = test_short() ? 2000 : 100000;
    for (int i = 0; i < n; i++)
        fprintf(file, "%s\"key%d\":%d", i ? "," : "{", i, i);
    fputs("}", file), fclose(file);
    cr_assert_eq(json_parse("large", text, bytes, &j), OK);
    cr_assert_eq(j->count, n);
    json_free(j);
    free(text);
}

/* No prefix of a valid text is valid. Each is copied into a block of exactly its length, so that
 * AddressSanitizer reports a read past its end. */
Test(json, every_prefix_is_refused, .timeout = 30) {
    const char *text =
        "{\"a\": [1, -2.5e3, \"x\\u00e9\\n\xc3\xa9\"], \"b\": {\"c\": true, \"d\": null}}";
    for (size_t n = 0; n < strlen(text); n++) {
        char *copy = malloc(n ? n : 1);
        memcpy(copy, text, n);
        struct json *j;
        cr_assert_eq(json_parse("prefix", copy, n, &j), ERR_FAILED, "%zu bytes", n);
        free(copy);
    }
}
