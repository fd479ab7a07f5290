/* No line of help and of estimates is wider than 80 columns where nothing says how wide the
 * terminal is. The other subcommands are watched in their own tests. */
#include "tests/app/cli/json.h"

static void expect_narrow(const char *words) {
    struct cli c;
    cli_run(&c, "%s", words);
    cr_expect(c.status == 0 && *c.out, "%s: status %d: %s", words, c.status, c.err);
    cr_expect(plain_lines(c.out), "%s: %s", words, c.out);
    cli_free(&c);
}

CliTest(cli_widths, no_line_is_wider_than_80, 120) {
    static const char *const lines[] = {
        "estimate --gpu v100 --machine nvlink-4 --model resnet18",
        "estimate --details --devices 8 --params 25.6M --shape 3x224x224 --classes 1000 "
        "--activations 90M --device-memory 4G"};
    static const char *const commands[] = {"demo",     "train",   "compare", "profile",
                                           "estimate", "scale",   "sampler", "collective",
                                           "run",      "devices", "doctor",  "manual"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        expect_narrow(lines[i]);
    expect_narrow("--help");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char words[64];
        snprintf(words, sizeof words, "%s --help", commands[i]);
        expect_narrow(words);
        snprintf(words, sizeof words, "%s --help --details", commands[i]);
        if (strcmp(commands[i], "manual") && strcmp(commands[i], "devices")) expect_narrow(words);
    }
}
