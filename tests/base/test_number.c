/* Numbers in files have a decimal point also where the program that uses the library has set a
 * locale with a comma. The test makes such a locale for itself. */
#include <locale.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/json.h"
#include "base/number.h"
#include "base/parse.h"
#include "tests/harness/harness.h"

static const char SOURCE[] = "comment_char %\nescape_char /\nLC_NUMERIC\n"
                             "decimal_point \"<U002C>\"\nthousands_sep \"\"\ngrouping -1\n"
                             "END LC_NUMERIC\n";

/* Makes the locale in a new folder and sets it for this process. */
static void set_comma(void) {
    char folder[] = "/tmp/duet-locale-XXXXXX", source[64], command[256], text[16];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(source, sizeof source, "%s/source", folder);
    FILE *file = fopen(source, "w");
    fputs(SOURCE, file);
    fclose(file);
    snprintf(command, sizeof command, "localedef -c -i %s -f ANSI_X3.4-1968 %s/comma >%s/log 2>&1",
             source, folder, folder);
    if (system(command)) unlink(source); /* it warns of what is missing: setlocale decides */
    setenv("LOCPATH", folder, 1);
    int set = setlocale(LC_ALL, "comma") != NULL;
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
    if (!set) cr_skip_test("no localedef here that makes a locale");
    snprintf(text, sizeof text, "%g", 0.5);
    cr_assert_str_eq(text, "0,5", "the locale has no comma");
}

Test(number, a_comma_stays_out_of_files, .timeout = 30) {
    char *text = NULL;
    size_t bytes;
    double number = 0;
    uint64_t size = 0;
    struct json_writer w;
    struct json *root = NULL;
    set_comma();
    FILE *file = open_memstream(&text, &bytes);
    json_start(&w, file);
    json_object(&w, NULL);
    json_number(&w, "x", 0.25);
    json_close(&w);
    cr_assert_eq(json_finish(&w, "test"), OK);
    fclose(file);
    cr_expect_not_null(strstr(text, "0.25"), "%s", text);
    cr_assert_eq(json_parse("test", text, bytes, &root), OK);
    cr_expect_eq(json_find(root, "x")->number, 0.25);
    cr_expect_eq(parse_number("x", "1.5", 0, 2, &number), OK);
    cr_expect_eq(number, 1.5);
    cr_expect_eq(parse_size("x", "1.5K", 0, 4096, &size), OK);
    cr_expect_eq(size, 1536);
    json_free(root);
    free(text);
}
