/* Opens the file that --model names, and finds its weights file. */
#include "models/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/system_error.h"
#include "base/files/file_kind.h"
#include "models/graph/graph.h"

enum { FIRST_ROOM = 1 << 16, MOST_BYTES = 64 << 20 };

static int read_all(struct model_file *f, int fd) {
    size_t room = 0;
    for (ssize_t n = 1; n;) {
        if (f->bytes == room) {
            room = room ? 2 * room : FIRST_ROOM;
            char *larger = realloc(f->text, room + 1);
            if (!larger) return fail(ERR_MEMORY, "%s: out of host memory", f->path);
            f->text = larger;
        }
        n = read(fd, f->text + f->bytes, room - f->bytes);
        if (n < 0 && errno != EINTR) return fail_system(errno, "%s: cannot be read", f->path);
        if (n > 0) f->bytes += (size_t)n;
        if (f->bytes > MOST_BYTES)
            return fail(ERR_USAGE,
                        "%.200s: more than %d bytes: give the file that duet.export wrote", f->path,
                        MOST_BYTES);
        if (n < 0) n = 1;
    }
    f->text[f->bytes] = 0;
    return OK;
}

/* net.duet -> net.safetensors */
static char *weights_of(const char *path) {
    size_t length = strlen(path);
    char *weights = malloc(length + sizeof ".safetensors");
    if (length > 5 && !strcmp(path + length - 5, ".duet")) length -= 5;
    if (weights) sprintf(weights, "%.*s.safetensors", (int)length, path);
    return weights;
}

static int start(struct model_file **out, const char *path) {
    struct model_file *f = *out = calloc(1, sizeof *f);
    if (f) f->path = strdup(path);
    if (f) f->weights = weights_of(path);
    return f && f->path && f->weights ? OK : fail(ERR_MEMORY, "%s: out of host memory", path);
}

static int understand(struct model_file *f) {
    char text[FILE_KIND_TEXT];
    const char *kind = file_kind(f->text, f->bytes, f->path, text);
    if (kind && strncmp(f->text, "duet", 4))
        return fail(ERR_USAGE, "--model: %.200s: not from duet.export: it is %s", f->path, kind);
    CHECK(graph_parse(&f->graph, f->path, f->text, f->bytes));
    f->graph->file = f;
    f->model = &f->graph->model;
    return OK;
}

static int finish(struct model_file **out, int code) {
    if (!code) code = understand(*out);
    if (!code) return OK;
    model_file_free(*out);
    *out = NULL;
    return code;
}

int model_file_open(struct model_file **out, const char *path) {
    int code = start(out, path);
    if (code) return finish(out, code);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    code = fd < 0 ? fail_system(errno, "--model: %s", path) : read_all(*out, fd);
    if (fd >= 0) close(fd);
    return finish(out, code);
}

int model_file_parse(struct model_file **out, const char *path, const char *text, size_t bytes) {
    int code = start(out, path);
    if (code) return finish(out, code);
    struct model_file *f = *out;
    f->text = malloc(bytes + 1);
    if (!f->text) return finish(out, fail(ERR_MEMORY, "%s: out of host memory", path));
    memcpy(f->text, text, bytes);
    f->text[bytes] = 0;
    f->bytes = bytes;
    return finish(out, OK);
}

void model_file_free(struct model_file *f) {
    if (!f) return;
    graph_free(f->graph);
    free(f->path);
    free(f->text);
    free(f->weights);
    free(f);
}

const struct model_file *model_file_of(const struct duet_model *model) {
    const struct graph *g = graph_of(model);
    return g ? g->file : NULL;
}
