/* JSON: a writer for results, and a strict reader for files that come from elsewhere (safetensors
 * headers, timelines). It is written by hand because Duet must build with nothing but a compiler.
 *
 * The writer prints to a FILE; one from open_memstream collects the output in memory. json_finish
 * reports write errors, once. `key` names a member of an object; it is NULL for an item of an array
 * and for the outermost value. */
#ifndef BASE_TEXT_JSON_H
#define BASE_TEXT_JSON_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/text/plain.h"

enum { JSON_DEPTH = 64 }; /* nesting, when writing and when reading */

struct json_writer {
    FILE *file;
    int depth;
    int misused;               /* 1: levels too deep, or closed too often; see json_finish */
    char closer[JSON_DEPTH];   /* '}' or ']' of each open level */
    char has_item[JSON_DEPTH]; /* for each open level: the next item needs a comma before it */
};

void json_start(struct json_writer *w, FILE *file);

/* Open an object or an array; json_close closes the innermost open one. */
void json_object(struct json_writer *w, const char *key);
void json_array(struct json_writer *w, const char *key);
void json_close(struct json_writer *w);

/* Bytes that are not UTF-8 are written as U+FFFD. */
void json_string(struct json_writer *w, const char *key, const char *text);

/* Writes all 17 significant digits, so that the value is read back equal. NaN and infinity become
 * null. */
void json_number(struct json_writer *w, const char *key, double value);
void json_integer(struct json_writer *w, const char *key, int64_t value);
/* Writes value / 1000: 12345 as 12.345. A reader that multiplies by 1000 gets the value, whether it
 * rounds or truncates. If truncating would give one less, a millionth is added. */
void json_thousandths(struct json_writer *w, const char *key, int64_t value);
void json_natural(struct json_writer *w, const char *key, uint64_t value);
void json_boolean(struct json_writer *w, const char *key, int value);
void json_null(struct json_writer *w, const char *key);
void json_string_or_null(struct json_writer *w, const char *key, const char *text); /* "" is null */
void json_index_or_null(struct json_writer *w, const char *key, int64_t index);     /* -1 is null */

/* Opens an event "X" of a Chrome trace, on a separate line for people and grep, and in it the
 * object of its args. The caller closes both. Times are in ns. `category` may be NULL. */
void json_slice(struct json_writer *w, int process, int track, const char *name,
                const char *category, int64_t start_ns, int64_t end_ns);

/* Ends the text with a newline and flushes the file. ERR_FAILED: the file could not be written, or
 * the levels were not opened and closed in pairs. The error calls the output `name`. */
int json_finish(struct json_writer *w, const char *name);

enum json_kind { JSON_NULL, JSON_BOOLEAN, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_kind kind;
    int is_integer;     /* 1: the number has no fraction or exponent and fits in an int64_t */
    int64_t integer;    /* the exact value if is_integer is 1; 0 or 1 for a boolean */
    uint64_t natural;   /* the exact value of an integer from 0 to 2^64 - 1, else 0 */
    double number;      /* the value of any number, rounded to double */
    char *string;       /* the text of a string, UTF-8 */
    char *key;          /* the member's name, in an object; UTF-8 */
    int count;          /* number of items in an array or object */
    struct json *child; /* the first item; `next` leads to the others, in the order of the file */
    struct json *next;
};

/* Reads text[0..bytes), which needs no terminator, into a tree that the caller frees with
 * json_free. White space may surround the value. ERR_FAILED names the byte at which the text stops
 * being JSON, and `name`, which says what was read. Four things that the grammar allows are
 * refused: a key that occurs twice in an object, \u0000, levels nested deeper than JSON_DEPTH, and
 * text that is not UTF-8. */
int json_parse(const char *name, const char *text, size_t bytes, struct json **root);
void json_free(struct json *root); /* takes NULL */

/* The member with that key. NULL: it does not exist, or `object` is NULL or not an object. */
const struct json *json_find(const struct json *object, const char *key);
const char *json_word(const struct json *object, const char *key); /* "": no such string */
double json_value(const struct json *object, const char *key);     /* NaN: no such number */

#endif
