/* Reads JSON that the command wrote. */
#ifndef TESTS_CLI_JSON_H
#define TESTS_CLI_JSON_H

#include "base/error.h"
#include "base/text/json.h"
#include "tests/app/cli/run.h"

static inline struct json *json_of(const char *path) {
    size_t bytes;
    struct json *root = NULL;
    char *text = cli_read(path, &bytes);
    cr_assert_eq(json_parse(path, text, bytes, &root), OK, "%s", error_message());
    free(text);
    return root;
}

/* A member; if the results have none of that name, the run of that name, or the only run's
 * member. */
static inline const struct json *json_member(const struct json *object, const char *key) {
    const struct json *found = json_find(object, key), *runs = json_find(object, "runs");
    if (found || !runs) return found;
    for (const struct json *run = runs->child; run; run = run->next) {
        const struct json *name = json_find(run, "name");
        if (name && !strcmp(name->string, key)) return run;
    }
    return runs->count == 1 ? json_find(runs->child, key) : NULL;
}

/* Returns the item at a formatted path of keys separated by '/', as "ddp/per_device/0"; a number
 * selects an item of an array. Fails the test if there is none. In the results of a command "dp" is
 * the run of that name, and of a file with one run its members may be named at once. */
__attribute__((format(printf, 2, 3))) static inline const struct json *
json_at(const struct json *root, const char *format, ...) {
    char path[128], keys[128];
    va_list words;
    va_start(words, format);
    vsnprintf(path, sizeof path, format, words);
    va_end(words);
    snprintf(keys, sizeof keys, "%s", path);
    for (char *save, *key = strtok_r(keys, "/", &save); key; key = strtok_r(NULL, "/", &save)) {
        if (root->kind == JSON_ARRAY) {
            root = root->child;
            for (int i = atoi(key); root && i > 0; i--)
                root = root->next;
        } else {
            root = json_member(root, key);
        }
        cr_assert_not_null(root, "%s is not in the file, at %s", path, key);
    }
    return root;
}

/* The values at such a path, which must be of that kind. */
#define json_double(root, ...) json_double_of(json_at(root, __VA_ARGS__))
#define json_int(root, ...) json_int_of(json_at(root, __VA_ARGS__))
#define json_text(root, ...) json_text_of(json_at(root, __VA_ARGS__))

static inline double json_double_of(const struct json *item) {
    cr_assert_eq(item->kind, JSON_NUMBER, "%s is no number", item->key);
    return item->number;
}

static inline int64_t json_int_of(const struct json *item) {
    cr_assert(item->kind == JSON_NUMBER && item->is_integer, "%s is no integer", item->key);
    return item->integer;
}

static inline const char *json_text_of(const struct json *item) {
    cr_assert_eq(item->kind, JSON_STRING, "%s is no text", item->key);
    return item->string;
}

/* The text with each broken paragraph on one line: what follows an indented line's newline is one
 * space. The caller frees it. */
static inline char *unbroken(const char *text) {
    char *all = malloc(strlen(text) + 1), *to = all;
    cr_assert_not_null(all);
    while (*text) {
        int broken = text[0] == '\n' && text[1] == ' ';
        *to++ = broken ? ' ' : *text;
        text += broken ? 1 + strspn(text + 1, " ") : 1;
    }
    *to = 0;
    return all;
}

/* 1 if the text has no escape codes and no carriage returns: output to a file is plain lines. */
static inline int plain_lines(const char *text) {
    int columns = 0, widest = 0;
    for (const char *c = text; *c; c++) {
        columns = *c == '\n' ? 0 : columns + ((*c & 0xc0) != 0x80); /* UTF-8 */
        widest = columns > widest ? columns : widest;
    }
    return !strchr(text, '\033') && !strchr(text, '\r') && widest <= 80;
}

#endif
