/* What the tests of PTX share: that every kernel of the library has run from it. */
#ifndef TESTS_CUDA_PTX_RAN_H
#define TESTS_CUDA_PTX_RAN_H

#include "tests/harness/harness.h"

#include "tests/stand_ins/ptx/library.h"

static inline int is_product(const char *name) {
    return !strncmp(name, "product", 7) || !strncmp(name, "matmul", 6) ||
           !strncmp(name, "add_splits", 10);
}

/* Of the kernels of products (1), or of all others (0). Returns how many there are. */
static inline int expect_all_ran(int products, int (*ran)(const char *name)) {
    struct ptx_library library;
    struct ptx_error error = {""};
    char name[200];
    int all = 0;
    cr_assert(ptx_library_open(&library, PTX_FOLDER, &error), "%s", error.text);
    for (int i = 0; i < library.file_count; i++)
        for (int k = 0; k < library.files[i].function_count; k++) {
            ptx_readable(library.files[i].functions[k].name, name, sizeof name);
            if (!library.files[i].functions[k].is_kernel || is_product(name) != products) continue;
            cr_expect(ran(name), "kernel %s did not run from PTX", name);
            all++;
        }
    ptx_library_close(&library);
    return all;
}

#endif
