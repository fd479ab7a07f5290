/* report/results: files of --json. Whatever is read can be compared with itself, as text and as
 * JSON, and becomes a table. */
#include "report/diff_table.h"
#include "report/results_csv.h"
#include "tests/fuzz/fuzz.h"

/* The table has rows of one length: a comma too many would be a cell too many. Texts may hold
 * commas and newlines, in quotes. */
static void check_csv(const char *text) {
    int cells = 1, first = 0, quoted = 0;
    for (; *text; text++) {
        if (*text == '"') quoted = !quoted;
        if (quoted) continue;
        if (*text == ',') cells++;
        if (*text != '\n') continue;
        if (!first) first = cells;
        MUST(cells == first);
        cells = 1;
    }
    MUST(!quoted);
}

static char *csv_of(const struct json *root) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    MUST(file && results_csv(file, root) == OK);
    fclose(file);
    return text;
}

/* A run compared with itself has no first difference. */
static void check_diff(const struct results *r) {
    char *text = NULL;
    size_t bytes = 0;
    struct json_writer w;
    struct json *root = NULL;
    FILE *file = open_memstream(&text, &bytes);
    MUST(file);
    diff_print(file, 80, r, r);
    rewind(file);
    json_start(&w, file);
    json_object(&w, NULL);
    diff_write(&w, r, r);
    json_close(&w);
    MUST(json_finish(&w, "diff") == OK);
    fclose(file);
    MUST(json_parse("diff", text, strcspn(text, "\n") + 1, &root) == OK);
    const struct json *pairs = json_find(root, "pairs");
    for (const struct json *pair = pairs ? pairs->child : NULL; pair; pair = pair->next) {
        const struct json *first = json_find(json_find(pair, "losses"), "first_difference_at_step");
        MUST(!first || first->kind == JSON_NULL);
        MUST(json_find(pair, "settings")->count == 0);
    }
    json_free(root);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct results r;
    char path[64];
    int fd = as_file(data, size, path), code = results_read(&r, path);
    if (code)
        check_error(code);
    else
        check_diff(&r);
    if (!code) {
        char *csv = csv_of(r.root);
        check_csv(csv);
        free(csv);
    }
    results_free(&r);
    close(fd);
    return 0;
}
