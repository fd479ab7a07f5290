/* trace/record: the run record that a rank sends to the launcher, as JSON. A record that is
 * accepted is written again, and that text is accepted too. */
#include "base/text/json.h"
#include "tests/fuzz/fuzz.h"
#include "trace/record.h"

static int read_text(const char *text, size_t bytes, struct run_record *record) {
    struct json *root = NULL;
    int code = json_parse("record", text, bytes, &root);
    if (!code) code = record_read(record, root);
    json_free(root);
    return code;
}

static char *write_text(const struct run_record *record, size_t *bytes) {
    char *text = NULL;
    struct json_writer w;
    FILE *file = open_memstream(&text, bytes);
    MUST(file);
    json_start(&w, file);
    record_write(record, &w, NULL, 1);
    MUST(json_finish(&w, "record") == OK);
    fclose(file);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct run_record record = {0}, again = {0};
    int code = read_text((const char *)data, size, &record);
    if (code) {
        check_error(code);
        record_free(&record);
        return 0;
    }
    size_t bytes = 0;
    char *text = write_text(&record, &bytes);
    MUST(read_text(text, bytes, &again) == OK);
    MUST(again.steps == record.steps && again.parameter_count == record.parameter_count);
    free(text);
    record_free(&again);
    record_free(&record);
    return 0;
}
