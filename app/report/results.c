/* Files of JSON, read: see results.h. */
#include "report/results.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const struct json *member(const struct json *object, const char *path) {
    char key[64];
    while (object && *path) {
        size_t length = strcspn(path, "/");
        snprintf(key, sizeof key, "%.*s", (int)length, path);
        object = json_find(object, key);
        path += length + (path[length] == '/');
    }
    return object;
}

const char *results_text(const struct json *object, const char *path) {
    const struct json *item = member(object, path);
    return item && item->kind == JSON_STRING ? item->string : "";
}

/* A pipe has no size, so the text grows as it comes. */
int read_whole_file(const char *path, char **text, size_t *bytes) {
    FILE *file = fopen(path, "r");
    size_t capacity = 0, n = 0;
    int code = OK;
    if (!file) return fail_errno(ERR_FAILED, errno, "%s: cannot be read", path);
    do {
        *bytes += n;
        if (*bytes == capacity) {
            char *grown = realloc(*text, capacity = 2 * capacity + 65536);
            if (!grown) code = fail(ERR_MEMORY, "%s: no host memory", path);
            if (grown) *text = grown;
        }
    } while (!code && (n = fread(*text + *bytes, 1, capacity - *bytes, file)) > 0);
    if (!code && ferror(file)) code = fail_errno(ERR_FAILED, errno, "%s: cannot be read", path);
    fclose(file);
    return code;
}
