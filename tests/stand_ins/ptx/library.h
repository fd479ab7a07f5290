/* All kernels of a folder of PTX files, found by the name that C++ gives them. */
#ifndef TESTS_STAND_INS_PTX_LIBRARY_H
#define TESTS_STAND_INS_PTX_LIBRARY_H

#include "tests/stand_ins/ptx/program.h"

#define PTX_FOLDER "build/ptx" /* where make EMULATION=1 ptx leaves them, from the root */

struct ptx_library {
    char folder[300];
    struct ptx_file *files;
    int file_count;
};

/* Reads every file *.ptx of the folder. Returns 0 with an error, also if there is none. */
int ptx_library_open(struct ptx_library *library, const char *folder, struct ptx_error *error);
void ptx_library_close(struct ptx_library *library);

/* The kernel whose readable name is `name`; NULL: there is none. */
const struct ptx_function *ptx_library_find(const struct ptx_library *library, const char *name);

/* What C++ calls a kernel: "fill" of _Z4fill11elementwise, "product<0,3>" of
 * _Z7productILi0ELi3EEv7product. Any other name is left as it is. */
void ptx_readable(struct ptx_word mangled, char *name, size_t bytes);

#endif
