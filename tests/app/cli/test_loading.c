/* Tests that the record and the profile show the four stages in which a batch reaches a device.
 * (test_same_bits.c compares the bits of all of them.) */
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"

/* The bytes of a batch cross the link once, whenever they do. */
CliTest(cli_loading, the_profile_shows_the_stages, 120) {
    static const char line[] =
        "profile --details --data-dir d --model mlp --batch-size 20 --steps 5 --json %s %s";
    static const char *const runs[] = {"dp", "dp_loss_in_forward", "ddp"};
    put_data(103, 20);
    char *out = cli_output(line, "a", "--workers 0"), *text = unbroken(out);
    cr_expect(matches(text, "^data: loaded in [0-9.]+ s, once; ms per step: host [0-9.]+, "
                            "pinned [0-9.]+, device [0-9.]+ .[0-9.]+ of it while kernels run., "
                            "waiting [0-9.]+$"),
              "%s", out);
    cr_expect_not_null(strstr(out, "  (loader) "), "the wait is a phase: %s", out);
    free(text), free(out);
    cli_says(0, "not pinned", line, "b", "--no-pin-memory");
    struct json *a = json_of("a"), *b = json_of("b");
    for (int i = 0; i < 3; i++) {
        const struct json *x = json_at(a, "%s/per_device/0", runs[i]),
                          *y = json_at(b, "%s/per_device/0", runs[i]);
        cr_expect_eq(json_int(x, "bytes_in"), json_int(y, "bytes_in"), "%s", runs[i]);
        cr_expect(json_int(x, "loader_host_ns") > 0 && json_int(x, "loader_pinned_ns") > 0);
        cr_expect(json_int(x, "copy_ns") > 0, "%s: copies during the kernels", runs[i]);
        cr_expect_eq(json_int(y, "copy_ns"), 0, "%s: none of them where they block", runs[i]);
        cr_expect(json_int(x, "phase_ns/loader") > 0, "%s: the first batch was waited for",
                  runs[i]);
        /* one batch of five is copied before the kernels; without pinned memory, all are */
        cr_expect(json_int(x, "phase_ns/input") > 0 && json_int(y, "phase_ns/input") > 0);
    }
    cr_expect(json_at(a, "ddp/pinned_memory")->integer && json_double(a, "ddp/data_seconds") > 0);
    cr_expect(!json_at(b, "ddp/pinned_memory")->integer);
    json_free(a);
    json_free(b);
}
