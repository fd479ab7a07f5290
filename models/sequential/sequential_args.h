/* The arguments of one layer, as its extra_repr prints them: positions first, then key=value.
 * What is taken is crossed out, and what is left over at the end is an error. sequential_args.c
 * reads the words, sequential_kinds.c says which arguments each layer has. */
#ifndef MODELS_SEQUENTIAL_ARGS_H
#define MODELS_SEQUENTIAL_ARGS_H

#include "models/sequential/sequential.h"

enum { ARGS = 16, WORD = 40 };

struct args {
    const struct sequential *s;
    int line;
    int code; /* of the first failure */
    int count;
    char key[ARGS][WORD]; /* a position as "0", "1"; "": crossed out */
    char value[ARGS][WORD];
};

/* Cuts the text at each ", " that is in no parentheses. */
int arg_split(struct args *a, const char *text, size_t length);

/* The first failure is kept: "what=value: why". */
void arg_refuse(struct args *a, const char *what, const char *value, const char *why);

/* The value of an argument, which is crossed out. arg_take: NULL where it is not there, arg_needed:
 * that is a failure. */
const char *arg_take(struct args *a, const char *key);
const char *arg_needed(struct args *a, const char *key);

/* A whole number of at least 1. */
int arg_int(struct args *a, const char *key);
/* A size that is the same in both directions; `otherwise` where it is not there, below 0: it must
 * be. */
int arg_square(struct args *a, const char *key, int least, int otherwise);
int arg_bool(struct args *a, const char *key, int otherwise);
/* A number that is not negative, or not below `least`. */
double arg_number(struct args *a, const char *key, double otherwise);
double arg_from(struct args *a, const char *key, double least, double otherwise);
/* Duet's layer has only one value here, which may be written in two ways. */
void arg_expect(struct args *a, const char *key, const char *one, const char *other);

/* Parts of a value; 0: it is none. arg_whole: a number, *end behind it; arg_tuple: "(3, 3)" of
 * `count` numbers. */
int arg_whole(const char *text, const char **end, int *value);
int arg_tuple(const char *at, int count, int *out);

#endif
