/* Shared by the files that parse a graph: the reader and the functions for words. */
#ifndef MODELS_GRAPH_READER_H
#define MODELS_GRAPH_READER_H

#include "base/grow.h"
#include "models/graph/graph.h"

enum { GRAPH_WORD = 256 };

struct graph_reader {
    struct graph *g;
    const char *at, *begin; /* the current position, and the line's start */
    int line;
    const int *sizes; /* the values of GRAPH_LETTERS; NULL: letters are not allowed */
    int returned;     /* 1: the return has been read */
    double numbers;   /* numbers in a sample, over all inputs */
    void *names;      /* a search tree of names and what they stand for */
};

/* ERR_USAGE, with line and column. */
__attribute__((format(printf, 2, 3))) int graph_wrong(const struct graph_reader *r,
                                                      const char *format, ...);

/* Skips spaces. Returns 1 if the line ends here or a comment begins. */
int graph_at_end(struct graph_reader *r);
/* How many characters from here on an error shows, for %.*s. */
int graph_rest(struct graph_reader *r);
/* Returns 1 if `mark`, or the word `text`, is here, and skips it. */
int graph_take(struct graph_reader *r, const char *mark);
int graph_is_word(struct graph_reader *r, const char *text);
/* The same, but an absent mark is an error. */
int graph_expect(struct graph_reader *r, const char *mark);
size_t graph_word_length(const char *at);
int graph_word(struct graph_reader *r, const char *what, char out[GRAPH_WORD]);
/* A number, which may be a multiple of N: 8, N, 8N, 1e-05, -inf. With sizes also a multiple of a
 * letter: 3D. */
int graph_number(struct graph_reader *r, double *value, char *batch);
/* ": f32[N, 3]" */
int graph_type(struct graph_reader *r, struct graph_shape *s, int *is_i64);

/* Defines a name: `what` is a value, or ~i for tensor i. */
int graph_add_name(struct graph_reader *r, const char *text, int what);
int graph_find_name(struct graph_reader *r, const char *text, int *what);
void graph_free_names(struct graph_reader *r);
int graph_add_value(struct graph_reader *r, const char *name, const struct graph_shape *s, int *y);

/* "%y: TYPE = op(...)" */
int graph_statement(struct graph_reader *r);

#endif
