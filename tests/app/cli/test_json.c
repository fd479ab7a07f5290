/* Checks that docs/json.md agrees with the files of --json. Each field that a subcommand writes is
 * in a table of the page, under a heading that names the subcommand, with its type; and each field
 * of the tables is written. */
#include <ctype.h>

#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"

enum { ROWS = 400 };

struct row {
    char path[96], type[48], section[80];
    int written;
};
struct page {
    char *text;
    struct row row[ROWS];
    int count;
};

/* Reads what stands between two backticks at *at, and moves past it. Returns 0 if there is
 * nothing. */
static int next_word(const char **at, char *word, size_t bytes) {
    const char *from = strchr(*at, '`'), *to = from ? strchr(from + 1, '`') : NULL;
    if (!to) return 0;
    snprintf(word, bytes, "%.*s", (int)(to - from - 1), from + 1);
    *at = to + 1;
    return 1;
}

static void read_page(struct page *page) {
    char section[80] = "", line[512];
    page->text = cli_read("json.md", NULL);
    for (const char *at = page->text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        if (!strncmp(line, "## ", 3)) snprintf(section, sizeof section, "%.79s", line + 3);
        if (strncmp(line, "| `", 3) || !strcmp(section, "TensorBoard") || !strcmp(section, "CSV"))
            continue;
        const char *words = line;
        struct row *row = &page->row[page->count++];
        cr_assert(page->count < ROWS && next_word(&words, row->path, sizeof row->path));
        cr_assert_eq(sscanf(words, " | %47[^|]", row->type), 1, "%s: no type", line);
        snprintf(row->section, sizeof row->section, "%s", section);
    }
}

/* 1 if the page says "`GROUP` is one of", and then names this key. */
static int is_one_of(const struct page *page, const char *group, const char *key) {
    char intro[48], word[48];
    snprintf(intro, sizeof intro, "`%s` is one of", group);
    const char *at = strstr(page->text, intro), *end = at ? strchr(at, '.') : NULL;
    for (at = at ? at + strlen(intro) : NULL; at && at < end && next_word(&at, word, sizeof word);)
        if (!strcmp(word, key)) return 1;
    return 0;
}

static int names_command(const char *section, const char *command) {
    const char *at = strstr(section, command);
    return !strcmp(section, "All files") ||
           (at && (at == section || at[-1] == ' ') && !isalpha((unsigned char)at[strlen(command)]));
}

static int fits_type(const struct json *x, const char *type) {
    if (x->kind == JSON_NULL) return strstr(type, "or null") != NULL;
    if (x->kind == JSON_STRING) return !strncmp(type, "string", 6);
    if (x->kind == JSON_BOOLEAN) return !strncmp(type, "true/false", 10);
    if (x->kind == JSON_OBJECT) return !strncmp(type, "object", 6);
    if (x->kind == JSON_NUMBER)
        return !strncmp(type, "number", 6) ||
               (!strncmp(type, "integer", 7) && (x->is_integer || x->natural));
    if (strncmp(type, "list of ", 8)) return 0;
    char item[48]; /* "numbers or nulls" as "number or null": the type of each item */
    snprintf(item, sizeof item, "%s", type + 8);
    for (const struct json *i = x->child; i; i = i->next)
        if (!fits_type(i, item)) return 0;
    return 1;
}

static struct row *row_of(struct page *page, const char *path, const char *command) {
    for (int i = 0; i < page->count; i++)
        if (!strcmp(page->row[i].path, path) && names_command(page->row[i].section, command))
            return &page->row[i];
    return NULL;
}

static void look_at(struct page *page, const struct json *x, const char *path,
                    const char *command) {
    int has_objects = x->kind == JSON_ARRAY && x->child && x->child->kind == JSON_OBJECT;
    struct row *row = row_of(page, path, command);
    char under[160];
    if (row) {
        row->written = 1;
        cr_expect(fits_type(x, row->type), "%s: %s is no %s", command, path, row->type);
    }
    if (x->kind != JSON_OBJECT && !has_objects) {
        /* an empty list of objects proves nothing */
        cr_expect(row || (x->kind == JSON_ARRAY && !x->child),
                  "duet %s writes %s, which docs/json.md does not name", command, path);
        return;
    }
    for (const struct json *item = x->child; item; item = item->next) {
        if (x->kind == JSON_ARRAY) {
            snprintf(under, sizeof under, "%s[]", path);
        } else {
            const char *key = item->key;
            cr_expect_null(strpbrk(key, " .[]"), "%s: %s: '%s' is no plain key", command, path,
                           key);
            if (strstr(path, "_by_cause") && is_one_of(page, "CAUSE", key)) key = "CAUSE";
            if (strstr(path, ".phase_") && is_one_of(page, "PHASE", key)) key = "PHASE";
            snprintf(under, sizeof under, "%s%s%s", path, *path ? "." : "", key);
        }
        look_at(page, item, under, command);
    }
}

static void look_at_file(struct page *page, const char *path, const char *command) {
    struct json *root = json_of(path);
    look_at(page, root, "", command);
    cr_expect_eq(json_int(root, "schema"), 7);
    cr_expect_str_eq(json_text(root, "command"), command);
    cr_expect(matches(json_text(root, "date"), "^20[0-9-]{8}T[0-9:]{8}Z$"), "%s",
              json_text(root, "date"));
    cr_expect_str_eq(json_text(root, "command_line/1"), command, "the launcher's own words");
    cr_expect(json_int(root, "host/cores") > 0);
    json_free(root);
}

#define TINY "--model mlp --mlp-hidden 4 --data-dir d --batch-size 8 --steps 2"

CliTest(cli_json, every_field_is_documented, 120) {
    static const char *const commands[][2] = {
        {"train", TINY " --mode dp --devices 2 --trace t"},
        {"train", "--mode ddp --devices 2 --model simple --dataset random --samples 16 --steps 1 "
                  "--batch-size 16 --optimizer adam"},
        {"compare", TINY " --devices 2"},
        {"compare", TINY " --devices 3 --virtual-devices off"},
        {"demo", TINY " --devices 2"},
        {"profile", TINY " --devices 2"},
        {"estimate", "--devices 2 --steps 2 --as pytorch"},
        {"estimate", "--gpu v100 --devices 1,2"},
        {"scale", TINY " --devices 1,2"},
        {"doctor", "--quick --device cpu --timeout 100"}};
    static struct page page;
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/docs/json.md", cli_root_path);
    cr_assert_eq(symlink(path, "json.md"), 0);
    read_page(&page);
    put_data(16, 8);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char file[16];
        snprintf(file, sizeof file, "j%zu", i);
        cli_well("%s %s --json %s", commands[i][0], commands[i][1], file);
        look_at_file(&page, file, commands[i][0]);
    }
    for (int i = 0; i < page.count; i++)
        cr_expect(page.row[i].written, "docs/json.md names %s, which no command writes",
                  page.row[i].path);
    free(page.text);
}
