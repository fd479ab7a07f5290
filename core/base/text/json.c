/* The JSON reader: one function per rule of the grammar (RFC 8259). Each function moves the cursor
 * past what it has read. The input may be hostile, so depth is bounded and everything is checked
 * before it is used. */
#include "base/text/json.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/number.h"

struct cursor {
    const char *name, *start, *at, *end;
};

static int wrong(const struct cursor *c, const char *why) {
    return fail(ERR_FAILED, "%s: JSON: %s at byte %zu", c->name, why, (size_t)(c->at - c->start));
}

static int peek(const struct cursor *c) {
    return c->at < c->end ? (unsigned char)*c->at : -1;
}

static void skip_space(struct cursor *c) {
    while (c->at < c->end && strchr(" \t\n\r", *c->at) && *c->at)
        c->at++;
}

static int hex4(struct cursor *c, unsigned *value) {
    *value = 0;
    for (int i = 0; i < 4; i++, c->at++) {
        int d = peek(c);
        if (d < 0 || !isxdigit(d)) return wrong(c, "four hex digits expected");
        *value = *value * 16 + (unsigned)(isdigit(d) ? d - '0' : tolower(d) - 'a' + 10);
    }
    return OK;
}

static char *put_utf8(char *out, unsigned u) {
    if (u < 0x80) {
        *out++ = (char)u;
    } else if (u < 0x800) {
        *out++ = (char)(0xc0 | u >> 6);
        *out++ = (char)(0x80 | (u & 63));
    } else if (u < 0x10000) {
        *out++ = (char)(0xe0 | u >> 12);
        *out++ = (char)(0x80 | (u >> 6 & 63));
        *out++ = (char)(0x80 | (u & 63));
    } else {
        *out++ = (char)(0xf0 | u >> 18);
        *out++ = (char)(0x80 | (u >> 12 & 63));
        *out++ = (char)(0x80 | (u >> 6 & 63));
        *out++ = (char)(0x80 | (u & 63));
    }
    return out;
}

/* \uXXXX, or a surrogate pair of two of them, which stands for one character above U+FFFF. */
static int read_unicode(struct cursor *c, char **out) {
    unsigned u, low;
    CHECK(hex4(c, &u));
    if (u == 0) return wrong(c, "\\u0000 is not accepted");
    if (u >= 0xdc00 && u <= 0xdfff) return wrong(c, "lone surrogate");
    if (u >= 0xd800 && u <= 0xdbff) {
        if (c->end - c->at < 6 || c->at[0] != '\\' || c->at[1] != 'u')
            return wrong(c, "lone surrogate");
        c->at += 2;
        CHECK(hex4(c, &low));
        if (low < 0xdc00 || low > 0xdfff) return wrong(c, "lone surrogate");
        u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
    }
    *out = put_utf8(*out, u);
    return OK;
}

/* The text without its escapes is never longer than with them, so that much memory is enough. */
static int read_string(struct cursor *c, char **text) {
    static const char letter[] = "\"\\/bfnrt", byte[] = "\"\\/\b\f\n\r\t";
    if (peek(c) != '"') return wrong(c, "a quoted string expected");
    const char *close = ++c->at;
    while (close < c->end && *close != '"')
        close += *close == '\\' ? 2 : 1;
    if (close >= c->end) return wrong(c, "a string without end");
    char *out = *text = malloc((size_t)(close - c->at) + 1);
    if (!out) return fail(ERR_MEMORY, "%s: JSON: no memory", c->name);
    while (c->at < close) {
        int n = utf8_length((const unsigned char *)c->at, (size_t)(close - c->at));
        if (n == 0) return wrong(c, "not UTF-8");
        if ((unsigned char)*c->at < 0x20) return wrong(c, "a control character in a string");
        if (*c->at != '\\') {
            memcpy(out, c->at, (size_t)n);
            out += n;
            c->at += n;
            continue;
        }
        char escape = c->at[1];
        const char *found = escape ? strchr(letter, escape) : NULL;
        c->at += 2;
        if (found)
            *out++ = byte[found - letter];
        else if (escape == 'u') {
            struct cursor inside = *c;
            inside.end = close;
            CHECK(read_unicode(&inside, &out));
            c->at = inside.at;
        } else {
            return wrong(c, "unknown escape");
        }
    }
    *out = 0;
    c->at = close + 1;
    return OK;
}

static size_t digits(struct cursor *c) {
    const char *from = c->at;
    while (peek(c) >= '0' && peek(c) <= '9')
        c->at++;
    return (size_t)(c->at - from);
}

static int read_number(struct cursor *c, struct json *j) {
    char text[64];
    const char *from = c->at;
    j->kind = JSON_NUMBER;
    j->is_integer = 1;
    if (peek(c) == '-') c->at++;
    int zero = peek(c) == '0';
    size_t n = digits(c);
    if (n == 0)
        return wrong(c, peek(c) == '<' ? "this is a page for a browser, and a value was expected"
                                       : "a value expected");
    if (zero && n > 1) return wrong(c, "a number with leading zero");
    if (peek(c) == '.') {
        c->at++;
        j->is_integer = 0;
        if (!digits(c)) return wrong(c, "digits expected");
    }
    if (peek(c) == 'e' || peek(c) == 'E') {
        c->at++;
        j->is_integer = 0;
        if (peek(c) == '+' || peek(c) == '-') c->at++;
        if (!digits(c)) return wrong(c, "digits expected");
    }
    size_t length = (size_t)(c->at - from);
    if (length >= sizeof text) return wrong(c, "a number too long");
    memcpy(text, from, length); /* the input may have no terminator, and strtod needs one */
    text[length] = 0;
    locale_t before = numbers_of_c();
    j->number = strtod(text, NULL);
    numbers_end(before);
    errno = 0;
    if (j->is_integer && *text != '-') j->natural = strtoull(text, NULL, 10);
    if (errno) j->natural = 0;
    errno = 0;
    if (j->is_integer) j->integer = strtoll(text, NULL, 10);
    if (errno) j->is_integer = 0, j->integer = 0;
    return OK;
}

