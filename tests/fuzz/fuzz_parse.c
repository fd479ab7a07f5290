/* base/text/parse: a number that is accepted lies in its range; one that is refused changes
 * nothing. */
#include "base/text/parse.h"
#include "tests/fuzz/fuzz.h"

enum { LIST = 5 };

static void parse_numbers(const char *text) {
    int64_t integer = -77;
    int code = parse_int("--flag", text, -1000, 1000000, &integer);
    MUST(code ? integer == -77 : integer >= -1000 && integer <= 1000000);
    if (code) check_error(code);

    double number = -77;
    code = parse_number("--flag", text, -1, 1e9, &number);
    MUST(code ? number == -77 : number >= -1 && number <= 1e9);
    if (code) check_error(code);

    uint64_t seed = 77;
    code = parse_seed("--flag", text, &seed);
    if (code) check_error(code);
    if (code) MUST(seed == 77);
}

static void parse_sizes(const char *text) {
    const uint64_t lowest = 4096, highest = (uint64_t)1 << 40;
    uint64_t bytes = 77;
    int code = parse_size("--flag", text, lowest, highest, &bytes);
    MUST(code ? bytes == 77 : bytes >= lowest && bytes <= highest);
    if (code) check_error(code);
    code = parse_size("--flag", text, 0, UINT64_MAX, &bytes);
    if (code) check_error(code);
}

static void parse_lists(const char *text) {
    int64_t values[LIST];
    int count = 0;
    int code = parse_int_list("--flag", text, 1, 4096, values, LIST, &count);
    if (code) {
        check_error(code);
        return;
    }
    MUST(count >= 1 && count <= LIST);
    for (int i = 0; i < count; i++)
        MUST(values[i] >= 1 && values[i] <= 4096);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = as_text(data, size);
    parse_numbers(text);
    parse_sizes(text);
    parse_lists(text);
    free(text);
    return 0;
}
