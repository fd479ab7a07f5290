/* data/idx, raw and gzipped: sizes are positive, and all promised bytes are there. */
#include "data/idx.h"
#include "tests/fuzz/fuzz.h"

static void check_elements(const struct idx *x) {
    size_t count = 1;
    for (int i = 0; i < x->dimensions; i++)
        count *= (size_t)x->size[i];
    unsigned sum = 0; /* reads every byte, so that AddressSanitizer checks their end */
    for (size_t i = 0; i < count; i++)
        sum += x->data[i];
    MUST(sum <= count * 255);
}

static void read_as(const char *path, int dimensions) {
    struct idx x = {0};
    int code = idx_open(&x, path, dimensions);
    if (!code) {
        MUST(x.dimensions == dimensions && !x.data);
        for (int i = 0; i < dimensions; i++)
            MUST(x.size[i] > 0);
        code = idx_load(&x);
    }
    if (code)
        check_error(code);
    else
        check_elements(&x);
    idx_free(&x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    int fd = as_file(data, size, path);
    read_as(path, 1);
    read_as(path, 3);
    close(fd);
    return 0;
}
