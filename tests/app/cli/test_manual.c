/* Tests duet manual: every subcommand and flag is in the man page and in the completion, the page
 * is valid roff, and bash completes words as a user expects. */
#include "cli/commands.h"
#include "cli/options/run_options.h"
#include "cli/run/run.h"
#include "tests/app/cli/run.h"

static void expect_flag(const char *page, const char *name) {
    char line[128], *at = line;
    at += sprintf(at, ".TP\n\\fB");
    for (const char *letter = name; *letter; letter++)
        at += sprintf(at, *letter == '-' ? "\\-" : "%c", *letter);
    sprintf(at, "\\fR");
    cr_expect(strstr(page, line), "%s", name);
}

CliTest(cli_manual, the_page_has_every_command_and_flag, 60) {
    struct cli c;
    cli_run(&c, "manual man");
    cr_assert(c.status == 0 && !*c.err, "%s", c.err);
    cr_assert(!strncmp(c.out, ".TH \"duet\" 1 ", 13), "%.40s", c.out);
    for (const struct command_row *row = command_rows; row->name; row++) {
        char line[64];
        snprintf(line, sizeof line, ".TP\n\\fB%s\\fR\n", row->name);
        cr_expect(strstr(c.out, line), "%s", row->name);
    }
    for (const struct option *option = run_options; option->help; option++)
        if (option->name) expect_flag(c.out, option->name);
    const char *of_run = strstr(c.out, ".SH OPTIONS OF duet RUN\n");
    cr_assert_not_null(of_run);
    for (const struct option *option = launch_options; option->name; option++)
        if (*option->help) expect_flag(of_run, option->name);
    cli_free(&c);
}

static void expect_shell(const char *line) {
    char all[8192];
    snprintf(all, sizeof all, "PATH=$(dirname %s):$PATH; %s", cli_program, line);
    cr_expect_eq(system(all), 0, "%s", line);
}

CliTest(cli_manual, the_page_is_good_roff, 60) {
    if (system("command -v groff >/dev/null")) cr_skip_test("no groff here");
    expect_shell("test -z \"$(duet manual man | groff -man -Tascii -ww 2>&1 >/dev/null)\"");
    expect_shell(
        "duet manual man | groff -man -Tascii | grep -Eq 'train: +on +one +device, +as +Data'");
}

CliTest(cli_manual, bash_completes, 60) {
    if (system("command -v bash >/dev/null")) cr_skip_test("no bash here");
    static const char *const cases[][2] = {
        {"duet sca", "scale"},
        {"duet train --mode d", "dp ddp"},
        {"duet train --model gold", "golden"}, /* a file */
        {"duet train --devi", "--device --devices --device-memory"},
        {"duet train --epochs 1", ""},
        {"duet run --master", "--master-port --master-addr"},
        {"duet run --tee 1", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[512];
        snprintf(
            line, sizeof line,
            "bash -c 'eval \"$(duet manual bash)\"; COMP_WORDS=(%s); "
            "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _duet; "
            "got=\"${COMPREPLY[*]}\"; [[ $got == \"%s\" ]] || { echo \"got: $got\"; exit 1; }'",
            cases[i][0], cases[i][1]);
        expect_shell(line);
    }
}
