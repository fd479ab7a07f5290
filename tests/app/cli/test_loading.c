/* Tests how batches reach the devices. Pinned or not, during the kernels or before them, the bits
 * are the same, and the record and the profile show the four stages. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"

CliTest(cli_loading, the_way_of_a_batch_changes_no_bit, 120) {
    static const char common[] =
        "--data-dir d --model mlp --batch-size 20 --epochs 2 --virtual-devices 2 --momentum 0.9";
    static const char *const ways[] = {"--mode single --workers 0",
                                       "--mode single --workers 3 --no-pin-memory",
                                       "--mode dp --no-pin-memory",
                                       "--mode dp --workers 2 --output-device 1",
                                       "--mode dp --loss-in-forward",
                                       "--mode ddp",
                                       "--mode ddp --no-pin-memory --workers 0"};
    put_data(103, 20);
    cli_well("train --mode single --no-pin-memory %s --quiet --log-loss a --save w", common);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        cli_well("train %s %s --quiet --log-loss b --save v --json j", ways[i], common);
        cr_expect(cli_same_file("a", "b") && cli_same_file("w", "v"), "%s: other bits", ways[i]);
        struct json *j = json_of("j");
        cr_expect_eq(json_at(j, "pinned_memory")->integer, !strstr(ways[i], "--no-pin"), "%s",
                     ways[i]);
        cr_expect(json_double(j, "data_seconds") > 0, "the disk stage is timed");
        json_free(j);
    }
}

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
    json_free(a);
    json_free(b);
}
