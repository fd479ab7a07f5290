/* Makes a locale with a decimal comma, like German's, for a test in a new folder. A program that
 * the test starts finds it through LOCPATH and LC_ALL, which are then in its environment:
 *
 *     comma_make();       skips the test where no localedef makes a locale
 *     ...
 *     comma_remove(); */
#ifndef TESTS_HARNESS_COMMA_H
#define TESTS_HARNESS_COMMA_H

#include <locale.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/harness/harness.h"

static char comma_folder[] = "/tmp/duet-locale-XXXXXX";

static inline void comma_remove(void) {
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", comma_folder);
    cr_assert_eq(system(command), 0);
}

/* The locale for this process. Returns 0 where there is none. */
static inline int comma_set(void) {
    char text[16];
    if (!setlocale(LC_ALL, "")) return 0;
    snprintf(text, sizeof text, "%g", 0.5);
    return !strcmp(text, "0,5");
}

static inline void comma_make(void) {
    static const char source_text[] = "comment_char %\nescape_char /\nLC_NUMERIC\n"
                                      "decimal_point \"<U002C>\"\nthousands_sep \"\"\n"
                                      "grouping -1\nEND LC_NUMERIC\n";
    char source[64], command[256];
    cr_assert_not_null(mkdtemp(comma_folder));
    snprintf(source, sizeof source, "%s/source", comma_folder);
    FILE *file = fopen(source, "w");
    fputs(source_text, file);
    fclose(file);
    snprintf(command, sizeof command, "localedef -c -i %s -f ANSI_X3.4-1968 %s/de_DE >%s/log 2>&1",
             source, comma_folder, comma_folder);
    if (system(command)) unlink(source); /* it warns of what is missing: comma_set decides */
    while (waitpid(-1, NULL, 0) > 0)     /* a test that adopts orphans gets one of localedef's */
        ;
    setenv("LOCPATH", comma_folder, 1);
    setenv("LC_ALL", "de_DE", 1);
    int made = comma_set();
    setlocale(LC_ALL, "C");
    if (made) return;
    comma_remove();
    cr_skip_test("no localedef here that makes a locale");
}

#endif
