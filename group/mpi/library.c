/* See library.h. */
#include "group/mpi/library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"

#if !defined(OPEN_MPI)
#error "mk/mpi.mk looks for Open MPI"
#endif

static const char LIBRARY[] = "libmpi.so.40"; /* the same in Open MPI 3, 4 and 5 */

#define FUNCTION(name) {"MPI_" #name, offsetof(struct mpi, name)},
#define OBJECT(type, name, symbol) {symbol, offsetof(struct mpi, name)},
static const struct {
    const char *symbol;
    size_t offset;
} symbols[] = {MPI_FUNCTIONS(FUNCTION) MPI_OBJECTS(OBJECT)};

int mpi_load(struct mpi *mpi) {
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL); /* its plug-ins need its symbols */
    if (!library)
        return fail(ERR_USAGE, "MPI: %s: install libopenmpi3, or the Open MPI of this machine",
                    dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        /* in a program that is linked with MPI, these objects are the program's copies */
        void *symbol = dlsym(RTLD_DEFAULT, symbols[i].symbol);
        if (!symbol)
            return fail(ERR_USAGE, "MPI: %s has no %s: install Open MPI 4 or 5", LIBRARY,
                        symbols[i].symbol);
        memcpy((char *)mpi + symbols[i].offset, &symbol, sizeof symbol);
    }
    return OK;
}
