/* base/files/safetensors: every tensor of an accepted file is inside the file and can be read. */
#include "base/files/safetensors.h"
#include "tests/fuzz/fuzz.h"

/* A tensor of another shape, type or name than the model's is refused. */
static void ask_for_another(const struct safetensors *s, const struct safetensors_entry *e) {
    int64_t shape[SAFETENSORS_DIMS + 1] = {7};
    float value;
    int code = safetensors_read(s, "F32", e->name, e->dims + 1, shape, &value);
    MUST(code);
    check_error(code);
    code = safetensors_read(s, "F32", "no such tensor", 0, shape, &value);
    if (code) check_error(code);
}

static void read_entry(const struct safetensors *s, const struct safetensors_entry *e,
                       size_t size) {
    MUST(e->name && e->dtype && e->dims >= 0 && e->dims <= SAFETENSORS_DIMS);
    MUST(e->offset <= size && e->bytes <= size - e->offset);
    uint64_t count = 1;
    for (int d = 0; d < e->dims; d++) {
        MUST(e->shape[d] >= 0);
        count *= (uint64_t)e->shape[d];
    }
    MUST(count == e->count);
    ask_for_another(s, e);
    int half = !strcmp(e->dtype, "F16") || !strcmp(e->dtype, "BF16");
    if (strcmp(e->dtype, "F32") && !half) return;
    MUST(e->bytes == e->count * (half ? 2 : sizeof(float)));
    float *values = malloc(e->count * sizeof(float) + 1);
    MUST(values);
    MUST(safetensors_read(s, "F32", e->name, e->dims, e->shape, values) == OK);
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    int fd = as_file(data, size, path);
    struct safetensors s = {0};
    int code = safetensors_open(&s, path);
    if (code) {
        check_error(code);
    } else {
        for (int i = 0; i < s.count; i++)
            read_entry(&s, &s.entries[i], size);
        safetensors_close(&s);
    }
    close(fd);
    return 0;
}
