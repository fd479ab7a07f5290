/* data/torch_pickle: the pickle of a file of torch.save, beside storages of 24 and 8 bytes. Every
 * tensor that is accepted lies inside of one of them. Whole files are in fuzz_safetensors. */
#include "data/torch_file.h"
#include "tests/fuzz/fuzz.h"

enum { FIRST = 1000, FIRST_BYTES = 24, SECOND = 2000, SECOND_BYTES = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct torch_record records[] = {{(char[]){"data/0"}, FIRST, FIRST_BYTES},
                                     {(char[]){"data/1"}, SECOND, SECOND_BYTES}};
    const struct torch_archive archive = {.records = records, .count = 2};
    struct safetensors s = {.fd = -1, .path = strdup("fuzz")};
    MUST(s.path);
    int code = torch_pickle_read(&s, &archive, data, size);
    if (code) check_error(code);
    for (int i = 0; i < s.count && !code; i++) {
        const struct safetensors_entry *e = &s.entries[i];
        uint64_t count = 1, start = e->offset < SECOND ? FIRST : SECOND,
                 bytes = start == FIRST ? FIRST_BYTES : SECOND_BYTES;
        MUST(e->name && !strchr(e->name, '\n') && e->dtype && e->dims >= 0);
        for (int d = 0; d < e->dims; d++)
            count *= (uint64_t)e->shape[d];
        MUST(e->dims <= SAFETENSORS_DIMS && count == e->count && e->bytes <= bytes);
        MUST(e->offset >= start && e->offset + e->bytes <= start + bytes);
    }
    safetensors_close(&s);
    return 0;
}
