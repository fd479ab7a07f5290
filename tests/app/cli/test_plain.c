/* Checks that text from any source (the command line, file names, file contents) reaches the
 * terminal without control characters. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/run.h"

/* ESC, a direction override, a C1 control: the last two are UTF-8 that JSON takes as they are. */
#define RAW                  \
    "A\x1b[31mB\xe2\x80\xae" \
    "C\xc2\x9b"
#define SHOWN "A\\x1b[31mB\\u202eC\\u009b"

/* A net, whose parameter has a name without ESC, which ends a word there. */
static const char net[] = "duet 1\ninput %x: f32[N, 4]\n"
                          "parameter w\xe2\x80\xae: f32[3, 4]\nparameter b: f32[3]\n"
                          "%1: f32[N, 3] = linear(%x, w\xe2\x80\xae, b)\nreturn %1\n";

/* A file of weights whose JSON is `header`. */
static void put_safetensors(const char *path, const char *header) {
    FILE *file = fopen(path, "w");
    uint64_t length = strlen(header);
    char zeros[4] = {0};
    cr_assert_not_null(file);
    fwrite(&length, sizeof length, 1, file);
    fputs(header, file);
    fwrite(zeros, 1, sizeof zeros, file);
    cr_assert_eq(fclose(file), 0);
}

static void no_controls(const char *text, const char *words) {
    for (const char *c = text; *c; c++) {
        cr_expect((unsigned char)*c >= ' ' || *c == '\n', "byte %d: %s: %s", *c, words, text);
        cr_expect(strncmp(c, "\xe2\x80\xae", 3) && strncmp(c, "\xc2\x9b", 2), "%s: %s", words,
                  text);
    }
}

static const struct row {
    const char *words; /* %s: RAW */
    const char *shown; /* what is shown in its place */
} rows[] = {
    {"%s", SHOWN},
    {"train --%s 1", SHOWN},
    {"train --devices %s", SHOWN},
    {"train --model %s", SHOWN},
    {"train --model no/%s.duet", SHOWN},
    {"train --data-dir %s", SHOWN},
    {"train --dataset synthetic --save no/%s", SHOWN},
    {"train --resume %s", SHOWN},
    {"estimate --gpu %s", SHOWN},
    {"report %s", SHOWN},
    {"run %s", SHOWN},
    {"estimate --model %s.duet --dataset random --classes 3", SHOWN}, /* a heading on stdout */
    {"train --model %s.duet --dataset random --samples 8 --classes 3", SHOWN ".safetensors"},
    {"train --model bad.duet", "\\u202e"},
    {"report torn.json", "\\x1b"},
    {"report calls", "Group \\x1b[31m:"},
    {"report %s.json", "its spans take no time"},
    {"train --model net.duet --dataset random --samples 8 --classes 3", "\\u202e"},
};

CliTest(cli_plain, all_ways_in, 120) {
    cli_put(RAW ".duet", net);
    cli_put("net.duet", net);
    cli_put("bad.duet", "duet 1\ninput %x: f\xe2\x80\xae[N]\n");
    cli_put("calls", "{\"otherData\": {\"duet_calls\": 1, \"group\": \"\\u001b[31m\", \"rank\": 0, "
                     "\"ranks\": 1}, \"traceEvents\": []}");
    cli_put("torn.json", "{\"\\u001b[31m\": 1, \"\\u001b[31m\": 1}");
    cli_put(RAW ".json", "{\"otherData\": {\"duet_timeline\": 1, \"devices\": 1}, "
                         "\"traceEvents\": [{\"pid\": 0, \"name\": \"\\u001b[2J\", "
                         "\"ts\": 2, \"dur\": 0, \"args\": {\"waiting\": false}}]}");
    put_safetensors(
        "net.safetensors",
        "{\"\\u001b[31m\\u202e\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cli c;
        cli_run(&c, rows[i].words, RAW);
        no_controls(c.out, rows[i].words);
        no_controls(c.err, rows[i].words);
        cr_expect(strstr(c.out, rows[i].shown) || strstr(c.err, rows[i].shown), "%s: %s%s",
                  rows[i].words, c.out, c.err);
        cli_free(&c);
    }
}
