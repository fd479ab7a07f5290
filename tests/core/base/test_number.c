/* Numbers in files have a decimal point even if the program that uses the library has set a locale
 * with a comma. */
#include <stdlib.h>

#include "base/error.h"
#include "base/text/json.h"
#include "base/text/number.h"
#include "base/text/parse.h"
#include "tests/harness/comma.h"
#include "tests/harness/harness.h"

Test(number, a_comma_stays_out_of_files, .timeout = 30) {
    char *text = NULL;
    size_t bytes;
    double number = 0;
    uint64_t size = 0;
    struct json_writer w;
    struct json *root = NULL;
    comma_make();
    cr_assert(comma_set());
    comma_remove();
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
