/* --csv: each cell is what --json has under the column's name, and each field with one value has a
 * column. */
#include "tests/cli/data.h"
#include "tests/cli/json.h"

enum { CELLS = 400 };

/* Takes a line of RFC 4180 apart, in place. Returns how many cells it has, and goes behind it. */
static int next_line(char **at, char *cell[CELLS]) {
    int count = 0;
    char *p = *at;
    do {
        char *to = cell[count++] = p + (*p == '"');
        cr_assert_lt(count, CELLS);
        if (*p == '"') {
            for (p++; *p != '"' || p[1] == '"'; p++) {
                cr_assert(*p, "a quote is open at the end");
                if (*p == '"') p++;
                *to++ = *p;
            }
            p++;
        } else {
            while (*p && *p != ',' && *p != '\n')
                p++;
            to = p;
        }
        char end = *p;
        *to = 0;
        p++;
        if (end != ',') break;
    } while (1);
    *at = p;
    return count;
}

/* The value at "verdict.step" of the run, or of its device; NULL: there is none. */
static const struct json *field(const struct json *object, const char *column) {
    char key[96];
    while (object && *column) {
        size_t length = strcspn(column, ".");
        snprintf(key, sizeof key, "%.*s", (int)length, column);
        object = json_find(object, key);
        column += length + (column[length] == '.');
    }
    return object;
}

static int same(const char *cell, const struct json *x) {
    char *end;
    if (!x || x->kind == JSON_NULL) return !*cell;
    if (x->kind == JSON_STRING) return !strcmp(cell, x->string);
    if (x->kind == JSON_BOOLEAN) return !strcmp(cell, x->integer ? "true" : "false");
    return x->kind == JSON_NUMBER && *cell && strtod(cell, &end) == x->number && !*end;
}

/* How many values an object has, those of the objects in it included. */
static int values(const struct json *object) {
    int n = 0;
    for (const struct json *x = object->child; x; x = x->next)
        n += x->kind == JSON_OBJECT ? values(x) : x->kind != JSON_ARRAY;
    return n;
}

/* Compares both files of a command, whose richest run is `rich`. */
static void check(const char *rich) {
    struct json *root = json_of("j");
    char *text = cli_read("c", NULL), *at = text, *head[CELLS], *cell[CELLS];
    const struct json *full = json_at(root, rich), *run = json_at(root, "runs")->child;
    int columns = next_line(&at, head), rows = 0, of_run = values(full);
    cr_expect_eq(columns, of_run + values(json_at(full, "per_device")->child), "%d columns",
                 columns);
    for (; run; run = run->next) {
        const struct json *devices = json_find(run, "per_device");
        const struct json *device = devices ? devices->child : NULL;
        do {
            cr_assert(*at, "row %d is missing", rows);
            cr_assert_eq(next_line(&at, cell), columns, "row %d", rows++);
            for (int i = 0; i < columns; i++)
                cr_expect(same(cell[i], field(i < of_run ? run : device, head[i])),
                          "%s, row %d: %s is '%s'", rich, rows, head[i], cell[i]);
            device = device ? device->next : NULL;
        } while (device);
    }
    cr_expect(!*at, "more rows: %s", at);
    free(text);
    json_free(root);
}

Test(cli_csv, holds_what_json_holds, .timeout = 120, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    put_data(24, 8);
    cli_well("profile --data-dir d --model mlp --mlp-hidden 4 --batch-size 8 --devices 2 --steps 2 "
             "--json j --csv c");
    check("dp_loss_in_forward");
    cli_well("compare --data-dir d --model mlp --mlp-hidden 4 --batch-size 8 --devices 3 --steps 2 "
             "--seed 18446744073709551615 --json j --csv c");
    check("ddp");
    cli_well("estimate --devices 2 --json j --csv c");
    check("dp");
    cli_well("train --data-dir d --model mlp --batch-size 8 --steps 2 --json j --csv c");
    check("single");
}

/* Of a run that does not fit there is one row, with its name and its error. */
Test(cli_csv, what_does_not_fit, .timeout = 120, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    struct cli c;
    cli_run(&c, "profile --model simple --dataset random --classes 20000 --samples 256 --devices 4 "
                "--steps 1 --device-memory 48M --json j --csv c");
    cr_assert_eq(c.status, 1, "%s", c.err);
    check("ddp");
    cli_free(&c);
    cli_fails(2, "--json and --csv", "compare --json x --csv ./x");
    cli_fails(1, "no/v", "compare --dataset synthetic --csv no/v");
}
