/* Parsing, JSON and atomic files. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"
#include "base/parse.h"
#include "tests/harness/harness.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* The error must be of the kind for wrong words and name the text. */
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

/* torch.manual_seed's range, and what it makes of negative ones. */
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
    /* bounds as one types them */
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

/* What the writer makes of everything it can write. Free it. */
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
        json_thousandths(w, NULL, INT64_MIN);
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
    cr_assert(strstr(text, "[12.345, 0.007, -0.001, -9223372036854775.808]"));
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
    /* too large for an integer */
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

/* Every prefix of a good text is a bad one: no read past the end (AddressSanitizer watches the
 * exact block). */
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

static int files_in(const char *folder) {
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void content_is(const char *path, const char *want) {
    char text[100] = "";
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    cr_assert_str_eq(text, want);
}

static void write_file(const char *path, const char *text, int commit) {
    struct atomic_file f;
    cr_assert_eq(atomic_open(&f, path), OK, "%s", error_message());
    fputs(text, f.file);
    if (commit) cr_assert_eq(atomic_commit(&f), OK, "%s", error_message());
    atomic_abandon(&f);
}

Test(atomic_file, appears_whole_or_not_at_all, .timeout = 30) {
    char folder[] = "/tmp/duet-test-XXXXXX", path[64], link[64];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out", folder), snprintf(link, sizeof link, "%s/link", folder);
    write_file(path, "never", 0);
    cr_assert_eq(files_in(folder), 0);
    write_file(path, "one", 1);
    content_is(path, "one");
    write_file(path, "half", 0);
    content_is(path, "one");
    cr_assert_eq(symlink("out", link), 0);
    write_file(link, "two", 1); /* through a link: the link stays, its target changes */
    struct stat s;
    cr_assert(lstat(link, &s) == 0 && S_ISLNK(s.st_mode));
    content_is(path, "two");
    cr_assert_eq(files_in(folder), 2);
    unlink(link), unlink(path), rmdir(folder);
}

Test(atomic_file, what_cannot_be_written, .timeout = 30) {
    struct atomic_file f;
    const char *bad[] = {"/tmp", "/nonexistent-folder/x", "/proc/x", "/tmp/", ""};
    for (int i = 0; i < COUNT(bad); i++) {
        cr_assert_eq(atomic_open(&f, bad[i]), ERR_FAILED, "'%s' was opened", bad[i]);
        cr_assert(strstr(error_message(), bad[i]));
        atomic_abandon(&f);
    }
    struct stat before, after;
    stat("/dev/null", &before);
    write_file("/dev/null", "gone", 1);
    stat("/dev/null", &after);
    cr_assert(S_ISCHR(after.st_mode) && before.st_ino == after.st_ino);
    cr_assert_eq(atomic_open(&f, "/dev/full"), OK);
    fputs("no room", f.file);
    cr_assert_eq(atomic_commit(&f), ERR_FAILED);
    cr_assert(strstr(error_message(), "/dev/full"), "%s", error_message());
    atomic_abandon(&f);
}

/* A full disk, played by a limit on file size: the old file stays, the new one leaves no trace. */
Test(atomic_file, no_room, .timeout = 30) {
    char folder[] = "/tmp/duet-test-XXXXXX", path[64];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out", folder);
    write_file(path, "old", 1);
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    struct rlimit small = {4096, limit.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    struct atomic_file f;
    cr_assert_eq(atomic_open(&f, path), OK);
    setrlimit(RLIMIT_FSIZE, &small);
    for (int i = 0; i < 10000; i++)
        fputs("0123456789", f.file);
    int code = atomic_commit(&f);
    atomic_abandon(&f);
    setrlimit(RLIMIT_FSIZE, &limit);
    cr_assert_eq(code, ERR_FAILED);
    content_is(path, "old");
    cr_assert_eq(files_in(folder), 1);
    unlink(path), rmdir(folder);
}
