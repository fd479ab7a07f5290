/* models/sequential: whatever is read as print(model) is a model that can be made for some samples,
 * or is refused with a text; its layers lie in lines of the input. */
#include "models/model.h"
#include "models/sequential/sequential.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sequential *s;
    struct model model;
    int code = sequential_parse(&s, "input", (const char *)data, size);
    if (code) {
        MUST(!s);
        check_error(code);
        return 0;
    }
    MUST(s->count > 0 && sequential_of(&s->model) == s);
    for (int i = 0; i < s->count; i++)
        MUST(s->items[i].line > 0 && (size_t)s->items[i].line <= size && *s->items[i].name);
    struct model_options options = {.dropout = -1, .classes = 1, .own = &s->model};
    code = model_open(&model, s->name, &options);
    if (code) check_error(code);
    model_free(&model);
    sequential_free(s);
    return 0;
}
