/* data/idx, raw and gzipped: no size is negative, and all promised bytes are there. */
#include "data/idx.h"
#include "tests/fuzz/fuzz.h"

static void read_as(const char *path, int dimensions) {
    struct idx x = {0};
    int code = idx_read(&x, path, dimensions);
    if (code) {
        check_error(code);
        MUST(!x.data);
        return;
    }
    size_t count = 1;
    MUST(x.dimensions == dimensions);
    for (int i = 0; i < dimensions; i++) {
        MUST(x.size[i] >= 0);
        count *= (size_t)x.size[i];
    }
    unsigned sum = 0; /* reads every byte: the address sanitizer knows where they end */
    for (size_t i = 0; i < count; i++)
        sum += x.data[i];
    MUST(sum <= count * 255);
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
