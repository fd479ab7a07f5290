/* Checks the names of parameters, buffers and layers. Files contain them, so they follow the rules
 * of file formats. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/plain.h"
#include "nn/params/params.h"

/* Leaves space for a prefix in files, as in "optimizer.exp_avg.fc1.weight". */
enum { LONGEST_NAME = 200 };

int name_check(const char *what, const char *name) {
    if (!name) return fail(ERR_USAGE, "%s: it has no name: give one", what);
    if (strlen(name) > LONGEST_NAME)
        return fail(ERR_USAGE, "%s: its name has %zu bytes: give at most %d", what, strlen(name),
                    LONGEST_NAME);
    if (!strcmp(name, "__metadata__") || !strncmp(name, "module.", 7))
        return fail(ERR_USAGE, "%s: '%.100s': files use %s for something else: give another name",
                    what, name, *name == '_' ? "__metadata__" : "the prefix module.");
    for (size_t left = strlen(name); left;) {
        int n = utf8_length((const unsigned char *)name, left);
        if (!n) return fail(ERR_USAGE, "%s: its name is not UTF-8: give another", what);
        name += n;
        left -= (size_t)n;
    }
    return OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int names_check_differ(const char *what, const struct param_spec *params, int param_count,
                       const struct buffer_spec *buffers, int buffer_count) {
    const int count = param_count + buffer_count;
    const char **sorted = malloc((size_t)count * sizeof *sorted + 1);
    if (!sorted) return fail(ERR_MEMORY, "%s: out of host memory for all %d", what, count);
    for (int i = 0; i < count; i++)
        sorted[i] = i < param_count ? params[i].name : buffers[i - param_count].name;
    qsort(sorted, (size_t)count, sizeof *sorted, by_name);
    int code = OK;
    for (int i = 1; i < count && !code; i++)
        if (!strcmp(sorted[i - 1], sorted[i]))
            code = fail(ERR_USAGE, "%s: two are named '%.100s': rename one", what, sorted[i]);
    free(sorted);
    return code;
}
