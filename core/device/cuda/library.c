/* Finds a shared library and its functions. A library whose major version differs from its header's
 * has another ABI, so the file name contains the version. A file that the user names may have any
 * version, so the caller asks the library itself. */
#include "device/cuda/library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* NODELETE: it is never unloaded. LOCAL: no other library finds its functions by accident. */
static void *load(const char *file) {
    return *file ? dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) : NULL;
}

/* The file exists but does not load: it is not a library, or another library that it needs is
 * missing. */
static int not_loaded(const struct library_source *p) {
    return fail(ERR_USAGE, "%s: %s: set %s to the library's file, or %s", p->title, dlerror(),
                p->variable, p->instead);
}

static int find_library(const struct library_source *p, void **library) {
    const char *given = getenv(p->variable);
    if (given && *given) {
        *library = load(given);
        return *library ? OK : not_loaded(p);
    }
    *library = load(p->file);
    if (!*library && *p->file && access(p->file, F_OK) == 0) return not_loaded(p);
    if (!*library) *library = load(p->name);
    if (*library) return OK;
    return fail(
        ERR_USAGE,
        "%s: not found: looked for %s%s%s in the system's folders: set %s to its file, or %s",
        p->title, p->file, *p->file ? " and for " : "", p->name, p->variable, p->instead);
}

static int find_functions(const struct library_source *p, void *library,
                          const struct library_function *functions, int count, void *table) {
    for (int i = 0; i < count; i++) {
        void *function = dlsym(library, functions[i].name);
        if (!function)
            return fail(ERR_USAGE,
                        "%s: the library found has no %s: install the version that this program "
                        "was built with (%s), or %s",
                        p->title, functions[i].name, p->name, p->instead);
        memcpy((char *)table + functions[i].offset, &function, sizeof function);
    }
    return OK;
}

int library_load(const struct library_source *source, const struct library_function *functions,
                 int count, void *table) {
    void *library;
    CHECK(find_library(source, &library));
    int code = find_functions(source, library, functions, count, table);
    dlclose(library); /* ends only this use; NODELETE keeps the library loaded */
    return code;
}
