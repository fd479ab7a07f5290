/* The words of a layer's arguments, and what each value may be: see sequential_args.h. */
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/error.h"
#include "models/sequential/sequential_args.h"

const char *sequential_line(const struct sequential *s, int line, int *length) {
    const char *at = s->text;
    for (int i = 1; i < line && *at; i++)
        at += strcspn(at, "\n") + (at[strcspn(at, "\n")] != 0);
    at += strspn(at, " \t\r");
    *length = (int)strcspn(at, "\n");
    while (*length && strchr(" \t\r", at[*length - 1]))
        --*length;
    return at;
}

int sequential_fail(const struct sequential *s, int line, const char *format, ...) {
    char why[256], shown[81];
    int length;
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    const char *at = sequential_line(s, line, &length);
    snprintf(shown, sizeof shown, "%.*s", length, at);
    for (char *c = shown; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c >= 127) *c = '?';
    return fail(ERR_USAGE, "%.200s: line %d: '%s': %s", s->path, line, shown, why);
}

void arg_refuse(struct args *a, const char *what, const char *value, const char *why) {
    if (!a->code) a->code = sequential_fail(a->s, a->line, "%s=%s: %s", what, value, why);
}

/* ---- splitting ---- */

static int add_arg(struct args *a, const char *text, size_t length) {
    const char *equals = memchr(text, '=', length);
    int i = a->count;
    size_t key = equals ? (size_t)(equals - text) : 0, skip = equals ? key + 1 : 0;
    if (i == ARGS || key >= WORD || length - skip >= WORD || length == skip)
        return sequential_fail(a->s, a->line, "'%.*s': cannot be read as an argument",
                               (int)(length < 40 ? length : 40), text);
    if (equals)
        snprintf(a->key[i], WORD, "%.*s", (int)key, text);
    else
        snprintf(a->key[i], WORD, "%d", i);
    snprintf(a->value[i], WORD, "%.*s", (int)(length - skip), text + skip);
    a->count++;
    return OK;
}

/* At each ", " that is in no parentheses. */
int arg_split(struct args *a, const char *text, size_t length) {
    size_t begin = 0;
    int depth = 0;
    for (size_t i = 0; i < length; i++) {
        depth += (text[i] == '(') - (text[i] == ')');
        if (depth < 0) break;
        if (depth || text[i] != ',') continue;
        CHECK(add_arg(a, text + begin, i - begin));
        begin = i + 1 + strspn(text + i + 1, " ");
        if (begin >= length) break;
    }
    if (depth || (length && begin >= length))
        return sequential_fail(a->s, a->line, "its parentheses do not close");
    return length ? add_arg(a, text + begin, length - begin) : OK;
}

/* ---- taking ---- */

/* The value of an argument, which is crossed out; NULL: it is not there. */
const char *arg_take(struct args *a, const char *key) {
    for (int i = 0; i < a->count; i++)
        if (!strcmp(a->key[i], key)) {
            *a->key[i] = 0;
            return a->value[i];
        }
    return NULL;
}

int arg_whole(const char *text, const char **end, int *value) {
    char *stop;
    long n = isdigit((unsigned char)*text) ? strtol(text, &stop, 10) : -1;
    if (n < 0 || n > MOST_WINDOW * 64L) return 0;
    *value = (int)n;
    *end = stop;
    return 1;
}

/* "(3, 3)" or "torch.Size([3, 3])": `count` numbers. */
int arg_tuple(const char *at, int count, int *out) {
    static const char size[] = "torch.Size([";
    int is_size = !strncmp(at, size, strlen(size));
    for (int i = 0; i < count; i++) {
        const char *before = i ? ", " : is_size ? size : "(";
        if (strncmp(at, before, strlen(before)) || !arg_whole(at + strlen(before), &at, &out[i]))
            return 0;
    }
    return !strcmp(at, is_size ? "])" : ")");
}

/* "3" or "(3, 3)". */
static int pair(const char *text, int out[2]) {
    const char *at = text;
    if (*at == '(') return arg_tuple(at, 2, out);
    if (!arg_whole(at, &at, &out[0]) || *at) return 0;
    out[1] = out[0];
    return 1;
}

const char *arg_needed(struct args *a, const char *key) {
    const char *text = arg_take(a, key);
    if (!text && !a->code) a->code = sequential_fail(a->s, a->line, "%s is missing", key);
    return text;
}

int arg_int(struct args *a, const char *key) {
    const char *text = arg_needed(a, key), *end;
    int value = 0;
    if (text && (!arg_whole(text, &end, &value) || *end || value < 1))
        arg_refuse(a, key, text, "must be a whole number of at least 1");
    return value;
}

/* A size that is the same in both directions. */
int arg_square(struct args *a, const char *key, int least, int otherwise) {
    const char *text = otherwise < 0 ? arg_needed(a, key) : arg_take(a, key);
    int sides[2] = {otherwise, otherwise};
    if (!text) return otherwise;
    if (!pair(text, sides) || sides[0] < least)
        arg_refuse(a, key, text, "must be a size, as 3 or (3, 3)");
    else if (sides[0] != sides[1])
        arg_refuse(a, key, text, "height and width must be equal: Duet's windows are squares");
    return sides[0];
}

int arg_bool(struct args *a, const char *key, int otherwise) {
    const char *text = arg_take(a, key);
    if (!text) return otherwise;
    if (strcmp(text, "True") && strcmp(text, "False"))
        arg_refuse(a, key, text, "must be True or False");
    return !strcmp(text, "True");
}

double arg_from(struct args *a, const char *key, double least, double otherwise) {
    const char *text = arg_take(a, key);
    char *end;
    if (!text) return otherwise;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= least && value < 1e6))
        arg_refuse(a, key, text, "must be a number");
    return value;
}

double arg_number(struct args *a, const char *key, double otherwise) {
    return arg_from(a, key, 0, otherwise);
}

/* Duet's layer has only one value here, which may be written in two ways. */
void arg_expect(struct args *a, const char *key, const char *one, const char *other) {
    const char *text = arg_take(a, key);
    if (text && strcmp(text, one) && strcmp(text, other)) {
        char why[80];
        snprintf(why, sizeof why, "Duet's layer has %s=%s alone", key, one);
        arg_refuse(a, key, text, why);
    }
}
