/* Runs as comma-separated values: see results_csv.h. */
#include "report/results_csv.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { MOST_COLUMNS = 400, COLUMN = 80 };

/* Names of columns in the order in which they are first met. */
struct columns {
    int count;
    char name[MOST_COLUMNS][COLUMN];
};

static int column_of(const struct columns *c, const char *name) {
    for (int i = 0; i < c->count; i++)
        if (!strcmp(c->name[i], name)) return i;
    return -1;
}

/* "phase_ns" and "forward" give "phase_ns.forward". */
static void join(char name[COLUMN], const char *above, const char *key) {
    snprintf(name, COLUMN, "%s%s%s", above, *above ? "." : "", key);
}

/* Adds a column for each value below `object`; a null may stand for an object that others have. */
static void add_columns(struct columns *c, const struct json *object, const char *above) {
    for (const struct json *x = object->child; x; x = x->next) {
        char name[COLUMN];
        join(name, above, x->key);
        if (x->kind == JSON_OBJECT)
            add_columns(c, x, name);
        else if (x->kind != JSON_ARRAY && column_of(c, name) < 0 && c->count < MOST_COLUMNS)
            memcpy(c->name[c->count++], name, COLUMN);
    }
}

/* Drops columns of objects that were null where they met first. */
static void drop_objects(struct columns *c) {
    int kept = 0;
    for (int i = 0; i < c->count; i++) {
        size_t length = strlen(c->name[i]);
        int is_object = 0;
        for (int k = 0; k < c->count; k++)
            is_object |= !strncmp(c->name[k], c->name[i], length) && c->name[k][length] == '.';
        if (!is_object) memmove(c->name[kept++], c->name[i], COLUMN);
    }
    c->count = kept;
}

static void print_text(FILE *file, const char *text) {
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, file);
        return;
    }
    fputc('"', file);
    for (; *text; text++)
        fprintf(file, *text == '"' ? "\"\"" : "%c", *text);
    fputc('"', file);
}

static void print_value(FILE *file, const struct json *x) {
    if (!x || x->kind == JSON_NULL) return;
    if (x->kind == JSON_STRING) print_text(file, x->string);
    if (x->kind == JSON_BOOLEAN) fputs(x->integer ? "true" : "false", file);
    if (x->kind != JSON_NUMBER) return;
    struct json_writer w; /* its numbers are whole and have a point in every locale */
    json_start(&w, file);
    if (x->is_integer)
        json_integer(&w, NULL, x->integer);
    else if (x->natural)
        json_natural(&w, NULL, x->natural);
    else
        json_number(&w, NULL, x->number);
}

/* The value of a column; NULL: there is none. */
static const struct json *value_of(const struct json *object, const char *column) {
    char key[COLUMN];
    while (object && *column) {
        size_t length = strcspn(column, ".");
        snprintf(key, sizeof key, "%.*s", (int)length, column);
        object = json_find(object, key);
        column += length + (column[length] == '.');
    }
    return object;
}

static void print_row(FILE *file, const struct columns *of_run, const struct json *run,
                      const struct columns *of_device, const struct json *device) {
    for (int i = 0; i < of_run->count; i++) {
        if (i) fputc(',', file);
        print_value(file, value_of(run, of_run->name[i]));
    }
    for (int i = 0; i < of_device->count; i++) {
        fputc(',', file);
        print_value(file, value_of(device, of_device->name[i]));
    }
    fputc('\n', file);
}

static void print_head(FILE *file, const struct columns *of_run, const struct columns *of_device) {
    for (int i = 0; i < of_run->count; i++) {
        if (i) fputc(',', file);
        print_text(file, of_run->name[i]);
    }
    for (int i = 0; i < of_device->count; i++) {
        fputc(',', file);
        print_text(file, of_device->name[i]);
    }
    fputc('\n', file);
}

int results_csv(FILE *file, const struct json *root) {
    const struct json *runs = json_find(root, "runs");
    struct columns *c = calloc(2, sizeof *c);
    if (!c) return fail(ERR_MEMORY, "csv: no host memory");
    for (const struct json *run = runs ? runs->child : NULL; run; run = run->next) {
        const struct json *devices = json_find(run, "per_device");
        add_columns(&c[0], run, "");
        for (const struct json *d = devices ? devices->child : NULL; d; d = d->next)
            add_columns(&c[1], d, "");
    }
    drop_objects(&c[0]);
    print_head(file, &c[0], &c[1]);
    for (const struct json *run = runs ? runs->child : NULL; run; run = run->next) {
        const struct json *devices = json_find(run, "per_device");
        if (!devices) print_row(file, &c[0], run, &c[1], NULL); /* it did not fit */
        for (const struct json *d = devices ? devices->child : NULL; d; d = d->next)
            print_row(file, &c[0], run, &c[1], d);
    }
    free(c);
    return OK;
}
