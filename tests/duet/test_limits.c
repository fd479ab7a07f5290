/* Names that no file can have; numbers at the ends of int are in test_misuse.c. Each is an error
 * and leaves the library usable. */
#include <unistd.h>

#include "tests/duet/shared.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* ---- names ---- */

Test(api_limits, names_that_no_file_can_have, .timeout = 30) {
    static const char *const bad[] = {"__metadata__", "module.fc.weight", "module.", "caf\xe9",
                                      "\xff",         "a\xed\xa0\x80"};
    static const char *const good[] = {"metadata", "my.module.x", "caf\xc3\xa9", "a\"b\\c\n", ""};
    static const float values[2] = {1, 2};
    char file[] = "/tmp/duet-api-XXXXXX";
    duet_device *device;
    duet_params *params;
    struct duet_param list[COUNT(good)];
    cr_assert_eq(close(mkstemp(file)), 0);
    MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    for (int i = 0; i < COUNT(good); i++)
        list[i] = (struct duet_param){good[i], 1, {2}, values};
    for (int i = 0; i < COUNT(bad); i++) {
        list[1].name = bad[i];
        MUST_FAIL(duet_params_create(&params, device, list, 2), DUET_USAGE, "parameter 1");
        cr_assert_null(params);
    }
    char longest[202];
    memset(longest, 'x', 201), longest[201] = 0;
    list[1].name = longest;
    MUST_FAIL(duet_params_create(&params, device, list, 2), DUET_USAGE, "201 bytes");
    list[1].name = good[0];
    MUST_FAIL(duet_params_create(&params, device, list, 2), DUET_USAGE, "'metadata'");
    list[1].name = good[1];
    MUST(duet_params_create(&params, device, list, COUNT(good)));
    MUST(duet_params_save(params, file)); /* names that are accepted can be saved and loaded */
    MUST(duet_params_load(params, file));
    duet_params_free(params);
    duet_devices_close(&device, 1);
    unlink(file);
}