static int by_key(const void *a, const void *b) {
    return strcmp((*(struct json *const *)a)->key, (*(struct json *const *)b)->key);
}

/* The keys are sorted first: otherwise a header of a million names would take a trillion
 * comparisons. */
static int check_keys_differ(struct cursor *c, const struct json *object) {
    if (object->count < 2) return OK;
    const struct json **item = malloc((size_t)object->count * sizeof *item);
    if (!item) return fail(ERR_MEMORY, "%s: JSON: no memory", c->name);
    int n = 0, code = OK;
    for (const struct json *j = object->child; j; j = j->next)
        item[n++] = j;
    qsort(item, (size_t)n, sizeof *item, by_key);
    for (int i = 1; i < n && !code; i++)
        if (!strcmp(item[i - 1]->key, item[i]->key))
            code = fail(ERR_FAILED, "%s: JSON: key '%.100s' occurs twice in one object", c->name,
                        item[i]->key);
    free(item);
    return code;
}

static int read_value(struct cursor *c, struct json *j, int depth);

/* Reads items up to the closing bracket. Each item is linked into the tree before it is filled, so
 * that json_free finds all of a tree that was read in part. */
static int read_items(struct cursor *c, struct json *j, int depth) {
    char closer = j->kind == JSON_OBJECT ? '}' : ']';
    struct json **end = &j->child;
    if (depth >= JSON_DEPTH) return wrong(c, "nested too deep");
    c->at++;
    skip_space(c);
    if (peek(c) == closer) {
        c->at++;
        return OK;
    }
    for (;;) {
        struct json *item = *end = calloc(1, sizeof *item);
        if (!item) return fail(ERR_MEMORY, "%s: JSON: no memory", c->name);
        end = &item->next;
        j->count++;
        if (j->kind == JSON_OBJECT) {
            skip_space(c);
            CHECK(read_string(c, &item->key));
            skip_space(c);
            if (peek(c) != ':') return wrong(c, "':' expected");
            c->at++;
        }
        CHECK(read_value(c, item, depth + 1));
        skip_space(c);
        int next = peek(c);
        if (next != ',' && next != closer) return wrong(c, "',' or the closing bracket expected");
        c->at++;
        if (next == closer) break;
    }
    return j->kind == JSON_OBJECT ? check_keys_differ(c, j) : OK;
}

static int read_word(struct cursor *c, struct json *j, const char *word, enum json_kind kind,
                     int value) {
    size_t n = strlen(word);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n)) return wrong(c, "a value expected");
    c->at += n;
    j->kind = kind;
    j->integer = value;
    return OK;
}

static int read_value(struct cursor *c, struct json *j, int depth) {
    skip_space(c);
    switch (peek(c)) {
    case '{': j->kind = JSON_OBJECT; return read_items(c, j, depth);
    case '[': j->kind = JSON_ARRAY; return read_items(c, j, depth);
    case '"': j->kind = JSON_STRING; return read_string(c, &j->string);
    case 't': return read_word(c, j, "true", JSON_BOOLEAN, 1);
    case 'f': return read_word(c, j, "false", JSON_BOOLEAN, 0);
    case 'n': return read_word(c, j, "null", JSON_NULL, 0);
    default: return read_number(c, j);
    }
}

int json_parse(const char *name, const char *text, size_t bytes, struct json **root) {
    struct cursor c = {name, text, text, text + bytes};
    struct json *j = calloc(1, sizeof *j);
    int code = j ? OK : fail(ERR_MEMORY, "%s: JSON: no memory", name);
    *root = NULL;
    if (!code) code = read_value(&c, j, 0);
    skip_space(&c);
    if (!code && c.at != c.end) code = wrong(&c, "more text after the value");
    if (code)
        json_free(j);
    else
        *root = j;
    return code;
}

void json_free(struct json *root) {
    while (root) {
        struct json *next = root->next;
        json_free(root->child); /* recursion is as deep as the nesting, at most JSON_DEPTH */
        free(root->key);
        free(root->string);
        free(root);
        root = next;
    }
}

const struct json *json_find(const struct json *object, const char *key) {
    if (!object || object->kind != JSON_OBJECT) return NULL;
    for (const struct json *j = object->child; j; j = j->next)
        if (!strcmp(j->key, key)) return j;
    return NULL;
}

const char *json_word(const struct json *object, const char *key) {
    const struct json *item = json_find(object, key);
    return item && item->kind == JSON_STRING ? item->string : "";
}

double json_value(const struct json *object, const char *key) {
    const struct json *item = json_find(object, key);
    return item && item->kind == JSON_NUMBER ? item->number : NAN;
}
