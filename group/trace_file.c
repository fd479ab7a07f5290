/* The files of DUET_TRACE: see trace_file.h. */
#include "group/trace_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/atomic_file.h"
#include "base/error.h"
#include "base/program_name.h"

enum { MOST_ITEMS = 1 << 20 }; /* some 50 MiB */

char *trace_file_path(const char *group, int rank) {
    const char *file = getenv("DUET_TRACE");
    if (!file || !*file) return NULL;
    size_t bytes = strlen(file) + strlen(group) + 16;
    char *path = malloc(bytes);
    if (path) snprintf(path, bytes, "%s.%s.%d", file, group, rank);
    return path;
}

void *trace_file_room(void *items, size_t *room, size_t count, size_t bytes) {
    size_t more = *room ? 2 * *room : 1024;
    if (count < *room) return items;
    void *grown = more <= MOST_ITEMS ? realloc(items, more * bytes) : NULL;
    if (grown) *room = more;
    return grown;
}

static int write_file(const char *path, void (*members)(struct json_writer *w, void *of),
                      void *of) {
    struct atomic_file file = {0};
    struct json_writer w;
    CHECK(atomic_open(&file, path));
    json_start(&w, file.file);
    json_object(&w, NULL);
    members(&w, of);
    json_close(&w);
    int code = json_finish(&w, path);
    if (!code) code = atomic_commit(&file);
    atomic_abandon(&file);
    return code;
}

void trace_file_write(const char *path, int rank, void (*members)(struct json_writer *w, void *of),
                      void *of) {
    struct failures job = {.code = OK}; /* a group that is left may have failed */
    failures_add(&job, ERR_FAILED);
    if (write_file(path, members, of))
        fprintf(stderr, "%s: warning: DUET_TRACE: rank %d: %s\n", program_name(), rank,
                error_message());
    failures_end(&job); /* its message is the last one again */
}
