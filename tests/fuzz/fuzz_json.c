/* base/text/json: accepted input can be written again, and reads back as the same tree. */
#include "base/text/json.h"
#include "tests/fuzz/fuzz.h"

static void write_value(struct json_writer *w, const char *key, const struct json *value) {
    switch (value->kind) {
    case JSON_NULL: json_null(w, key); return;
    case JSON_BOOLEAN: json_boolean(w, key, value->integer != 0); return;
    case JSON_STRING: json_string(w, key, value->string); return;
    case JSON_NUMBER:
        if (value->is_integer)
            json_integer(w, key, value->integer);
        else
            json_number(w, key, value->number);
        return;
    case JSON_ARRAY:
    case JSON_OBJECT:
        if (value->kind == JSON_ARRAY)
            json_array(w, key);
        else
            json_object(w, key);
        for (const struct json *item = value->child; item; item = item->next)
            write_value(w, item->key, item);
        json_close(w);
    }
}

static int finite(double x) {
    return x - x == 0;
}

static void check_same(const struct json *a, const struct json *b) {
    /* A number that is too large for a double is infinite, and is written as null. */
    if (a->kind == JSON_NUMBER && !a->is_integer && !finite(a->number)) return;
    MUST(a->kind == b->kind && a->count == b->count);
    MUST(!a->key == !b->key && (!a->key || !strcmp(a->key, b->key)));
    if (a->kind == JSON_STRING) MUST(!strcmp(a->string, b->string));
    if (a->kind == JSON_NUMBER) MUST(a->number == b->number);
    int items = 0;
    const struct json *x = a->child, *y = b->child;
    for (; x && y; x = x->next, y = y->next, items++)
        check_same(x, y);
    MUST(!x && !y && items == a->count);
    for (x = a->child; a->kind == JSON_OBJECT && x; x = x->next)
        MUST(json_find(a, x->key) == x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct json *root = NULL, *again = NULL;
    int code = json_parse("input", (const char *)data, size, &root);
    if (code) {
        check_error(code);
        return 0;
    }
    char *text = NULL;
    size_t bytes = 0;
    struct json_writer w;
    FILE *file = open_memstream(&text, &bytes);
    MUST(file);
    json_start(&w, file);
    write_value(&w, NULL, root);
    MUST(json_finish(&w, "output") == OK);
    fclose(file);
    MUST(json_parse("output", text, bytes, &again) == OK);
    check_same(root, again);
    json_free(again);
    json_free(root);
    free(text);
    return 0;
}
