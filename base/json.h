/* JSON: a writer for results and a strict reader for what comes from outside (safetensors
 * headers, run records). Our own because Duet must build where there is a compiler and nothing
 * else.
 *
 * Writing goes to a FILE; for text in memory use open_memstream. Errors of the file are looked
 * at once, by json_finish. Keys are given inside objects, NULL inside arrays and for the
 * outermost value. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { JSON_DEPTH = 64 }; /* nesting, when writing and when reading */

struct json_writer {
    FILE *file;
    int depth;
    int misused;               /* closed too often, or nested too deep: json_finish reports it */
    char closer[JSON_DEPTH];   /* '}' or ']' of each open level */
    char has_item[JSON_DEPTH]; /* whether a comma is due */
};

void json_start(struct json_writer *w, FILE *file);
void json_object(struct json_writer *w, const char *key); /* opens; json_close ends it */
void json_array(struct json_writer *w, const char *key);
void json_close(struct json_writer *w);
/* what is no UTF-8 becomes U+FFFD */
void json_string(struct json_writer *w, const char *key, const char *text);
/* %.17g: nothing is lost; nan, inf: null */
void json_number(struct json_writer *w, const char *key, double value);
void json_integer(struct json_writer *w, const char *key, int64_t value);
/* value / 1000, exact: 12.345 */
void json_thousandths(struct json_writer *w, const char *key, int64_t value);
void json_natural(struct json_writer *w, const char *key, uint64_t value);
void json_boolean(struct json_writer *w, const char *key, int value);
void json_null(struct json_writer *w, const char *key);
/* Ends the text with a newline and flushes. ERR_FAILED: the file could not be written, or a
 * level is open. */
int json_finish(struct json_writer *w, const char *name);

enum json_kind { JSON_NULL, JSON_BOOLEAN, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_kind kind;
    int is_integer;   /* a number written without fraction or exponent that fits 64 bits */
    int64_t integer;  /* its exact value; of a boolean 0 or 1 */
    uint64_t natural; /* the same of a whole number from 0 to 2^64 - 1, else 0 */
    double number;
    char *string;       /* UTF-8 */
    char *key;          /* inside an object */
    int count;          /* items of an array or object */
    struct json *child; /* the first item; items are chained by next, in the order of the text */
    struct json *next;
};

/* Reads text[0..bytes) (no terminator needed; spaces may surround the value) into a tree that
 * json_free frees. ERR_FAILED names the byte where it stops making sense; `name` says what was
 * read. Refused beyond the grammar: the same key twice in an object, \u0000, nesting past
 * JSON_DEPTH, text that is not UTF-8. */
int json_parse(const char *name, const char *text, size_t bytes, struct json **root);
void json_free(struct json *root); /* NULL is fine */

/* The item of that key, NULL if there is none or `object` is no object (or NULL). */
const struct json *json_find(const struct json *object, const char *key);

/* Bytes of the UTF-8 sequence at p (1 to 4), 0 if it is none; looks at most `left` bytes ahead. */
int utf8_length(const unsigned char *p, size_t left);

#ifdef __cplusplus
}
#endif
#endif
