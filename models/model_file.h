/* A model from the file that --model names: a graph (models/graph/graph.h). It is a struct
 * duet_model, as all models are. */
#ifndef MODELS_MODEL_FILE_H
#define MODELS_MODEL_FILE_H

#include <stdio.h>
#include <string.h>

#include "duet.h"

struct graph;

struct model_file {
    char *path;    /* as the user gave it; owned */
    char *text;    /* the whole file, ended by a zero byte; owned */
    char *weights; /* the path of its tensors, NET.safetensors; owned */
    size_t bytes;
    struct graph *graph;            /* owned */
    const struct duet_model *model; /* the model of that graph */
};

/* Reads the file, or a pipe. ERR_USAGE: it is not a model; the error names the line. */
int model_file_open(struct model_file **out, const char *path);
/* The same for a string in memory; errors call it `path`. */
int model_file_parse(struct model_file **out, const char *path, const char *text, size_t bytes);
void model_file_free(struct model_file *file); /* NULL is fine */

/* The file that a model was read from, or NULL if it has none. */
const struct model_file *model_file_of(const struct duet_model *model);

/* The model's name: the file's name without folders, or `unnamed` for a path such as /dev/fd/63. */
static inline void model_file_name(const char *path, const char *unnamed, char name[64]) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    int has_none = !strncmp(path, "/dev/", 5) || !strncmp(path, "/proc/", 6);
    snprintf(name, 64, "%s", has_none || !*base ? unnamed : base);
}

#endif
