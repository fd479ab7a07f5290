/* Finds NCCL and checks that its version can serve a job. */
#include "base/advice.h"
#include "allreduce/cuda/nccl_library.h"

#include <stdio.h>
#include <stdlib.h>

#define LIBRARY_TABLE struct nccl_table
static const struct library_function functions[] = {NCCL_FUNCTIONS(LIBRARY_ROW)};

enum { SHARES_GPUS_FROM = 23000 }; /* version 2.30 */

static const struct library_source source = {
    .title = "NCCL",
    .variable = "DUET_NCCL",
    .file = NCCL_FILE, /* defined in mk/cuda.mk */
    .name = "libnccl.so." LIBRARY_NUMBER(NCCL_MAJOR),
    .instead = ADVICE_AUTO,
};

int nccl_load(struct nccl_table *nccl, int *version) {
    CHECK(library_load(&source, functions, sizeof functions / sizeof *functions, nccl));
    *version = 0;
    nccl->ncclGetVersion(version);
    if (*version / 10000 == NCCL_MAJOR) return OK;
    return fail(ERR_USAGE,
                "%s: the library found is of version code %d: this program was built for %d.x: set "
                "%s to one of that version, or %s",
                source.title, *version, NCCL_MAJOR, source.variable, source.instead);
}

static const char *version_text(int version, char text[24]) {
    snprintf(text, 24, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return text;
}

void cuda_nccl_describe(char *text, size_t bytes) {
    struct nccl_table nccl;
    int version;
    char number[24];
    if (nccl_load(&nccl, &version))
        snprintf(text, bytes, "%s", error_message());
    else
        snprintf(text, bytes, "NCCL %s", version_text(version, number));
}

int cuda_nccl_check(const struct device *device, int a, int b) {
    struct nccl_table nccl;
    int version;
    char number[24];
    (void)device;
    CHECK(nccl_load(&nccl, &version));
    if (a < 0) return OK;
    if (version < SHARES_GPUS_FROM)
        return fail(ERR_USAGE,
                    "allreduce nccl: ranks %d and %d share a GPU, which NCCL %s refuses "
                    "(\"Duplicate GPU detected\"): give each rank a GPU, install NCCL 2.30 or "
                    "newer, or " ADVICE_AUTO,
                    a, b, version_text(version, number));
    /* NCCL reads the variable when the communicator is made. */
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    return OK;
}
