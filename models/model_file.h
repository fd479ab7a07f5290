/* A model from the file that --model names: a graph (models/graph/graph.h). It is a struct
 * duet_model, as all models are. */
#ifndef MODELS_MODEL_FILE_H
#define MODELS_MODEL_FILE_H

#include <stdio.h>
#include <string.h>

#include "duet.h"

struct graph;

struct model_file {
    char *path;    /* as it was given; owned */
    char *text;    /* the whole text, ended by a zero byte; owned */
    char *weights; /* where its tensors are, NET.safetensors; owned */
    size_t bytes;
    struct graph *graph;            /* owned */
    const struct duet_model *model; /* of that graph */
};

/* Reads the file, or a pipe. ERR_USAGE: the text is not a model; the error names its line. */
int model_file_open(struct model_file **out, const char *path);
/* The same of a text in memory; `path` is what errors call it. */
int model_file_parse(struct model_file **out, const char *path, const char *text, size_t bytes);
void model_file_free(struct model_file *file); /* NULL is fine */

/* The file behind a model, or NULL where there is none. */
const struct model_file *model_file_of(const struct duet_model *model);

/* The model's name: that of the file without folders; if it has none, as /dev/fd/63, `unnamed`. */
static inline void model_file_name(const char *path, const char *unnamed, char name[64]) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    int has_none = !strncmp(path, "/dev/", 5) || !strncmp(path, "/proc/", 6);
    snprintf(name, 64, "%s", has_none || !*base ? unnamed : base);
}

#endif
