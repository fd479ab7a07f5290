/* duet manual prints the man page and the bash completion. They are made from the tables of
 * subcommands and of options, like --help. `make install` installs both. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/program_name.h"
#include "cli/commands.h"
#include "cli/options/help.h"
#include "cli/options/run_options.h"
#include "cli/run/run.h"

/* ---- the man page ---- */

/* In roff a backslash begins an escape, a dash may become a hyphen, and a dot or a quote at the
 * start of a line begins a request. */
static void roff(const char *text) {
    if (*text == '.' || *text == '\'') printf("\\&");
    for (; *text; text++) {
        if (*text == '\\')
            printf("\\e");
        else if (*text == '-')
            printf("\\-");
        else
            putchar(*text);
    }
}

static void paragraph(const char *tag, const char *value, const char *help) {
    printf(".TP\n\\fB");
    roff(tag);
    printf("\\fR");
    if (value) {
        printf(" \\fI");
        roff(value);
        printf("\\fR");
    }
    printf("\n");
    roff(help);
    printf("\n");
}

static const struct {
    const char *status, *meaning;
} statuses[] = {{"0", "done"},
                {"1", "failed at run time"},
                {"2", "wrong usage"},
                {"3", "a check of the result failed"},
                {"128+n", "ended by signal n"}};
enum { STATUSES = sizeof statuses / sizeof *statuses };

static void man_page(void) {
    const char *name = program_name();
    printf(".TH \"%s\" 1 \"\" \"Duet %s\" \"User Commands\"\n.SH NAME\n%s \\- ", name, DUET_VERSION,
           name);
    roff("one model, two ways to train it on several devices: DataParallel and "
         "DistributedDataParallel");
    printf("\n.SH SYNOPSIS\n.B %s\n.I COMMAND\n[\\fIoptions\\fR]\n.SH COMMANDS\n", name);
    for (const struct command_row *row = command_rows; row->name; row++)
        paragraph(row->name, NULL, row->help);
    printf(".PP\n");
    roff("train, compare, profile, demo, scale and estimate take the options below. An option that "
         "would have no effect is refused. The options of the other commands are in");
    printf("\n.BI \"%s \" COMMAND \" \\-\\-help\" .\n.SH OPTIONS\n", name);
    roff("As --option value or --option=value; _ works as -.");
    printf("\n");
    for (const struct option *option = run_options; option->help; option++) {
        if (option->name)
            paragraph(option->name, option->value, option->help);
        else {
            printf(".SS ");
            roff(option->help);
            printf("\n");
        }
    }
    printf(".SH OPTIONS OF %s RUN\n", name);
    for (const struct option *option = launch_options; option->name; option++)
        if (*option->help) paragraph(option->name, option->value, option->help);
    printf("\n.SH EXIT STATUS\n");
    for (int i = 0; i < STATUSES; i++)
        paragraph(statuses[i].status, NULL, statuses[i].meaning);
}

/* ---- completion ---- */

/* Prints the words of a value such as "single|dp|ddp" and returns 1. Prints nothing and returns 0
 * if the value is not one of a few words. */
static int print_choices(const struct option *option) {
    const char *value = option->value;
    if (!strchr(value, '|')) return 0;
    printf("    %s) words=\"", option->name);
    for (; *value; value++) {
        if (strspn(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")) { /* V stands for a number, not a word */
            value += strcspn(value, "|");
            if (!*value) break;
        }
        putchar(*value == '|' ? ' ' : *value);
    }
    printf("\" ;;\n");
    return 1;
}

/* After `run` come its own options; anything else is a program, or an argument for it. */
static void complete_run(void) {
    printf("    case $before in\n    ");
    for (const struct option *option = launch_options; option->name; option++)
        if (option->value) printf("%s|", option->name);
    printf("-) return ;;\n    *) words=\"--help ");
    for (const struct option *option = launch_options; option->name; option++)
        printf("%s ", option->name);
    printf("\" ;;\n    esac\n"
           "    [[ $word == -* ]] || {\n"
           "      COMPREPLY=($(compgen -f -c -- \"$word\")); return\n    }\n");
}

static void bash_completion(void) {
    const char *name = program_name();
    printf("# Completion of bash for %s, made by `%s manual bash`.\n_%s() {\n"
           "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
           "  COMPREPLY=()\n"
           "  if ((COMP_CWORD == 1)); then\n    words=\"",
           name, name, name);
    for (const struct command_row *row = command_rows; row->name; row++)
        printf("%s ", row->name);
    printf("\"\n  elif [[ ${COMP_WORDS[1]} == run ]]; then\n");
    complete_run();
    printf("  else\n    case $before in\n");
    for (const struct option *option = run_options; option->help; option++) {
        if (!option->name || !option->value) continue;
        if (strstr(option->value, "FILE") || strstr(option->value, "DIR"))
            printf("    %s) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", option->name);
        else if (!print_choices(option))
            printf("    %s) return ;;\n", option->name);
    }
    printf("    *) words=\"--help ");
    for (const struct option *option = run_options; option->help; option++)
        if (option->name) printf("%s ", option->name);
    printf("\" ;;\n    esac\n  fi\n"
           "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\ncomplete -F _%s %s\n",
           name, name);
}

int command_manual(int argc, char **argv, const struct duet_model *own) {
    (void)own;
    const char *word = argc ? argv[0] : "--help";
    if (argc > 1)
        return report_error(fail(ERR_USAGE, "manual: %s: expected one word, man or bash", argv[1]));
    if (!strcmp(word, "man"))
        man_page();
    else if (!strcmp(word, "bash"))
        bash_completion();
    else if (!strcmp(word, "--help") || !strcmp(word, "-h"))
        say_text("usage: duet manual man|bash\n\n"
                 "Prints the man page in roff, or the completion for bash, made from the same "
                 "tables as --help.\nTo read the page: duet manual man | man -l -\n");
    else
        return report_error(fail(ERR_USAGE, "manual: %s: expected man or bash", word));
    return 0;
}
