/* No line of any subcommand is wider than 80 columns where nothing says how wide the terminal is.
 * Those of demo, doctor and live are watched in their own tests. */
#include "tests/app/cli/json.h"

#define TINY "--dataset synthetic --samples 60 --batch-size 12 --steps 2 "

static void expect_narrow(const char *words) {
    struct cli c;
    cli_run(&c, "%s", words);
    cr_expect(c.status == 0 && *c.out, "%s: status %d: %s", words, c.status, c.err);
    cr_expect(plain_lines(c.out), "%s: %s", words, c.out);
    cli_free(&c);
}

CliTest(cli_widths, no_line_is_wider_than_80, 120) {
    static const char *const lines[] = {
        "train --mode ddp --devices 3 --epochs 2 " TINY,
        "train --mode dp --virtual-devices off --devices 3 " TINY,
        "compare --model mlp --devices 3 " TINY,
        "compare --virtual-devices off --devices 3 " TINY,
        "compare --devices 2 --virtual-devices 6 " TINY,
        "profile " TINY,
        "estimate --gpu v100 --machine nvlink-4 --model resnet18",
        "estimate --details --devices 8 --params 25.6M --shape 3x224x224 --classes 1000 "
        "--activations 90M --device-memory 4G",
        "scale --model lenet --devices 1,2 " TINY,
        "sampler --dataset-size 4 --world-size 2 --rank 0",
        "collective",
        "collective --ranks 8 --algorithm tree --full",
        "devices",
        "train --quiet --json a " TINY};
    static const char *const commands[] = {"demo",     "train",   "compare", "profile",
                                           "estimate", "scale",   "sampler", "collective",
                                           "run",      "devices", "doctor",  "manual"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(lines[i], "--quiet"))
            expect_narrow(lines[i]);
        else
            cli_well("%s", lines[i]);
    expect_narrow("--help");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char words[64];
        snprintf(words, sizeof words, "%s --help", commands[i]);
        expect_narrow(words);
        snprintf(words, sizeof words, "%s --help --details", commands[i]);
        if (strcmp(commands[i], "manual") && strcmp(commands[i], "devices")) expect_narrow(words);
    }
}
