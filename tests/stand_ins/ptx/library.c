/* A folder of PTX files, and the names of its kernels. */
#include "tests/stand_ins/ptx/library.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct ptx_file *)a)->path, ((const struct ptx_file *)b)->path);
}

static int add(struct ptx_library *library, const char *name, struct ptx_error *error) {
    char path[600];
    struct ptx_file *files =
        realloc(library->files, (size_t)(library->file_count + 1) * sizeof *files);
    if (!files) return ptx_fail(error, "out of memory");
    library->files = files;
    snprintf(path, sizeof path, "%s/%s", library->folder, name);
    return ptx_file_open(&files[library->file_count], path, error) && ++library->file_count;
}

int ptx_library_open(struct ptx_library *library, const char *folder, struct ptx_error *error) {
    int fine = 1;
    *library = (struct ptx_library){.files = NULL};
    snprintf(library->folder, sizeof library->folder, "%s", folder);
    DIR *all = opendir(folder);
    if (!all) return ptx_fail(error, "%s: no such folder: make EMULATION=1 ptx", folder);
    for (struct dirent *entry; fine && (entry = readdir(all));) {
        size_t length = strlen(entry->d_name);
        if (length > 4 && !strcmp(entry->d_name + length - 4, ".ptx"))
            fine = add(library, entry->d_name, error);
    }
    closedir(all);
    if (fine && !library->file_count)
        fine = ptx_fail(error, "%s: no PTX in it: make EMULATION=1 ptx", folder);
    if (!fine) {
        ptx_library_close(library);
        return 0;
    }
    qsort(library->files, (size_t)library->file_count, sizeof *library->files, by_path);
    for (int i = 0; i < library->file_count; i++) /* which sorting has moved */
        for (int k = 0; k < library->files[i].function_count; k++)
            library->files[i].functions[k].file = &library->files[i];
    return 1;
}

void ptx_library_close(struct ptx_library *library) {
    for (int i = 0; i < library->file_count; i++)
        ptx_file_close(&library->files[i]);
    free(library->files);
    *library = (struct ptx_library){.files = NULL};
}

/* "_Z4fill11elementwise": a length and the name; templates: "ILi0ELi3EE", each Li-NUMBER-E. */
void ptx_readable(struct ptx_word mangled, char *name, size_t bytes) {
    const char *at = mangled.at, *end = mangled.at + mangled.length;
    size_t length = 0;
    snprintf(name, bytes, "%.*s", PTX_WORD(mangled));
    if (end - at < 3 || memcmp(at, "_Z", 2)) return;
    for (at += 2; at < end && *at >= '0' && *at <= '9'; at++)
        length = length * 10 + (size_t)(*at - '0');
    if (!length || length > (size_t)(end - at)) return;
    size_t used = (size_t)snprintf(name, bytes, "%.*s", (int)length, at);
    at += length;
    if (at == end || *at++ != 'I') return;
    for (char before = '<'; end - at > 2 && !memcmp(at, "Li", 2) && used + 8 < bytes;
         before = ',') {
        const char *from = at += 2;
        while (at < end && *at != 'E')
            at++;
        used +=
            (size_t)snprintf(name + used, bytes - used, "%c%.*s", before, (int)(at - from), from);
        at += at < end;
    }
    snprintf(name + used, bytes - used, ">");
}

const struct ptx_function *ptx_library_find(const struct ptx_library *library, const char *name) {
    char readable[200];
    for (int i = 0; i < library->file_count; i++)
        for (int k = 0; k < library->files[i].function_count; k++) {
            const struct ptx_function *f = &library->files[i].functions[k];
            if (!f->is_kernel) continue;
            ptx_readable(f->name, readable, sizeof readable);
            if (!strcmp(readable, name)) return f;
        }
    return NULL;
}
